//! A server on a loopback port, and a client that sends exactly the bytes it is told to.

use highwater_http::{Front, HttpOptions, Listener, Service, Tls};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running server; it stops when dropped.
pub struct Server {
    pub address: SocketAddr,
    pub runtime: Runtime,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start<S: Service>(service: S) -> Self {
        Self::with(service, HttpOptions::default())
    }

    pub fn with<S: Service>(service: S, options: HttpOptions) -> Self {
        Self::behind(service, options, Front::default(), None)
    }

    /// A server whose listener has this front, and TLS or not.
    pub fn behind<S: Service>(service: S, options: HttpOptions, front: Front, tls: Option<Tls>) -> Self {
        Self::built(highwater_http::Server::new(service, options), front, tls)
    }

    /// A server that was built already.
    pub fn built<S: Service>(server: highwater_http::Server<S>, front: Front, tls: Option<Tls>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let listener = Listener { socket: listener, tls, front };
        let serving = runtime.spawn(async move {
            let until = async {
                stopped.await.ok();
            };
            let lanes = highwater_http::Lanes::start().expect("threads");
            server.over(lanes).serve(vec![listener], until).await.expect("a loopback listener is served");
        });
        Self { address, runtime, stop: Some(stop), serving: Some(serving) }
    }

    /// Opens a connection whose reads end after ten seconds.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        stream
    }

    /// Sends one request with a `Host`, and a `Content-Length` where there is a body; reads the answer.
    pub fn ask(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(&request(method, target, headers, body)).expect("the request is taken");
        Answer::read(&mut stream, method)
    }

    /// Stops the server and waits until every connection has ended.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop.send(()).ok();
        }
        if let Some(serving) = self.serving.take() {
            self.runtime.block_on(serving).expect("the server ends");
        }
    }
}

/// The bytes of a request.
pub fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {target} HTTP/1.1\r\n");
    let has = |name: &str| headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
    if !has("host") {
        head.push_str("Host: localhost:4437\r\n");
    }
    if !has("content-length") && !has("transfer-encoding") && (!body.is_empty() || method == "POST") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

/// An answer as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// Reads one answer; a connection that ends before it is whole is a failed test.
    pub fn read(stream: &mut TcpStream, method: &str) -> Self {
        Self::try_read(stream, method).expect("a whole answer")
    }

    /// Reads one answer, or says how the connection ended before it was whole.
    pub fn try_read(stream: &mut impl Read, method: &str) -> Result<Self, String> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(at) = find(&bytes, b"\r\n\r\n") {
                break at + 4;
            }
            let mut byte = [0];
            match stream.read(&mut byte) {
                Ok(0) => return Err("the connection ended in the head".to_owned()),
                Ok(_) => bytes.push(byte[0]),
                Err(error) => return Err(error.to_string()),
            }
        };
        let head = String::from_utf8_lossy(&bytes[..end - 4]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let status = status.ok_or("no status line")?;
        let headers =
            lines.filter_map(|line| line.split_once(": ")).map(|(n, v)| (n.to_ascii_lowercase(), v.to_owned()));
        let mut answer = Self { status, headers: headers.collect(), body: Vec::new() };
        let length = answer.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        if method != "HEAD" && !matches!(status, 100..=199 | 204 | 304) {
            answer.body = vec![0; length];
            stream.read_exact(&mut answer.body).map_err(|error| error.to_string())?;
        }
        Ok(answer)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The headers as the reference parsers take them.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
    }

    /// The code in the body of an error.
    pub fn code(&self) -> String {
        let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        body["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Status and code at once, for tables.
    pub fn told(&self) -> (u16, String) {
        (self.status, self.code())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// `Stream-Next-Offset` as a number.
    pub fn next(&self) -> u64 {
        self.header("stream-next-offset").and_then(|text| text.parse().ok()).expect("an offset")
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

//! A client that sends exactly what it is told to.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&self.body)))
    }

    /// The status and the error's name.
    pub fn refused(&self) -> (u16, String) {
        let body = self.json();
        assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
        (self.status, body["error"].as_str().unwrap_or_default().to_owned())
    }

    /// The answer of a request that must succeed.
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    stream.set_nodelay(true).expect("no delay");
    stream
}

/// Sends one request on a connection of its own and reads the answer to the end.
pub fn ask(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Answer {
    let mut stream = connect(address);
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head.push_str("host: pds.test\r\n");
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(body) = body {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).expect("the head is taken");
    // A server may refuse a body before it has all of it.
    let _sent = stream.write_all(body.unwrap_or_default());
    let mut bytes = Vec::new();
    let _ended = stream.read_to_end(&mut bytes);
    parse(&bytes, method == "HEAD")
}

fn parse(bytes: &[u8], bare: bool) -> Answer {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut body = bytes[end + 4..].to_vec();
    if !bare && headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked") {
        body = unchunk(&body);
    }
    Answer { status: status.expect("a status"), headers, body }
}

fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let line = bytes.windows(2).position(|two| two == b"\r\n").expect("a chunk's length");
        let length = usize::from_str_radix(&String::from_utf8_lossy(&bytes[..line]), 16).expect("a length");
        if length == 0 {
            return out;
        }
        bytes = &bytes[line + 2..];
        out.extend_from_slice(&bytes[..length]);
        bytes = &bytes[length + 2..];
    }
}

//! A server over real sockets, for tests: one stream, the key table of its producer, and faults on request.

use super::machine::tests::model::{CLUSTER, INCARNATION, Raw, Server};
use crate::batch::CONTENT_TYPE;
use highwater_base::Offset;
use highwater_client::{Outcome, Piece};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What happens to the next write.
pub(in crate::replicator) enum Fault {
    /// It is not taken, and this is the answer.
    Refuse(Raw),
    /// It is taken, and the connection breaks instead of an answer.
    Break,
    /// It is taken, and no answer comes for so long.
    Stall(Duration),
}

/// What the server holds and has seen.
#[derive(Default)]
pub(in crate::replicator) struct Served {
    pub(in crate::replicator) server: Server,
    pub(in crate::replicator) exists: bool,
    pub(in crate::replicator) faults: VecDeque<Fault>,
    /// Requests, as `METHOD query`.
    pub(in crate::replicator) requests: Vec<String>,
    /// The bearer token that is asked for, if one is.
    pub(in crate::replicator) token: Option<String>,
}

/// A running server; it ends with the process.
pub(in crate::replicator) struct TestServer {
    pub(in crate::replicator) url: String,
    served: Arc<Mutex<Served>>,
}

impl TestServer {
    pub(in crate::replicator) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/v1/stream/app", listener.local_addr().expect("an address"));
        let served: Arc<Mutex<Served>> = Arc::default();
        let shared = Arc::clone(&served);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                // A connection that breaks is the client's affair.
                thread::spawn(move || drop(serve(connection, &shared)));
            }
        });
        Self { url, served }
    }

    pub(in crate::replicator) fn lock(&self) -> MutexGuard<'_, Served> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Incoming {
    method: String,
    target: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Incoming {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    fn number(&self, name: &str) -> u64 {
        self.field(name).and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    fn query(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

fn receive(connection: &mut TcpStream) -> Option<Incoming> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if connection.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let fields: Vec<_> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut incoming = Incoming { method, target, fields, body: Vec::new() };
    let length = usize::try_from(incoming.number("content-length")).ok()?;
    incoming.body.resize(length, 0);
    connection.read_exact(&mut incoming.body).ok()?;
    Some(incoming)
}

fn serve(mut connection: TcpStream, served: &Mutex<Served>) -> std::io::Result<()> {
    while let Some(incoming) = receive(&mut connection) {
        let (answer, body, stall) = {
            let mut served = served.lock().unwrap_or_else(PoisonError::into_inner);
            let query = incoming.target.split_once('?').map_or("", |(_, query)| query);
            served.requests.push(format!("{} {query}", incoming.method).trim().to_owned());
            served.answer(&incoming)
        };
        match stall {
            Some(Duration::ZERO) => return connection.shutdown(std::net::Shutdown::Both),
            Some(stall) => thread::sleep(stall),
            None => {}
        }
        let mut text = format!("HTTP/1.1 {} x\r\n", answer.0);
        for (name, value) in &answer.1 {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let body = if body.is_empty() { answer.body() } else { body };
        if !matches!(answer.0, 204 | 304) {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        connection.write_all(text.as_bytes())?;
        if incoming.method != "HEAD" {
            connection.write_all(&body)?;
        }
    }
    Ok(())
}

impl Served {
    /// The answer, the bytes of a read, and how long it is held back (zero: for ever).
    fn answer(&mut self, incoming: &Incoming) -> (Raw, Vec<u8>, Option<Duration>) {
        let plain = |raw| (raw, Vec::new(), None);
        if let Some(token) = &self.token
            && incoming.field("authorization") != Some(&format!("Bearer {token}"))
        {
            return plain(Raw::plain(401, "INVALID_CREDENTIAL"));
        }
        match incoming.method.as_str() {
            "PUT" => {
                self.exists = true;
                plain(self.describe(Raw::plain(201, "")))
            }
            "HEAD" if self.exists => plain(self.describe(Raw::plain(200, ""))),
            _ if !self.exists => {
                let raw = Raw::plain(404, if incoming.method == "HEAD" { "" } else { "STREAM_NOT_FOUND" });
                plain(raw.with("ursula-protocol", 11).with("ursula-cluster-id", CLUSTER))
            }
            "POST" => self.post(incoming),
            _ => self.get(incoming),
        }
    }

    fn describe(&self, raw: Raw) -> Raw {
        raw.with("ursula-protocol", 11)
            .with("ursula-cluster-id", CLUSTER)
            .with("content-type", CONTENT_TYPE)
            .with("stream-incarnation", INCARNATION)
            .with("stream-next-offset", Offset(self.server.bytes.len() as u64))
            .with("stream-retained-offset", Offset(0))
            .with("ursula-max-request-bytes", 32 << 20)
    }

    fn post(&mut self, incoming: &Incoming) -> (Raw, Vec<u8>, Option<Duration>) {
        let fault = self.faults.pop_front();
        if let Some(Fault::Refuse(raw)) = fault {
            return (raw, Vec::new(), None);
        }
        let (epoch, seq) = (incoming.number("producer-epoch"), incoming.number("producer-seq"));
        let raw = self.server.append(epoch, seq, &incoming.body);
        match fault {
            Some(Fault::Break) => (raw, Vec::new(), Some(Duration::ZERO)),
            Some(Fault::Stall(stall)) => (raw, Vec::new(), Some(stall)),
            _ => (raw, Vec::new(), None),
        }
    }

    fn get(&mut self, incoming: &Incoming) -> (Raw, Vec<u8>, Option<Duration>) {
        let number = |name| incoming.query(name).and_then(|text| text.parse::<u64>().ok());
        let at = Offset(number("offset").unwrap_or(0));
        match self.server.read(at, number("max_bytes").unwrap_or(8 << 20)).outcome {
            Outcome::Done(Piece { body, next, up_to_date, .. }) => {
                let raw = Raw::plain(200, "").with("stream-next-offset", next).with("stream-incarnation", INCARNATION);
                let raw = if up_to_date { raw.with("stream-up-to-date", true) } else { raw };
                (raw, body.to_vec(), None)
            }
            _ => (Raw::plain(416, "OFFSET_OUT_OF_RANGE"), Vec::new(), None),
        }
    }
}

//! A server that is measured, whoever made it and however it was started.

use crate::process::Usage;
use crate::wire::Wire;
use anyhow::Result;
use std::net::SocketAddr;

/// How a server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Dialect {
    /// The Durable Streams Protocol.
    DurableStreams,
    /// S2's records, one of text in each append.
    S2,
}

/// A server that runs.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Where it listens.
    pub address: SocketAddr,
    /// How it is asked.
    pub dialect: Dialect,
    /// What its streams' paths begin with, such as `/v1/stream/bench`.
    pub prefix: String,
    /// Its process, if its memory and time are to be told.
    pub pid: Option<u32>,
}

impl Subject {
    /// A stream's path.
    pub fn path(&self, stream: &str) -> String {
        format!("{}/{stream}", self.prefix)
    }

    /// Creates streams named `{name}0` and so on, several at a time.
    pub async fn create(&self, name: &str, count: usize, content_type: &str) -> Result<()> {
        const AT_ONCE: usize = 64;
        let mut tasks = tokio::task::JoinSet::new();
        for lane in 0..AT_ONCE.min(count) {
            let (subject, name, content_type) = (self.clone(), name.to_owned(), content_type.to_owned());
            tasks.spawn(async move {
                let mut wire = Wire::connect(subject.address).await?;
                for number in (lane..count).step_by(AT_ONCE) {
                    wire.ask(&subject.create_request(&format!("{name}{number}"), &content_type)).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(())
    }

    /// The request that creates a stream.
    pub fn create_request(&self, stream: &str, content_type: &str) -> Vec<u8> {
        let path = self.path(stream);
        match self.dialect {
            Dialect::DurableStreams => request("PUT", &path, &format!("Content-Type: {content_type}\r\n"), b""),
            Dialect::S2 => request("PUT", &path, S2_HEADERS, b"{}"),
        }
    }

    /// An append of so many bytes, for [`Self::append_into`] to complete.
    pub fn append_template(&self, stream: &str, body: &[u8], content_type: &str) -> Template {
        let path = self.path(stream);
        match self.dialect {
            Dialect::DurableStreams => {
                let headers = format!("Content-Type: {content_type}\r\n");
                Template { head: head("POST", &path, &headers, body.len()), body: body.to_vec() }
            }
            Dialect::S2 => {
                let text = String::from_utf8_lossy(body);
                let body = format!("{{\"records\":[{{\"body\":\"{text}\"}}]}}").into_bytes();
                Template { head: head("POST", &format!("{path}/records"), S2_HEADERS, body.len()), body }
            }
        }
    }

    /// What its process has used, if it is known.
    pub fn usage(&self) -> Option<Usage> {
        self.pid.and_then(|pid| Usage::of(pid).ok())
    }
}

const S2_HEADERS: &str = "Content-Type: application/json\r\nS2-Basin: benchbasin\r\n";

/// A request without the empty line that ends its head.
#[derive(Debug, Clone)]
pub struct Template {
    head: String,
    body: Vec<u8>,
}

impl Template {
    /// Writes the request with further header lines into a buffer that is used again.
    pub fn write(&self, headers: std::fmt::Arguments<'_>, request: &mut Vec<u8>) {
        use std::io::Write as _;
        request.clear();
        request.extend_from_slice(self.head.as_bytes());
        request.write_fmt(headers).expect("a vector takes everything");
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(&self.body);
    }
}

fn head(method: &str, path: &str, headers: &str, length: usize) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n{headers}")
}

/// A whole request.
pub fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut request = head(method, path, headers, body.len()).into_bytes();
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(body);
    request
}

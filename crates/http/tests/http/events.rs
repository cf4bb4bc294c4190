//! A reader of event streams that sees every byte.

use crate::wire::{Answer, Server, request};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub kind: String,
    pub data: String,
}

impl Event {
    /// A control event's data.
    pub fn control(&self) -> serde_json::Value {
        assert_eq!(self.kind, "control", "{self:?}");
        serde_json::from_str(&self.data).expect("a control event is JSON")
    }

    /// What a control event says: the next offset, whether that is the end, and whether of a closed stream.
    pub fn says(&self) -> (u64, bool, bool) {
        let control = self.control();
        let next = control["streamNextOffset"].as_str().and_then(|text| text.parse().ok()).expect("an offset");
        (next, control["upToDate"] == true, control["streamClosed"] == true)
    }
}

/// An answer that goes on.
pub struct Events {
    pub stream: TcpStream,
    pub head: Answer,
    /// Bytes of chunks that came and were not taken apart.
    chunked: Vec<u8>,
    /// Bytes of events that came and were not read.
    text: Vec<u8>,
    ended: bool,
}

impl Events {
    /// Asks for a target; its answer begins an event stream.
    pub fn open(server: &Server, target: &str, headers: &[(&str, &str)]) -> Self {
        let mut stream = server.connect();
        stream.write_all(&request("GET", target, headers, b"")).expect("the request is taken");
        let head = Answer::read(&mut stream, "HEAD");
        assert_eq!(head.status, 200, "{target}");
        Self { stream, head, chunked: Vec::new(), text: Vec::new(), ended: false }
    }

    /// The next event, or nothing at the end of the answer.
    pub fn next(&mut self) -> Option<Event> {
        let start = Instant::now();
        loop {
            if let Some(at) = self.text.windows(2).position(|pair| pair == b"\n\n") {
                let rest = self.text.split_off(at + 2);
                let text = std::mem::replace(&mut self.text, rest);
                return Some(event(&text[..at]));
            }
            if self.ended {
                assert!(self.text.is_empty(), "an answer ends between two events");
                return None;
            }
            self.receive();
            assert!(start.elapsed() < Duration::from_secs(10), "no event came");
        }
    }

    /// The next two: data, and what follows it.
    pub fn pair(&mut self) -> (String, Event) {
        let data = self.next().expect("a data event");
        assert_eq!(data.kind, "data");
        let control = self.next().expect("a control event behind every data event");
        assert_eq!(control.kind, "control");
        (data.data, control)
    }

    /// Everything to the end of the answer.
    pub fn rest(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.next()).collect()
    }

    fn receive(&mut self) {
        let mut piece = [0; 65_536];
        let count = self.stream.read(&mut piece).expect("bytes, or the end");
        assert!(count > 0, "the connection ended inside an answer");
        self.chunked.extend_from_slice(&piece[..count]);
        while let Some(at) = self.chunked.windows(2).position(|pair| pair == b"\r\n") {
            let digits = std::str::from_utf8(&self.chunked[..at]).expect("a length");
            let length = usize::from_str_radix(digits, 16).expect("a length");
            if self.chunked.len() < at + 2 + length + 2 {
                return;
            }
            self.text.extend_from_slice(&self.chunked[at + 2..at + 2 + length]);
            self.chunked.drain(..at + 2 + length + 2);
            self.ended = length == 0;
        }
    }
}

/// Reads one event, as the standard has it.
fn event(text: &[u8]) -> Event {
    let text = std::str::from_utf8(text).expect("an event stream is UTF-8");
    assert!(!text.contains('\r'), "no line of ours ends in a carriage return");
    let (mut kind, mut data) = (String::new(), Vec::new());
    for line in text.split('\n') {
        let (name, value) = line.split_once(':').expect("a field");
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut kind),
            "data" => data.push(value),
            _ => panic!("{line}"),
        }
    }
    Event { kind, data: data.join("\n") }
}

//! Who follows the stream by the rules, over a socket, and keeps what it holds from one connection to the next.

use super::base;
use crate::bed::{SOON, Server};
use bytes::Bytes;
use highwater_base::Millis;
use highwater_client::websocket::{Message, WebSocket, WebSocketOptions};
use highwater_consumer::follower::{Follower, Input, Options, Output, Source};
use highwater_repo::Tid;
use highwater_repo::key::PublicKey;
use highwater_repo::syntax::Did;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

/// A consumer.
pub struct Consumer {
    follower: Follower,
    socket: Option<WebSocket>,
    place: Place,
    /// What it found, in order.
    pub found: Vec<Output>,
}

/// The server, for keys and repositories.
struct Place(String);

impl Place {
    fn get(&self, path: &str, host: Option<&str>) -> Option<Bytes> {
        let mut request = ureq::get(format!("{}{path}", self.0));
        if let Some(host) = host {
            request = request.header("host", host);
        }
        let body = request.call().ok()?.body_mut().read_to_vec().ok()?;
        Some(body.into())
    }
}

impl Source for Place {
    fn key(&mut self, did: &Did) -> Option<PublicKey> {
        let host = did.as_str().strip_prefix("did:web:")?.replace("%3A", ":");
        let document: Value = serde_json::from_slice(&self.get("/.well-known/did.json", Some(&host))?).ok()?;
        PublicKey::parse(document["verificationMethod"][0]["publicKeyMultibase"].as_str()?).ok()
    }

    fn repo(&mut self, did: &Did) -> Option<Bytes> {
        let did = did.as_str().replace('%', "%25");
        self.get(&format!("/xrpc/com.atproto.sync.getRepo?did={did}"), None)
    }
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock");
    Millis(since.as_millis() as u64)
}

impl Consumer {
    /// One that holds nothing and is not connected.
    pub fn new(server: &Server) -> Self {
        let follower = Follower::new(Options { bytes_kept: true, ..Options::default() });
        Self { follower, socket: None, place: Place(base(server)), found: Vec::new() }
    }

    /// Connects with the number of the last event that it has, or from the first event on.
    pub fn connect(&mut self) {
        let cursor = self.cursor();
        let url = format!("{}/xrpc/com.atproto.sync.subscribeRepos?cursor={cursor}", self.place.0);
        self.socket = Some(WebSocket::connect(&url, &WebSocketOptions::default()).expect("it connects"));
        self.follower.follow(now(), Input::Connected { cursor: Some(cursor) }, &mut self.place);
    }

    /// The number of the last event.
    pub fn cursor(&self) -> u64 {
        self.follower.cursor().unwrap_or(0)
    }

    /// Takes the next message; whether one came in time.
    fn step(&mut self, wait: Duration) -> bool {
        let socket = self.socket.as_mut().expect("it is connected");
        match socket.read(wait).expect("the connection stands") {
            None => false,
            Some(Message::Binary(bytes)) => {
                let found = self.follower.follow(now(), Input::Message(bytes), &mut self.place);
                self.found.extend(found);
                true
            }
            Some(other) => panic!("an odd message: {other:?}"),
        }
    }

    /// Reads until it has the event with this number, and every repository that it asked for.
    #[track_caller]
    pub fn read_to(&mut self, sequence: u64) {
        let deadline = Instant::now() + SOON;
        while self.cursor() < sequence {
            assert!(Instant::now() < deadline, "event {sequence} did not come; the last was {}", self.cursor());
            self.step(Duration::from_millis(200));
        }
        self.is_pleased();
    }

    /// Whether nothing comes for a while.
    pub fn is_quiet(&mut self) -> bool {
        !self.step(Duration::from_millis(300))
    }

    /// That no rule was broken.
    #[track_caller]
    pub fn is_pleased(&self) {
        let broken = self.found.iter().find(|found| matches!(found, Output::Violation { .. } | Output::Refused(_)));
        assert!(broken.is_none(), "{broken:?}");
    }

    /// What it holds of an account: its records by key, and their revision.
    pub fn holds(&self, did: &str) -> (BTreeMap<String, Bytes>, Option<Tid>) {
        let account = self.follower.account(&did.parse().expect("a DID")).expect("it heard of the account");
        let records = account.records().into_iter().flatten();
        let records = records.map(|(key, record)| (key.clone(), record.bytes.clone().unwrap_or_default()));
        (records.collect(), account.head().map(|head| head.rev))
    }

    /// Where an account stands, as it was last told.
    pub fn position(&self, did: &str) -> (bool, Option<&'static str>) {
        let account = self.follower.account(&did.parse().expect("a DID")).expect("it heard of the account");
        let position = account.position().expect("it was told");
        (position.is_active(), position.status().map(|status| status.as_str()))
    }
}

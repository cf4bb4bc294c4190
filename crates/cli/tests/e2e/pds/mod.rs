//! Accounts of the AT Protocol through the real program: their clients, their operator, their consumers, their relays.

mod consumer;
mod follow;
mod operator;
mod relays;
mod restored;
mod running;
mod settings;
mod status;

use crate::bed::{Server, highwater};
use serde_json::{Value, json};

/// A kind of record that nothing else is.
pub const NOTES: &str = "com.example.note";

/// An account, as its owner has it.
pub struct Account {
    pub did: String,
    pub handle: String,
    pub access: String,
}

/// The URL of a server's listener.
pub fn base(server: &Server) -> String {
    format!("http://127.0.0.1:{}", server.port)
}

/// Runs `highwater pds …` against a server and gives its JSON.
#[track_caller]
pub fn operate(server: &Server, words: &[&str]) -> Value {
    let url = base(server);
    let words = ["pds"].iter().chain(words).copied().chain(["--url", &url, "--json"]);
    highwater(words).json()
}

/// Makes an account.
pub fn create(server: &Server, more: &[&str]) -> Account {
    Account::of(&operate(server, &[&["account", "create"], more].concat()))
}

/// The newest number of the stream.
pub fn newest(server: &Server) -> u64 {
    operate(server, &["status"])["stream"]["newest"].as_u64().expect("a number")
}

/// The status and the body of an answer.
pub fn answer(asked: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> (u16, Value) {
    let mut answer = asked.expect("an answer");
    let text = answer.body_mut().read_to_string().unwrap_or_default();
    (answer.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// Asks a method that reads.
pub fn get(server: &Server, method: &str) -> (u16, Value) {
    let url = format!("{}/xrpc/{method}", base(server));
    answer(ureq::get(&url).config().http_status_as_error(false).build().call())
}

impl Account {
    /// What `account create --json` printed.
    pub fn of(made: &Value) -> Self {
        let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
        Self { did: text("did"), handle: text("handle"), access: text("accessJwt") }
    }

    /// The DID as a query has it.
    pub fn query(&self) -> String {
        self.did.replace('%', "%25")
    }

    /// Calls a method that writes.
    pub fn call(&self, server: &Server, method: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}/xrpc/{method}", base(server));
        let request = ureq::post(&url).config().http_status_as_error(false).build();
        let request = request.header("authorization", format!("Bearer {}", self.access));
        answer(request.header("content-type", "application/json").send(body.to_string()))
    }

    /// Writes a note under a key; status and answer.
    pub fn try_write(&self, server: &Server, rkey: &str, text: &str) -> (u16, Value) {
        let record = json!({ "$type": NOTES, "text": text });
        let body = json!({ "repo": self.did, "collection": NOTES, "rkey": rkey, "record": record });
        self.call(server, "com.atproto.repo.putRecord", &body)
    }

    /// Writes a note.
    #[track_caller]
    pub fn write(&self, server: &Server, rkey: &str, text: &str) {
        let (status, said) = self.try_write(server, rkey, text);
        assert_eq!(status, 200, "{said}");
    }

    /// Deletes a note.
    #[track_caller]
    pub fn delete(&self, server: &Server, rkey: &str) {
        let body = json!({ "repo": self.did, "collection": NOTES, "rkey": rkey });
        let (status, said) = self.call(server, "com.atproto.repo.deleteRecord", &body);
        assert_eq!(status, 200, "{said}");
    }

    /// The text of a note, if it is there.
    pub fn note(&self, server: &Server, rkey: &str) -> Option<String> {
        let query = format!("com.atproto.repo.getRecord?repo={}&collection={NOTES}&rkey={rkey}", self.query());
        let (status, said) = get(server, &query);
        (status == 200).then(|| said["value"]["text"].as_str().unwrap_or_default().to_owned())
    }
}

//! `highwater key|account|plan …`: who may do what, on a running server.

mod account;
pub mod arguments;
mod key;
mod plan;

use crate::exit::{self, Status};
use anyhow::{Context as _, Result};
use arguments::Target;
use highwater_client::{Client, Options, TokenSource, Unanswered, Verb, Why};
use serde_json::Value;
use std::time::{Duration, Instant};

pub use account::run as account;
pub use key::run as key;
pub use plan::run as plan;

/// How long a server that refuses connections may take to start: a command that was written behind its start waits for it.
const STARTING_FOR: Duration = Duration::from_secs(10);
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(100);

/// A server, and the right to manage it.
pub struct Server {
    client: Client,
    url: String,
}

impl Server {
    pub fn new(target: &Target) -> Result<Self> {
        if !target.url.starts_with("http://") && !target.url.starts_with("https://") {
            let words = format!("{} is no URL of a server: one begins with http:// or https://", target.url);
            return Err(exit::with(Status::Wrong, words));
        }
        let mut options = Options::from_environment();
        if let Some(key) = &target.key {
            options.token = TokenSource::fixed(key);
        }
        let client = Client::new(options).context("cannot set up the HTTP client")?;
        Ok(Self { client, url: target.url.trim_end_matches('/').to_owned() })
    }

    pub fn get(&self, path: &str) -> Result<Value> {
        self.ask(Verb::Get, path, None, None)
    }

    pub fn change(&self, verb: Verb, path: &str, body: &Value) -> Result<Value> {
        self.ask(verb, path, None, Some(body))
    }

    /// Asks, and gives the answer, or an error that says what came instead and what to do.
    pub fn ask(&self, verb: Verb, path: &str, request_id: Option<&str>, body: Option<&Value>) -> Result<Value> {
        let url = format!("{}{path}", self.url);
        let text = body.map(Value::to_string);
        let begun = Instant::now();
        let answer = loop {
            let answer = self.client.manage(verb, &url, request_id, text.as_deref().map(str::as_bytes));
            // Nothing was sent, so that the next attempt repeats nothing.
            let waits = matches!(&answer, Err(Unanswered { why: Why::Refused, .. }));
            if !waits || begun.elapsed() > STARTING_FOR {
                break answer;
            }
            std::thread::sleep(PAUSE);
        };
        let answer = answer.map_err(|unanswered| without_answer(verb, &url, &unanswered))?;
        if (200..300).contains(&answer.status) {
            return serde_json::from_slice(&answer.body).with_context(|| format!("{url}: the answer is not JSON"));
        }
        let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let (code, message) = (said["error"]["code"].as_str(), said["error"]["message"].as_str());
        let said = match (code, message) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            (Some(code), None) => code.to_owned(),
            _ => format!("status {}", answer.status),
        };
        let status = match answer.status {
            404 => Status::NotFound,
            429 | 503 => Status::Later,
            _ => Status::Failed,
        };
        let hint =
            if answer.status == 401 { "; give a key with the scope admin in HIGHWATER_TOKEN or --key" } else { "" };
        Err(exit::with(status, format!("{url}: {said}{hint}")))
    }
}

/// What came instead of an answer, what is known of the request, and what to do.
fn without_answer(verb: Verb, url: &str, Unanswered { why, said }: &Unanswered) -> anyhow::Error {
    match why {
        Why::Token => {
            let file = std::env::var_os("HIGHWATER_TOKEN_FILE").unwrap_or_default();
            let file = std::path::Path::new(&file).display().to_string();
            exit::with(Status::Wrong, format!("HIGHWATER_TOKEN_FILE = {file}: {said}; nothing was sent"))
        }
        Why::Refused => {
            let waited_s = STARTING_FOR.as_secs();
            let words = format!("{url}: no answer for {waited_s} s ({said}); nothing was sent; is the server running?");
            exit::with(Status::Later, words)
        }
        Why::Unknown => {
            let known = if verb == Verb::Get { "" } else { "; whether it was done is not known: look, then repeat" };
            exit::with(Status::Later, format!("{url}: no answer ({said}); is the server running?{known}"))
        }
    }
}

/// Prints rows under a heading, in columns.
pub fn columns(heading: &[&str], rows: &[Vec<String>]) -> Result<()> {
    use std::io::Write as _;
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).chain([heading[column].len()]).max();
    let widths: Vec<usize> = (0..heading.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = std::io::stdout().lock();
    let heading: Vec<String> = heading.iter().map(|text| (*text).to_owned()).collect();
    for row in std::iter::once(&heading).chain(rows) {
        let line: Vec<String> = row.iter().zip(&widths).map(|(text, width)| format!("{text:width$}")).collect();
        writeln!(out, "{}", line.join("  ").trim_end())?;
    }
    Ok(())
}

/// The texts of a list, joined for a column.
fn joined(list: &Value, none: &str) -> String {
    let texts: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if texts.is_empty() { none.to_owned() } else { texts.join(",") }
}

pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// A path segment of a URL; names and ids are clean, and what people type may not be.
pub fn segment(text: &str) -> String {
    let clean = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    text.bytes().map(|b| if clean(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

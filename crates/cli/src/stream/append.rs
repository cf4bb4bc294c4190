//! Appending standard input or a file.

use super::{done, look};
use crate::output;
use anyhow::{Context as _, Result};
use highwater_client::{Append, Key, Outcome, Stream, Written};
use serde_json::json;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes of one append; longer input becomes several, each acknowledged before the next is sent.
const APPEND_BYTES_MAX: u64 = 4 << 20;

/// How long an append without a definite answer is repeated. Each has a producer's key, so a repeat applies once.
const REPEAT_FOR: Duration = Duration::from_secs(30);

/// Appends everything that the input holds.
pub fn run(stream: &Stream, file: Option<&Path>, content_type: Option<String>, close: bool, json: bool) -> Result<()> {
    let head = look(stream)?;
    let mut input: Box<dyn Read> = match file {
        Some(path) => Box::new(File::open(path).with_context(|| format!("cannot read {}", path.display()))?),
        None => Box::new(io::stdin().lock()),
    };
    let content_type = content_type.unwrap_or(head.content_type);
    let mut key = Key { id: producer(), epoch: 0, seq: 0 };
    let (mut next, mut appended) = (head.next, 0);
    loop {
        let mut body = Vec::new();
        input.by_ref().take(APPEND_BYTES_MAX).read_to_end(&mut body)?;
        let last = (body.len() as u64) < APPEND_BYTES_MAX;
        if body.is_empty() && !(last && close) {
            break;
        }
        let append = Append {
            body: &body,
            content_type: &content_type,
            incarnation: Some(head.incarnation),
            key: Some(key.clone()),
            close: last && close,
        };
        if let Written::Receipt(receipt) = repeat(stream, &append)? {
            next = receipt.range.map_or(next, |range| range.1);
        }
        appended += body.len() as u64;
        key.seq += 1;
        if last {
            break;
        }
    }
    if json {
        return output::json(&json!({ "appended_bytes": appended, "next_offset": next.0, "closed": close }));
    }
    println!("{appended} bytes appended; the stream ends at {}", next.0);
    Ok(())
}

/// Sends one append until it has a definite answer.
fn repeat(stream: &Stream, append: &Append<'_>) -> Result<Written> {
    let begun = Instant::now();
    let mut wait = Duration::from_millis(25);
    loop {
        let (_, answer) = stream.append(append);
        let again = match &answer.outcome {
            Outcome::Unknown => true,
            Outcome::Refused(refusal) => matches!(refusal.status, 429 | 503),
            Outcome::Done(_) | Outcome::Redirected => false,
        };
        if !again || begun.elapsed() > REPEAT_FOR {
            return done(stream, answer);
        }
        std::thread::sleep(wait);
        wait = (wait * 2).min(Duration::from_secs(5));
    }
}

/// A name that no other run of this program has.
fn producer() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("highwater-cli/{}-{}", std::process::id(), now.as_nanos())
}

//! Appending standard input or a file.

use super::{done, is_json, look};
use crate::output;
use anyhow::{Context as _, Result};
use highwater_client::{Append, Key, Outcome, Stream, Written};
use serde_json::de::IoRead;
use serde_json::value::RawValue;
use serde_json::{Deserializer, StreamDeserializer, json};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes of one append, up to the end of a JSON message; longer input becomes several, each acknowledged before the next
/// is sent.
const APPEND_BYTES_MAX: u64 = 4 << 20;

/// How long an append without a definite answer is repeated. Each has a producer's key, so a repeat applies once.
const REPEAT_FOR: Duration = Duration::from_secs(30);

/// Appends everything that the input holds.
pub fn run(stream: &Stream, file: Option<&Path>, content_type: Option<String>, close: bool, json: bool) -> Result<()> {
    let head = look(stream)?;
    let input: Box<dyn Read> = match file {
        Some(path) => Box::new(File::open(path).with_context(|| format!("cannot read {}", path.display()))?),
        None => Box::new(io::stdin().lock()),
    };
    let content_type = content_type.unwrap_or(head.content_type);
    let mut bodies: Box<dyn Iterator<Item = Result<Vec<u8>>>> = match is_json(&content_type) {
        true => Box::new(Messages::new(input)),
        false => Box::new(Pieces { input }),
    };
    let mut key = Key { id: producer(), epoch: 0, seq: 0 };
    let (mut next, mut appended) = (head.next, 0);
    let mut following = bodies.next().transpose()?;
    if following.is_none() && close {
        following = Some(Vec::new());
    }
    while let Some(body) = following {
        following = bodies.next().transpose()?;
        let append = Append {
            body: &body,
            content_type: &content_type,
            incarnation: Some(head.incarnation),
            key: Some(key.clone()),
            close: following.is_none() && close,
        };
        if let Written::Receipt(receipt) = repeat(stream, &append)?
            && let Some((start, end)) = receipt.range
        {
            next = end;
            appended += end.since(start);
        }
        key.seq += 1;
    }
    if json {
        return output::json(&json!({ "appended_bytes": appended, "next_offset": next.0, "closed": close }));
    }
    println!("{appended} bytes appended; the stream ends at {}", next.0);
    Ok(())
}

/// An input in pieces, wherever they end.
struct Pieces<R> {
    input: R,
}

impl<R: Read> Iterator for Pieces<R> {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut body = Vec::new();
        match self.input.by_ref().take(APPEND_BYTES_MAX).read_to_end(&mut body) {
            Err(error) => Some(Err(error.into())),
            Ok(0) => None,
            Ok(_) => Some(Ok(body)),
        }
    }
}

/// An input of JSON texts, one behind the other, as arrays of messages. An array among them stands for its elements,
/// as it does in the body of an append.
struct Messages<R: Read> {
    texts: StreamDeserializer<'static, IoRead<BufReader<R>>, Box<RawValue>>,
}

impl<R: Read> Messages<R> {
    fn new(input: R) -> Self {
        Self { texts: Deserializer::from_reader(BufReader::new(input)).into_iter() }
    }
}

impl<R: Read> Iterator for Messages<R> {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut body = vec![b'['];
        while (body.len() as u64) < APPEND_BYTES_MAX {
            let Some(text) = self.texts.next() else { break };
            let text = match text.context("the stream holds JSON, and the input does not go on as JSON") {
                Ok(text) => text,
                Err(error) => return Some(Err(error)),
            };
            let text = text.get().trim();
            let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text).trim();
            if !inner.is_empty() {
                body.extend_from_slice(inner.as_bytes());
                body.push(b',');
            }
        }
        // The comma behind the last message gives way to the end.
        *body.last_mut().filter(|last| **last == b',')? = b']';
        Some(Ok(body))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_arrays_of_messages() {
        for (input, bodies) in [
            ("", &[][..]),
            (" [] \n [ ]", &[]),
            ("1 \"a\" {\"b\": 1.0}\n", &["[1,\"a\",{\"b\": 1.0}]"]),
            ("[1, [2]]\n[]\n3", &["[1, [2],3]"]),
        ] {
            let made: Vec<_> = Messages::new(input.as_bytes()).map(|body| body.expect("JSON")).collect();
            assert_eq!(made, bodies.iter().map(|body| body.as_bytes().to_vec()).collect::<Vec<_>>(), "{input}");
        }
        assert!(Messages::new(&b"1 x"[..]).next().is_some_and(|body| body.is_err()));
    }

    #[test]
    fn a_long_input_becomes_several_appends() {
        let text = format!("\"{}\"\n", "x".repeat(1 << 20)).repeat(6);
        let made: Vec<_> = Messages::new(text.as_bytes()).map(|body| body.expect("JSON").len()).collect();
        assert_eq!(made.len(), 2);
    }
}

//! A few words in which transcripts and tests ask the machine things.
//!
//! One line is one request:
//! ```text
//! create PATH [type=T] [closed] [if=TOKEN] [new=TOKEN] [body=TEXT]
//! append PATH [as=ID/EPOCH/SEQ] [digest[=TEXT]] [if=TOKEN] [type=T|untyped] [stream-seq=S] [close] [body=TEXT]
//! early  PATH as=ID/EPOCH/SEQ [digest=TEXT] if=TOKEN
//! delete PATH [if=TOKEN]
//! head   PATH
//! read   PATH from=start|now|OFFSET [if=TOKEN]
//! wait   7d|1h|5ms
//! limit  PRODUCERS
//! reload
//! ```
//! `digest` states the body's own digest, `digest=TEXT` that of another body. `reload` stores the machine and loads it.

use bytes::Bytes;
use highwater_base::{Digest, Incarnation, Millis, Offset};
use highwater_stream::*;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The n-th token that scripts speak of as `tN`.
pub fn token(n: u64) -> Incarnation {
    Incarnation::new((1 << 52) + n).expect("a small number above 2^52 is a token")
}

fn name(token: Incarnation) -> String {
    format!("t{}", token.get() - (1 << 52))
}

/// A machine, a clock and what was stored so far.
pub struct Session {
    machine: Machine,
    options: Options,
    at: Millis,
    stored: BTreeMap<u64, Bytes>,
    next_token: u64,
}

impl Session {
    pub fn new() -> Self {
        let options = Options::default();
        Self { machine: Machine::new(options), options, at: Millis(1_000), stored: BTreeMap::new(), next_token: 1 }
    }

    /// Does one line and tells what came of it; nothing for `wait` and `limit`.
    pub fn line(&mut self, line: &str) -> Option<String> {
        let mut words = line.split_whitespace();
        let verb = words.next().expect("a line has a verb");
        let subject = words.next().unwrap_or_default();
        let arguments = Arguments(words.map(|word| word.split_once('=').unwrap_or((word, ""))).collect());
        match verb {
            "wait" => self.at = self.at.plus(duration_ms(subject)),
            "limit" => {
                self.options.producers_max = subject.parse().expect("a number of producers");
                self.reload();
            }
            "reload" => self.reload(),
            "head" => return Some(show_head(self.machine.head(subject, self.at))),
            "read" => return Some(self.read(subject, &arguments)),
            "early" => return Some(self.early(subject, &arguments)),
            _ => {
                let operation = self.operation(verb, &arguments);
                let command = Command { at: self.at, path: subject.to_owned(), operation };
                let result = self.machine.apply(&command).result;
                self.next_token += u64::from(matches!(result, Ok(Outcome::Created(_))));
                return Some(show(&result));
            }
        }
        None
    }

    fn operation(&mut self, verb: &str, arguments: &Arguments) -> Operation {
        let body = Bytes::from(arguments.get("body").unwrap_or_default().to_owned());
        let incarnation = arguments.token("if");
        let content_type = arguments.get("type").unwrap_or("text/plain").to_owned();
        match verb {
            "create" => {
                let new_incarnation = arguments.token("new").unwrap_or(token(self.next_token));
                let closed = arguments.has("closed");
                Operation::Create(Create { content_type, closed, incarnation, new_incarnation, body })
            }
            "append" => {
                let producer = arguments.key(&body);
                let stated = producer.as_ref().and_then(|key| key.digest);
                Operation::Append(Append {
                    incarnation,
                    digest_matches: stated.is_none_or(|stated| stated == Digest::of(&body)),
                    producer,
                    content_type: (!arguments.has("untyped")).then_some(content_type),
                    stream_seq: arguments.get("stream-seq").map(str::to_owned),
                    close: arguments.has("close"),
                    body,
                })
            }
            "delete" => Operation::Delete { incarnation },
            other => panic!("no such verb: {other}"),
        }
    }

    fn read(&self, path: &str, arguments: &Arguments) -> String {
        let from = match arguments.get("from").expect("a read says from where") {
            "start" => ReadFrom::Start,
            "now" => ReadFrom::Now,
            offset => ReadFrom::At(Offset(offset.parse().expect("an offset"))),
        };
        match self.machine.check_read(path, arguments.token("if"), from) {
            Ok(scope) => {
                let closed = if scope.closed { " closed" } else { "" };
                format!("readable {}..{} {}{closed}", scope.start.0, scope.next.0, name(scope.incarnation))
            }
            Err(refusal) => show_refusal(&refusal),
        }
    }

    fn early(&self, path: &str, arguments: &Arguments) -> String {
        let key = arguments.key(&Bytes::new()).expect("an early question has a key");
        let token = arguments.token("if").expect("an early question is tokened");
        self.machine.early(path, token, &key).map_or_else(|| "read the body first".to_owned(), |answer| show(&answer))
    }

    fn reload(&mut self) {
        for (object, state) in self.machine.take_changed() {
            match state {
                Some(state) => self.stored.insert(object, state),
                None => self.stored.remove(&object),
            };
        }
        let objects = self.stored.iter().map(|(object, state)| (*object, state.clone())).collect();
        let loaded = Machine::load(self.options, objects).expect("what was stored loads");
        assert_eq!(loaded.fingerprint(), self.machine.fingerprint(), "a stored machine loads as it was");
        self.machine = loaded;
    }
}

struct Arguments<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Arguments<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn token(&self, name: &str) -> Option<Incarnation> {
        let number = self.get(name)?.strip_prefix('t').and_then(|n| n.parse().ok()).expect("a token is tN");
        Some(token(number))
    }

    fn key(&self, body: &Bytes) -> Option<ProducerKey> {
        let mut parts = self.get("as")?.split('/');
        let id = parts.next().expect("split gives one part").to_owned();
        let mut number = || parts.next().and_then(|n| n.parse().ok()).expect("a key is ID/EPOCH/SEQ");
        let (epoch, seq) = (number(), number());
        let digest = self.get("digest").map(|text| match text {
            "" => Digest::of(body),
            other => Digest::of(other.as_bytes()),
        });
        Some(ProducerKey { id, epoch, seq, digest })
    }
}

fn duration_ms(text: &str) -> u64 {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 1,
        "h" => 3_600_000,
        "d" => 24 * 3_600_000,
        other => panic!("no such unit: {other}"),
    };
    digits.parse::<u64>().expect("a number") * unit
}

/// An answer in the words of transcripts.
pub fn show(result: &Result<Outcome, Refusal>) -> String {
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(refusal) => return show_refusal(refusal),
    };
    match outcome {
        Outcome::Created(created) => show_created("created", created),
        Outcome::Matched(created) => show_created("matched", created),
        Outcome::Appended { start, next, incarnation, closed } => {
            let closed = if *closed { " closed" } else { "" };
            format!("appended {}..{} {}{closed}", start.0, next.0, name(*incarnation))
        }
        Outcome::Applied(receipt) => format!("applied {}", show_receipt(receipt)),
        Outcome::Repeated(receipt) => format!("repeated {}", show_receipt(receipt)),
        Outcome::Evicted { epoch, seq, incarnation, closed } => {
            let mut text = format!("evicted applied-up-to={epoch}/{seq} {}", name(*incarnation));
            show_closed(&mut text, "closed-epoch", *closed);
            text
        }
        Outcome::Deleted => "deleted".to_owned(),
    }
}

fn show_created(word: &str, created: &Created) -> String {
    let closed = if created.closed { " closed" } else { "" };
    format!("{word} {} end={} type={}{closed}", name(created.incarnation), created.next.0, created.content_type)
}

fn show_receipt(receipt: &Receipt) -> String {
    let Receipt { epoch, seq, start, next, .. } = receipt;
    let mut text = format!("{epoch}/{seq} at {}..{} {}", start.0, next.0, name(receipt.incarnation));
    show_closed(&mut text, "closed-epoch", receipt.closed_epoch);
    if receipt.closed_stream {
        text.push_str(" closed-stream");
    }
    if !receipt.had_body {
        text.push_str(" no-body");
    }
    text
}

fn show_closed(text: &mut String, word: &str, closed: Option<ClosedEpoch>) {
    if let Some(closed) = closed {
        write!(text, " {word}={}/{}", closed.epoch, closed.last_seq).expect("a string takes text");
    }
}

fn show_head(head: Result<Head, Refusal>) -> String {
    match head {
        Ok(head) => {
            let closed = if head.closed { " closed" } else { "" };
            let Head { incarnation, next, retained, content_type, .. } = &head;
            format!("{} {}..{} type={content_type}{closed}", name(*incarnation), retained.0, next.0)
        }
        Err(refusal) => show_refusal(&refusal),
    }
}

fn show_refusal(refusal: &Refusal) -> String {
    let mut text = String::from("refused ");
    match refusal {
        Refusal::StreamNotFound => text.push_str("stream-not-found"),
        Refusal::IncarnationMismatch { current } => {
            let current = current.map_or_else(|| "none".to_owned(), name);
            text.push_str(&format!("incarnation-mismatch current={current}"));
        }
        Refusal::AlreadyExists => text.push_str("already-exists"),
        Refusal::EpochClosedByClaim { current, closed } => {
            text.push_str(&format!("epoch-closed by=claim current={current}"));
            show_closed(&mut text, "closed-epoch", Some(*closed));
        }
        Refusal::EpochClosedByHistory { closed } => {
            text.push_str("epoch-closed by=history");
            show_closed(&mut text, "closed-epoch", Some(*closed));
        }
        Refusal::EpochStale { current } => text.push_str(&format!("epoch-stale current={current}")),
        Refusal::KeyConflict { current } => text.push_str(&format!("key-conflict current={current}")),
        Refusal::ProducerExpired { floor } => text.push_str(&format!("producer-expired floor={floor}")),
        Refusal::EpochNotClaimed => text.push_str("epoch-not-claimed"),
        Refusal::SeqGap { expected, received } => {
            text.push_str(&format!("seq-gap expected={expected} received={received}"));
        }
        Refusal::ProducerLimit => text.push_str("producer-limit"),
        Refusal::StreamClosed { next } => text.push_str(&format!("stream-closed end={}", next.0)),
        Refusal::DigestMismatch => text.push_str("digest-mismatch"),
        Refusal::EmptyAppend => text.push_str("empty-append"),
        Refusal::MissingContentType => text.push_str("missing-content-type"),
        Refusal::ContentTypeMismatch { expected, next } => {
            text.push_str(&format!("content-type-mismatch expected={expected} end={}", next.0));
        }
        Refusal::StreamSeqConflict { last } => text.push_str(&format!("stream-seq-conflict last={last}")),
        Refusal::OffsetOutOfRange { next, incarnation } => {
            text.push_str(&format!("offset-out-of-range end={} {}", next.0, name(*incarnation)));
        }
        Refusal::Gone { retained, incarnation } => {
            text.push_str(&format!("gone retained={} {}", retained.0, name(*incarnation)));
        }
    }
    text
}

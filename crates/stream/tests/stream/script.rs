//! A few words in which transcripts and tests ask the machine things.
//!
//! One line is one request:
//! ```text
//! create PATH [type=T] [closed] [ttl=SECONDS|ends=MS] [if=TOKEN] [new=TOKEN] [body=TEXT]
//! append PATH [as=ID/EPOCH/SEQ] [digest[=TEXT]] [if=TOKEN] [type=T|untyped] [stream-seq=S] [close] [fault=json|array]
//!        [body=TEXT]
//! early  PATH as=ID/EPOCH/SEQ [digest=TEXT] if=TOKEN
//! delete PATH [if=TOKEN]
//! touch  PATH
//! sweep
//! stage  PATH [if=TOKEN] part=N [body=TEXT]
//! discard PATH [if=TOKEN]
//! publish PATH at=OFFSET [if=TOKEN] [digest=TEXT] [wrong] (parts=N,N | part=N body=TEXT)
//! retain PATH at=OFFSET [if=TOKEN]
//! snapshot PATH at=OFFSET [if=TOKEN]
//! history nonce=N
//! lead
//! usage  BUCKET
//! head   PATH
//! read   PATH from=start|now|OFFSET [if=TOKEN]
//! wait   7d|1h|2s|5ms
//! limit  PRODUCERS [parts=N] [bytes=N] [snapshot=BYTES]
//! reload
//! ```
//! Tokens and parts are spelled `tN`; a token that a history event made, in decimal. `sweep` asks whom to look at and proposes what follows; `touch` proposes one where it is worth it. `digest` states the body's own digest, `digest=TEXT` that of another body. `reload` stores the machine and loads it.

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
    match token.get() - (1 << 52) {
        small @ 0..1_000_000 => format!("t{small}"),
        _ => token.to_string(),
    }
}

fn named(text: &str) -> Incarnation {
    let small = text.strip_prefix('t').map(|n| token(n.parse().expect("a number")));
    small.or_else(|| Incarnation::parse(text)).expect("a token is tN or a number")
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
                self.options.producers_max = subject.parse().unwrap_or(self.options.producers_max);
                self.options.staged_parts_max = arguments.number("parts").unwrap_or(self.options.staged_parts_max);
                self.options.staged_bytes_max = arguments.number("bytes").unwrap_or(self.options.staged_bytes_max);
                self.options.snapshot_bytes_max =
                    arguments.number("snapshot").unwrap_or(self.options.snapshot_bytes_max);
                self.reload();
            }
            "reload" => self.reload(),
            "head" => return Some(show_head(self.machine.head(subject, self.at))),
            "read" => return Some(self.read(subject, &arguments)),
            "usage" => return Some(self.usage(subject)),
            "snapshot" => return Some(self.snapshot(subject, &arguments)),
            "sweep" => return Some(self.sweep()),
            "history" | "lead" => {
                let nonce = || arguments.get("nonce").or(subject.strip_prefix("nonce=")).expect("an event has a nonce");
                let operation = match verb {
                    "lead" => Operation::Lead,
                    _ => Operation::History { nonce: nonce().parse().expect("a number") },
                };
                return Some(self.apply("", operation));
            }
            "touch" => {
                let Some(incarnation) = self.machine.touch_due(subject, self.at) else {
                    return Some("not worth a touch".to_owned());
                };
                return Some(self.apply(subject, Operation::Touch { incarnation }));
            }
            "early" => return Some(self.early(subject, &arguments)),
            _ => {
                let operation = self.operation(verb, &arguments);
                return Some(self.apply(subject, operation));
            }
        }
        None
    }

    fn apply(&mut self, path: &str, operation: Operation) -> String {
        let command = Command { at: self.at, path: path.to_owned(), operation };
        let result = self.machine.apply(&command).result;
        self.next_token += u64::from(matches!(result, Ok(Outcome::Created(_))));
        show(&result)
    }

    /// Expires whom the machine names, one after the other.
    fn sweep(&mut self) -> String {
        let mut said = Vec::new();
        for Due { path, incarnation } in self.machine.take_due(self.at, 100, &|_| false, &mut Vec::new()) {
            said.push(format!("{path} {}", self.apply(&path, Operation::Expire { incarnation })));
        }
        if said.is_empty() { "nothing due".to_owned() } else { said.join(", ") }
    }

    fn usage(&self, bucket: &str) -> String {
        let Usage { streams, bytes } = self.machine.usage(bucket);
        format!("{streams} streams, {bytes} bytes")
    }

    fn snapshot(&self, path: &str, arguments: &Arguments) -> String {
        match self.machine.check_snapshot(path, self.at, arguments.token("if"), arguments.offset("at")) {
            Ok(scope) => {
                let parts: Vec<String> = scope.parts.iter().map(|part| part.length.to_string()).collect();
                let length = scope.length;
                format!(
                    "snapshot at={} {length} bytes in {} {}",
                    scope.head.offset.0,
                    parts.join("+"),
                    name(scope.incarnation)
                )
            }
            Err(refusal) => show_refusal(&refusal),
        }
    }

    fn operation(&mut self, verb: &str, arguments: &Arguments) -> Operation {
        let body = Bytes::from(arguments.get("body").unwrap_or_default().to_owned());
        let incarnation = arguments.token("if");
        let content_type = arguments.get("type").unwrap_or("text/plain").to_owned();
        match verb {
            "create" => {
                let new_incarnation = arguments.token("new").unwrap_or(token(self.next_token));
                let closed = arguments.has("closed");
                let sliding = arguments.get("ttl").map(|ttl| Expiry::Sliding { ttl_s: ttl.parse().expect("seconds") });
                let at = arguments.get("ends").map(|at| Expiry::At(Millis(at.parse().expect("milliseconds"))));
                let expiry = sliding.or(at);
                Operation::Create(Create { content_type, closed, incarnation, new_incarnation, expiry, body })
            }
            "append" => {
                let producer = arguments.key(&body);
                let stated = producer.as_ref().and_then(|key| key.digest);
                Operation::Append(Append {
                    incarnation,
                    body_fault: match arguments.get("fault") {
                        _ if stated.is_some_and(|stated| stated != Digest::of(&body)) => {
                            Some(BodyFault::DigestMismatch)
                        }
                        Some("json") => Some(BodyFault::InvalidJson),
                        Some("array") => Some(BodyFault::EmptyArray),
                        Some(other) => panic!("no such fault: {other}"),
                        None => None,
                    },
                    producer,
                    content_type: (!arguments.has("untyped")).then_some(content_type),
                    stream_seq: arguments.get("stream-seq").map(str::to_owned),
                    close: arguments.has("close"),
                    body,
                })
            }
            "delete" => Operation::Delete { incarnation },
            "stage" => {
                let part = arguments.token("part").expect("a part has a number");
                Operation::StagePart { incarnation, part, body }
            }
            "discard" => Operation::DiscardParts { incarnation },
            "retain" => Operation::Retain { incarnation, offset: arguments.offset("at") },
            "publish" => {
                let digest = Digest::of(arguments.get("digest").unwrap_or("snapshot").as_bytes());
                let source = match arguments.get("parts") {
                    Some(parts) => SnapshotSource::Parts(parts.split(',').map(named).collect()),
                    None => SnapshotSource::Body { part: arguments.token("part").expect("or a part"), body },
                };
                Operation::PublishSnapshot(PublishSnapshot {
                    incarnation,
                    offset: arguments.offset("at"),
                    digest,
                    digest_matches: !arguments.has("wrong"),
                    content_type: "application/octet-stream".to_owned(),
                    source,
                })
            }
            other => panic!("no such verb: {other}"),
        }
    }

    fn read(&self, path: &str, arguments: &Arguments) -> String {
        let from = match arguments.get("from").expect("a read says from where") {
            "start" => ReadFrom::Start,
            "now" => ReadFrom::Now,
            offset => ReadFrom::At(Offset(offset.parse().expect("an offset"))),
        };
        match self.machine.check_read(path, self.at, arguments.token("if"), from) {
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
        self.machine
            .early(path, self.at, token, &key)
            .map_or_else(|| "read the body first".to_owned(), |answer| show(&answer))
    }

    fn reload(&mut self) {
        for (object, state) in self.machine.take_changed() {
            match state {
                Some(state) => self.stored.insert(object, state),
                None => self.stored.remove(&object),
            };
        }
        let objects = self.stored.iter().map(|(object, state)| (*object, state.clone())).collect();
        let loaded = Machine::load(self.options, self.machine.meta(), objects).expect("what was stored loads");
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

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name).map(|n| n.parse().expect("a number"))
    }

    fn offset(&self, name: &str) -> Offset {
        Offset(self.get(name).and_then(|n| n.parse().ok()).expect("an offset"))
    }

    fn token(&self, name: &str) -> Option<Incarnation> {
        self.get(name).map(named)
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
        "s" => 1_000,
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
        Outcome::PartStaged { part, incarnation } => format!("staged {} {}", name(*part), name(*incarnation)),
        Outcome::PartsDiscarded { incarnation } => format!("discarded {}", name(*incarnation)),
        Outcome::Published { snapshot, incarnation } => {
            format!("published at={} {}", snapshot.offset.0, name(*incarnation))
        }
        Outcome::Retained { offset, incarnation } => format!("retained from={} {}", offset.0, name(*incarnation)),
        Outcome::Touched => "touched".to_owned(),
        Outcome::Expired { stream: true } => "expired".to_owned(),
        Outcome::Expired { stream: false } => "not over".to_owned(),
        Outcome::HistoryBegun => "a history begins".to_owned(),
        Outcome::Led => "led".to_owned(),
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
            let mut text = format!("{} {}..{} type={content_type}{closed}", name(*incarnation), retained.0, next.0);
            match head.expiry {
                Some(Expiry::Sliding { ttl_s }) => text.push_str(&format!(" ttl={ttl_s}")),
                Some(Expiry::At(at)) => text.push_str(&format!(" ends={}", at.0)),
                None => {}
            }
            if let Some(snapshot) = head.snapshot {
                text.push_str(&format!(" snapshot={}", snapshot.offset.0));
            }
            if let Some((token, inherited)) = head.previous {
                text.push_str(&format!(" previous={} inherited={}", name(token), inherited.0));
            }
            text
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
        Refusal::NotJsonBoundary => text.push_str("not-json-boundary"),
        Refusal::InvalidJson => text.push_str("invalid-json"),
        Refusal::EmptyArray => text.push_str("empty-array"),
        Refusal::SnapshotConflict { latest, incarnation } => {
            let latest = latest.map_or_else(|| "none".to_owned(), |latest| latest.offset.0.to_string());
            text.push_str(&format!("snapshot-conflict latest={latest} {}", name(*incarnation)));
        }
        Refusal::SnapshotBeyondEnd { next, incarnation } => {
            text.push_str(&format!("snapshot-beyond-end end={} {}", next.0, name(*incarnation)));
        }
        Refusal::SnapshotNotFound { incarnation } => {
            text.push_str(&format!("snapshot-not-found {}", name(*incarnation)));
        }
        Refusal::SnapshotDigestMismatch => text.push_str("snapshot-digest-mismatch"),
        Refusal::SnapshotTooLarge { bytes_max } => text.push_str(&format!("snapshot-too-large max={bytes_max}")),
        Refusal::UnknownPart { incarnation } => text.push_str(&format!("unknown-part {}", name(*incarnation))),
        Refusal::StagedPartsLimit { limit, incarnation } => {
            let limit = match limit {
                StagedLimit::Parts(parts) => format!("parts={parts}"),
                StagedLimit::Bytes(bytes) => format!("bytes={bytes}"),
            };
            text.push_str(&format!("staged-parts-limit {limit} {}", name(*incarnation)));
        }
    }
    text
}

//! Several writers that append to a server through its deaths, and the book of what it acknowledged to them.

use crate::bed::{Server, wait_for};
use highwater_client::{
    Append, Client, From, Key, Offset, Options, Outcome, Read, Receipt, Stream, StreamUrl, Written,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

pub const CONTENT_TYPE: &str = "application/octet-stream";

pub fn stream(url: &str) -> Stream {
    let client = Client::new(Options::default()).expect("a client");
    Stream::new(Arc::new(client), StreamUrl::parse(url).expect("a URL"))
}

/// The bytes of one write: they name their writer and number, have a length of their own, and end in `;`.
fn body(writer: &str, number: u64) -> Vec<u8> {
    let length = 20 + (number.wrapping_mul(2_654_435_761) % 6_000) as usize;
    let mut bytes = format!("{writer}:{number}:").into_bytes();
    bytes.resize(bytes.len() + length, b'a' + (number % 26) as u8);
    bytes.push(b';');
    bytes
}

/// One acknowledged write: where its bytes begin, and what they are.
pub struct Acknowledged {
    stream: String,
    start: u64,
    writer: String,
    number: u64,
}

/// What the writers were told.
#[derive(Default)]
pub struct Book {
    pub acknowledged: Vec<Acknowledged>,
    /// Each producer's newest receipt.
    receipts: BTreeMap<String, (Key, Receipt)>,
    /// Writes of producers that have no answer yet.
    pending: BTreeMap<String, u64>,
    /// Keyless writes that have no answer and never will.
    pub unknown: u64,
    /// Streams whose deletion was acknowledged.
    pub deleted: Vec<String>,
}

pub struct Load {
    base: String,
    book: Mutex<Book>,
    /// No new write begins while it holds; one on its way goes on.
    paused: AtomicBool,
    ended: AtomicBool,
    in_flight: AtomicU64,
}

impl Load {
    pub fn new(server: &Server) -> Arc<Self> {
        let base = server.url("load");
        for name in ["shared", "alone-1", "alone-2", "keyless"] {
            let (_, answer) = stream(&format!("{base}/{name}")).create(CONTENT_TYPE, None, false);
            assert!(matches!(answer.outcome, Outcome::Done(_)), "{}", answer.describe());
        }
        Arc::new(Self {
            base,
            book: Mutex::default(),
            paused: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            in_flight: AtomicU64::new(0),
        })
    }

    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stream(&self, name: &str) -> Stream {
        stream(&format!("{}/{name}", self.base))
    }

    /// Waits for the next turn; `false` at the end.
    fn turn(&self) -> bool {
        loop {
            if self.ended.load(Ordering::SeqCst) {
                return false;
            }
            self.in_flight.fetch_add(1, Ordering::SeqCst);
            if !self.paused.load(Ordering::SeqCst) {
                return true;
            }
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn turn_over(&self, answered: bool) {
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        if !answered {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Lets every write that is on its way end, and no other begin.
    pub fn pause(&self) {
        self.paused.store(true, Ordering::SeqCst);
        wait_for("the writers to pause", || (self.in_flight.load(Ordering::SeqCst) == 0).then_some(()));
    }

    pub fn resume(&self) {
        self.paused.store(false, Ordering::SeqCst);
    }

    /// A producer that repeats each write until it has an answer.
    fn keyed(&self, name: &str, producer: &str) {
        let stream = self.stream(name);
        let mut number = 0;
        while self.turn() {
            let key = Key { id: producer.to_owned(), epoch: 0, seq: number };
            self.book().pending.insert(producer.to_owned(), number);
            let answer = append(&stream, &body(producer, number), Some(key.clone()));
            let receipt = match answer.outcome {
                Outcome::Done(Written::Receipt(receipt)) => receipt,
                Outcome::Unknown => {
                    self.turn_over(false);
                    continue;
                }
                Outcome::Refused(refusal) if refusal.status == 503 => {
                    self.turn_over(false);
                    continue;
                }
                other => panic!("{producer} {number}: {other:?}"),
            };
            let (start, end) = receipt.range.expect("the newest write's range is known");
            assert_eq!(end.0 - start.0, body(producer, number).len() as u64, "{producer} {number}");
            let mut book = self.book();
            let (stream, writer) = (name.to_owned(), producer.to_owned());
            book.acknowledged.push(Acknowledged { stream, start: start.0, writer, number });
            book.receipts.insert(producer.to_owned(), (key, receipt));
            book.pending.remove(producer);
            drop(book);
            number += 1;
            self.turn_over(true);
        }
    }

    /// A writer without a key: it cannot know of a write without an answer, and never repeats one.
    fn keyless(&self, name: &str, writer: &str) {
        let stream = self.stream(name);
        let mut number = 0;
        while self.turn() {
            let bytes = body(writer, number);
            let answer = append(&stream, &bytes, None);
            let mut book = self.book();
            let answered = match answer.outcome {
                Outcome::Done(Written::Appended { next, .. }) => {
                    let (stream, writer) = (name.to_owned(), writer.to_owned());
                    let start = next.0 - bytes.len() as u64;
                    book.acknowledged.push(Acknowledged { stream, start, writer, number });
                    true
                }
                Outcome::Refused(_) => false,
                Outcome::Unknown => {
                    book.unknown += 1;
                    false
                }
                other => panic!("{writer} {number}: {other:?}"),
            };
            drop(book);
            number += 1;
            self.turn_over(answered);
        }
    }

    /// Makes streams, writes to them and deletes them.
    fn deleter(&self) {
        let mut number = 0;
        while self.turn() {
            let name = format!("short-lived-{number}");
            let stream = self.stream(&name);
            let created = matches!(stream.create(CONTENT_TYPE, Some(b"gone soon"), false).1.outcome, Outcome::Done(_));
            if created && matches!(stream.delete(None).1.outcome, Outcome::Done(_)) {
                self.book().deleted.push(name);
            }
            number += 1;
            self.turn_over(created);
        }
    }

    /// Everything that a stream holds now, the leader having confirmed that it leads.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let (stream, mut bytes) = (self.stream(name), Vec::new());
        loop {
            let from = From::At(Offset(bytes.len() as u64));
            let read = Read { from, bytes_max: None, leader: true, incarnation: None, wait_ms: None };
            let (_, answer) = stream.read(&read);
            let piece = answer.done().expect("the stream can be read");
            bytes.extend_from_slice(&piece.body);
            if piece.up_to_date {
                return bytes;
            }
        }
    }

    /// Whatever was acknowledged is there; nothing applied twice; what was deleted stays so.
    pub fn check(&self) {
        let book = self.book();
        let mut held: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        for one in &book.acknowledged {
            let bytes = held.entry(&one.stream).or_insert_with(|| self.bytes(&one.stream));
            let (start, expected) = (one.start as usize, body(&one.writer, one.number));
            let found = bytes.get(start..start + expected.len());
            assert!(
                found == Some(expected.as_slice()),
                "{}: {} {} was acknowledged at {start} and is not there; the stream has {} bytes",
                one.stream,
                one.writer,
                one.number,
                bytes.len()
            );
        }
        for (name, bytes) in &held {
            assert_each_once(name, bytes, &book);
        }
        for name in &book.deleted {
            let (_, head) = self.stream(name).head();
            assert_eq!(head.answer.status, 404, "{name} was deleted and is back");
        }
    }

    /// A repeat of each producer's newest acknowledged write is answered with the original receipt.
    pub fn repeat_newest(&self) {
        let book = self.book();
        for (producer, (key, receipt)) in &book.receipts {
            let name = match producer.as_str() {
                "alone-1" | "alone-2" => producer,
                _ => "shared",
            };
            let answer = append(&self.stream(name), &body(producer, key.seq), Some(key.clone()));
            let Outcome::Done(Written::Receipt(again)) = answer.outcome else {
                panic!("{producer} {}: the repeat is answered {answer:?}", key.seq);
            };
            assert!(again.repeat, "{producer} {}: applied a second time: {again:?}", key.seq);
            // A write whose answer was lost may have applied behind it; then its range is no longer kept.
            let evicted = again.range.is_none() && book.pending.contains_key(producer);
            assert!(evicted || again.range == receipt.range, "{producer} {}: {again:?}, {receipt:?}", key.seq);
            assert_eq!(again.incarnation, receipt.incarnation);
        }
    }
}

fn append(stream: &Stream, body: &[u8], key: Option<Key>) -> highwater_client::Answer<Written> {
    let append = Append { body, content_type: CONTENT_TYPE, incarnation: None, key, close: false };
    stream.append(&append).1
}

/// The stream is a sequence of whole writes, and no write of a writer comes twice or before an earlier one of its own.
fn assert_each_once(name: &str, bytes: &[u8], book: &Book) {
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let mut at = 0;
    while at < bytes.len() {
        let mut fields = bytes[at..].splitn(3, |byte| *byte == b':');
        let text = |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
        let (writer, number) = (text(fields.next()), text(fields.next()));
        let number: u64 = number.parse().unwrap_or_else(|_| panic!("{name}: no write begins at {at}"));
        let expected = body(&writer, number);
        assert!(bytes[at..].starts_with(&expected), "{name}: {writer} {number} at {at} has other bytes");
        let before = last.insert(writer.clone(), number);
        let follows = if writer == "keyless" { before < Some(number) } else { number == before.map_or(0, |n| n + 1) };
        assert!(follows, "{name}: {writer} {number} at {at} comes after {before:?}");
        at += expected.len();
    }
    for (writer, number) in &last {
        let acknowledged = book.receipts.get(writer).map(|(key, _)| key.seq);
        let pending = book.pending.get(writer).copied();
        let known = writer == "keyless" || Some(*number) == acknowledged || Some(*number) == pending;
        assert!(known, "{name}: {writer} {number} was never sent; acknowledged {acknowledged:?}, pending {pending:?}");
    }
}

/// Runs every writer while `during` acts on the server.
pub fn under_load(load: &Arc<Load>, during: impl FnOnce()) {
    thread::scope(|scope| {
        for (stream, producer) in [("shared", "one"), ("shared", "two"), ("alone-1", "alone-1"), ("alone-2", "alone-2")]
        {
            scope.spawn(move || load.keyed(stream, producer));
        }
        scope.spawn(|| load.keyless("keyless", "keyless"));
        scope.spawn(|| load.deleter());
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(during));
        load.ended.store(true, Ordering::SeqCst);
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}

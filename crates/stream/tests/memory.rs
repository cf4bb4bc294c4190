//! What streams cost in memory. A program of its own, because it counts every allocation.

use bytes::Bytes;
use highwater_base::{Digest, Incarnation, Millis};
use highwater_stream::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread holds, as an allocator hands them out: in steps of 16, with 8 of its own before each.
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: i64) {
    HELD.set(HELD.get() + bytes);
    PEAK.set(PEAK.get().max(HELD.get()));
}

fn cost(bytes: usize) -> i64 {
    (bytes + 8).next_multiple_of(16) as i64
}

// SAFETY: every call goes to the system's allocator unchanged; the counters are plain numbers of this thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(cost(layout.size()));
        // SAFETY: the caller's duties are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-cost(layout.size()));
        // SAFETY: the caller's duties are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const STREAMS: u64 = 20_000;

/// Spreads numbers, as random tokens do, over the index.
fn token(n: u64) -> Incarnation {
    Incarnation::new((1 << 52) | (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12)).expect("52 bits above 2^52")
}

fn path(n: u64) -> String {
    format!("service-{:03}/documents/{n:012}", n % 1_000)
}

fn create(n: u64) -> Command {
    create_at(n, path(n))
}

fn create_at(n: u64, path: String) -> Command {
    let create = Create::plain("application/vnd.ursula.sqlite-vfs.v2", token(n), Bytes::new());
    Command { at: Millis(n), path, operation: Operation::Create(create) }
}

fn claim(n: u64, id: &str, epoch: u64) -> Command {
    let body = Bytes::from_static(b"claim");
    let append = Append {
        incarnation: None,
        producer: Some(ProducerKey { id: id.to_owned(), epoch, seq: 0, digest: Some(Digest::of(&body)) }),
        body_fault: None,
        content_type: Some("application/vnd.ursula.sqlite-vfs.v2".to_owned()),
        stream_seq: None,
        close: false,
        body,
    };
    Command { at: Millis(n), path: path(n), operation: Operation::Append(append) }
}

/// A stream that is at rest costs at most 300 bytes and each of its producers 300 more, paths of 34 bytes included.
#[test]
fn an_idle_stream_costs_300_bytes_and_300_a_producer() {
    let mut machine = Machine::new(Options::default());
    let empty = HELD.get();
    for n in 0..STREAMS {
        assert!(machine.apply(&create(n)).result.is_ok());
    }
    drop(machine.take_changed());
    let bare = HELD.get() - empty;
    for epoch in 0..2 {
        for n in 0..STREAMS {
            assert!(machine.apply(&claim(n, "sqlite-ursula-vfs/2", epoch)).result.is_ok());
        }
    }
    drop(machine.take_changed());
    let one_producer = HELD.get() - empty - bare;
    let streams = STREAMS as i64;
    println!("{} bytes a stream, {} a producer", bare / streams, one_producer / streams);
    assert!(bare / streams <= 300, "{} bytes a stream", bare / streams);
    assert!(one_producer / streams <= 300, "{} bytes a producer", one_producer / streams);
}

/// What a stream costs for paths of several lengths, and that what the machine says of itself is near enough to evict by.
#[test]
fn an_idle_stream_costs_300_bytes_with_short_and_with_long_paths() {
    for length in [24, 34, 40] {
        let mut machine = Machine::new(Options::default());
        let empty = HELD.get();
        for n in 0..STREAMS {
            assert!(machine.apply(&create_at(n, format!("bucket/{n:0width$}", width = length - 7))).result.is_ok());
        }
        drop(machine.take_changed());
        let each = (HELD.get() - empty) / STREAMS as i64;
        let said = machine.resident().bytes as i64 / STREAMS as i64;
        println!("{each} bytes a stream with a path of {length}, and {said} by its own word");
        assert!(each <= 300, "{each} bytes a stream with a path of {length}");
        assert!((each - said).abs() <= each / 4, "{each} bytes, and {said} by its own word");
    }
}

/// What left memory costs nothing.
#[test]
fn a_stream_that_is_stored_alone_costs_nothing() {
    let mut machine = Machine::new(Options::default());
    let empty = HELD.get();
    for n in 0..STREAMS {
        assert!(machine.apply(&create(n)).result.is_ok());
    }
    drop(machine.take_changed());
    let swept = machine.evict(0, 10 * STREAMS, &mut |_| true);
    assert_eq!((swept.streams, machine.resident()), (STREAMS, Resident::default()));
    // The buckets' counts stay.
    let left = HELD.get() - empty;
    assert!(left / 1_000 <= 100, "{left} bytes for 1,000 buckets and {STREAMS} streams");
    assert_eq!(machine.streams(), STREAMS);
}

/// The same with many producers on one stream: room is made by the eighth.
#[test]
fn the_most_producers_cost_300_bytes_each() {
    let mut machine = Machine::new(Options::default());
    assert!(machine.apply(&create(1)).result.is_ok());
    let before = HELD.get();
    let mut producers = 0;
    while machine.apply(&claim(1, &format!("producer-{producers:04}-of-many"), 7)).result.is_ok() {
        producers += 1;
    }
    assert_eq!(producers, 4_096);
    let each = (HELD.get() - before) / producers;
    assert!(each <= 300, "{each} bytes a producer");
}

/// Memory does not follow the bytes that are written: the machine keeps no payload.
#[test]
fn what_is_written_is_not_kept() {
    let mut machine = Machine::new(Options::default());
    assert!(machine.apply(&create(1)).result.is_ok());
    let mut command = claim(1, "owner", 0);
    let before = HELD.get();
    for seq in 0..64 {
        if let Operation::Append(append) = &mut command.operation {
            append.body = Bytes::from(vec![7; 1 << 20]);
            append.producer = append.producer.take().map(|key| ProducerKey { seq, ..key });
        }
        assert!(machine.apply(&command).result.is_ok());
    }
    drop(command);
    assert_eq!(machine.head(&path(1), Millis(9)).map(|head| head.next.0), Ok(64 << 20));
    assert!(HELD.get() - before < 4_096, "{} bytes stay", HELD.get() - before);
}

/// A record that says it holds four billion producers, or a text of four gigabytes, is refused at its own cost.
#[test]
fn a_lying_length_allocates_nothing() {
    let mut machine = Machine::new(Options::default());
    assert!(machine.apply(&create(1)).result.is_ok());
    let (object, state) = machine.take_changed().remove(0);
    let stored = state.expect("the stream is there").to_vec();
    let mut records = vec![];
    for honest in [stored, claim(1, "owner", 0).encode()] {
        for at in 2..honest.len().saturating_sub(3) {
            let mut lying = honest.clone();
            lying[at..at + 4].fill(0xff);
            records.push(Bytes::from(lying));
        }
    }
    let lengths = records.len();
    let before = HELD.get();
    PEAK.set(before);
    for record in records {
        drop(Command::decode(record.clone()));
        let objects = vec![(object, record)];
        drop(Machine::load(Options::default(), Bytes::new(), objects));
    }
    assert!(lengths > 100);
    assert!(PEAK.get() - before < 4_096, "{} bytes at once", PEAK.get() - before);
}

//! Very many streams.

use crate::alone;
use crate::counting::{held, ran_ns};
use crate::host::{CountingDisk, Host};
use bytes::Bytes;
use highwater_node::ReadRequest;
use highwater_node::shard::Answer;
use highwater_stream::ReadFrom;
use std::sync::atomic::Ordering;

const STREAMS: u64 = 100_000;

fn path(number: u64) -> String {
    format!("s-{:03}/docs/{number:013}", number % 1_000)
}

fn make(host: &mut Host, numbers: std::ops::Range<u64>, body: &'static [u8]) {
    let mut numbers = numbers.peekable();
    while numbers.peek().is_some() {
        let some: Vec<_> = numbers.by_ref().take(1_000).map(|number| host.create(&path(number), body)).collect();
        host.write(some);
    }
}

/// The whole node: machines, places of their bytes, log, everything. Paths have 24 bytes; the next ten are 16 more.
#[test]
fn a_hundred_thousand_idle_streams_cost_300_bytes_each_and_a_restart_reads_no_payload() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let before = held();
    let mut host = Host::open(directory.path(), &CountingDisk::default());
    let empty = held() - before;
    make(&mut host, 0..STREAMS, b"");
    host.node.close().expect("a clean end");
    let disk = CountingDisk::default();
    let before = held();
    let mut host = Host::open(directory.path(), &disk);
    let bare = (held() - before - empty) / STREAMS as i64;
    println!("{empty} bytes without streams");
    println!("{bare} bytes an empty stream, after a restart");
    assert!(bare <= 300, "{bare} bytes an empty stream");
    assert_eq!(disk.0.payload.load(Ordering::Relaxed), 0);

    let some: Vec<u64> = (0..STREAMS).collect();
    for numbers in some.chunks(1_000) {
        host.write(numbers.iter().map(|number| Host::append(&path(*number), Bytes::from_static(&[7; 2_000]))));
    }
    let disk = CountingDisk::default();
    host.node.close().expect("a clean end");
    let before = held();
    let host = Host::open(directory.path(), &disk);
    let each = (held() - before - empty) / STREAMS as i64;
    let (payload, index) = (disk.0.payload.load(Ordering::Relaxed), disk.0.index.load(Ordering::Relaxed));
    println!("{each} bytes a stream with payload, {payload} bytes of payload and {index} of index read at the restart");
    assert!(each <= 400, "{each} bytes a stream");
    assert_eq!(payload, 0, "a restart reads the index alone");
    assert!(index < STREAMS * 400, "{index} bytes of index");
    assert_eq!(host.node.core().status().iter().map(|group| group.streams).sum::<u64>(), STREAMS);
}

/// Streams for which there is no room in memory cost a few bytes each, from the first to the last and after a restart, and are
/// read and written like all others.
#[test]
fn streams_beyond_the_room_in_memory_cost_a_few_bytes_each() {
    let _alone = alone();
    let room = 4 << 20;
    let directory = tempfile::tempdir().expect("a directory");
    let before = held();
    let mut host = Host::open_with(directory.path(), &CountingDisk::default(), room);
    let empty = held() - before;
    let mut costs = Vec::new();
    for part in 0..5 {
        make(&mut host, part * STREAMS / 5..(part + 1) * STREAMS / 5, b"x");
        costs.push(held() - before - empty);
    }
    host.node.close().expect("a clean end");
    let before = held();
    let mut host = Host::open_with(directory.path(), &CountingDisk::default(), room);
    let restarted = held() - before - empty;
    println!("{costs:?} bytes for each fifth of {STREAMS} streams, {restarted} after a restart");
    let status = host.node.core().status();
    let resident: u64 = status.iter().map(|group| group.hot.streams).sum();
    println!("{resident} streams in memory");
    assert_eq!(status.iter().map(|group| group.streams).sum::<u64>(), STREAMS);
    assert!(resident < STREAMS / 4, "{resident} streams in memory");
    for number in (0..STREAMS).step_by(997) {
        host.write([Host::append(&path(number), Bytes::from_static(b"more"))]);
        let request = ReadRequest {
            path: path(number),
            incarnation: None,
            from: ReadFrom::Start,
            length_max: 100,
            leader: true,
            wait_ms: None,
        };
        let Some(Answer::Read(Ok(Ok(located)))) = host.read(request) else { panic!("{number} is there") };
        assert_eq!(host.node.fetch(located).expect("its bytes are there").body, b"xmore"[..]);
    }
    // What changed since the last checkpoints, of which 2 MiB in the log begin one, is in memory beside the room.
    let bound = room as i64 + (12 << 20);
    assert!(costs.iter().chain([&restarted]).all(|cost| *cost < bound), "{costs:?}, {restarted}");
    let grown = costs[4] - costs[1];
    assert!(grown < STREAMS as i64 * 20, "{grown} bytes for three fifths of {STREAMS} streams");
}

/// The story: with 100,000 streams there, appends to 64 of them fell to a third, because every round looked at all
/// (electric #4695, #4697). Here the work of an append, of a tick and of a checkpoint must not know how many idle.
#[test]
fn appends_cost_the_same_with_a_hundred_streams_and_with_a_hundred_thousand() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let mut host = Host::open(directory.path(), &CountingDisk::default());
    make(&mut host, 0..100, b"");
    work(&mut host);
    let few = work(&mut host);
    make(&mut host, 100..STREAMS, b"");
    // A new base of an index, which goes through all of a group's streams, comes once for many checkpoints.
    let many = (0..4).map(|_| work(&mut host)).min().unwrap_or_default();
    println!("{few} ns with 100 streams, {many} ns with {STREAMS}");
    assert!(few > 0, "the system tells how long a thread ran");
    assert!(many < few * 4, "{few} ns with 100 streams, {many} ns with {STREAMS}");
}

/// Nanoseconds for a few thousand appends and two seconds of ticks.
fn work(host: &mut Host) -> u64 {
    let begun = ran_ns();
    for _ in 0..60 {
        host.write((0..64).map(|number| Host::append(&path(number), Bytes::from_static(&[1; 256]))));
    }
    host.node.pass(2_000);
    ran_ns() - begun
}

/// The story: 300 parallel creates took 4 ms each, one after another (electric #4703).
#[test]
fn three_hundred_creates_that_come_together_share_one_sync() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let mut host = Host::open(directory.path(), &CountingDisk::default());
    let creates: Vec<_> = (0..300).map(|number| host.create(&path(number), b"x")).collect();
    let inputs = creates.into_iter().zip(1..).map(|((path, operation), token)| {
        let proposal = highwater_node::shard::Proposal::new(highwater_base::Millis(1), path, operation);
        highwater_node::shard::Input::Write { token, proposal }
    });
    host.node.turn(inputs.collect::<Vec<_>>());
    assert_eq!(host.node.appends_waiting(), 1, "one batch for the log");
    host.node.sync();
    assert_eq!(host.node.answers().len(), 300);
}

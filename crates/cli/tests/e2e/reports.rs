//! Reports about comparable servers, each kept as a test that tells its story, against a real server.

use crate::bed::{SOON, Server, folder, wait_for};
use crate::load::{CONTENT_TYPE, Load, stream, under_load};
use highwater_client::{Append, From, Offset, Outcome, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Follows a stream by long-poll from its start, through every death of its server, until `done` and at its end.
fn follow(url: &str, done: &AtomicBool) -> Vec<u8> {
    let (stream, mut bytes) = (stream(url), Vec::new());
    let mut waited_ms_max = 0;
    loop {
        let from = From::At(Offset(bytes.len() as u64));
        let read = Read { from, bytes_max: None, leader: false, incarnation: None, wait_ms: Some(300) };
        let ending = done.load(Ordering::SeqCst);
        let begun = Instant::now();
        let piece = match stream.read(&read).1.outcome {
            Outcome::Done(piece) => piece,
            // It is starting, or it died; a reader asks again.
            Outcome::Unknown => continue,
            Outcome::Refused(refusal) if refusal.status == 503 => continue,
            other => panic!("a waiting reader was answered {other:?}"),
        };
        waited_ms_max = waited_ms_max.max(begun.elapsed().as_millis());
        assert_eq!(piece.next.0, (bytes.len() + piece.body.len()) as u64, "an answer that leaves something out");
        bytes.extend_from_slice(&piece.body);
        if ending && piece.up_to_date && piece.body.is_empty() {
            assert!(waited_ms_max < SOON.as_millis(), "a wait of 300 ms took {waited_ms_max} ms");
            return bytes;
        }
    }
}

/// Ursula #152 and #168: waiting readers were cut off before their time and, after a change of the leader, sent to one
/// that was no longer it.
#[test]
fn a_waiting_reader_hears_every_append_through_restarts_of_the_server() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let load = Load::new(&server);
    let url = server.url("load/shared");
    let done = AtomicBool::new(false);
    let heard = thread::scope(|scope| {
        let reader = scope.spawn(|| follow(&url, &done));
        under_load(&load, || {
            for round in 0..4 {
                let before = load.book().acknowledged.len();
                wait_for("the load to go on", || (load.book().acknowledged.len() > before + 60).then_some(()));
                if round % 2 == 0 {
                    server.kill();
                } else {
                    server.terminate();
                }
                server.restart();
            }
            load.pause();
        });
        done.store(true, Ordering::SeqCst);
        reader.join().expect("the reader")
    });
    load.check();
    assert!(heard == load.bytes("shared"), "the reader heard {} bytes that are not the stream's", heard.len());
    assert!(heard.len() > 100_000, "only {} bytes were written", heard.len());
}

/// electric #4703 once more, and a crash behind it: what was created at once is there for good.
#[test]
fn three_hundred_streams_created_at_once_are_all_there_after_a_kill() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let urls: Vec<String> = (0..300).map(|number| server.url(&format!("at-once/{number}"))).collect();
    thread::scope(|scope| {
        for url in &urls {
            scope.spawn(move || {
                let (_, answer) = stream(url).create(CONTENT_TYPE, Some(b"x"), false);
                assert_eq!(answer.status, 201, "{url}: {}", answer.describe());
            });
        }
    });
    server.kill();
    server.restart();
    for url in &urls {
        let (_, head) = stream(url).head();
        assert_eq!(head.answer.status, 200, "{url}");
    }
}

/// Ursula 0.11.5: without an object store, 65 MiB in one group and the server refused every write for good. Here the
/// capacity is the disk; the log, which is smaller than what is written, is given back as it goes.
/// `HIGHWATER_REPORT_BYTES` asks for another amount than what fits a gate.
#[test]
fn more_than_the_log_holds_is_written_to_one_stream_without_an_object_store() {
    const PIECE_BYTES: usize = 4 << 20;
    const LOG_BYTES_MAX: u64 = 256 << 20;
    let bytes: u64 = std::env::var("HIGHWATER_REPORT_BYTES")
        .map_or(LOG_BYTES_MAX + (32 << 20), |bytes| bytes.parse().expect("HIGHWATER_REPORT_BYTES is a number"));
    let folder = folder();
    let mut server = Server::new(folder.path());
    server.options = vec!["--log-bytes-max".to_owned(), LOG_BYTES_MAX.to_string()];
    server.restart();
    let stream = stream(&server.url("large/one"));
    assert_eq!(stream.create(CONTENT_TYPE, None, false).1.status, 201);
    let piece = |number: u64| -> Vec<u8> {
        let mut bytes = number.to_le_bytes().repeat(PIECE_BYTES / 8);
        bytes[17] = b'x';
        bytes
    };
    let pieces = bytes / PIECE_BYTES as u64;
    for number in 0..pieces {
        let body = piece(number);
        let append = Append { body: &body, content_type: CONTENT_TYPE, incarnation: None, key: None, close: false };
        let begun = Instant::now();
        // A log that is full for a moment says so and is asked again; one that stays full fails this.
        while let Outcome::Refused(refusal) = stream.append(&append).1.outcome {
            assert_eq!(refusal.status, 503, "{refusal:?}");
            assert!(begun.elapsed() < SOON, "piece {number} of {pieces}: {refusal:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }
    server.kill();
    server.restart();
    for number in 0..pieces {
        let (from, mut found) = (number * PIECE_BYTES as u64, Vec::new());
        while found.len() < PIECE_BYTES {
            let at = From::At(Offset(from + found.len() as u64));
            let bytes_max = Some((PIECE_BYTES - found.len()) as u64);
            let read = Read { from: at, bytes_max, leader: false, incarnation: None, wait_ms: None };
            found.extend_from_slice(&stream.read(&read).1.done().expect("it can be read").body);
        }
        assert!(found == piece(number), "piece {number} is another");
    }
    assert_eq!(stream.head().1.answer.status, 200);
}

//! The scrub's thread, and what readers of damaged bytes are told.

use bytes::Bytes;
use highwater_base::Offset;
use highwater_disk::SimDisk;
use highwater_disk::system::{SystemClock, SystemRandom};
use highwater_node::rooms::Asker;
use highwater_node::{Config, Handle, Node, ReadRequest, ScrubPass, Unavailable};
use highwater_stream::{Append, Create, Operation, ReadFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn config() -> Config {
    Config {
        groups: 1,
        wal_segment_bytes: 1 << 20,
        wal_bytes_max: 16 << 20,
        checkpoint_bytes: 64 << 10,
        scrub_interval_ms: 20,
        scrub_bytes_per_second: 64 << 20,
        ..Config::new("/data")
    }
}

fn open(disk: &SimDisk, config: Config) -> Node {
    let clock = Arc::new(SystemClock::new());
    Node::open(config, Arc::new(disk.clone()), clock, Box::new(SystemRandom)).expect("opens")
}

async fn fill(handle: &Handle, path: &str) {
    let create = Create::plain("application/octet-stream", handle.issue_incarnation(), Bytes::new());
    handle.write(path.to_owned(), Operation::Create(create)).await.expect("serves").result.expect("created");
    for _ in 0..4 {
        let append = Append::plain("application/octet-stream", Bytes::from(vec![7; 50_000]));
        handle.write(path.to_owned(), Operation::Append(append)).await.expect("serves").result.expect("taken");
    }
}

fn read(path: &str, from: u64) -> ReadRequest {
    ReadRequest {
        path: path.to_owned(),
        incarnation: None,
        from: ReadFrom::At(Offset(from)),
        length_max: 60_000,
        leader: true,
        wait_ms: None,
    }
}

/// Waits for a scrub that began after this call and has ended.
async fn next_scrub(handle: &Handle) -> ScrubPass {
    let began = Instant::now();
    let first = handle.status().scrub.running.map_or(0, |pass| pass.began_ms);
    let before = handle.status().scrub.last.map_or(first, |pass| pass.began_ms.max(first));
    loop {
        if let Some(pass) = handle.status().scrub.last.filter(|pass| pass.began_ms > before) {
            return pass;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "no scrub ends: {:?}", handle.status().scrub);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_scrub_runs_by_itself_shows_its_progress_and_tells_of_damage_that_nobody_read() {
    let disk = SimDisk::new(1);
    let node = open(&disk, config());
    let handle = node.handle();
    runtime().block_on(async {
        fill(&handle, "hit").await;
        fill(&handle, "spared").await;
        drop(handle.pin(0).await.expect("a checkpoint of all of it"));
        let pass = next_scrub(&handle).await;
        assert!(pass.bytes > 400_000 && pass.faults == 0 && pass.ended_ms >= Some(pass.began_ms), "{pass:?}");
        disk.flip_bit(Path::new("/data/store/g0/data-00000001"), 4096 + 9).expect("a data file");
        let pass = next_scrub(&handle).await;
        let status = handle.status().scrub;
        assert_eq!(pass.faults, 1, "{status:?}");
        let fault = &status.faults[0];
        assert_eq!((fault.position, fault.from, fault.to), (4096, Some(0), Some(65_504)));
        let stream = fault.stream.clone().expect("named");
        let refused = handle.read(read(&stream, 0)).await.expect_err("damaged bytes are not served");
        assert!(matches!(&refused, Unavailable::StoredBytesDamaged(why) if why.contains("data-00000001")), "{refused}");
        let sound = handle.read(read(&stream, 70_000)).await.expect("serves").expect("readable");
        assert_eq!(sound.body[..], [7; 60_000]);
        let other = if stream == "hit" { "spared" } else { "hit" };
        assert!(handle.read(read(other, 0)).await.expect("serves").is_ok());
    });
    node.shutdown().expect("a clean end");
}

#[test]
fn a_reader_who_meets_damage_first_puts_it_on_the_status_page() {
    let disk = SimDisk::new(1);
    let node = open(&disk, Config { scrub_bytes_per_second: 0, ..config() });
    let handle = node.handle();
    runtime().block_on(async {
        fill(&handle, "s").await;
        drop(handle.pin(0).await.expect("a checkpoint"));
        assert!(handle.status().scrub.faults.is_empty());
        disk.flip_bit(Path::new("/data/store/g0/data-00000001"), 4096 + 9).expect("a data file");
        handle.read(read("s", 0)).await.expect_err("damaged");
        handle.read(read("s", 0)).await.expect_err("still damaged");
        let status = handle.status();
        let [fault] = &status.scrub.faults[..] else { panic!("{:?}", status.scrub) };
        assert_eq!(fault.stream.as_deref(), Some("s"));
        assert!(status.ready && status.disk_free_bytes.is_some() && status.scrub.last.is_none());
    });
    node.shutdown().expect("a clean end");
}

/// A scrub at a byte a second must not hold a shutdown up.
#[test]
fn a_shutdown_does_not_wait_for_the_scrub() {
    let disk = SimDisk::new(1);
    let node = open(&disk, Config { scrub_bytes_per_second: 1, ..config() });
    let handle = node.handle();
    runtime().block_on(async {
        fill(&handle, "s").await;
        drop(handle.pin(0).await.expect("a checkpoint"));
        let began = Instant::now();
        while handle.status().scrub.running.is_none() {
            assert!(began.elapsed() < Duration::from_secs(20), "no scrub begins");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let began = Instant::now();
    node.shutdown().expect("a clean end");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// An answer of eight mebibytes was fetched whole before its first byte was sent, and a few readers held a gigabyte.
#[test]
fn a_long_read_comes_in_parts_that_end_where_blocks_do_and_names_damage_before_it_begins_again() {
    const BLOCK: u64 = 65_504;
    let disk = SimDisk::new(2);
    let node = open(&disk, Config { checkpoint_bytes: 8 << 20, scrub_bytes_per_second: 0, ..config() });
    let handle = node.handle();
    runtime().block_on(async {
        for _ in 0..4 {
            fill(&handle, "s").await;
        }
        drop(handle.pin(0).await.expect("a checkpoint of all of it"));
        let ask = |from| ReadRequest { length_max: u64::MAX, ..read("s", from) };
        let whole = handle.read(ask(0)).await.expect("serves").expect("readable");
        let (mut at, mut parts) = (0, Vec::new());
        while at < whole.next.0 {
            let part =
                handle.read_begun(ask(at), 3 * BLOCK + 7, Asker::NOBODY).await.expect("serves").expect("readable");
            assert_eq!((part.start.0, part.next, part.up_to_date), (at, whole.next, true), "all else is of the whole");
            let rest = whole.next.0 - at;
            assert_eq!(part.body.len() as u64, rest.min(3 * BLOCK));
            parts.extend_from_slice(&part.body);
            at += part.body.len() as u64;
        }
        assert!(parts == whole.body, "the parts are the whole");

        let file = Path::new("/data/store/g0").join("data-00000001");
        disk.flip_bit(&file, 4096 + 5 * 65_536 + 99).expect("a data file");
        let begun = handle.read_begun(ask(0), BLOCK, Asker::NOBODY).await.expect("serves").expect("sound");
        assert_eq!(begun.body.len() as u64, BLOCK);
        handle.read_begun(ask(5 * BLOCK), BLOCK, Asker::NOBODY).await.expect_err("damaged");
        let told = handle
            .read_begun(ask(0), BLOCK, Asker::NOBODY)
            .await
            .expect_err("an answer that could not be ended does not begin");
        assert!(matches!(told, Unavailable::StoredBytesDamaged(_)), "{told}");
        let sound = handle.read_begun(ReadRequest { length_max: BLOCK, ..read("s", 0) }, BLOCK, Asker::NOBODY).await;
        assert!(sound.expect("serves").is_ok(), "what is sound is still served");
    });
    node.shutdown().expect("a clean end");
}

//! A newest checkpoint that does not read any more: the server says so, and keeps what could be its only copy.

mod support;

use highwater_disk::{Disk, SimDisk};
use highwater_host::layout::Paths;
use highwater_host::{OpenError, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::{DATA, Server, SetClock, put, try_open};

fn checkpoint(server: &mut Server) {
    server.host.checkpoint_soon();
    server.worker.run_once();
    server.worker.run_once();
}

/// The store's index, and its bytes.
fn index(disk: &SimDisk) -> (PathBuf, u64) {
    let store = Paths::new(Path::new(DATA)).store();
    let found = disk
        .files()
        .into_iter()
        .filter(|(path, _)| path.starts_with(&store) && path.to_string_lossy().contains("index"));
    let found: Vec<_> = found.collect();
    assert_eq!(found.len(), 1, "{found:?} of {:?}", disk.files());
    let path = found[0].0.clone();
    let bytes = disk.open(&path, highwater_disk::OpenMode::Read).expect("opened").length().expect("a length");
    (path, bytes)
}

fn log_segments(disk: &SimDisk) -> usize {
    let log = Paths::new(Path::new(DATA)).log();
    disk.list(&log).expect("listed").iter().filter(|name| name.ends_with(".segment")).count()
}

/// Flips a bit at the end of the newest delta, and starts.
fn refused(disk: &SimDisk, clock: &Arc<SetClock>, kept: Options, delta: u64) {
    let (path, end) = index(disk);
    assert!(delta < end, "a delta was written");
    disk.flip_bit(&path, delta + 40).expect("flipped");
    let store = Paths::new(Path::new(DATA)).store();
    let files = || -> Vec<PathBuf> {
        disk.files().into_iter().map(|(path, _)| path).filter(|path| path.starts_with(&store)).collect()
    };
    let before = files();
    let why = try_open(disk, clock, kept, 1).err().expect("it is refused");
    assert!(matches!(why, OpenError::Gap { .. }), "{why}");
    assert_eq!((files(), index(disk).1), (before, end), "every file is there, to its last byte");
}

#[test]
fn a_damaged_newest_checkpoint_is_refused_before_any_file_goes() {
    let mut server = Server::new(31);
    let account = server.account();
    server.put(account, "first", "text");
    checkpoint(&mut server);
    let delta = index(&server.disk).1.next_multiple_of(4096);
    for n in 0..400 {
        server.put(account, &format!("k{n}"), &"z".repeat(3_000));
    }
    checkpoint(&mut server);
    server.put(account, "last", "text");
    let (disk, clock, kept) = (server.disk.clone(), Arc::clone(&server.clock), server.host.options().clone());
    drop((server.worker, server.host));
    assert!(log_segments(&disk) > 0);
    refused(&disk, &clock, kept, delta);
}

/// The log had been given back whole, so that nothing of it said that something was missing: the server served an older state, without a
/// word.
#[test]
fn a_damaged_newest_checkpoint_is_refused_also_if_the_log_is_empty() {
    for stop in 1..200 {
        let mut server = Server::new(stop);
        let account = server.account();
        server.put(account, "first", "text");
        checkpoint(&mut server);
        server.put(account, "between", "text");
        // A batch that the power cut tore ends the segment.
        server.disk.stop_at(server.disk.operations() + stop % 7 + 1);
        drop(server.try_write(account, vec![put("torn", &"z".repeat(30_000))]));
        let mut server = server.crash();
        server.disk.clear_faults();
        let delta = index(&server.disk).1.next_multiple_of(4096);
        server.clock.advance(400_000);
        checkpoint(&mut server);
        if log_segments(&server.disk) > 0 || index(&server.disk).1 <= delta {
            continue;
        }
        let (disk, clock, kept) = (server.disk.clone(), Arc::clone(&server.clock), server.host.options().clone());
        server.worker.stop().expect("stopped");
        drop(server.host);
        return refused(&disk, &clock, kept, delta);
    }
    panic!("the log is given back whole at some time");
}

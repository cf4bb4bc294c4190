//! What a start tells, and whom it warns.

mod support;

use highwater_disk::SimDisk;
use highwater_host::files;
use highwater_host::{Change, Options};
use highwater_pds::{Fact, Standing};
use std::path::Path;
use support::{Message, Server, SetClock, options, put, try_open};

#[test]
fn a_start_tells_of_accounts_that_relays_know_otherwise_and_of_no_other() {
    let mut server = Server::new(1);
    let (changed, same) = (server.account(), server.account());
    // A lock whose frame found no room: the row alone.
    let standing = server.host.state(|state| state.accounts[&changed].standing);
    let pending = server.host.note(Fact::Standing(changed, Standing { suspended: true, ..standing }));
    assert_eq!(server.settle(pending), Ok(()));
    let (frames, head) = (server.frames(), server.host.head(same));
    let server = server.crash();
    assert_eq!((server.boot.announced, server.boot.frames), (1, 1));
    let all = server.frames();
    assert_eq!(all[..frames.len()], frames[..]);
    let last = Message::of(all.last().expect("a frame"));
    assert_eq!((last.kind.as_str(), last.text("status").as_deref()), ("#account", Some("suspended")));
    assert_eq!(server.host.head(same), head, "nothing is signed");
    let server = server.restart();
    assert_eq!((server.boot.announced, server.boot.frames, server.frames()), (0, 0, all));
}

#[test]
fn every_lift_sets_the_repository_to_a_fresh_commit_on_which_the_next_write_stands() {
    let mut server = Server::new(2);
    let account = server.account();
    server.put(account, "a", "one");
    for change in [Change::Lock, Change::Lift] {
        let pending = server.host.change(account, change);
        assert_eq!(server.settle(pending), Ok(true));
        let again = server.host.change(account, change);
        assert_eq!(server.settle(again), Ok(false), "it is so already");
    }
    let kinds: Vec<_> = server.frames().iter().map(|frame| Message::of(frame).kind).collect();
    assert_eq!(kinds[3..], ["#commit", "#account", "#account", "#sync"]);
    server.put(account, "b", "two");
    support::check_chains(&server.frames());
    assert!(server.text(account, "a").is_some());
}

/// A server with the zone mistyped, or with none, signed and sent what nobody could verify, and no account was found any more.
#[test]
fn a_start_in_another_zone_than_that_of_the_accounts_is_refused_and_changes_nothing() {
    for (theirs, others) in [
        ("pds.example", &["pds.example.net", "example.pds.example", "localhost:4437"][..]),
        ("localhost:4437", &["localhost:4440", "pds.example"]),
    ] {
        let settings = |zone: &str| Options { zone: zone.to_owned(), ..options() };
        let (disk, clock) = (SimDisk::new(8), SetClock::new());
        // Without accounts nothing is fixed.
        drop(Server::with(&disk, &clock, settings(others[0])).worker);
        let mut server = Server::with(&disk.fork(1), &clock, settings(theirs));
        let account = server.account();
        server.put(account, "a", "one");
        let frames = server.frames();
        let disk = server.disk.fork(2);
        drop(server);
        for other in others {
            let refused = try_open(&disk, &clock, settings(other), 3).err().expect("it is refused").to_string();
            for words in ["1 accounts", theirs, other, "data is whole", "pds.zone"] {
                assert!(refused.contains(words), "{words}: {refused}");
            }
            assert_eq!(refused.contains("a listener on 127.0.0.1:4437"), theirs == "localhost:4437", "{refused}");
        }
        let server = try_open(&disk, &clock, settings(theirs), 4).expect("it opens where its accounts are");
        assert_eq!((server.boot.frames, server.frames()), (0, frames));
    }
}

fn witnessed() -> Options {
    Options { witness_path: Some("/outside/witness".into()), ..options() }
}

#[test]
fn a_directory_that_went_back_is_noticed_by_a_witness_outside_it_and_by_the_clock() {
    let (disk, clock) = (SimDisk::new(3), SetClock::new());
    highwater_disk::create_directory_durably(&disk, Path::new("/outside")).expect("made");
    let mut server = Server::with(&disk, &clock, witnessed());
    let account = server.account();
    server.put(account, "a", "one");
    let mut server = server.restart();
    assert_eq!(server.boot.warnings, Vec::<String>::new());
    let copy = server.disk.fork(4);
    server.put(account, "b", "two");
    clock.advance(60_000);
    let server = server.restart();
    assert_eq!(server.boot.warnings, Vec::<String>::new());
    let witness = files::read(&server.disk, Path::new("/outside/witness")).expect("read").expect("a witness");
    files::replace(&copy, Path::new("/outside/witness"), &witness).expect("written");
    let restored = try_open(&copy.fork(5), &clock, witnessed(), 9).expect("it opens, for it acts on no warning");
    assert!(restored.boot.warnings.iter().any(|warning| warning.contains("mark-restored")), "{:?}", restored.boot);
    assert_eq!(restored.boot.frames, 0);
    clock.0.fetch_sub(600_000, std::sync::atomic::Ordering::Relaxed);
    let behind = try_open(&copy.fork(6), &clock, options(), 10).expect("it opens");
    assert!(behind.boot.warnings.iter().any(|warning| warning.contains("behind")), "{:?}", behind.boot);
    clock.advance(30 * 3_600_000);
    let away = try_open(&copy.fork(7), &clock, options(), 11).expect("it opens");
    assert!(away.boot.warnings.iter().any(|warning| warning.contains("nothing was stored")), "{:?}", away.boot);
}

/// A folder that may not be written was told in one line of the log, and the restore was the first to notice.
#[test]
fn a_witness_that_cannot_be_written_shows_in_the_status_until_it_can() {
    let (disk, clock) = (SimDisk::new(9), SetClock::new());
    let mut server = Server::with(&disk, &clock, witnessed());
    server.account();
    let status = server.host.status();
    assert_eq!(status.witness.as_deref(), Some(Path::new("/outside/witness")));
    assert!(status.witness_error.expect("the folder is not there").contains("/outside/witness"));
    highwater_disk::create_directory_durably(&server.disk, Path::new("/outside")).expect("made");
    let server = server.restart();
    assert_eq!(server.host.status().witness_error, None);
    assert!(files::read(&server.disk, Path::new("/outside/witness")).expect("read").is_some());
}

#[test]
fn memory_of_idle_accounts_goes_and_their_answers_stay() {
    let mut few = options();
    few.memory_bytes_max = 200_000;
    few.log.log_bytes_max = 64 << 20;
    let mut server = Server::with(&SimDisk::new(5), &SetClock::new(), few);
    let accounts: Vec<_> = (0..20).map(|_| server.account()).collect();
    for account in &accounts {
        server.write(*account, (0..100).map(|n| put(&format!("k{n}"), "text")).collect());
        server.clock.advance(2_000);
        server.worker.run_once();
    }
    let kept = server.host.status().memory_bytes;
    assert!(kept <= 200_000 && kept > 0, "{kept}");
    for account in &accounts {
        assert!(server.text(*account, "k77").is_some());
        server.put(*account, "k101", "more");
    }
}

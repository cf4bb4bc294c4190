//! A directory that went back in time, and what its first start makes of that.

mod support;

use bytes::Bytes;
use highwater_disk::SimDisk;
use highwater_host::files;
use highwater_host::layout::Paths;
use highwater_host::{Change, mark_restored};
use highwater_pds::AccountId;
use highwater_repo::Commit;
use highwater_repo::car;
use highwater_repo::data::Value;
use highwater_repo::key::PublicKey;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use support::{DATA, Message, Server, SetClock, check_chains, exists, options, seqs, try_open};

/// A server's disk as it was copied, and what the run that is lost sent afterwards.
struct Lost {
    copy: SimDisk,
    clock: Arc<SetClock>,
    /// Everything that was ever sent.
    sent: Vec<Bytes>,
    active: Vec<AccountId>,
    locked: AccountId,
    gone: AccountId,
}

fn lost_run(seed: u64) -> Lost {
    let mut server = Server::new(seed);
    let active: Vec<_> = (0..3).map(|_| server.account()).collect();
    let (locked, gone) = (server.account(), server.account());
    active.iter().for_each(|account| drop(server.put(*account, "kept", "before the copy")));
    for (account, change) in [(locked, Change::Lock), (gone, Change::Decommission)] {
        let pending = server.host.change(account, change);
        assert_eq!(server.settle(pending), Ok(true));
    }
    let options = server.host.options().clone();
    let (disk, clock) = (server.disk.clone(), Arc::clone(&server.clock));
    drop((server.worker, server.host));
    let copy = disk.fork(seed + 1);
    let mut server = Server::with(&disk, &clock, options);
    for round in 0..5 {
        server.clock.advance(1_000);
        active.iter().for_each(|account| drop(server.put(*account, &format!("lost{round}"), "after the copy")));
    }
    let sent = server.frames();
    Lost { copy, clock, sent, active, locked, gone }
}

fn marker() -> std::path::PathBuf {
    Paths::new(Path::new(DATA)).marker()
}

/// Messages by account, of those behind a number.
fn by_account(frames: &[Bytes], behind: u64) -> BTreeMap<String, Vec<Message>> {
    let mut all: BTreeMap<String, Vec<Message>> = BTreeMap::new();
    for message in frames.iter().map(Message::of).filter(|message| message.seq() > behind) {
        all.entry(message.did()).or_default().push(message);
    }
    all
}

/// What the start after a restore has to have told, each once.
fn check(server: &Server, lost: &Lost) {
    let did = |account: AccountId| server.host.state(|state| state.accounts[&account].did.to_string());
    let newest_lost = seqs(&lost.sent).last().copied().expect("frames");
    let frames = server.frames();
    check_chains(&frames);
    let told = by_account(&frames, newest_lost);
    assert_eq!(told.len(), lost.active.len() + 1, "of one account there is nothing to tell");
    assert!(!told.contains_key(&did(lost.gone)));
    assert_eq!(told[&did(lost.locked)].len(), 1);
    assert_eq!(told[&did(lost.locked)][0].text("status").as_deref(), Some("suspended"));
    for account in &lost.active {
        let did = did(*account);
        let [position, sync] = &told[&did][..] else { panic!("{:?}", told[&did]) };
        assert_eq!((position.kind.as_str(), sync.kind.as_str()), ("#account", "#sync"));
        let lost_rev = by_account(&lost.sent, 0)[&did].iter().filter_map(|message| message.text("rev")).max();
        assert!(sync.text("rev") > lost_rev, "a consumer ignores an older revision");
        let Some(Value::Bytes(archive)) = sync.body.get("blocks") else { panic!("{sync:?}") };
        let mut reader = car::Reader::new();
        reader.push(archive);
        let (_, block) = reader.block().expect("an archive").expect("a block");
        let commit = Commit::decode(block).expect("a commit");
        let row = server.host.state(|state| state.accounts[account].clone());
        let key = PublicKey::parse(&row.key.public).expect("a key");
        assert_eq!(commit.verify(&key), Ok(()));
        let head = row.head.expect("a head");
        assert_eq!((commit.rev, commit.data), (head.rev, head.data));
        assert!(server.text(*account, "kept").is_some() && server.text(*account, "lost0").is_none());
    }
    assert!(!exists(&server.disk, &marker()), "the marker is gone");
}

#[test]
fn a_restored_directory_tells_relays_of_every_account_at_a_newer_revision() {
    let lost = lost_run(10);
    mark_restored(&lost.copy, Path::new(DATA), 7, (None, None)).expect("marked");
    lost.clock.advance(60_000);
    let mut server = Server::with(&lost.copy, &lost.clock, options());
    let restored = server.boot.restored.clone().expect("restored");
    assert_eq!((restored.id, restored.accounts, restored.resumed), (7, 4, false));
    assert!(server.boot.relay_poke_pending);
    let newest_lost = seqs(&lost.sent).last().copied().expect("frames");
    check(&server, &lost);
    let report = files::read(&lost.copy, &restored.report).expect("read").expect("a report");
    let report = std::str::from_utf8(&report).expect("text");
    assert_eq!(report.matches("did:web:").count(), lost.active.len());
    // A consumer of the lost run goes on: it is told that something is missing, and gets all of the above.
    let mut consumer = server.host.subscribe(Some(newest_lost)).expect("the cursor is below the ceiling");
    let got = support::drain(&mut consumer);
    assert_eq!(Message::of(&got[0]).kind, "#info");
    assert_eq!(
        seqs(&got[1..]),
        seqs(&server.frames()).into_iter().filter(|seq| *seq > newest_lost).collect::<Vec<_>>()
    );
    // The next write follows the fresh commit.
    let account = lost.active[0];
    let before = server.host.head(account).expect("a head");
    server.put(account, "next", "write");
    let last = Message::of(server.frames().last().expect("a frame"));
    assert_eq!(last.text("since"), Some(before.rev.to_string()));
    assert_eq!(last.body.get("prevData"), Some(&Value::Link(before.data)));
    // And a second start before anybody read it loses nothing of it.
    let frames = server.frames();
    let server = server.crash();
    assert_eq!((server.boot.frames, server.frames()), (0, frames));
}

#[test]
fn a_restore_that_dies_at_any_operation_is_resumed_and_repeats_nothing() {
    let lost = lost_run(20);
    lost.clock.advance(60_000);
    // Made by hand: an empty file, which the start stamps.
    let begun = |seed: u64| {
        let disk = lost.copy.fork(seed);
        files::replace(&disk, &marker(), b"").expect("written");
        disk
    };
    let disk = begun(0);
    let first = disk.operations();
    drop(Server::with(&disk, &lost.clock, options()));
    let last = disk.operations();
    assert!(last > first + 20, "{}", last - first);
    let mut resumed = 0;
    for stop in first..last {
        let disk = begun(stop);
        disk.stop_at(stop);
        let died = try_open(&disk, &lost.clock, options(), stop);
        assert!(disk.stopped());
        drop(died);
        disk.power_loss();
        lost.clock.advance(10);
        let server =
            try_open(&disk, &lost.clock, options(), stop + 1).unwrap_or_else(|error| panic!("{stop}: {error}"));
        resumed += u64::from(server.boot.restored.as_ref().is_some_and(|restored| restored.resumed));
        check(&server, &lost);
        let floors = server.host.state(|state| state.sequence.floor);
        assert!(floors < 2_000_000_000_000, "the floor was raised once: {floors}");
        // And now it is a start like any other.
        let frames = server.frames();
        let server = server.restart();
        assert_eq!((server.boot.frames, &server.boot.restored), (0, &None), "stop {stop}");
        assert_eq!(server.frames(), frames);
    }
    assert!(resumed > 5, "{resumed}");
}

#[test]
fn a_start_without_a_marker_signs_and_sends_nothing() {
    let mut server = Server::new(30);
    let account = server.account();
    server.put(account, "a", "one");
    let (head, frames) = (server.host.head(account), server.frames());
    for _ in 0..3 {
        server.clock.advance(1_000);
        let lsn = server.host.status().lsn;
        server = server.restart();
        assert_eq!(server.host.status().lsn, lsn, "nothing was appended");
        assert_eq!((server.boot.frames, server.boot.announced), (0, 0));
        assert_eq!((server.host.head(account), server.frames()), (head, frames.clone()));
    }
}

#[test]
fn fresh_revisions_lie_above_what_the_operator_names_and_never_too_far_ahead() {
    let lost = lost_run(40);
    let newest = lost.sent.iter().map(Message::of).filter_map(|message| message.text("rev")).max().expect("a revision");
    // The restored host's clock is behind the lost one's, which the marker makes good.
    lost.clock.0.fetch_sub(20_000, std::sync::atomic::Ordering::Relaxed);
    let newest = newest.parse().expect("a revision");
    mark_restored(&lost.copy, Path::new(DATA), 8, (Some(newest), None)).expect("marked");
    let disk = lost.copy.fork(1);
    let server = Server::with(&disk, &lost.clock, options());
    check(&server, &lost);
    // Ten minutes behind is beyond what relays take.
    lost.clock.0.fetch_sub(600_000, std::sync::atomic::Ordering::Relaxed);
    let disk = lost.copy.fork(2);
    let refused = try_open(&disk, &lost.clock, options(), 1).err().expect("it stops").to_string();
    assert!(refused.contains("ahead of the clock") && refused.contains("marker stays"), "{refused}");
    assert!(exists(&disk, &marker()));
}

/// What the restore tells was durable, and the start failed all the same, again and again, for want of room for a file.
#[test]
fn a_report_that_finds_no_room_keeps_no_account_from_being_served() {
    const NO_SPACE: i32 = 28;
    let lost = lost_run(60);
    mark_restored(&lost.copy, Path::new(DATA), 7, (None, None)).expect("marked");
    lost.clock.advance(60_000);
    lost.copy.fail(highwater_disk::sim::Operation::Write, "restore-report", 0, u64::MAX, NO_SPACE);
    let server = Server::with(&lost.copy, &lost.clock, options());
    check(&server, &lost);
    let warned = server.boot.warnings.iter().any(|warning| warning.contains("restored_active"));
    assert!(warned, "{:?}", server.boot.warnings);
}

#[test]
fn a_cursor_above_every_number_is_refused_and_the_step_is_named() {
    let lost = lost_run(50);
    let newest_lost = seqs(&lost.sent).last().copied().expect("frames");
    let server = Server::with(&lost.copy, &lost.clock, options());
    let refused = server.host.subscribe(Some(newest_lost)).expect_err("the operator forgot the marker");
    assert!(matches!(refused, highwater_host::CursorRefused::Future { cursor, .. } if cursor == newest_lost));
}

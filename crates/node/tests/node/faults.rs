//! Disks that fail and disks that are full.

use crate::harness::{Host, append, delete};
use highwater_base::{Digest, Millis};
use highwater_consensus::entry::ENTRY_HEADER_BYTES;
use highwater_control::{CreateKey, KeyId, Operation as ControlOperation, Scope};
use highwater_disk::sim::Operation as On;
use highwater_node::Unavailable;
use highwater_node::api::GroupState;
use highwater_node::shard::{Answer, Input, Place, Proposal};
use std::sync::Arc;

#[test]
fn a_sync_that_fails_answers_no_one_and_stops_the_node() {
    let mut host = Host::serving(1);
    host.create("s");
    host.append("s", b"kept");
    host.disk.fail_next(On::Sync, "/data/wal");
    let answer = host.write("s", append(b"unknown"));
    assert_eq!(answer, Err(Unavailable::OutcomeUnknown { leadership_lost: false }));
    assert!(host.node().failed().is_some(), "the node goes on after a failed sync");
    // Nothing is taken or told any more, whatever the disk does now.
    assert_eq!(host.write("s", append(b"more")), Err(Unavailable::ApplyStopped));
    assert!(!host.node().core().ready());
    host.power_off();
    host.open().expect("recovers");
    let content = host.content("s").expect("the stream is there");
    assert!(content == b"kept" || content == b"keptunknown", "{content:?}");
}

#[test]
fn a_full_disk_refuses_writes_keeps_everything_and_goes_on_when_there_is_space() {
    let mut host = Host::serving(1);
    host.create("s");
    let mut kept = 0usize;
    host.disk.set_capacity(Some(host.disk.used_bytes() + (300 << 10)));
    let mut refused = None;
    let mut waiting = Vec::new();
    for _ in 0..200 {
        let (token, input) = host.proposal("s", append(&[5; 10_000]));
        host.node().turn([input]);
        host.node().sync();
        host.node().checkpoint();
        match host.answer(token) {
            Some(Answer::Write(Ok(_))) => kept += 10_000,
            Some(Answer::Write(Err(why))) => {
                refused = Some(why);
                break;
            }
            Some(other) => panic!("{other:?}"),
            None => waiting.push(token),
        }
    }
    assert_eq!(refused, Some(Unavailable::WalDiskPressure), "after {kept} bytes");
    assert!(host.node().failed().is_none(), "a full disk is an answer, not damage");
    assert_eq!(host.content("s").map(|c| c.len()), Some(kept), "reads go on");
    // Space comes back: what waited is taken, and new writes too.
    host.disk.set_capacity(None);
    for _ in 0..30 {
        host.node().pass(100);
        host.node().sync();
        host.node().checkpoint();
    }
    for (token, answer) in host.node().answers() {
        assert!(waiting.contains(&token));
        assert!(matches!(answer, Answer::Write(Ok(_))), "{answer:?}");
        kept += 10_000;
    }
    host.append("s", b"x");
    assert_eq!(host.content("s").map(|c| c.len()), Some(kept + 1));
    host.power_off();
    host.open().expect("recovers");
    assert_eq!(host.content("s").map(|c| c.len()), Some(kept + 1));
}

/// A host whose disk has no space for the next batch, with one write waiting for it and one behind that.
fn full_with_two_waiting() -> (Host, u64, u64) {
    let mut host = Host::serving(9);
    let (in_0, in_1) = two_groups();
    host.create(&in_0);
    host.create(&in_1);
    for _ in 0..50 {
        host.disk.set_capacity(Some(host.disk.used_bytes()));
        let (first, input) = host.proposal(&in_0, append(&[1; 20_000]));
        host.node().turn([input]);
        let (second, input) = host.proposal(&in_1, append(&[2; 20_000]));
        host.node().turn([input]);
        host.node().sync();
        let answered = host.answer(first).is_some();
        if host.node().core().log_full() && !answered {
            return (host, first, second);
        }
        // It was not full, or only for the second one: let that pass, and try again.
        host.disk.set_capacity(None);
        host.node().pass(100);
        host.node().sync();
        host.answer(second).expect("there is space");
        host.append(&in_1, &[2; 9_000]);
        host.node().checkpoint();
    }
    panic!("the disk never was full for the first one");
}

#[test]
fn a_batch_that_found_no_space_is_handed_over_again_once_at_a_time() {
    let (mut host, first, second) = full_with_two_waiting();
    // A slow log: several ticks pass before it says anything about the second attempt.
    host.node().pass(400);
    assert_eq!(host.node().appends_waiting(), 1, "the same batch is with the log more than once");
    host.disk.set_capacity(None);
    host.node().sync();
    for token in [first, second] {
        let answer = host.answer(token);
        assert!(matches!(answer, Some(Answer::Write(Ok(_)))), "{answer:?}");
    }
    let (in_0, in_1) = two_groups();
    assert!(host.content(&in_0).expect("there").iter().all(|b| *b == 1));
    assert!(host.content(&in_1).expect("there").iter().all(|b| *b == 2));
}

#[test]
fn a_write_that_waits_too_long_for_a_full_log_hears_that_its_outcome_is_unknown() {
    let (mut host, first, second) = full_with_two_waiting();
    for _ in 0..50 {
        host.node().pass(100);
        host.node().sync();
    }
    for token in [first, second] {
        let answer = host.answer(token);
        let Some(Answer::Write(Err(why))) = answer else { panic!("{answer:?}") };
        assert_eq!(why, Unavailable::OutcomeUnknown { leadership_lost: false });
    }
    // Unknown is the truth: with space again, both apply.
    let (in_0, _) = two_groups();
    let before = host.content(&in_0).expect("there").len();
    host.disk.set_capacity(None);
    host.node().pass(100);
    host.node().sync();
    assert_eq!(host.content(&in_0).expect("there").len(), before + 20_000);
    assert_eq!(host.node().core().uncommitted_bytes(), 0);
}

#[test]
fn a_node_that_starts_on_a_full_disk_opens_and_serves_once_there_is_space() {
    let (mut host, _, _) = full_with_two_waiting();
    let (in_0, _) = two_groups();
    let kept = host.content(&in_0).expect("there").len();
    host.kill();
    // Its first entries find no space either.
    let mut filled = false;
    for _ in 0..20 {
        host.disk.set_capacity(Some(host.disk.used_bytes()));
        host.open().expect("a full disk keeps no node from opening");
        if !host.node().core().ready() {
            filled = true;
            break;
        }
        host.disk.set_capacity(None);
        host.append(&in_0, &[1; 0x400]);
        host.kill();
    }
    assert!(filled, "there always was space");
    assert_eq!(host.write(&in_0, append(b"x")), Err(Unavailable::WalDiskPressure));
    host.disk.set_capacity(None);
    for _ in 0..20 {
        host.node().pass(100);
        host.node().sync();
        host.node().checkpoint();
    }
    assert!(host.node().core().ready());
    assert!(host.content(&in_0).expect("there").len() >= kept);
    host.append(&in_0, b"x");
}

#[test]
fn a_checkpoint_that_fails_loses_nothing_and_is_tried_again() {
    let mut host = Host::serving(1);
    host.create("s");
    host.append("s", &[1; 60_000]);
    host.disk.fail(On::Write, "/data/store", 0, 1, 5);
    assert_eq!(host.node().checkpoint(), 0);
    host.append("s", &[2; 10]);
    assert_eq!(host.content("s").map(|c| c.len()), Some(60_010));
    host.append("s", &[3; 60_000]);
    host.node().pass(1_200);
    assert!(host.node().checkpoint() > 0, "it is tried again");
    host.power_off();
    host.open().expect("recovers");
    assert_eq!(host.content("s").map(|c| c.len()), Some(120_010));
}

#[test]
fn a_damaged_group_refuses_to_serve_and_the_others_serve() {
    let mut host = Host::serving(1);
    let (in_0, in_1) = two_groups();
    for path in [&in_0, &in_1] {
        host.create(path);
        host.append(path, &[9; 60_000]);
        host.node().checkpoint();
    }
    host.power_off();
    let index = host
        .disk
        .files()
        .into_iter()
        .map(|(path, _)| path)
        .find(|path| path.starts_with("/data/store/g0") && path.to_string_lossy().contains("index"));
    let index = index.expect("group 0 has an index");
    host.disk.flip_bit(&index, 40).expect("in the file");
    host.open().expect("the node opens");
    assert_eq!(host.write(&in_0, append(b"x")), Err(Unavailable::ApplyStopped));
    host.append(&in_1, b"x");
    let status = host.node().core().status();
    assert!(matches!(&status[0].state, GroupState::Damaged(reason) if !reason.is_empty()), "{:?}", status[0]);
    assert_eq!(status[1].state, GroupState::Serving);
    assert!(host.node().core().ready(), "the node serves what it can");
    assert!(host.disk.files().iter().any(|(path, _)| path == &index), "its files are kept");
}

/// The story: an append met the full disk after it had been proposed. It was answered after five seconds, with an
/// unknown outcome, where the page on full disks says that nothing was proposed.
#[test]
fn an_append_that_meets_a_full_disk_is_refused_at_once_and_was_not_proposed() {
    let (mut host, kept) = full_disk_with_a_prepared_log();
    for _ in 0..20 {
        assert_eq!(host.write(&two_groups().0, append(&[4; 20_000])), Err(Unavailable::WalDiskPressure));
        host.node().pass(100);
        host.node().make_spare();
    }
    assert_eq!(host.node().appends_waiting(), 0, "it was proposed");
    assert_eq!(host.content(&two_groups().0).map(|c| c.len()), Some(kept));
    // Space comes back.
    host.disk.set_capacity(None);
    host.node().make_spare();
    host.append(&two_groups().0, &[4; 20_000]);
}

/// A host whose disk takes no further file of the log, and how much its stream of group 0 has.
fn full_disk_with_a_prepared_log() -> (Host, usize) {
    full_disk_after(|_| ())
}

fn full_disk_after(prepare: impl FnOnce(&mut Host)) -> (Host, usize) {
    let mut host = Host::serving(6);
    prepare(&mut host);
    let (in_0, in_1) = two_groups();
    host.create(&in_0);
    host.create(&in_1);
    host.append(&in_1, &[2; 10_000]);
    let mut kept = 0;
    for _ in 0..30 {
        host.append(&in_0, &[3; 60_000]);
        kept += 60_000;
        host.node().make_spare();
        host.node().checkpoint();
    }
    host.disk.set_capacity(Some(host.disk.used_bytes() + (40 << 10)));
    for _ in 0..200 {
        host.node().make_spare();
        match host.write(&in_0, append(&[3; 5_000])) {
            Ok(_) => kept += 5_000,
            Err(why) => {
                assert_eq!(why, Unavailable::WalDiskPressure);
                return (host, kept);
            }
        }
        host.node().checkpoint();
    }
    panic!("the disk was never full after {kept} bytes");
}

/// The story: the page on full disks says to delete streams, and the delete was refused because the disk was full.
#[test]
fn on_a_full_disk_a_stream_is_deleted_and_its_bytes_are_given_back() {
    let (mut host, _) = full_disk_with_a_prepared_log();
    let (in_0, in_1) = two_groups();
    let used = host.disk.used_bytes();
    assert_eq!(host.write(&in_1, append(b"x")), Err(Unavailable::WalDiskPressure));
    host.done(&in_0, delete());
    for _ in 0..20 {
        host.node().pass(1_100);
        host.node().checkpoint();
        host.node().make_spare();
    }
    assert!(host.disk.used_bytes() < used - 1_000_000, "{} of {used} bytes are in use", host.disk.used_bytes());
    host.append(&in_1, b"x");
    host.power_off();
    host.open().expect("recovers");
    assert_eq!(host.content(&in_0), None);
    assert_eq!(host.content(&in_1).map(|c| c.len()), Some(10_001));
}

/// A leaked key is a leaked key, however full the disk is: a revocation is as small as a delete, and uses the same reserve.
#[test]
fn on_a_full_disk_a_key_is_revoked_and_stays_revoked() {
    let (mut host, _) = full_disk_with_keys();
    let small = |host: &mut Host| host.write(&two_groups().0, append(b"x")).is_ok();
    for id in [READER, LEAKED] {
        assert!((0..1_000).any(|_| !small(&mut host)), "there is room for whatever is small");
        let operation = ControlOperation::RevokeKey { id, last: false };
        host.control(operation).expect("it is taken").result.expect("revoked");
    }
    let check = |host: &mut Host| {
        let view = Arc::clone(host.node().control().expect("it serves"));
        assert_eq!(view.recheck(KeyId::new(1), Millis(9_000)), Ok(()));
        assert!([READER, LEAKED].iter().all(|id| view.recheck(*id, Millis(9_000)).is_err()));
    };
    check(&mut host);
    host.power_off();
    host.open().expect("recovers");
    check(&mut host);
}

const READER: KeyId = KeyId::new(2);
const LEAKED: KeyId = KeyId::new(3);

/// As [`full_disk_with_a_prepared_log`], with three keys of which the first is an administrator's.
fn full_disk_with_keys() -> (Host, usize) {
    let with_keys = |host: &mut Host| {
        for (id, scope) in [(KeyId::new(1), Scope::Admin), (READER, Scope::Read), (LEAKED, Scope::Append)] {
            let key = CreateKey {
                id,
                secret: Digest::of(b"secret"),
                scopes: [scope].into_iter().collect(),
                prefixes: Vec::new(),
                account: None,
                expires: None,
                note: String::new(),
                request: None,
            };
            host.control(ControlOperation::CreateKey(key)).expect("it serves").result.expect("made");
        }
    };
    full_disk_after(with_keys)
}

/// The story: one damaged group released nothing any more, so the log filled up behind its oldest frame, and the healthy
/// ones were refused every write for good.
#[test]
fn a_damaged_group_does_not_fill_the_log_for_the_healthy_ones() {
    let mut host = Host::serving(3);
    let (in_0, in_1) = two_groups();
    for path in [&in_0, &in_1] {
        host.create(path);
        host.append(path, &[9; 60_000]);
        host.node().checkpoint();
    }
    // What only the log holds of group 0.
    host.append(&in_0, &[8; 10_000]);
    host.power_off();
    let files = host.disk.files().into_iter().map(|(path, _)| path);
    let mut indexes = files.filter(|p| p.starts_with("/data/store/g0") && p.to_string_lossy().contains("index"));
    let index = indexes.next().expect("group 0 has an index");
    host.disk.flip_bit(&index, 40).expect("in the file");
    for round in 0..2 {
        host.open().expect("the node opens");
        assert_eq!(host.write(&in_0, append(b"x")), Err(Unavailable::ApplyStopped));
        for i in 0..100u64 {
            let answer = host.write(&in_1, append(&[1; 60_000]));
            assert!(answer.is_ok(), "write {i} of round {round}: {answer:?}");
            host.node().checkpoint();
        }
        assert!(host.node().log_bytes() <= host.config.wal_bytes_max);
        let kept = host.disk.files().into_iter().filter(|(path, _)| path.to_string_lossy().ends_with(".kept"));
        assert!(kept.count() > 0, "what the damaged group had in the log is gone");
        host.kill();
    }
    // Its files are put right, but what it had in the log is no part of that any more: it may not serve without it.
    host.disk.flip_bit(&index, 40).expect("in the file");
    host.open().expect("the node opens");
    assert_eq!(host.write(&in_0, append(b"x")), Err(Unavailable::ApplyStopped));
    assert_eq!(host.content(&in_1).map(|c| c.len()), Some(60_000 + 2 * 100 * 60_000));
}

/// The story: a group stopped in the middle of a batch. Its next checkpoint stored what it had applied of that under the
/// index before it, so that a restart would have applied the same entries a second time; and the log waited for it.
#[test]
fn a_group_that_stopped_makes_no_checkpoint_and_does_not_fill_the_log_either() {
    let mut host = Host::serving(4);
    let (in_0, in_1) = two_groups();
    host.create(&in_0);
    host.create(&in_1);
    let files = |host: &Host| -> Vec<_> {
        host.disk.files().into_iter().filter(|(path, _)| path.starts_with("/data/store/g0")).collect()
    };
    let (_, good) = host.proposal(&in_0, append(&[7; 60_000]));
    let unreadable =
        Proposal { place: Place::Stream(in_0.clone()), record: vec![0xff; ENTRY_HEADER_BYTES + 20], makes_room: false };
    let token = host.token();
    host.node().turn([good, Input::Write { token, proposal: unreadable }]);
    let before = files(&host);
    host.node().sync();
    let answer = host.answer(token);
    assert!(matches!(answer, Some(Answer::Write(Err(Unavailable::OutcomeUnknown { .. })))), "{answer:?}");
    assert!(matches!(host.node().core().status()[0].state, GroupState::Stopped(_)));
    for i in 0..100 {
        let answer = host.write(&in_1, append(&[1; 60_000]));
        assert!(answer.is_ok(), "write {i}: {answer:?}");
        host.node().checkpoint();
    }
    assert!(files(&host) == before, "the stopped group made a checkpoint");
    host.power_off();
    host.open().expect("the node opens");
    assert_eq!(host.write(&in_0, append(b"x")), Err(Unavailable::ApplyStopped));
    host.append(&in_1, b"x");
}

/// The story: a sector of the log went bad while the server ran. The group's checkpoint failed once a second from then on,
/// its writes were acknowledged although no restart would have found them, and the log filled up behind it until nobody
/// could write.
#[test]
fn a_group_whose_log_is_damaged_under_it_stops_and_the_others_go_on() {
    let mut host = Host::serving(5);
    let (in_0, in_1) = two_groups();
    host.create(&in_0);
    host.create(&in_1);
    host.append(&in_0, &[8; 10_000]);
    let in_log = |(path, bytes): (std::path::PathBuf, Vec<u8>)| {
        let run = bytes.windows(300).position(|window| window.iter().all(|byte| *byte == 8))?;
        path.starts_with("/data/wal").then_some((path, run as u64))
    };
    let (segment, at) = host.disk.files().into_iter().find_map(in_log).expect("the log has it");
    host.disk.flip_bit(&segment, at + 100).expect("in the file");
    for i in 0..100u64 {
        let answer = host.write(&in_1, append(&[1; 60_000]));
        assert!(answer.is_ok(), "write {i}: {answer:?}");
        host.node().checkpoint();
        host.pass(500);
    }
    assert!(host.node().log_bytes() <= host.config.wal_bytes_max);
    let GroupState::Stopped(reason) = host.node().core().status()[0].state.clone() else { panic!("it goes on") };
    assert!(reason.contains("segment 1 is damaged"), "{reason}");
    assert_eq!(host.write(&in_0, append(b"x")), Err(Unavailable::ApplyStopped));
    assert_eq!(host.content(&in_1).map(|content| content.len()), Some(100 * 60_000));
}

/// Two paths, of group 0 and of group 1.
fn two_groups() -> (String, String) {
    let path_in = |group: u32| {
        let mut paths = (0..).map(|i| format!("stream-{i}"));
        paths.find(|path| highwater_node::route::group_of(path, 2).0 == group).expect("one of them")
    };
    (path_in(0), path_in(1))
}

#[test]
fn a_checkpoint_behind_what_the_log_gave_back_is_damage_and_not_an_older_state() {
    let mut host = Host::serving(1);
    let (in_0, _) = two_groups();
    host.create(&in_0);
    let keep = |host: &Host| -> Vec<_> {
        host.disk.files().into_iter().filter(|(path, _)| path.starts_with("/data/store/g0")).collect()
    };
    for _ in 0..10 {
        host.append(&in_0, &[1; 60_000]);
        host.node().checkpoint();
    }
    let old = keep(&host);
    for _ in 0..30 {
        host.append(&in_0, &[2; 60_000]);
        host.node().checkpoint();
    }
    host.kill();
    // An older copy of the group's files comes back, the log does not.
    for (path, _) in keep(&host) {
        highwater_disk::Disk::remove(&host.disk, &path).expect("removed");
    }
    for (path, bytes) in old {
        let file = highwater_disk::Disk::open(&host.disk, &path, highwater_disk::OpenMode::Create).expect("made");
        file.write_at(&bytes, 0).expect("written");
    }
    host.open().expect("the node opens");
    assert_eq!(host.write(&in_0, append(b"x")), Err(Unavailable::ApplyStopped));
}

//! Restores that die anywhere, and what an operator may leave and is told.

use crate::server::{Server, Stopped, follower};
use highwater_pds::Witness;
use highwater_pds::boot::{self, Warning};
use highwater_pds::frame::Kind;
use highwater_pds::lifecycle::{Announce, Change};
use highwater_pds::restore::{self, Lost, Marker, Plan, RestoreError};
use highwater_pds::sequence::SEQ_MAX;
use highwater_pds::{AccountId, Draft, Fact};
use highwater_repo::Tid;

/// A server with every kind of account, put back to a copy from before its last writes.
fn restored() -> Server {
    let mut server = Server::new();
    for name in ["a", "b", "c", "d", "e"] {
        server.create(name, Some(Announce::OnActivation));
        server.write(name, "x", 1).expect("written");
    }
    server.create("f", None);
    server.create("g", Some(Announce::OnFirstWrite));
    server.change("b", Change::Lock).expect("locked");
    server.change("c", Change::Erase).expect("erased");
    server.change("d", Change::Decommission).expect("moved");
    let copy = server.directory.clone();
    server.write("a", "y", 2).expect("written");
    server.write("e", "y", 2).expect("written");
    server.directory = copy;
    server.directory.marker = Some(Marker::default());
    server.now = server.now.plus_seconds(60);
    server
}

/// What a restore sends, without numbers and revisions.
fn sent(server: &Server) -> Vec<(AccountId, Kind)> {
    let behind = server.directory.events.iter().filter(|sent| sent.seq > server.directory.floor);
    behind.map(|sent| (sent.account, sent.kind)).collect()
}

/// The process dies before the n-th record, for every n, and before the n-th of the next start. Each time a start ends it: every
/// frame is in the window once, nothing is signed twice (the server in the tests asserts that), and the marker is gone.
#[test]
fn a_restore_that_dies_anywhere_sends_each_frame_once() {
    let mut whole = restored();
    whole.boot().expect("it lives");
    let expected = sent(&whole);
    let frames = |name: &str| {
        let id = whole.id(name);
        expected.iter().filter(|(account, _)| *account == id).map(|(_, kind)| *kind).collect::<Vec<_>>()
    };
    assert_eq!(frames("a"), [Kind::Account, Kind::Sync]);
    assert_eq!(frames("b"), [Kind::Account]);
    assert_eq!(frames("c"), [Kind::Account]);
    for silent in ["d", "f", "g"] {
        assert_eq!(frames(silent), [], "{silent}");
    }
    let order: Vec<AccountId> = expected.iter().map(|(account, _)| *account).collect();
    assert!(order.is_sorted(), "in the order of their DIDs, which is that of their numbers here");
    for first in 0..6 {
        for second in 0..6 {
            let mut server = restored();
            let newest_lost = *server.seen.last().expect("frames");
            for lives in [first, second] {
                server.lives = Some(lives);
                let ended = server.boot();
                assert_eq!(ended.is_err(), server.directory.marker.is_some());
            }
            server.lives = None;
            server.boot().expect("it lives");
            assert_eq!(sent(&server), expected, "died before records {first} and {second}");
            assert_eq!(server.directory.marker, None);
            assert!(
                server
                    .directory
                    .events
                    .iter()
                    .filter(|sent| sent.seq > server.directory.floor)
                    .all(|sent| sent.seq > newest_lost)
            );
            let before = server.directory.log.len();
            server.boot().expect("it lives");
            assert_eq!(server.directory.log.len(), before, "the next start stores nothing");
        }
    }
}

/// A second restart before any consumer read the restore's frames: they are in the log, not in a memory that is gone.
#[test]
fn a_second_restart_before_a_consumer_reads_loses_no_frame_of_the_restore() {
    let mut server = Server::new();
    server.create("a", Some(Announce::OnActivation));
    let copy = server.directory.clone();
    server.write("a", "x", 1).expect("written");
    let mut follower = follower();
    server.follow(&mut follower);
    server.directory = copy;
    server.directory.marker = Some(Marker::default());
    server.now = server.now.plus_seconds(60);
    server.boot().expect("it lives");
    server.boot().expect("it lives");
    server.checkpoint();
    server.boot().expect("it lives");
    server.follow(&mut follower);
    let did = server.account("a").did.clone();
    let held = follower.account(&did).expect("it is held");
    assert_eq!(held.records().map(std::collections::BTreeMap::len), Some(0), "what was lost is gone there too");
    assert_eq!(held.head().map(|head| head.rev), server.account("a").head.map(|head| head.rev));
}

/// A marker that came back with a copy, of a restore that had ended: only the file goes.
#[test]
fn a_marker_of_a_restore_that_ended_does_nothing() {
    let mut server = restored();
    server.boot().expect("it lives");
    let (log, id) = (server.directory.log.len(), server.state.restore.as_ref().expect("one").id);
    server.directory.marker = Some(Marker { id: Some(id), ..Marker::default() });
    server.boot().expect("it lives");
    assert_eq!((server.directory.log.len(), server.directory.marker), (log, None));
    server.directory.marker = Some(Marker { id: Some(id + 1), ..Marker::default() });
    assert_eq!(Plan::new(&server.state, id, Lost::default(), server.now), Ok(Plan::AlreadyDone));
    server.boot().expect("it lives");
    assert!(server.directory.log.len() > log, "another marker is another restore");
}

/// The first attempt at a restore goes wrong, and the same copy is put back once more. Nothing in it tells of the run between: had the
/// floor risen by the same step from the same number, consumers of that run would have passed over everything that the second one sends.
#[test]
fn the_same_copy_can_be_put_back_twice() {
    // The second attempt may follow the first at once.
    [600, 2].into_iter().for_each(put_back_again_and_again);
}

fn put_back_again_and_again(pause_seconds: u64) {
    let mut server = Server::new();
    server.create("a", Some(Announce::OnActivation));
    let (copy, mut follower) = (server.directory.clone(), follower());
    for round in 0..3 {
        server.write("a", "lost", round).expect("written");
        server.follow(&mut follower);
        server.directory = copy.clone();
        server.directory.marker = Some(Marker::default());
        server.now = server.now.plus_seconds(pause_seconds);
        server.boot().expect("it lives");
        server.follow(&mut follower);
        let did = server.account("a").did.clone();
        let held = follower.account(&did).expect("it is held");
        assert_eq!(held.head().map(|head| head.rev), server.account("a").head.map(|head| head.rev));
        assert_eq!(held.records().map(std::collections::BTreeMap::len), Some(0));
    }
}

#[test]
fn numbers_leave_room_for_thousands_of_restores_and_no_raise_passes_their_end() {
    let mut server = Server::new();
    server.create("a", Some(Announce::OnActivation));
    let floor = SEQ_MAX - highwater_pds::sequence::RESTORE_RAISE;
    server.append(&Draft::new(server.now).fact(Fact::Floor(floor - 1))).expect("it lives");
    assert_eq!(
        Plan::new(&server.state, 1, Lost::default(), server.now),
        Ok(Plan::Begin { floor: SEQ_MAX - 1, rev_min: None })
    );
    server.append(&Draft::new(server.now).fact(Fact::Floor(floor))).expect("it lives");
    server.directory.marker = Some(Marker::default());
    let log = server.directory.log.len();
    assert!(matches!(server.boot(), Err(Stopped::Restore(RestoreError::Exhausted(_)))));
    assert_eq!(server.directory.log.len(), log, "nothing was begun");
    assert!(server.directory.marker.is_some_and(|marker| marker.id.is_some()), "the marker stays, with its number");
}

/// Every account that was locked during the restore gets its fresh commit at its lift: above what the lost run may have minted, too.
#[test]
fn a_lift_long_after_the_restore_is_above_the_markers_revision() {
    let mut server = restored();
    let rev_min = Tid::new(server.now.0 + 200_000_000, 0);
    server.directory.marker = Some(Marker { rev_min: Some(rev_min), ..Marker::default() });
    server.boot().expect("it lives");
    assert!(server.account("a").head.expect("one").rev > rev_min);
    server.change("b", Change::Lift).expect("lifted");
    assert!(server.account("b").head.expect("one").rev > rev_min);
    server.change("g", Change::Lock).expect("locked");
}

/// A mistyped revision was taken as long as no account was active: every later lift and write would have had one that relays refuse; and one
/// with all bits set came back as the lowest that there is, so that the directory never opened again.
#[test]
fn a_revision_far_ahead_of_the_clock_is_refused_whoever_is_active() {
    let mut server = Server::new();
    server.create("a", Some(Announce::OnActivation));
    for lock in [false, true] {
        if lock {
            server.change("a", Change::Lock).expect("locked");
        }
        let ahead = Tid::new(server.now.0 + 301_000_000, 0);
        for rev in [ahead, Tid::from_bits(u64::MAX >> 1).expect("a revision"), Tid::new((1 << 53) - 1, 0)] {
            let lost = Lost { rev: Some(rev), ..Lost::default() };
            let refused = Plan::new(&server.state, 1, lost, server.now).expect_err("relays refuse it");
            assert!(matches!(refused, RestoreError::RevAhead { ahead_seconds: 301.. }), "{refused}");
            assert!(refused.to_string().contains("earlier --min-rev"), "{refused}");
        }
        let lost = Lost { rev: Some(Tid::new(server.now.0 + 290_000_000, 0)), ..Lost::default() };
        assert!(matches!(Plan::new(&server.state, 1, lost, server.now), Ok(Plan::Begin { .. })));
    }
}

#[test]
fn a_marker_reads_back_and_rubbish_says_what_to_do() {
    let rev = Tid::new(1_796_000_000_000_000, 3);
    for marker in [
        Marker::default(),
        Marker { id: Some(0), ..Marker::default() },
        Marker { id: Some(u64::MAX), rev_min: Some(rev), seq_min: Some(SEQ_MAX) },
        Marker { rev_min: Some(rev), ..Marker::default() },
        Marker { seq_min: Some(0), ..Marker::default() },
    ] {
        assert_eq!(Marker::parse(marker.to_string().as_bytes()), Ok(marker), "{marker}");
    }
    let marker = Marker { id: Some(0x0123_4567_89ab_cdef), rev_min: Some(rev), seq_min: Some(77) };
    assert_eq!(marker.to_string(), format!("id=0123456789abcdef\nmin_rev={rev}\nmin_seq=77\n"));
    assert_eq!(Marker::parse(b"\n \n"), Ok(Marker::default()), "touched, or saved by an editor");
    for rubbish in [
        &b"id=1"[..],
        b"id=0123456789ABCDEF",
        b"id=+123456789abcdef",
        b"id=0123456789abcdef\nid=0123456789abcdef",
        b"min_rev=3jzfcijpj2z2",
        b"min_seq=",
        b"min_seq=07",
        b"min_seq=+7",
        b"min_seq=9007199254740992",
        b"min_seq=7\nmin_seq=7",
        b"yes",
        b"id",
        b"\xff\xfe",
        &[b'\n'; 300],
    ] {
        let error = Marker::parse(rubbish).expect_err("rubbish").to_string();
        assert!(error.contains("highwater pds mark-restored") && error.contains("nothing was sent"), "{error}");
    }
}

/// What a start warns of, and acts on in no case.
#[test]
fn a_witness_outside_the_volume_shows_that_it_went_back() {
    let mut server = Server::new();
    server.create("a", Some(Announce::OnActivation));
    server.append(&Draft::new(server.now).fact(Fact::Booted(7))).expect("it lives");
    server.append(&Draft::new(server.now).fact(Fact::Booted(8))).expect("it lives");
    let warnings =
        |nonce, seq| boot::warnings(&server.state, [Witness { nonce, seq, ..Witness::default() }], server.now);
    assert_eq!(warnings(8, 3), []);
    // The start with 8 died before it wrote the witness.
    assert_eq!(warnings(7, 3), []);
    assert_eq!(warnings(9, 3), [Warning::WitnessDiffers]);
    // The copy was made in the very run that was lost.
    assert_eq!(warnings(8, 4), [Warning::WitnessDiffers]);
    assert!(Warning::WitnessDiffers.to_string().contains("mark-restored"));
    let later = server.now.plus_seconds(boot::AWAY_SECONDS_MAX + 1);
    assert_eq!(boot::warnings(&server.state, None, later), [Warning::Away(boot::AWAY_SECONDS_MAX + 1)]);
}

#[test]
fn the_report_lists_who_was_announced_as_active() {
    let mut server = restored();
    server.boot().expect("it lives");
    let rows = restore::report(&server.state);
    let names: Vec<&str> = rows.iter().map(|row| row.did.as_str()).collect();
    assert_eq!(names, ["did:web:a.pds.test", "did:web:e.pds.test"]);
    assert_eq!(rows[0].rev, server.account("a").head.expect("one").rev);
}

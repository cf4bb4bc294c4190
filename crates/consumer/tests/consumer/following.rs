//! A follower of streams that keep the rules.

use crate::stream::{BEGIN, Server, create, delete, did, error, info, path, update};
use bytes::Bytes;
use highwater_base::Millis;
use highwater_consumer::follower::{Cause, Follower, Input, Lacks, Options, Output, Unverified};
use highwater_consumer::frame::{Position, Status};

/// A follower that keeps the bytes of records, connected from the beginning.
pub fn follower() -> Follower {
    let mut follower = Follower::new(Options { bytes_kept: true, ..Options::default() });
    assert_eq!(follower.step(BEGIN, Input::Connected { cursor: Some(0) }), []);
    follower
}

pub fn read(follower: &mut Follower, server: &mut Server, message: Bytes) -> Vec<Output> {
    follower.follow(BEGIN, Input::Message(message), server)
}

/// Reads what the server sent behind the follower's cursor.
pub fn read_all(follower: &mut Follower, server: &mut Server) -> Vec<Output> {
    let cursor = follower.cursor().unwrap_or_default();
    let behind: Vec<Bytes> =
        server.sent.iter().filter(|(sequence, _)| *sequence > cursor).map(|(_, message)| message.clone()).collect();
    behind.into_iter().flat_map(|message| read(follower, server, message)).collect()
}

/// Nothing but the server's own records is held, at its own revisions.
pub fn agrees(follower: &Follower, server: &Server) {
    for (did, bot) in &server.bots {
        let account = follower.account(did).expect("it is held");
        assert!(account.is_synchronized(), "{did}");
        assert_eq!(account.head().map(|head| (head.rev, head.data)), bot.head, "{did}");
        let records = account.records().map(|records| records.iter());
        let held: Vec<_> = records.into_iter().flatten().map(|(path, record)| (path, &record.cid)).collect();
        assert_eq!(held, bot.records.iter().collect::<Vec<_>>(), "{did}");
    }
}

fn sound(found: &[Output]) {
    let bad = found.iter().find(|output| {
        matches!(output, Output::Violation { .. } | Output::Ignored { .. } | Output::Desynchronized { .. })
    });
    assert_eq!(bad, None);
}

#[test]
fn a_live_stream_is_followed_to_the_records_that_the_server_holds() {
    let (mut server, mut follower) = (Server::with(&["one", "two"]), follower());
    for round in 0..30u64 {
        let number = round as i64;
        server.write("one", &[create(round, number), create(round + 100, number)]);
        server.write("two", &[create(round * 3, number)]);
        if round > 2 {
            server.write("one", &[update(round - 1, -number), delete(round - 2 + 100)]);
            server.write("two", &[delete(round * 3 - 6)]);
        }
    }
    let found = read_all(&mut follower, &mut server);
    sound(&found);
    agrees(&follower, &server);
    assert_eq!((found.len(), server.exports), (server.sent.len(), 0));
    let one = follower.account(&did("one")).expect("it is held");
    assert_eq!(one.position(), Some(Position::ACTIVE));
    assert_eq!(one.handle().map(|handle| handle.as_str()), Some("one.example"));
    let records = one.records().expect("they are held");
    let record = records[&path(5)].bytes.clone().expect("they are kept");
    assert_eq!(record, crate::stream::record(-6));
    assert_eq!(follower.cursor(), Some(server.sequence));
}

/// Somebody who comes late gets the repository as a whole and goes on from there.
#[test]
fn whoever_connects_later_asks_for_each_repository_once() {
    let mut server = Server::with(&["one"]);
    (0..50).for_each(|key| drop(server.write("one", &[create(key, 1)])));
    let mut follower = Follower::new(Options::default());
    follower.step(BEGIN, Input::Connected { cursor: None });
    let message = server.write("one", &[create(50, 1)]);
    let found = read(&mut follower, &mut server, message);
    let (sequence, rev) = (server.sequence, server.bot("one").head.expect("written").0);
    let lost = Output::Desynchronized { sequence, did: did("one"), cause: Cause::Unknown };
    assert_eq!(found, [lost, Output::Resynchronized { did: did("one"), rev }]);
    (51..60).for_each(|key| drop(server.write("one", &[create(key, 1)])));
    sound(&read_all(&mut follower, &mut server));
    agrees(&follower, &server);
    assert_eq!(server.exports, 1);
    assert!(follower.account(&did("one")).expect("held").records().expect("held").values().all(|r| r.bytes.is_none()));
}

#[test]
fn a_sync_of_the_tree_that_is_held_moves_the_revision_alone_and_the_next_commit_follows_it() {
    let (mut server, mut follower) = (Server::with(&["one"]), follower());
    server.write("one", &[create(1, 1)]);
    sound(&read_all(&mut follower, &mut server));
    let commit = server.recommit("one");
    let message = server.sync("one", &commit);
    let advanced = Output::Advanced { sequence: server.sequence, did: did("one"), rev: commit.rev };
    assert_eq!(read(&mut follower, &mut server, message), [advanced]);
    server.write("one", &[create(2, 2)]);
    sound(&read_all(&mut follower, &mut server));
    agrees(&follower, &server);
    assert_eq!(server.exports, 0);
}

/// An account whose first event is the `#sync` of a repository without records needs no export.
#[test]
fn a_sync_of_an_empty_repository_is_where_the_first_commit_begins() {
    let (mut server, mut follower) = (Server::with(&["one"]), follower());
    let commit = server.recommit("one");
    server.sync("one", &commit);
    server.write("one", &[create(1, 1)]);
    sound(&read_all(&mut follower, &mut server));
    agrees(&follower, &server);
    assert_eq!(server.exports, 0);
}

/// The server runs, is copied, runs on, and the copy is restored: the follower ends with the copy's records, at newer
/// revisions than the lost ones, and the next write follows.
#[test]
fn whoever_followed_a_run_that_was_lost_ends_with_the_restored_records() {
    let (mut server, mut follower) = (Server::with(&["changed", "same"]), follower());
    server.write("changed", &[create(1, 1), create(2, 2)]);
    server.write("same", &[create(1, 1)]);
    let copy = server.clone();
    server.write("changed", &[create(3, 3), delete(1)]);
    server.write("changed", &[update(2, 9)]);
    sound(&read_all(&mut follower, &mut server));
    let lost = follower.account(&did("changed")).and_then(|account| account.head()).expect("held").rev;

    let mut restored = copy;
    restored.now = BEGIN.plus(60_000);
    restored.restore();
    let cursor = follower.cursor();
    assert!(cursor < Some(restored.sent[0].0), "its cursor lies below everything that is sent now");
    follower.step(BEGIN, Input::Connected { cursor });
    let mut found = read(&mut follower, &mut restored, info());
    found.extend(read_all(&mut follower, &mut restored));
    let wrong = found.iter().find(|output| matches!(output, Output::Violation { .. } | Output::Ignored { .. }));
    assert_eq!((found.first(), wrong), (Some(&Output::Outdated), None));
    agrees(&follower, &restored);
    assert_eq!(restored.exports, 1, "one repository is another, and one is the same");
    assert!(follower.account(&did("changed")).and_then(|account| account.head()).expect("held").rev > lost);

    restored.write("changed", &[create(4, 4)]);
    restored.write("same", &[create(4, 4)]);
    sound(&read_all(&mut follower, &mut restored));
    agrees(&follower, &restored);
}

/// While a repository is on its way its commits wait, and those that it holds already are not applied twice.
#[test]
fn commits_wait_for_a_repository_that_was_asked_for() {
    let mut server = Server::with(&["one"]);
    server.write("one", &[create(1, 1)]);
    let mut follower = Follower::new(Options::default());
    follower.step(BEGIN, Input::Connected { cursor: None });
    let key = Some(server.bot("one").key.public());
    let step = |follower: &mut Follower, message: Bytes| follower.step(BEGIN, Input::Message(message));
    let second = server.write("one", &[create(2, 2)]);
    assert_eq!(step(&mut follower, second), [Output::Resolve { did: did("one") }]);
    let third = server.write("one", &[create(3, 3)]);
    assert_eq!(step(&mut follower, third), [], "it waits for the key");
    let asked = follower.step(BEGIN, Input::Key { did: did("one"), key });
    let lost = Output::Desynchronized { sequence: 4, did: did("one"), cause: Cause::Unknown };
    assert_eq!(asked, [lost, Output::GetRepo { did: did("one") }]);
    let archive = server.export(&did("one"));
    let fourth = server.write("one", &[create(4, 4)]);
    assert_eq!(step(&mut follower, fourth), []);
    assert!(!follower.account(&did("one")).expect("held").is_synchronized());
    let found = follower.step(BEGIN, Input::Repo { did: did("one"), archive });
    assert!(matches!(found[..], [Output::Resynchronized { .. }, Output::Committed { sequence: 6, .. }]), "{found:?}");
    agrees(&follower, &server);
}

/// An export may be ahead of the stream: what then comes was said already.
#[test]
fn a_repository_that_is_ahead_of_the_stream_explains_what_is_ignored() {
    let mut server = Server::with(&["one"]);
    server.write("one", &[create(1, 1)]);
    let mut follower = Follower::new(Options::default());
    follower.step(BEGIN, Input::Connected { cursor: None });
    let second = server.write("one", &[create(2, 2)]);
    let third = server.write("one", &[create(3, 3)]);
    read(&mut follower, &mut server, second);
    agrees(&follower, &server);
    let found = read(&mut follower, &mut server, third);
    assert!(matches!(found[..], [Output::Ignored { fetched: true, .. }]), "{found:?}");
    agrees(&follower, &server);
}

#[test]
fn a_sync_that_comes_while_a_repository_is_on_its_way_asks_again() {
    let mut server = Server::with(&["one"]);
    server.write("one", &[create(1, 1)]);
    let mut follower = Follower::new(Options::default());
    follower.step(BEGIN, Input::Connected { cursor: None });
    let key = Some(server.bot("one").key.public());
    follower.step(BEGIN, Input::Key { did: did("one"), key });
    let second = server.write("one", &[create(2, 2)]);
    follower.step(BEGIN, Input::Message(second));
    let archive = server.export(&did("one"));
    let commit = server.recommit("one");
    let sync = server.sync("one", &commit);
    assert_eq!(follower.step(BEGIN, Input::Message(sync)), [], "one question at a time");
    let found = follower.step(BEGIN, Input::Repo { did: did("one"), archive });
    assert_eq!(found, [Output::GetRepo { did: did("one") }], "the answer is older than what was told since");
    let archive = server.export(&did("one"));
    let found = follower.step(BEGIN, Input::Repo { did: did("one"), archive });
    assert_eq!(found, [Output::Resynchronized { did: did("one"), rev: commit.rev }]);
    agrees(&follower, &server);
}

/// A repository that is not to be had now is asked for with the next event.
#[test]
fn an_export_that_fails_is_asked_for_again() {
    let mut server = Server::with(&["one"]);
    server.write("one", &[create(1, 1)]);
    let mut follower = Follower::new(Options::default());
    follower.step(BEGIN, Input::Connected { cursor: None });
    let key = Some(server.bot("one").key.public());
    follower.step(BEGIN, Input::Key { did: did("one"), key });
    for number in 2..4 {
        let message = server.write("one", &[create(number, 2)]);
        let asked = follower.step(BEGIN, Input::Message(message));
        assert_eq!(asked.last(), Some(&Output::GetRepo { did: did("one") }));
        assert_eq!(follower.lost(), []);
        assert_eq!(follower.step(BEGIN, Input::Repo { did: did("one"), archive: None }), []);
        assert_eq!(follower.lost(), [did("one")]);
    }
    server.write("one", &[create(4, 4)]);
    read_all(&mut follower, &mut server);
    agrees(&follower, &server);
}

/// Events that nobody could verify were passed over without a word, and a follower that had verified nothing was content.
#[test]
fn what_could_not_be_verified_is_told_until_it_can_be() {
    let mut server = Server::with(&["one", "two"]);
    let (mut follower, one) = (follower(), did("one"));
    let unverified = |follower: &Follower| follower.unverified().map(|(did, found)| (did.clone(), found)).collect();
    let told: Vec<(_, Unverified)> = unverified(&follower);
    assert_eq!(told, []);
    for number in 1..=2 {
        let message = server.write("one", &[create(number, 1)]);
        assert_eq!(follower.step(BEGIN, Input::Message(message)), [Output::Resolve { did: one.clone() }]);
        assert_eq!(follower.step(BEGIN, Input::Key { did: one.clone(), key: None }), []);
        let told: Vec<(_, Unverified)> = unverified(&follower);
        assert_eq!(told, [(one.clone(), Unverified { lacks: Lacks::Key, events: number })]);
    }
    let key = Some(server.bot("one").key.public());
    sound(&follower.step(BEGIN, Input::Key { did: one.clone(), key }));
    let told: Vec<(_, Unverified)> = unverified(&follower);
    assert_eq!(told, []);
    // A commit that nobody was told of breaks the chain.
    server.recommit("one");
    let message = server.write("one", &[create(9, 1)]);
    follower.step(BEGIN, Input::Message(message));
    follower.step(BEGIN, Input::Repo { did: one.clone(), archive: None });
    let told: Vec<(_, Unverified)> = unverified(&follower);
    assert_eq!(told, [(one, Unverified { lacks: Lacks::Repository, events: 1 })]);
}

/// More events waited for a key than a follower keeps: it asked for the key no more, and blamed the server for what it had dropped.
#[test]
fn a_key_that_comes_late_finds_the_server_without_blame() {
    let (mut server, mut follower) = (Server::with(&["one"]), follower());
    for number in 0..1_010 {
        let message = server.write("one", &[create(number, 1)]);
        assert_eq!(follower.step(BEGIN, Input::Message(message)), [Output::Resolve { did: did("one") }], "{number}");
        follower.step(BEGIN, Input::Key { did: did("one"), key: None });
    }
    assert_eq!(follower.unverified().map(|(_, found)| found.events).collect::<Vec<_>>(), [1_010]);
    let message = server.write("one", &[create(2_000, 1)]);
    let found = read(&mut follower, &mut server, message);
    let blame = found.iter().find(|output| matches!(output, Output::Violation { .. }));
    assert_eq!(blame, None);
    server.write("one", &[create(2_001, 1)]);
    read_all(&mut follower, &mut server);
    agrees(&follower, &server);
}

#[test]
fn an_account_that_was_deleted_takes_its_records_with_it_and_keeps_its_revision() {
    let (mut server, mut follower) = (Server::with(&["one"]), follower());
    server.write("one", &[create(1, 1)]);
    server.account("one", Position::inactive(Status::Suspended));
    sound(&read_all(&mut follower, &mut server));
    assert_eq!(follower.account(&did("one")).expect("held").records().map(|records| records.len()), Some(1));
    server.account("one", Position::inactive(Status::Deleted));
    sound(&read_all(&mut follower, &mut server));
    let account = follower.account(&did("one")).expect("held");
    assert_eq!((account.records(), account.position()), (None, Some(Position::inactive(Status::Deleted))));
    // A restore brings it back: the tree is the one that was held, and its records must be fetched all the same.
    server.account("one", Position::ACTIVE);
    let commit = server.recommit("one");
    server.sync("one", &commit);
    read_all(&mut follower, &mut server);
    agrees(&follower, &server);
    assert_eq!(server.exports, 1);
}

/// A key that an `#identity` announced is the one that counts from there on.
#[test]
fn an_identity_lets_the_key_be_asked_for_again() {
    let (mut server, mut follower) = (Server::with(&["one", "two"]), follower());
    server.write("one", &[create(1, 1)]);
    sound(&read_all(&mut follower, &mut server));
    let other = server.bot("two").key.clone();
    server.bot("one").key = other;
    server.identity("one", None);
    server.write("one", &[create(2, 2)]);
    sound(&read_all(&mut follower, &mut server));
    agrees(&follower, &server);
    assert_eq!(follower.account(&did("one")).and_then(|one| one.handle()).map(|h| h.as_str()), Some("one.example"));
}

#[test]
fn an_error_ends_the_connection_and_a_new_one_goes_on() {
    let (mut server, mut follower) = (Server::with(&["one"]), follower());
    read_all(&mut follower, &mut server);
    let found = read(&mut follower, &mut server, error("ConsumerTooSlow"));
    assert!(matches!(&found[..], [Output::Refused(error)] if error.error == "ConsumerTooSlow"), "{found:?}");
    let message = server.write("one", &[create(1, 1)]);
    let found = read(&mut follower, &mut server, message);
    assert!(matches!(found[..], [Output::Violation { .. }]), "{found:?}");
    let cursor = follower.cursor();
    follower.step(Millis(0), Input::Connected { cursor });
    sound(&read_all(&mut follower, &mut server));
    agrees(&follower, &server);
}

//! Streams with one mistake each. Every one of them is found, by its name, and takes nothing with it.

use crate::following::{agrees, follower, read, read_all};
use crate::stream::{BEGIN, Server, Told, create, delete, did, error, info, path, record, update};
use bytes::Bytes;
use highwater_consumer::follower::{Cause, Follower, Input, Output};
use highwater_consumer::frame::{Position, Status};
use highwater_repo::key::{Curve, SigningKey};
use highwater_repo::{Cid, Codec, Commit, Tid, car};

/// The rules that were broken, as they are told.
fn broken(found: &[Output]) -> Vec<String> {
    let told = found.iter().filter_map(|output| match output {
        Output::Violation { violation, .. } => Some(violation.to_string()),
        _ => None,
    });
    told.collect()
}

fn says(found: &[Output], expected: &str) {
    let broken = broken(found);
    assert!(matches!(&broken[..], [told] if told.contains(expected)), "{broken:?} does not say {expected:?}");
}

/// A server with many records that was followed up to now.
fn followed() -> (Server, Follower) {
    let (mut server, mut follower) = (Server::with(&["one", "two"]), follower());
    let writes: Vec<_> = (0..100).map(|key| create(key, key as i64)).collect();
    server.write("one", &writes);
    server.write("one", &[create(100, 100)]);
    assert_eq!(broken(&read_all(&mut follower, &mut server)), [""; 0]);
    (server, follower)
}

/// A commit that is changed before it is sent.
fn changed(change: impl FnOnce(&mut Told, &Server)) -> Vec<Output> {
    let (mut server, mut follower) = followed();
    let mut told = server.prepare("one", &[create(200, 1), update(7, -7), delete(50)]);
    change(&mut told, &server);
    let message = server.tell(&told);
    let before = follower.account(&did("one")).and_then(|account| account.head());
    let found = read(&mut follower, &mut server, message);
    let committed = found.iter().any(|output| matches!(output, Output::Committed { .. }));
    assert!(!committed, "a commit with a mistake was taken");
    // Whatever the mistake was, what is held is what it was, or what the server answers as a whole.
    let head = follower.account(&did("one")).and_then(|account| account.head());
    if head != before {
        agrees(&follower, &server);
    }
    found
}

fn any_cid() -> Cid {
    Cid::of(Codec::DagCbor, b"something else")
}

fn sign_again(told: &mut Told, key: &SigningKey, rev: Tid) {
    let commit = Commit::sign(told.commit.did.clone(), rev, told.commit.data, key);
    told.retell(commit);
}

#[test]
fn a_chain_with_a_wrong_link_is_found_and_the_repository_is_fetched() {
    let found = changed(|told, _| told.previous_data = Some(any_cid()));
    says(&found, "undoing the operations leads to");
    assert!(matches!(found[1], Output::Desynchronized { cause: Cause::Broken, .. }), "{found:?}");
    assert!(matches!(found[2], Output::Resynchronized { .. }), "{found:?}");
    let found = changed(|told, _| told.since = told.since.map(|since| Tid::new(since.micros() - 1, 7)));
    says(&found, ", and the last rev was 3n3ij");
    assert!(matches!(found[1], Output::Desynchronized { cause: Cause::Chain, .. }), "{found:?}");
    let found = changed(|told, _| (told.since, told.previous_data) = (None, None));
    assert!(matches!(found[1], Output::Desynchronized { .. }), "{found:?}");
    // It is right in itself, and builds on a commit that nobody was told.
    let (mut server, mut follower) = followed();
    let hidden = server.prepare("one", &[create(200, 1)]);
    let mut told = server.prepare("one", &[create(201, 1)]);
    told.since = hidden.since;
    let message = server.tell(&told);
    says(&read(&mut follower, &mut server, message), "prevData is bafy");
    agrees(&follower, &server);
}

#[test]
fn blocks_that_are_missing_or_too_many_are_found() {
    let records = |told: &Told| told.operations.iter().filter_map(|op| op.cid).collect::<Vec<_>>();
    let told = followed().0.prepare("one", &[create(200, 1), update(7, -7), delete(50)]);
    let (mut new, mut near) = (0, 0);
    let nodes = told.blocks.iter().skip(1).map(|(cid, _)| *cid).filter(|cid| !records(&told).contains(cid));
    for node in nodes {
        let drop_it = |told: &mut Told| told.blocks.retain(|(cid, _)| *cid != node);
        let missing = format!("the operations cannot be undone: block {node} is missing");
        if told.made.contains(&node) {
            says(&changed(|told, _| drop_it(told)), &missing);
            new += 1;
        } else {
            // Not every neighbour is needed by every way of undoing.
            let (mut server, mut follower) = followed();
            let mut told = server.prepare("one", &[create(200, 1), update(7, -7), delete(50)]);
            drop_it(&mut told);
            let message = server.tell(&told);
            let found = read(&mut follower, &mut server, message);
            near += usize::from(broken(&found).first() == Some(&missing));
        }
    }
    assert!(new > 4 && near > 0, "{new} new nodes, {near} neighbours: a tree of several layers");
    let found = changed(|told, _| {
        let cid = records(told)[1];
        told.blocks.retain(|(other, _)| *other != cid);
    });
    says(&found, &format!("at {} is missing among the blocks", path(7)));
    says(&changed(|told, _| drop(told.blocks.remove(0))), "the block of commit");
    let gone = record(50);
    let found = changed(|told, _| told.blocks.push((Cid::of(Codec::DagCbor, &gone), gone.clone())));
    says(&found, &format!("is no longer at {}", path(50)));
    says(&changed(|told, _| told.blocks[2].1 = Bytes::from_static(b"\xa0")), "the bytes of block");
}

#[test]
fn operations_that_do_not_say_what_happened_are_found() {
    says(&changed(|told, _| drop(told.operations.pop())), "undoing the operations leads to");
    says(&changed(|told, _| told.operations[1].previous = Some(any_cid())), "undoing the operations leads to");
    let other = path(201);
    says(&changed(|told, _| told.operations[0].path = other.clone()), "is not what the operation made of it");
}

#[test]
fn a_commit_that_the_account_did_not_sign_is_dropped() {
    let stranger = SigningKey::from_secret(Curve::K256, &[77; 32]).expect("a secret");
    let found = changed(|told, _| sign_again(told, &stranger, told.commit.rev));
    says(&found, "did not sign the commit");
    assert_eq!(found.len(), 1, "nothing is fetched because of what a stranger sends");
    says(
        &changed(|told, server| {
            let key = server.bots[&did("one")].key.clone();
            sign_again(told, &key, Tid::new(told.rev.micros() + 1, 7));
        }),
        "and the message says",
    );
    says(&changed(|told, _| told.did = did("two")), "the commit is did:web:one.example's");
    says(&changed(|told, _| told.blocks[0].1 = Bytes::from_static(b"\xa0")), "the bytes of block");
    says(&changed(|told, _| told.root = told.blocks[1].0), "this is no commit");
    says(
        &changed(|told, _| {
            let mut commit = told.commit.clone();
            commit.previous = Some(any_cid());
            told.retell(commit);
        }),
        "and must be null",
    );
}

/// Anybody could make a second signature from one, with the other s: then a commit would have two names.
#[test]
fn a_signature_with_a_high_s_is_found() {
    const ORDER: [u8; 32] = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0xba, 0xae,
        0xdc, 0xe6, 0xaf, 0x48, 0xa0, 0x3b, 0xbf, 0xd2, 0x5e, 0x8c, 0xd0, 0x36, 0x41, 0x41,
    ];
    says(
        &changed(|told, _| {
            let mut signature = told.commit.signature.to_vec();
            let mut borrow = 0;
            for place in (0..32).rev() {
                let difference = i16::from(ORDER[place]) - i16::from(signature[32 + place]) - borrow;
                (signature[32 + place], borrow) = (difference.rem_euclid(256) as u8, i16::from(difference < 0));
            }
            let commit = Commit { signature: signature.into(), ..told.commit.clone() };
            told.retell(commit);
        }),
        "not with a low s",
    );
}

#[test]
fn records_that_are_none_are_found() {
    for (bytes, expected) in [
        (b"\xa1\x61a\xfb\x3f\xf8\x00\x00\x00\x00\x00\x00".as_slice(), "floats"),
        (b"\xa1\x65$type\x71com.example.other", "the record's $type must be com.example.kind"),
        (b"\x01", "a record is an object"),
        (b"\xa2\x61b\x01\x61a\x01", "keys of a map"),
    ] {
        let (mut server, mut follower) = followed();
        let record = Bytes::copy_from_slice(bytes);
        let change = highwater_repo::write::Change::Create(record);
        let message = server.write("one", &[highwater_repo::write::Write { path: path(300), change }]);
        let found = read(&mut follower, &mut server, message);
        assert!(broken(&found)[0].contains(expected), "{found:?}");
    }
}

/// cirrus#169: one commit without prevData, and a relay that takes none such let the repository stand still for 106 days.
#[test]
fn a_commit_without_prev_data_that_is_not_the_first_is_refused_by_name() {
    says(&changed(|told, _| told.previous_data = None), "field prevData: only the first commit has none");
}

/// atproto#3580: commits A, B and C of one account left the server as A, C, B.
#[test]
fn commits_that_leave_in_another_order_are_found() {
    let (mut server, mut follower) = followed();
    let first = server.prepare("one", &[create(200, 1)]);
    let second = server.prepare("one", &[create(201, 1)]);
    let third = server.prepare("one", &[create(202, 1)]);
    for told in [&first, &third, &second] {
        server.tell(told);
    }
    let found = read_all(&mut follower, &mut server);
    says(&found, &format!("since is {}, and the last rev was {}", second.rev, first.rev));
    let ignored =
        Output::Ignored { sequence: server.sequence, did: did("one"), rev: second.rev, held: third.rev, fetched: true };
    assert_eq!(found.last(), Some(&ignored));
    agrees(&follower, &server);
}

/// atproto#2400: a cursor skipped an event that was written at the same time as another.
#[test]
fn an_event_that_a_cursor_skipped_is_missed_by_the_next_one() {
    let (mut server, mut follower) = followed();
    server.write("one", &[create(200, 1)]);
    let cursor = Some(server.sequence);
    follower.step(BEGIN, Input::Connected { cursor });
    let message = server.write("one", &[create(201, 1)]);
    says(&read(&mut follower, &mut server, message), "since is");
}

#[test]
fn numbers_that_do_not_rise_are_found() {
    let (mut server, mut follower) = followed();
    let last = server.sent.last().expect("sent").clone();
    says(&read(&mut follower, &mut server, last.1.clone()), &format!("its number {} is not behind {}", last.0, last.0));
    // The server begins with the event that the cursor names, instead of the one behind it.
    follower.step(BEGIN, Input::Connected { cursor: Some(last.0) });
    says(&read(&mut follower, &mut server, last.1), "is not behind");
    server.sequence = 3;
    let message = server.write("one", &[create(200, 1)]);
    says(&read(&mut follower, &mut server, message), "its number 4 is not behind 6");
    assert_eq!(follower.cursor(), Some(6));
}

#[test]
fn a_revision_from_the_future_is_found_and_an_old_one_is_ignored() {
    let (mut server, mut follower) = followed();
    server.now = BEGIN.plus(5 * 60_000 + 1_000);
    let message = server.write("one", &[create(200, 1)]);
    says(&read(&mut follower, &mut server, message), "is 301000 ms ahead of the clock");
    let (mut server, mut follower) = followed();
    server.now = BEGIN.plus(5 * 60_000 - 1_000);
    let told = server.prepare("one", &[create(200, 1)]);
    let message = server.tell(&told);
    assert!(matches!(read(&mut follower, &mut server, message)[..], [Output::Committed { .. }]));
    let message = server.tell(&told);
    let found = read(&mut follower, &mut server, message);
    let sequence = server.sequence;
    assert_eq!(found, [Output::Ignored { sequence, did: did("one"), rev: told.rev, held: told.rev, fetched: false }]);
    // What a restore without a fresh commit would send: its revision is one that everybody has.
    let message = server.sync("one", &told.commit);
    assert!(matches!(read(&mut follower, &mut server, message)[..], [Output::Ignored { .. }]));
}

#[test]
fn nothing_of_a_repository_leaves_while_its_account_is_not_active() {
    let (mut server, mut follower) = followed();
    server.account("one", Position::inactive(Status::Suspended));
    server.write("one", &[create(200, 1)]);
    says(&read_all(&mut follower, &mut server), "the account is suspended: nothing of its repository may be sent");
    let commit = server.recommit("one");
    server.sync("one", &commit);
    says(&read_all(&mut follower, &mut server), "the account is suspended");
}

#[test]
fn a_sync_holds_its_commit_and_nothing_else() {
    let (mut server, mut follower) = followed();
    let commit = server.recommit("one");
    let ((cid, block), record) = (commit.block(), record(1));
    let name = Cid::of(Codec::DagCbor, &record);
    let more = car::archive(&cid, [(&cid, &block), (&name, &record)]);
    for (rev, archive, expected) in [
        (commit.rev, more, "holds the commit's block alone, and this one holds 2 blocks"),
        (commit.rev, car::archive(&cid, []), "the block of commit"),
        (commit.rev, b"archive".to_vec(), "the blocks:"),
        (Tid::new(commit.rev.micros() + 1, 7), car::archive(&cid, [(&cid, &block)]), "and the message says"),
    ] {
        let message = server.sync_of("one", rev, &archive);
        says(&read(&mut follower, &mut server, message), expected);
    }
    let message = server.sync("one", &commit);
    assert!(matches!(read(&mut follower, &mut server, message)[..], [Output::Advanced { .. }]));
}

/// A gap that was announced explains a chain that is broken; the server broke no rule.
#[test]
fn a_gap_that_was_announced_is_no_mistake() {
    let (mut server, mut follower) = followed();
    drop(server.prepare("one", &[create(200, 1)]));
    follower.step(BEGIN, Input::Connected { cursor: follower.cursor() });
    let mut found = read(&mut follower, &mut server, info());
    let message = server.write("one", &[create(201, 1)]);
    found.extend(read(&mut follower, &mut server, message));
    assert_eq!(broken(&found), [""; 0]);
    assert!(matches!(found[1], Output::Desynchronized { cause: Cause::Chain, .. }), "{found:?}");
    agrees(&follower, &server);
}

/// What `getRepo` answers is held to the same rules.
#[test]
fn an_export_that_is_not_whole_or_too_old_is_found() {
    let (mut server, mut follower) = followed();
    let old = server.export(&did("one")).expect("an export");
    drop(server.prepare("one", &[create(200, 1)]));
    let commit = server.recommit("one");
    let message = server.sync("one", &commit);
    let step = |follower: &mut Follower, archive: &[u8]| {
        follower.step(BEGIN, Input::Repo { did: did("one"), archive: Some(Bytes::copy_from_slice(archive)) })
    };
    follower.step(BEGIN, Input::Message(message));
    says(&step(&mut follower, &old), &format!("and {} was told", commit.rev));
    let whole = server.export(&did("one")).expect("an export");
    says(&step(&mut follower, &whole[..whole.len() - 1]), "the archive ends early");
    let mut blocks = crate::stream::blocks_of(&whole);
    blocks.swap_remove(9);
    let holed = car::archive(&blocks[0].0, blocks.iter().map(|(cid, block)| (cid, block)));
    assert_eq!(broken(&step(&mut follower, &holed)).len(), 1);
    assert!(!follower.account(&did("one")).expect("held").is_synchronized());
    assert!(matches!(step(&mut follower, &whole)[..], [Output::Resynchronized { .. }]));
    agrees(&follower, &server);
}

#[test]
fn what_is_no_message_or_comes_behind_the_end_is_found() {
    let (mut server, mut follower) = followed();
    says(&read(&mut follower, &mut server, Bytes::from_static(b"text")), "the header");
    let locked = Bytes::from_static(
        b"\xa2\x61t\x68#account\x62op\x01\xa5\x63did\x73did:web:one.example\x63seq\x18\x63\x64time\x78\x182026-11-30T11:07:00.000Z\x66active\xf4\x66status\x66locked",
    );
    says(&read(&mut follower, &mut server, locked), "\"locked\" is no status of an account");
    read(&mut follower, &mut server, error("FutureCursor"));
    says(&read(&mut follower, &mut server, info()), "#info came behind the error that ends a connection");
}

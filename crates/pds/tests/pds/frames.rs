//! Messages, byte for byte.

use crate::server::{BEGIN, did, key, record, row};
use bytes::Bytes;
use highwater_consumer::frame::Frame;
use highwater_pds::account::{Position, Status};
use highwater_pds::frame::{self, FRAME_BYTES_MAX, Unnumbered};
use highwater_pds::sequence::{SEQ_MAX, Seq};
use highwater_pds::{AccountId, Signer};
use highwater_repo::write::{Change, Write, stage};
use highwater_repo::{Cid, Tid, Tree, car};
use std::collections::BTreeMap;

const TIME: &[u8] = b"2026-11-30T00:53:20.000Z";

fn message(frame: &Unnumbered, seq: u64) -> Bytes {
    let mut out = Vec::new();
    frame.write(Seq(seq), &mut out);
    assert!(out.len() <= frame.bytes_max());
    assert!(Frame::decode(out.clone().into()).is_ok(), "the follower reads it");
    out.into()
}

/// Text of less than 24, and of less than 256 bytes.
fn text(value: &[u8]) -> Vec<u8> {
    match value.len() {
        0..24 => [&[0x60 | value.len() as u8], value].concat(),
        _ => [&[0x78, value.len() as u8], value].concat(),
    }
}

fn bytes(value: &[u8]) -> Vec<u8> {
    match value.len() {
        0..256 => [&[0x58, value.len() as u8], value].concat(),
        _ => [&[0x59], &(value.len() as u16).to_be_bytes()[..], value].concat(),
    }
}

fn link(cid: &Cid) -> Vec<u8> {
    [&[0xd8, 0x2a, 0x58, 0x25, 0x00], &cid.to_bytes()[..]].concat()
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn an_account_message_holds_these_bytes() {
    let did = did("bot");
    let active = message(&frame::account(&did, Position::Active, BEGIN), 1);
    let expected = joined(&[
        &[0xa2, 0x61, 0x74, 0x68],
        b"#account",
        &[0x62, 0x6f, 0x70, 0x01],
        &[0xa4],
        b"\x63did",
        &text(b"did:web:bot.pds.test"),
        b"\x63seq",
        &[0x01],
        b"\x64time",
        &text(TIME),
        b"\x66active",
        &[0xf5],
    ]);
    assert_eq!(active, expected);
    for (status, name) in [
        (Status::TakenDown, &b"takendown"[..]),
        (Status::Suspended, b"suspended"),
        (Status::Deleted, b"deleted"),
        (Status::Deactivated, b"deactivated"),
    ] {
        let inactive = message(&frame::account(&did, Position::Inactive(status), BEGIN), 24);
        let expected = joined(&[
            &[0xa2, 0x61, 0x74, 0x68],
            b"#account",
            &[0x62, 0x6f, 0x70, 0x01],
            &[0xa5],
            b"\x63did",
            &text(b"did:web:bot.pds.test"),
            b"\x63seq",
            &[0x18, 24],
            b"\x64time",
            &text(TIME),
            b"\x66active",
            &[0xf4],
            b"\x66status",
            &text(name),
        ]);
        assert_eq!(inactive, expected);
    }
}

#[test]
fn an_identity_message_holds_these_bytes() {
    let handle = "a-bot.pds.test".parse().expect("a handle");
    let found = message(&frame::identity(&did("bot"), &handle, BEGIN), 1_000_000_000_001);
    let expected = joined(&[
        &[0xa2, 0x61, 0x74, 0x69],
        b"#identity",
        &[0x62, 0x6f, 0x70, 0x01],
        &[0xa4],
        b"\x63did",
        &text(b"did:web:bot.pds.test"),
        b"\x63seq",
        &[0x1b, 0, 0, 0, 0xe8, 0xd4, 0xa5, 0x10, 0x01],
        b"\x64time",
        &text(TIME),
        b"\x66handle",
        &text(b"a-bot.pds.test"),
    ]);
    assert_eq!(found, expected);
}

#[test]
fn a_sync_message_holds_these_bytes_and_the_commit_alone() {
    let (account, key) = (row(AccountId(1), "bot"), key(AccountId(1)));
    let signer = Signer { key: &key, clock_id: 0, rev_min: None };
    let fresh =
        highwater_repo::commit::fresh(account.did.clone(), signer.rev(&account, BEGIN), Tree::new().seal().0, &key);
    let unnumbered = frame::sync(&account.did, fresh.commit.rev, &fresh.archive, BEGIN);
    let found = message(&unnumbered, 256);
    let expected = joined(&[
        &[0xa2, 0x61, 0x74, 0x65],
        b"#sync",
        &[0x62, 0x6f, 0x70, 0x01],
        &[0xa5],
        b"\x63did",
        &text(b"did:web:bot.pds.test"),
        b"\x63rev",
        &text(fresh.commit.rev.to_string().as_bytes()),
        b"\x63seq",
        &[0x19, 1, 0],
        b"\x64time",
        &text(TIME),
        b"\x66blocks",
        &bytes(&fresh.archive),
    ]);
    assert_eq!(found, expected);
    let mut out = Vec::new();
    let archive = unnumbered.write(Seq(256), &mut out);
    assert_eq!(&out[archive..], &fresh.archive[..], "whoever stores the message finds the archive in it");
    let sections: Vec<_> = car::Sections::new(&fresh.archive[fresh.stored.clone()]).map(Result::unwrap).collect();
    assert_eq!((sections.len(), sections[0].0), (1, fresh.cid));
}

#[test]
fn a_commit_message_holds_these_bytes() {
    let (did, key, blocks) = (did("bot"), key(AccountId(1)), BTreeMap::new());
    let write = |path: &str, change| Write { path: format!("com.example.kind/{path}"), change };
    let first = [write("a", Change::Create(record(1))), write("b", Change::Create(record(2)))];
    let staged = stage(&Tree::new(), &first, &blocks).expect("staged");
    let first = staged.commit(did.clone(), Tid::new(BEGIN.0, 0), &key);
    let next =
        [write("a", Change::Delete), write("b", Change::Update(record(3))), write("c", Change::Create(record(4)))];
    let staged = stage(&first.tree, &next, &blocks).expect("staged");
    let second = staged.commit(did.clone(), Tid::new(BEGIN.0 + 1, 0), &key);

    let header: &[u8] = &[0xa2, 0x61, 0x74, 0x67, 0x23, 0x63, 0x6f, 0x6d, 0x6d, 0x69, 0x74, 0x62, 0x6f, 0x70, 0x01];
    let found = message(&frame::commit(&first, None, None, BEGIN), 1);
    let create = |path: &[u8], number| {
        let cid = link(&Cid::of(highwater_repo::Codec::DagCbor, &record(number)));
        joined(&[&[0xa3], b"\x63cid", &cid, b"\x64path", &text(path), b"\x66action", b"\x66create"])
    };
    let expected = joined(&[
        header,
        &[0xab],
        b"\x63ops",
        &[0x82],
        &create(b"com.example.kind/a", 1),
        &create(b"com.example.kind/b", 2),
        b"\x63rev",
        &text(first.commit.rev.to_string().as_bytes()),
        b"\x63seq",
        &[0x01],
        b"\x64repo",
        &text(b"did:web:bot.pds.test"),
        b"\x64time",
        &text(TIME),
        b"\x65blobs",
        &[0x80],
        // Present, and null, on the first commit alone.
        b"\x65since",
        &[0xf6],
        b"\x66blocks",
        &bytes(&first.archive),
        b"\x66commit",
        &link(&first.cid),
        b"\x66rebase",
        &[0xf4],
        b"\x66tooBig",
        &[0xf4],
    ]);
    assert_eq!(found, expected);

    let found = message(&frame::commit(&second, Some(first.commit.rev), Some(first.commit.data), BEGIN), 2);
    let before = |number| link(&Cid::of(highwater_repo::Codec::DagCbor, &record(number)));
    let expected = joined(&[
        header,
        &[0xac],
        b"\x63ops",
        &[0x83],
        &[0xa4],
        b"\x63cid",
        &[0xf6],
        b"\x64path",
        &text(b"com.example.kind/a"),
        b"\x64prev",
        &before(1),
        b"\x66action",
        b"\x66delete",
        &[0xa4],
        b"\x63cid",
        &before(3),
        b"\x64path",
        &text(b"com.example.kind/b"),
        b"\x64prev",
        &before(2),
        b"\x66action",
        b"\x66update",
        &create(b"com.example.kind/c", 4),
        b"\x63rev",
        &text(second.commit.rev.to_string().as_bytes()),
        b"\x63seq",
        &[0x02],
        b"\x64repo",
        &text(b"did:web:bot.pds.test"),
        b"\x64time",
        &text(TIME),
        b"\x65blobs",
        &[0x80],
        b"\x65since",
        &text(first.commit.rev.to_string().as_bytes()),
        b"\x66blocks",
        &bytes(&second.archive),
        b"\x66commit",
        &link(&second.cid),
        b"\x66rebase",
        &[0xf4],
        b"\x66tooBig",
        &[0xf4],
        b"\x68prevData",
        &link(&first.commit.data),
    ]);
    assert_eq!(found, expected);
}

#[test]
fn messages_without_a_number_hold_these_bytes() {
    let info = frame::outdated_cursor("old");
    assert_eq!(
        info,
        joined(&[
            &[0xa2, 0x61, 0x74, 0x65],
            b"#info",
            &[0x62, 0x6f, 0x70, 0x01],
            &[0xa2],
            b"\x64name",
            &text(b"OutdatedCursor"),
            b"\x67message",
            b"\x63old",
        ])
    );
    let error = frame::error("FutureCursor", "no");
    assert_eq!(
        error,
        joined(&[
            &[0xa1, 0x62, 0x6f, 0x70, 0x20],
            &[0xa2],
            b"\x65error",
            &text(b"FutureCursor"),
            b"\x67message",
            b"\x62no",
        ])
    );
    for message in [info, error] {
        assert!(Frame::decode(message).is_ok());
    }
}

/// 2^53 - 1 is the largest number that every client holds; a message has room for it.
#[test]
fn the_largest_number_fits() {
    let found = message(&frame::account(&did("bot"), Position::Active, BEGIN), SEQ_MAX);
    assert!(found.windows(9).any(|bytes| bytes == [0x1b, 0x00, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]));
    assert!(found.len() < FRAME_BYTES_MAX);
}

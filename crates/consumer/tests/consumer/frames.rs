//! Messages written byte by byte, and every one of them with a mistake.

use bytes::Bytes;
use highwater_consumer::Frame;
use highwater_consumer::frame::{COMMIT_BLOCKS_BYTES_MAX, FRAME_BYTES_MAX, Position, SYNC_BLOCKS_BYTES_MAX, Status};

/// Parts of a message by name, so that a test can put another one in a part's place.
type Parts = Vec<(&'static str, Vec<u8>)>;

const TIME: &[u8] = b"\x64time\x78\x182026-11-30T11:07:00.000Z";
const DID: &[u8] = b"\x63did\x73did:web:bot.example";

/// A link to a block of which the digest is all of one byte.
fn link(digest: u8) -> Vec<u8> {
    [b"\xd8\x2a\x58\x25\x00\x01\x71\x12\x20".as_slice(), &[digest; 32]].concat()
}

fn after(key: &[u8], value: &[u8]) -> Vec<u8> {
    [key, value].concat()
}

/// Bytes of a field, with a length of two bytes.
fn long(key: &[u8], length: u16) -> Vec<u8> {
    [key, b"\x59", &length.to_be_bytes(), &vec![7; usize::from(length)]].concat()
}

fn commit() -> Parts {
    let create = [b"\xa3\x63cid".as_slice(), &link(1), b"\x64path\x74com.example.kind/one\x66action\x66create"];
    let update = [
        b"\xa4\x63cid".as_slice(),
        &link(2),
        b"\x64path\x74com.example.kind/two\x64prev",
        &link(3),
        b"\x66action\x66update",
    ];
    let delete =
        [b"\xa4\x63cid\xf6\x64path\x74com.example.kind/six\x64prev".as_slice(), &link(4), b"\x66action\x66delete"];
    vec![
        ("header", b"\xa2\x61t\x67#commit\x62op\x01".to_vec()),
        ("keys", b"\xac".to_vec()),
        ("ops", b"\x63ops\x83".to_vec()),
        ("create", create.concat()),
        ("update", update.concat()),
        ("delete", delete.concat()),
        ("rev", b"\x63rev\x6d3jzfcijpj2z2a".to_vec()),
        ("seq", b"\x63seq\x19\x01\x00".to_vec()),
        ("repo", b"\x64repo\x73did:web:bot.example".to_vec()),
        ("time", TIME.to_vec()),
        ("blobs", b"\x65blobs\x80".to_vec()),
        ("since", b"\x65since\x6d3jzfcijpj2z22".to_vec()),
        ("blocks", b"\x66blocks\x43abc".to_vec()),
        ("commit", after(b"\x66commit", &link(5))),
        ("rebase", b"\x66rebase\xf4".to_vec()),
        ("tooBig", b"\x66tooBig\xf4".to_vec()),
        ("prevData", after(b"\x68prevData", &link(6))),
        ("end", Vec::new()),
    ]
}

fn sync() -> Parts {
    vec![
        ("header", b"\xa2\x61t\x65#sync\x62op\x01".to_vec()),
        ("keys", b"\xa5".to_vec()),
        ("did", DID.to_vec()),
        ("rev", b"\x63rev\x6d3jzfcijpj2z2a".to_vec()),
        ("seq", b"\x63seq\x1b\x00\x00\x00\xe8\xd4\xa5\x10\x01".to_vec()),
        ("time", TIME.to_vec()),
        ("blocks", b"\x66blocks\x43abc".to_vec()),
        ("end", Vec::new()),
    ]
}

fn identity() -> Parts {
    vec![
        ("header", b"\xa2\x61t\x69#identity\x62op\x01".to_vec()),
        ("keys", b"\xa4".to_vec()),
        ("did", DID.to_vec()),
        ("seq", b"\x63seq\x01".to_vec()),
        ("time", TIME.to_vec()),
        ("handle", b"\x66handle\x6fwren.pds.exampl".to_vec()),
        ("end", Vec::new()),
    ]
}

fn account() -> Parts {
    vec![
        ("header", b"\xa2\x61t\x68#account\x62op\x01".to_vec()),
        ("keys", b"\xa5".to_vec()),
        ("did", DID.to_vec()),
        ("seq", b"\x63seq\x18\x18".to_vec()),
        ("time", TIME.to_vec()),
        ("active", b"\x66active\xf4".to_vec()),
        ("status", b"\x66status\x69suspended".to_vec()),
        ("end", Vec::new()),
    ]
}

fn info() -> Parts {
    vec![
        ("header", b"\xa2\x61t\x65#info\x62op\x01".to_vec()),
        ("keys", b"\xa2".to_vec()),
        ("name", b"\x64name\x6eOutdatedCursor".to_vec()),
        ("message", b"\x67message\x64gone".to_vec()),
        ("end", Vec::new()),
    ]
}

fn error() -> Parts {
    vec![
        ("header", b"\xa1\x62op\x20".to_vec()),
        ("keys", b"\xa2".to_vec()),
        ("error", b"\x65error\x6cFutureCursor".to_vec()),
        ("message", b"\x67message\x65ahead".to_vec()),
        ("end", Vec::new()),
    ]
}

/// With other parts in the places of those of the same name.
fn with(mut parts: Parts, others: &[(&'static str, &[u8])]) -> Bytes {
    for (name, bytes) in others {
        let part = parts.iter_mut().find(|(other, _)| other == name).expect("a part of this name");
        part.1 = bytes.to_vec();
    }
    parts.into_iter().flat_map(|(_, bytes)| bytes).collect()
}

fn decode(parts: Parts) -> Frame {
    Frame::decode(with(parts, &[])).expect("a message")
}

#[test]
fn a_commit_is_read_from_its_bytes() {
    let Frame::Commit(frame) = decode(commit()) else { panic!("another kind") };
    let cid = |digest: u8| highwater_repo::Cid::from_bytes(&link(digest)[5..]).expect("a CID");
    assert_eq!((frame.sequence, frame.did.as_str()), (256, "did:web:bot.example"));
    assert_eq!(
        (frame.rev.to_string().as_str(), frame.since.map(|rev| rev.to_string())),
        ("3jzfcijpj2z2a", Some("3jzfcijpj2z22".into()))
    );
    assert_eq!((frame.commit, frame.previous_data, frame.blocks.as_ref()), (cid(5), Some(cid(6)), b"abc".as_slice()));
    assert_eq!(frame.time, "2026-11-30T11:07:00.000Z");
    let operations: Vec<_> = frame.operations.iter().map(|op| (op.path.as_str(), op.cid, op.previous)).collect();
    assert_eq!(
        operations,
        [
            ("com.example.kind/one", Some(cid(1)), None),
            ("com.example.kind/two", Some(cid(2)), Some(cid(3))),
            ("com.example.kind/six", None, Some(cid(4))),
        ]
    );
    let first = with(commit(), &[("keys", b"\xab"), ("since", b"\x65since\xf6"), ("prevData", b"")]);
    let Ok(Frame::Commit(frame)) = Frame::decode(first) else { panic!("another kind") };
    assert_eq!((frame.since, frame.previous_data), (None, None));
}

#[test]
fn the_other_messages_are_read_from_their_bytes() {
    let Frame::Sync(frame) = decode(sync()) else { panic!("another kind") };
    assert_eq!((frame.sequence, frame.blocks.as_ref()), (1_000_000_000_001, b"abc".as_slice()));
    let Frame::Identity(frame) = decode(identity()) else { panic!("another kind") };
    assert_eq!((frame.sequence, frame.handle.map(|handle| handle.to_string())), (1, Some("wren.pds.exampl".into())));
    let Frame::Account(frame) = decode(account()) else { panic!("another kind") };
    assert_eq!((frame.sequence, frame.position), (24, Position::inactive(Status::Suspended)));
    let active = with(account(), &[("keys", b"\xa4"), ("active", b"\x66active\xf5"), ("status", b"")]);
    let Ok(Frame::Account(frame)) = Frame::decode(active) else { panic!("another kind") };
    assert_eq!(frame.position, Position::ACTIVE);
    assert_eq!(decode(info()), Frame::Outdated(Some("gone".into())));
    let Frame::Error(frame) = decode(error()) else { panic!("another kind") };
    assert_eq!((frame.error.as_str(), frame.message.as_deref()), ("FutureCursor", Some("ahead")));
    for parts in [identity(), info(), error()] {
        let keys = [parts[1].1[0] - 1];
        let last = parts[parts.len() - 2].0;
        Frame::decode(with(parts, &[("keys", &keys), (last, b"")])).expect("its last field need not be there");
    }
}

#[test]
fn every_message_that_is_cut_or_goes_on_is_refused() {
    for parts in [commit(), sync(), identity(), account(), info(), error()] {
        let whole = with(parts.clone(), &[]);
        for cut in 0..whole.len() {
            assert!(Frame::decode(whole.slice(..cut)).is_err(), "{:?} is whole at {cut}", Frame::decode(whole));
        }
        let error = Frame::decode(with(parts, &[("end", b"\xf6")])).expect_err("something follows");
        assert!(error.to_string().ends_with("1 bytes follow the value"), "{error}");
    }
}

/// What an error says of a message with other parts in it.
fn refuses(parts: &Parts, others: &[(&'static str, &[u8])], expected: &str) {
    let error = match Frame::decode(with(parts.clone(), others)) {
        Err(error) => error.to_string(),
        Ok(frame) => panic!("taken: {frame:?}, instead of {expected}"),
    };
    assert!(error.contains(expected), "{error:?} does not say {expected:?}");
}

#[test]
fn headers_are_those_that_there_are() {
    let account = account();
    for (header, expected) in [
        (b"\xa2\x61t\x67#labels\x62op\x01".as_slice(), "no messages of type \"#labels\""),
        (b"\xa2\x61t\x68#account\x62op\x02", "op is 2"),
        (b"\xa2\x61t\x68#account\x62op\x20", "op alone"),
        (b"\xa2\x62op\x01\x61t\x68#account", "expected t"),
        (b"\xa1\x62op\x01", "expected t"),
        (b"\xa1\x62op\xf5", "expected a number"),
        (b"\xa0", "expected t and op"),
        (b"\xbf\x61t\x68#account\x62op\x01\xff", "shortest form"),
        (b"\x80", "expected a map"),
    ] {
        refuses(&account, &[("header", header)], expected);
    }
}

#[test]
fn fields_stand_in_their_order_and_hold_what_they_must() {
    let commit = commit();
    let swapped = [after(b"", &commit[7].1), after(b"", &commit[6].1)].concat();
    refuses(&commit, &[("rev", &swapped), ("seq", b"")], "#commit, field rev: expected rev");
    refuses(&commit, &[("keys", b"\xad")], "#commit has 13 fields");
    for (name, bytes, expected) in [
        ("rev", b"\x63rev\x6c3jzfcijpj2z2".as_slice(), "field rev: \"3jzfcijpj2z2\" is no TID"),
        ("rev", b"\x63rev\x6dzzzzzzzzzzzzz", "is no TID"),
        ("seq", b"\x63seq\x00", "numbers begin with 1"),
        ("seq", b"\x63seq\x20", "field seq: expected a number"),
        ("seq", b"\x63seq\x18\x01", "shortest form"),
        ("seq", b"\x63seq\x1b\x00\x20\x00\x00\x00\x00\x00\x00", "beyond 2^53 - 1"),
        ("repo", b"\x64repo\x6bbot.example", "\"bot.example\" is no DID"),
        ("time", b"\x64time\x6a2026-11-30", "is no datetime"),
        ("blobs", b"\x65blobs\x81\x01", "field blobs: the list is empty"),
        ("since", b"\x65since\x6d3jzfcijpj2z2a", "field since: it is not older than rev"),
        ("since", b"\x65since\xf6", "field since: only the first commit has null"),
        ("since", b"\x65since\x01", "text or null"),
        ("since", b"", "field since: expected since"),
        ("blocks", b"\x66blocks\x40", "there are no blocks"),
        ("blocks", b"\x66blocks\x63abc", "field blocks: expected bytes"),
        ("commit", b"\x66commit\x63abc", "field commit: expected a link"),
        ("rebase", b"\x66rebase\xf5", "field rebase: it is false"),
        ("tooBig", b"\x66tooBig\xf5", "field tooBig: it is false"),
        ("tooBig", b"\x66tooBig\x00", "true or false"),
        ("prevData", b"\x68prevData\xf6", "field prevData: expected a link"),
    ] {
        refuses(&commit, &[(name, bytes)], expected);
    }
    refuses(&commit, &[("keys", b"\xab"), ("prevData", b"")], "field prevData: only the first commit has none");
}

#[test]
fn operations_fit_their_actions() {
    let commit = commit();
    let operation = |keys: u8, cid: Option<u8>, path: &str, previous: Option<u8>, action: &str| {
        let mut bytes = vec![0xa0 | keys, 0x63, b'c', b'i', b'd'];
        bytes.extend(cid.map_or(vec![0xf6], link));
        bytes.extend([b"\x64path".as_slice(), &[0x78, path.len() as u8], path.as_bytes()].concat());
        if let Some(previous) = previous {
            bytes.extend([b"\x64prev".to_vec(), link(previous)].concat());
        }
        bytes.extend([b"\x66action".as_slice(), &[0x60 | action.len() as u8], action.as_bytes()].concat());
        bytes
    };
    let key = "com.example.kind/a-key-of-24-bytes";
    for (keys, cid, path, previous, action, expected) in [
        (4, Some(1), key, Some(2), "create", "do not fit the action"),
        (3, None, key, None, "create", "do not fit the action"),
        (3, Some(1), key, None, "update", "do not fit the action"),
        (4, None, key, Some(2), "update", "do not fit the action"),
        (3, None, key, None, "delete", "do not fit the action"),
        (4, Some(1), key, Some(2), "delete", "do not fit the action"),
        (3, Some(1), key, None, "upsert", "\"upsert\" is no action"),
        (3, Some(1), "com.example.kind/not/one/key", None, "create", "is no key of a record"),
        (5, Some(1), key, Some(2), "update", "an operation of #commit has 5 fields"),
    ] {
        refuses(&commit, &[("create", &operation(keys, cid, path, previous, action))], expected);
    }
    let twice = commit[4].1.clone();
    refuses(&commit, &[("create", &twice)], "two operations at one key");
    refuses(&commit, &[("ops", b"\x63ops\x98\xc9")], "field ops: 201 is more than 200");
}

/// No other words than those that the protocol knows leave a server.
#[test]
fn an_account_has_one_of_the_positions_that_there_are() {
    let account = account();
    let status = |text: &str| [b"\x66status".as_slice(), &[0x60 | text.len() as u8], text.as_bytes()].concat();
    for text in ["takendown", "suspended", "deleted", "deactivated"] {
        Frame::decode(with(account.clone(), &[("status", &status(text))])).expect("a position");
        let active = [("active", b"\x66active\xf5".as_slice()), ("status", &status(text))];
        refuses(&account, &active, "an active account does not have this status");
    }
    for text in ["desynchronized", "throttled"] {
        for active in [b"\x66active\xf4", b"\x66active\xf5"] {
            Frame::decode(with(account.clone(), &[("active", active), ("status", &status(text))])).expect("a position");
        }
    }
    refuses(&account, &[("status", &status("locked"))], "\"locked\" is no status of an account");
    refuses(&account, &[("status", &status("Suspended"))], "is no status of an account");
    refuses(&account, &[("keys", b"\xa4"), ("status", b"")], "an account that is not active says why");
    refuses(&account, &[("active", b"")], "field active: expected active");
    refuses(&identity(), &[("handle", b"\x66handle\x64wren")], "\"wren\" is no handle");
    refuses(&info(), &[("name", b"\x64name\x65Other")], "\"Other\" is no name of an #info");
    refuses(&error(), &[("error", b"\x65error\x60")], "an error has a name");
}

#[test]
fn sizes_end_where_the_protocol_says() {
    let (room, much) = (SYNC_BLOCKS_BYTES_MAX as u16, SYNC_BLOCKS_BYTES_MAX as u16 + 1);
    Frame::decode(with(sync(), &[("blocks", &long(b"\x66blocks", room))])).expect("the largest");
    refuses(&sync(), &[("blocks", &long(b"\x66blocks", much))], "field blocks: 10001 is more than 10000");
    let blocks = |length: usize| {
        [b"\x66blocks\x5a".as_slice(), &u32::try_from(length).expect("small").to_be_bytes(), &vec![7; length]].concat()
    };
    Frame::decode(with(commit(), &[("blocks", &blocks(COMMIT_BLOCKS_BYTES_MAX))])).expect("the largest");
    let large = blocks(COMMIT_BLOCKS_BYTES_MAX + 1);
    refuses(&commit(), &[("blocks", &large)], "field blocks: 2000001 is more than 2000000");
    let text = |length: usize| {
        [b"\x67message\x7a".as_slice(), &u32::try_from(length).expect("small").to_be_bytes(), &vec![b'a'; length]]
            .concat()
    };
    let rest = with(info(), &[("message", &text(0))]).len();
    Frame::decode(with(info(), &[("message", &text(FRAME_BYTES_MAX - rest))])).expect("the largest");
    refuses(&info(), &[("message", &text(FRAME_BYTES_MAX - rest + 1))], "has 5000001 bytes");
}

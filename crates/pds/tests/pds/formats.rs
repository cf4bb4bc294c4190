//! The stored bytes, as `docs/formats/pds.md` has them.

use crate::server::{BEGIN, Server, encoded, key, row};
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_pds::blob::{self, Blobs};
use highwater_pds::lifecycle::{Announce, Change};
use highwater_pds::record::{RECORD_BYTES_MAX, Restore, decode_event};
use highwater_pds::restore::Marker;
use highwater_pds::sequence::SEQ_MAX;
use highwater_pds::{
    Account, AccountId, Draft, Entry, Fact, Part, Position, Record, Sequence, Standing, State, Status, credentials,
};
use highwater_repo::{Cid, Codec, Tid};
use std::path::Path;

/// Set to write golden files that are missing. One that is there is never rewritten.
const WRITE: &str = "HIGHWATER_WRITE_GOLDEN";

fn golden(name: &str, bytes: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    if std::env::var_os(WRITE).is_some() && !path.exists() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, bytes).expect("written");
    }
    let kept = std::fs::read(&path).expect("the golden file is there");
    assert_eq!(kept, bytes, "{name} changed: that needs a new version");
}

const ID: AccountId = AccountId(7);

/// One fact of each kind.
fn facts() -> Vec<Fact> {
    let blob = Cid::of(Codec::Raw, b"a blob");
    let standing = Standing { activated: true, suspended: true, ..Standing::default() };
    let uploaded = blob::Change::Uploaded { cid: blob, bytes: 6, media_type: "text/plain".to_owned(), at: BEGIN };
    let rev = Tid::new(BEGIN.0, 3);
    vec![
        Fact::Created(Box::new(row(ID, "golden"))),
        Fact::Standing(ID, standing),
        Fact::Announced(ID, Position::Inactive(Status::Suspended)),
        Fact::HeadSent(ID, rev),
        Fact::Credentials(ID, credentials::Change::Password("$argon2id$v=19$m=8".to_owned())),
        Fact::Blob(ID, uploaded),
        Fact::Floor(1_000_000_000_000),
        Fact::Restore(Restore::Begun { id: 0x0123_4567_89ab_cdef, rev_min: Some(rev) }),
        Fact::Restore(Restore::Progress { id: 0x0123_4567_89ab_cdef, account: ID }),
        Fact::Restore(Restore::Done { id: 0x0123_4567_89ab_cdef }),
        Fact::PokePending(true),
        Fact::Booted(42),
        Fact::SessionSecret { sealed: false, secret: Bytes::from_static(&[9; 32]) },
    ]
}

/// A record of facts, and one of frames with heads, sent and alone, and copied blocks.
fn records() -> Vec<(&'static str, Bytes)> {
    let mut sequence = Sequence::default();
    let facts = facts().into_iter().fold(Draft::new(BEGIN), Draft::fact);
    let (account, key) = (row(ID, "golden"), key(ID));
    let signer = highwater_pds::Signer { key: &key, clock_id: 3, rev_min: None };
    let activated =
        highwater_pds::lifecycle::decide(&account, Change::Activate(Announce::OnActivation), &signer, BEGIN);
    let activated = activated.expect("it may").expect("something to do");
    let mut alone = activated.fallback.expect("there is one");
    alone.parts.push(Part::Copied { account: ID, sections: Bytes::from_static(b"sections"), front: Some(5) });
    alone.parts.push(Part::Copied { account: ID, sections: Bytes::from_static(b"more"), front: None });
    vec![
        ("record-facts-1.bin", facts.number(&mut sequence).expect("there are numbers")),
        ("record-frames-1.bin", activated.draft.number(&mut sequence).expect("there are numbers")),
        ("record-alone-1.bin", alone.number(&mut sequence).expect("there are numbers")),
    ]
}

/// A state in which nothing is left out.
fn state() -> State {
    let mut server = Server::new();
    server.create("a", Some(Announce::OnActivation));
    server.create("b", Some(Announce::OnActivation));
    server.directory.marker = Some(Marker { id: Some(5), rev_min: Some(Tid::new(BEGIN.0, 0)), seq_min: None });
    server.boot().expect("it lives");
    for fact in [
        Fact::Booted(1),
        Fact::Booted(2),
        Fact::SessionSecret { sealed: true, secret: Bytes::from_static(&[9; 48]) },
        Fact::Credentials(AccountId(1), credentials::Change::Password("$argon2id$".to_owned())),
    ] {
        server.append(&Draft::new(server.now).fact(fact)).expect("it lives");
    }
    server.state
}

#[test]
fn records_hold_the_bytes_of_the_golden_files_and_read_back() {
    for (name, bytes) in records() {
        golden(name, &bytes);
        assert!(Record::decode(bytes).is_ok(), "{name}");
    }
    let mut sequence = Sequence::default();
    for fact in facts() {
        let bytes = Draft::new(BEGIN).fact(fact.clone()).number(&mut sequence).expect("there are numbers");
        let record = Record::decode(bytes).expect("it reads back");
        assert_eq!((record.at, record.entries), (BEGIN, vec![Entry::Fact(fact)]));
    }
}

#[test]
fn a_stored_state_holds_the_bytes_of_the_golden_files_and_reads_back() {
    let state = state();
    let rest = state.encode_rest();
    golden("rest-1.bin", &rest);
    assert_eq!(State::decode_rest(rest.clone()).expect("it reads back").encode_rest(), rest);
    let bytes = encoded(&state.accounts[&AccountId(1)]);
    golden("row-1.bin", &bytes);
    let mut input = Reader::new(bytes.clone());
    assert_eq!(encoded(&Account::decode(&mut input).expect("it reads back")), bytes);
}

/// What the server keeps of an event, and finds again by its place.
#[test]
fn an_event_lies_at_its_place_in_the_record() {
    let (_, bytes) = records().swap_remove(1);
    let record = Record::decode(bytes.clone()).expect("it reads back");
    let mut events = 0;
    for entry in &record.entries {
        let Entry::Event(event) = entry else { continue };
        let place = event.place.start as usize..event.place.end as usize;
        let (seq, at, account, kind, frame) = decode_event(&mut Reader::new(bytes.slice(place))).expect("an event");
        assert_eq!((seq, at, account, kind, &frame), (event.seq, event.at, event.account, event.kind, &event.frame));
        events += 1;
    }
    assert_eq!(events, 3);
}

#[test]
fn an_unknown_version_is_refused() {
    let later = |bytes: &Bytes| {
        let mut bytes = bytes.to_vec();
        bytes[0] += 1;
        Bytes::from(bytes)
    };
    let (_, record) = records().swap_remove(0);
    assert_eq!(Record::decode(later(&record)), Err(DecodeError::Version(2)));
    assert_eq!(State::decode_rest(later(&state().encode_rest())).map(drop), Err(DecodeError::Version(2)));
    let row = later(&encoded(&row(ID, "golden")));
    assert_eq!(Account::decode(&mut Reader::new(row)), Err(DecodeError::Version(2)));
}

#[test]
fn what_is_cut_or_contradicts_itself_is_refused() {
    for (name, bytes) in records() {
        // Behind a whole entry a record may end: the log's own frame says how long it is.
        let whole = (10..bytes.len()).filter(|cut| Record::decode(bytes.slice(..*cut)).is_ok()).count();
        assert!(whole < 16, "{name}: {whole}");
    }
    let rest = state().encode_rest();
    assert!((0..rest.len()).all(|cut| State::decode_rest(rest.slice(..cut)).is_err()));
    let row = encoded(&row(ID, "golden"));
    assert!((0..row.len()).all(|cut| Account::decode(&mut Reader::new(row.slice(..cut))).is_err()));
    let mut twice = State::default();
    assert_eq!(twice.load_row(row.clone()), Ok(ID));
    assert_eq!(twice.load_row(row), Err(DecodeError::Invalid("names of an account")));
    let mut zero = Writer::new();
    zero.u64(0).u64(BEGIN.0).u64(ID.0).u8(1).bytes(b"frame");
    assert!(decode_event(&mut Reader::new(zero.into_vec().into())).is_err());
    let mut far = Writer::new();
    far.u64(SEQ_MAX + 1).u64(BEGIN.0).u64(ID.0).u8(1).bytes(b"frame");
    assert!(decode_event(&mut Reader::new(far.into_vec().into())).is_err());
    assert!(RECORD_BYTES_MAX < u32::MAX as usize);
}

/// A record that was damaged in a way that its checksum did not see, or that another program wrote, must not be taken for one of ours.
#[test]
fn a_record_that_contradicts_the_state_is_refused() {
    let apply = |drafts: &[Draft]| {
        let (mut state, mut sequence) = (State::default(), Sequence::default());
        for draft in drafts {
            let bytes = draft.number(&mut sequence).expect("there are numbers");
            state.apply(&Record::decode(bytes).expect("a record"))?;
        }
        Ok::<_, highwater_pds::state::Contradiction>(state)
    };
    let created = || Draft::new(BEGIN).fact(Fact::Created(Box::new(row(ID, "golden"))));
    let told = highwater_pds::frame::account(&row(ID, "golden").did, Position::Active, BEGIN);
    assert!(apply(&[created()]).is_ok());
    assert!(apply(&[created().frame(ID, told.clone()).fact(Fact::Announced(ID, Position::Active))]).is_ok());
    for (why, drafts) in [
        ("an account twice", vec![created(), created()]),
        ("no such account", vec![Draft::new(BEGIN).fact(Fact::Standing(ID, Standing::default()))]),
        ("a frame about nobody", vec![Draft::new(BEGIN).frame(ID, told.clone())]),
        ("announced without a frame", vec![created().fact(Fact::Announced(ID, Position::Active))]),
        ("sent without a frame", vec![created().frame(ID, told).fact(Fact::HeadSent(ID, Tid::MIN))]),
        ("a floor above every number", vec![Draft::new(BEGIN).fact(Fact::Floor(SEQ_MAX + 1))]),
        ("progress of no restore", vec![created().fact(Fact::Restore(Restore::Progress { id: 1, account: ID }))]),
        (
            "blocks given up that are none",
            vec![created().part(Part::Copied { account: ID, sections: Bytes::new(), front: Some(9) })],
        ),
    ] {
        assert!(apply(&drafts).is_err(), "{why}");
    }
}

#[test]
fn lists_of_blobs_read_back() {
    let mut blobs = Blobs::default();
    let cid = Cid::of(Codec::Raw, b"a blob");
    blobs.apply(&blob::Change::Uploaded { cid, bytes: 6, media_type: "text/plain".to_owned(), at: BEGIN });
    blobs.apply(&blob::Change::Referenced(cid, "com.example.kind/a".to_owned(), Tid::new(BEGIN.0, 0)));
    let mut out = Writer::new();
    blobs.encode(&mut out);
    let bytes = Bytes::from(out.into_vec());
    golden("blobs-1.bin", &bytes);
    assert_eq!(Blobs::decode(&mut Reader::new(bytes)), Ok(blobs));
}

/// Blocks that are written together again while their account is erased: whatever the order in the log, the state can be made of it,
/// and nothing of the account stays.
#[test]
fn an_erasure_amid_a_copy_of_blocks_leaves_none() {
    let mut server = Server::new();
    server.create("a", Some(Announce::OnActivation));
    server.write("a", "x", 1).expect("written");
    let id = server.id("a");
    let front = server.account("a").blocks.end;
    let copied =
        |front| Draft::new(BEGIN).part(Part::Copied { account: id, sections: Bytes::from_static(b"more"), front });
    server.append(&copied(None)).expect("it lives");
    server.change("a", Change::Erase).expect("erased");
    for piece in [copied(None), copied(Some(front))] {
        server.append(&piece).expect("it lives");
        let blocks = server.account("a").blocks;
        assert_eq!((blocks.front, blocks.compacted_bytes), (blocks.end, 0));
    }
    server.replay();
    assert_eq!(server.account("a").blocks.front, server.account("a").blocks.end);
}

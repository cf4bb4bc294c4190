//! One function per decoder, fed with bytes that nobody vouches for.
//!
//! # Purpose
//! A decoder may refuse bytes; it must not panic, loop, or allocate more than its input is long. Each function here is
//! one libFuzzer target (`RUSTC_BOOTSTRAP=1 cargo fuzz run NAME --features link`, by hand) and runs over the kept
//! corpus, and over cut and flipped versions of it, as a test.
//!
//! # Modules
//! - `folders`: targets that damage and open whole directories
//! - `repositories`: what others send of repositories
//! - `residence`: a store that is used as the input says; the other targets are here
//!
//! # Invariants
//! A function returns for every input.
//!
//! # Must not depend on
//! Anything that reads the real disk or a socket.

use bytes::Bytes;
use highwater_base::{GroupId, Millis, OwnerId};
use highwater_client::headers::Headers;
use highwater_client::{WriteKind, classify};
use highwater_consensus::{Base, Entry, HardState, Message};
use highwater_consumer::{Follower, Frame, Input};
use highwater_disk::{Disk as _, OpenMode, SimDisk};
use highwater_node::backup::Manifest;
use highwater_node::cluster_file::ClusterFile;
use highwater_node::restored::{Mark, Place};
use highwater_repo::key::{Curve, SigningKey};
use highwater_sqlite::batch::{Sink, StreamReader};
use highwater_sqlite::meta::{Meta, MetaFile};
use highwater_sqlite::record::Decoder;
use highwater_store::{Options as StoreOptions, Store};
use highwater_stream::{Command, Machine, Options as StreamOptions};
use highwater_wal::{Log, Options as WalOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;

mod folders;
mod repositories;
mod residence;

pub use folders::{sqlite_folder, store_folder, wal_folder};
pub use repositories::{repo_archive, repo_commit, repo_data, repo_json, repo_node};
pub use residence::store_residence;

/// A disk in memory with one file of these bytes.
fn disk_with(path: &str, data: &[u8]) -> SimDisk {
    let disk = SimDisk::new(0);
    let path = Path::new(path);
    disk.create_directory(path.parent().expect("the file lies in a directory")).expect("memory takes it");
    let file = disk.open(path, OpenMode::Create).expect("memory takes it");
    file.write_at(data, 0).expect("memory takes it");
    disk
}

/// A log whose newest segment holds these bytes: it opens, is refused, or says who is damaged.
pub fn wal_segment(data: &[u8]) {
    let disk = disk_with("/wal/0000000000000001.segment", data);
    let options = WalOptions { segment_bytes: 64 << 10, log_bytes_max: 1 << 20, ..WalOptions::default() };
    if let Ok((_, recovered)) = Log::open(Arc::new(disk), Path::new("/wal"), options) {
        drop(recovered.replay(|_| true, |_| Ok::<(), ()>(())));
    }
}

/// A backup's manifest; whatever it says, no path in it leads out of the folder.
pub fn backup_manifest(data: &[u8]) {
    if let Ok(manifest) = Manifest::decode(Bytes::copy_from_slice(data), Path::new("/backup/manifest")) {
        let leads_out =
            |path: &str| path.starts_with('/') || path.split('/').any(|part| part == ".." || part.is_empty());
        assert!(!manifest.files.iter().any(|file| leads_out(&file.path)), "a path leads out of the backup");
        assert_eq!(manifest.encode(), data, "one manifest has one spelling");
    }
}

/// An owner's index.
pub fn store_index(data: &[u8]) {
    let disk = disk_with("/store/index-0000000000000001", data);
    let owner = OwnerId::group(GroupId(0));
    drop(Store::open(Arc::new(disk), Path::new("/store"), owner, StoreOptions::default()));
}

/// The file that says where a data file went.
pub fn store_marker(data: &[u8]) {
    if let Some(again) = highwater_store::cold::marker_again(data, OwnerId(7), 3) {
        assert_eq!(again, data, "one marker has one spelling");
    }
}

/// A proposed command.
pub fn stream_command(data: &[u8]) {
    if let Ok(command) = Command::decode(Bytes::copy_from_slice(data)) {
        let mut machine = Machine::new(StreamOptions::default());
        drop(machine.apply(&command));
        assert_eq!(Command::decode(command.encode().into()).as_ref(), Ok(&command), "a command reads back");
    }
}

/// A stream's stored state, and what is stored of its group.
pub fn stream_state(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    for key in [1 << 52, 1 << 63] {
        drop(Machine::load(StreamOptions::default(), Bytes::new(), vec![(key, data.clone())]));
        let _admitted = Machine::new(StreamOptions::default()).admit(key, data.clone());
        drop(highwater_stream::links(key, &data));
    }
    drop(Machine::load(StreamOptions::default(), data, Vec::new()));
}

/// A change of keys and accounts, a stored record of each kind, and what a request presents.
pub fn control_records(data: &[u8]) {
    let record = Bytes::copy_from_slice(data);
    if let Ok(command) = highwater_control::Command::decode(record.clone()) {
        let mut machine = highwater_control::Machine::new();
        drop(machine.apply(&command));
        let again = highwater_control::Command::decode(command.encode().into());
        assert_eq!(again.as_ref(), Ok(&command), "a command reads back");
    }
    for kind in 1..4u64 {
        drop(highwater_control::Machine::load(vec![(kind << 60 | 7, record.clone())]));
    }
    if let Some(credential) = std::str::from_utf8(data).ok().and_then(highwater_control::Credential::parse) {
        assert_eq!(credential.reveal().as_bytes(), data, "a credential has one spelling");
    }
}

/// A message of a firehose, by itself, and to a follower who has the account's key and gets the same bytes as its repository.
pub fn consumer_frame(data: &[u8]) {
    let message = Bytes::copy_from_slice(data);
    let (mut follower, now) = (Follower::default(), Millis(1_700_000_000_000));
    let secret = SigningKey::from_secret(Curve::K256, &[7; 32]).expect("a secret");
    let frame = Frame::decode(message.clone());
    drop(follower.step(now, Input::Message(message.clone())));
    if let Some(did) = frame.ok().and_then(|frame| frame.did().cloned()) {
        drop(follower.step(now, Input::Key { did: did.clone(), key: Some(secret.public()) }));
        drop(follower.step(now, Input::Repo { did, archive: Some(message) }));
    }
}

/// What a Raft group stores and sends.
pub fn consensus_records(data: &[u8]) {
    let record = Bytes::copy_from_slice(data);
    drop(Entry::decode(1, record.clone()));
    let _hard_state = HardState::decode(record.clone());
    drop(Base::decode(record.clone()));
    drop(Message::decode(record));
}

/// The log of a database: record after record.
pub fn commit_record(data: &[u8]) {
    let mut decoder = Decoder::checking();
    let mut rest = data;
    while let Ok(Some(_)) = decoder.next(&mut rest) {}
}

/// What a database remembers beside its log: both slots, and the body of one as it is behind its checksum.
pub fn sqlite_meta(data: &[u8]) {
    let disk = disk_with("/d/meta", data);
    let file = disk.open(Path::new("/d/meta"), OpenMode::Write).expect("just written");
    drop(MetaFile::open(file));
    if let Ok(meta) = Meta::decode(Bytes::copy_from_slice(data)) {
        assert_eq!(Meta::decode(meta.encode().into()), Ok(meta), "a slot reads back");
    }
}

/// A node's cluster file, as it is and with the digest that it should have.
pub fn node_cluster_file(data: &[u8]) {
    for digest in [&[][..], blake3::hash(data).as_bytes()] {
        let disk = disk_with("/data/cluster", &[data, digest].concat());
        if let Ok(Some(cluster)) = ClusterFile::read(&disk, Path::new("/data")) {
            cluster.write(&disk, Path::new("/data")).expect("memory takes it");
            let again = ClusterFile::read(&disk, Path::new("/data"));
            assert_eq!(again.ok().flatten(), Some(cluster), "a cluster file reads back");
        }
    }
}

/// The mark of a restored data directory, as it is and with the digest that it should have.
pub fn node_restored(data: &[u8]) {
    for digest in [&[][..], blake3::hash(data).as_bytes()] {
        let disk = disk_with("/data/restored", &[data, digest].concat());
        drop(Mark::read(&disk, Path::new("/data")));
        let disk = disk_with("/data/place", &[data, digest].concat());
        drop(Place::check(&disk, Path::new("/data")));
    }
}

/// A database's stream: claims and batches.
pub fn stream_batches(data: &[u8]) {
    struct Nowhere;
    impl Sink for Nowhere {
        fn record_bytes(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn void(&mut self) {}
        fn committed(&mut self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }
    drop(StreamReader::new().push(&Bytes::copy_from_slice(data), &mut Nowhere));
}

/// A request: its target in the first line, header fields in the others.
pub fn http_request(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let target = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let field = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some((String::from_utf8_lossy(&line[..colon]).into_owned(), line[colon + 1..].trim_ascii_start().to_vec()))
    };
    let fields: Vec<(String, Vec<u8>)> = lines.filter_map(field).collect();
    let fields: Vec<(&str, &[u8])> = fields.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    highwater_http::parse_anything(&target, &fields);
}

/// The body of an append to a JSON stream: the array that a read would answer with is JSON, and gives it again.
pub fn http_json(data: &[u8]) {
    if let Some(array) = highwater_http::json_anything(data) {
        assert!(serde_json::from_slice::<Vec<serde::de::IgnoredAny>>(&array).is_ok(), "others read what is stored");
        assert_eq!(highwater_http::json_anything(&array).as_ref(), Some(&array), "stored messages are stored alike");
    }
}

/// An HTTP answer: a status in the first two bytes, header lines, and a body behind an empty line.
pub fn client_answer(data: &[u8]) {
    let Some((status, rest)) = data.split_first_chunk::<2>() else { return };
    let text = String::from_utf8_lossy(rest);
    let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
    let headers = Headers::new(head.lines().filter_map(|line| line.split_once(':')).map(|(n, v)| (n.to_owned(), v)));
    for kind in [WriteKind::Keyed, WriteKind::Keyless, WriteKind::Create, WriteKind::Delete] {
        drop(classify(kind, u16::from_le_bytes(*status) % 600, &headers, body.as_bytes()));
    }
}

/// A record of a server of accounts, applied to one with an account; a stored row, a list of blobs, and the rest of what is stored.
pub fn pds_records(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    if let Ok(record) = highwater_pds::Record::decode(data.clone()) {
        let mut state = highwater_pds::State::default();
        let row = Bytes::from_static(include_bytes!("../../crates/pds/golden/row-1.bin"));
        state.load_row(row).expect("a golden file is a row");
        if state.apply(&record).is_ok() {
            pds_state(state);
        }
    }
    if let Ok(state) = highwater_pds::State::decode_rest(data.clone()) {
        assert_eq!(state.encode_rest(), data, "what is stored has one spelling");
    }
    let mut state = highwater_pds::State::default();
    if state.load_row(data.clone()).is_ok() {
        pds_state(state);
    }
    std::hint::black_box(highwater_pds::State::default().load_blobs(highwater_pds::AccountId(1), data)).ok();
}

/// What was read is stored and read again as it is, and answers every cursor.
fn pds_state(mut state: highwater_pds::State) {
    for cursor in [0, 1, 1 << 40, u64::MAX] {
        std::hint::black_box(highwater_pds::cursor::start(Some(cursor), &state.events, &state.sequence));
    }
    let rows: Vec<Bytes> = state.accounts.values().map(pds_row).collect();
    let mut again = highwater_pds::State::decode_rest(state.encode_rest()).expect("what is stored reads back");
    for row in &rows {
        again.load_row(row.clone()).expect("a row reads back");
    }
    assert!(again.accounts.values().map(pds_row).eq(rows));
    drop(state.take_changed());
}

fn pds_row(account: &highwater_pds::Account) -> Bytes {
    let mut out = highwater_base::codec::Writer::new();
    account.encode(&mut out);
    out.into_vec().into()
}

/// What an operator leaves for a restore, what a subscriber says it saw, and the names that a request's host and a setting give.
pub fn pds_texts(data: &[u8]) {
    if let Ok(marker) = highwater_pds::restore::Marker::parse(data) {
        let again = highwater_pds::restore::Marker::parse(marker.to_string().as_bytes());
        assert_eq!(again, Ok(marker), "a marker reads back");
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    std::hint::black_box(highwater_pds::cursor::parse(text)).ok();
    for zone in ["pds.example", "localhost:2583", text] {
        let Ok(zone) = zone.parse::<highwater_pds::names::Zone>() else { continue };
        assert_eq!(zone.to_string().parse(), Ok(zone.clone()), "a zone reads back");
        drop((zone.did_at(text), zone.handle_at(text), zone.handle(text)));
    }
}

#[cfg(test)]
mod tests;

/// A token, of a session or of service auth: it is refused, or says something.
pub fn xrpc_token(data: &[u8]) {
    std::hint::black_box(highwater_xrpc::jose::token_anything(data));
}

/// A query, the input of a method that writes, or messages of a subscriber.
pub fn xrpc_request(data: &[u8]) {
    std::hint::black_box(highwater_xrpc::anything::request_anything(data));
}

/// A key file, and a secret under a key: each is read or refused.
pub fn host_secret(data: &[u8]) {
    use highwater_host::Sealer as _;
    use highwater_host::seal::KeyFile;
    const KEY: &[u8] = include_bytes!("../corpus/host_secret/key");
    let key = KeyFile::parse(data).or_else(|| KeyFile::parse(KEY));
    std::hint::black_box(key.and_then(|key| key.open(data)));
}

/// The small files of a directory of accounts: one that is taken for something is that, byte for byte.
pub fn host_files(data: &[u8]) {
    use highwater_host::{backup, layout, witness};
    let bytes = Bytes::copy_from_slice(data);
    if let Ok(key) = layout::decode_layout(&bytes) {
        assert_eq!(layout::encode_layout(key), data);
    }
    if let Ok(floor) = layout::decode_floor(&bytes) {
        assert_eq!(layout::encode_floor(floor), data);
    }
    if let Ok(note) = backup::decode_note(&bytes) {
        assert_eq!(backup::encode_note(&note), data);
    }
    if let Ok(witness) = witness::decode_witness(&bytes) {
        assert_eq!(witness::encode_witness(&witness), data);
    }
}

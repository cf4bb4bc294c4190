//! Blobs and sessions of a running server, over a disk that forgets.

mod support;

use highwater_disk::SimDisk;
use highwater_host::blobs::{BlobError, KeepError, Kept};
use highwater_host::{Action, RecordWrite, WriteRefused};
use highwater_pds::blob::ReferenceError;
use highwater_pds::credentials::{Change, Grant, Issued, Refresh, SessionId};
use highwater_pds::{AccountId, Fact, blob};
use highwater_repo::data::{Map, Value, encode};
use highwater_repo::{Cid, Codec};
use support::{Server, SetClock, options, write_of};

const LIFETIME: u64 = 6 * 3_600;

/// Uploads on a thread of its own, while this one drives the writer.
fn upload(server: &mut Server, account: AccountId, bytes: &[u8]) -> Result<Kept, KeepError> {
    let (host, bytes) = (server.host.clone(), bytes.to_vec());
    let thread = std::thread::spawn(move || {
        let mut upload = host.begin_blob(account, 1 << 20)?;
        upload.write(&bytes)?;
        host.keep_blob(upload, Some("text/plain"))
    });
    while !thread.is_finished() {
        server.worker.run_once();
        std::thread::yield_now();
    }
    thread.join().expect("no panic")
}

fn referring(rkey: &str, blob: &[u8]) -> RecordWrite {
    let text = |text: &str| Value::Text(text.to_owned());
    let reference = [
        ("$type", text("blob")),
        ("ref", Value::Link(Cid::of(Codec::Raw, blob))),
        ("mimeType", text("text/plain")),
        ("size", Value::Integer(blob.len() as i64)),
    ];
    let reference: Map = reference.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let record = [("$type", text("app.example.note")), ("picture", Value::Map(reference))];
    let record: Map = record.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    write_of(Action::Put, rkey, Some(encode(&Value::Map(record)).into()))
}

fn read(server: &Server, account: AccountId, blob: &[u8]) -> Result<Option<Vec<u8>>, BlobError> {
    let Some((mut reader, ..)) = server.host.open_blob(account, &Cid::of(Codec::Raw, blob))? else { return Ok(None) };
    let mut all = Vec::new();
    while let Some(piece) = reader.read()? {
        all.extend_from_slice(&piece);
    }
    Ok(Some(all))
}

/// Files of blobs on the disk, whoever names them.
fn files(server: &Server) -> Vec<String> {
    let files = server.disk.files();
    let blobs = files.iter().filter(|(path, _)| path.components().any(|part| part.as_os_str() == "blobs"));
    blobs.map(|(path, _)| path.file_name().expect("a name").to_string_lossy().into_owned()).collect()
}

#[test]
fn a_blob_is_read_from_its_first_reference_to_its_last_and_its_file_goes_with_it() {
    let mut server = Server::new(1);
    let account = server.account();
    let absent = server.try_write(account, vec![referring("a", b"picture")]);
    assert!(matches!(absent, Err(WriteRefused::Blob(ReferenceError::Absent { .. }))), "{absent:?}");
    upload(&mut server, account, b"picture").expect("kept");
    assert_eq!(read(&server, account, b"picture").expect("read"), None, "nobody refers to it yet");
    server.write(account, vec![referring("a", b"picture"), referring("b", b"picture")]);
    assert_eq!(read(&server, account, b"picture").expect("read").as_deref(), Some(&b"picture"[..]));
    let mut server = server.crash();
    server.write(account, vec![write_of(Action::Delete, "a", None)]);
    assert!(read(&server, account, b"picture").expect("read").is_some(), "one record refers to it");
    server.write(account, vec![write_of(Action::Delete, "b", None)]);
    assert_eq!(read(&server, account, b"picture").expect("read"), None);
    let server = server.restart();
    assert_eq!(files(&server), [""; 0]);
}

#[test]
fn two_writes_before_a_sync_agree_on_what_blobs_there_are() {
    let mut server = Server::new(2);
    let account = server.account();
    upload(&mut server, account, b"picture").expect("kept");
    server.write(account, vec![referring("a", b"picture")]);
    // The second is built while the first, which takes the last reference, is not durable yet.
    let delete = server.host.write(account, support::batch(vec![write_of(Action::Delete, "a", None)]));
    let refer = server.host.write(account, support::batch(vec![referring("b", b"picture")]));
    server.settle(delete).expect("deleted");
    let refused = server.settle(refer);
    assert!(matches!(refused, Err(WriteRefused::Blob(ReferenceError::Absent { .. }))), "{refused:?}");
}

#[test]
fn an_upload_that_nobody_refers_to_goes_after_its_time_and_no_other() {
    let mut server = Server::new(3);
    let account = server.account();
    for blob in [b"one", b"two"] {
        upload(&mut server, account, blob).expect("kept");
    }
    server.write(account, vec![referring("a", b"one")]);
    let expire = |server: &mut Server| {
        let host = server.host.clone();
        let thread = std::thread::spawn(move || host.expire_blobs(host.now(), LIFETIME).expect("expired"));
        while !thread.is_finished() {
            server.worker.run_once();
        }
        thread.join().expect("no panic")
    };
    server.clock.advance(LIFETIME * 1_000 - 1);
    assert_eq!(expire(&mut server), 0);
    server.clock.advance(1);
    assert_eq!(expire(&mut server), 1);
    assert_eq!(server.host.status().blobs_expired, 1);
    let server = server.restart();
    assert_eq!(files(&server), [Cid::of(Codec::Raw, b"one").to_string()]);
    assert!(read(&server, account, b"one").expect("read").is_some());
}

/// A client uploaded a blob once more, was told that it is there, and the write that referred to it was refused: its first upload had
/// expired meanwhile.
#[test]
fn a_blob_that_is_uploaded_once_more_has_its_time_before_it() {
    let mut server = Server::new(9);
    let account = server.account();
    upload(&mut server, account, b"one").expect("kept");
    server.clock.advance(LIFETIME * 1_000);
    let cid = Cid::of(Codec::Raw, b"one");
    let again = blob::Change::Uploaded { cid, bytes: 3, media_type: "text/plain".into(), at: server.host.now() };
    let again = server.host.fact(account, Fact::Blob(account, again));
    let host = server.host.clone();
    let expiring = std::thread::spawn(move || host.expire_blobs(host.now(), LIFETIME));
    while !expiring.is_finished() {
        server.worker.run_once();
        std::thread::yield_now();
    }
    assert_eq!(expiring.join().expect("no panic"), Ok(0));
    assert_eq!(server.settle(again), Ok(()));
    server.write(account, vec![referring("a", b"one")]);
}

#[test]
fn an_erased_account_leaves_no_blob() {
    let mut server = Server::new(4);
    let account = server.account();
    upload(&mut server, account, b"picture").expect("kept");
    server.write(account, vec![referring("a", b"picture")]);
    let erased = server.host.change(account, highwater_pds::lifecycle::Change::Erase);
    server.settle(erased).expect("erased");
    assert_eq!(read(&server, account, b"picture").expect("read"), None);
    assert!(upload(&mut server, account, b"another").is_err(), "nothing is uploaded to it any more");
    let server = server.restart();
    assert_eq!(files(&server), [""; 0]);
}

/// The power goes in the middle of uploads, references and deletions, at every operation of the disk. Afterwards every blob that a
/// record refers to is there, byte for byte, what was acknowledged is referred to, and no file is left that nobody names.
#[test]
fn no_record_refers_to_a_blob_that_is_missing_whenever_the_power_goes() {
    let (mut crashes, mut whole) = (0, 0);
    for stop in (0..400).step_by(3) {
        let mut server = Server::with(&SimDisk::new(stop), &SetClock::new(), options());
        let account = server.account();
        server.disk.stop_at(server.disk.operations() + 1 + stop);
        let acknowledged = work(&mut server, account);
        crashes += usize::from(server.disk.stopped());
        whole += usize::from(!server.disk.stopped());
        server.disk.clear_faults();
        let server = server.crash();
        let referred: Vec<Cid> = server.host.state(|state| {
            let blobs = state.blobs.get(&account).into_iter().flat_map(|blobs| blobs.0.iter());
            blobs.filter(|(_, blob)| !blob.records.is_empty()).map(|(cid, _)| *cid).collect()
        });
        let rows = server.host.state(|state| state.blobs.get(&account).map_or(0, |blobs| blobs.0.len()));
        for cid in &referred {
            let (mut reader, ..) = server.host.open_blob(account, cid).expect("its file is there").expect("public");
            while reader.read().expect("whole").is_some() {}
        }
        for blob in acknowledged {
            assert!(referred.contains(&Cid::of(Codec::Raw, &blob)), "stopped at {stop}");
        }
        assert_eq!(files(&server).len(), rows, "stopped at {stop}");
    }
    assert!(crashes > 20 && whole > 0, "{crashes} crashes, {whole} runs to the end");
}

/// Uploads, refers, refers elsewhere and deletes, until the disk stops. Returns the blobs that an acknowledged record refers to.
fn work(server: &mut Server, account: AccountId) -> Vec<Vec<u8>> {
    let mut referred = Vec::new();
    for round in 0..4u8 {
        let blob = vec![round; 300];
        let Ok(_) = upload(server, account, &blob) else { return referred };
        let pending = server.host.write(account, support::batch(vec![referring(&format!("key{round}"), &blob)]));
        let Ok(_) = server.settle(pending) else { return referred };
        referred.push(blob);
        if round % 2 == 1 {
            // From here on nobody knows whether the first one is still referred to.
            let gone = referred.remove(0);
            let pending = server
                .host
                .write(account, support::batch(vec![write_of(Action::Delete, &format!("key{}", gone[0]), None)]));
            let Ok(_) = server.settle(pending) else { return referred };
            let Ok(_) = upload(server, account, &gone) else { return referred };
        }
    }
    referred
}

/// Where rotations were kept with less care than data, a crash forgot one whose answer had been sent: the client's new token was
/// then unknown, its old one spent, and it was logged out.
#[test]
fn a_refresh_token_that_was_handed_out_is_good_after_a_loss_of_power() {
    let mut server = Server::new(5);
    let account = server.account();
    let id = SessionId([7; 16]);
    let opened = Change::SessionOpened { id, grant: Grant::Full, at: server.host.now() };
    let pending = server.host.fact(account, Fact::Credentials(account, opened));
    server.settle(pending).expect("opened");
    for generation in 1..5 {
        server.clock.advance(60_000);
        let now = server.host.now();
        let rotated = Change::SessionRotated { id, from: generation, at: now };
        let pending = server.host.fact(account, Fact::Credentials(account, rotated));
        server.settle(pending).expect("rotated");
        server = server.crash();
        let refresh =
            |generation| server.host.state(|state| state.accounts[&account].credentials.refresh(id, generation, now));
        assert_eq!(refresh(generation + 1), Ok(Refresh::Rotates));
        assert_eq!(refresh(generation), Ok(Refresh::Gave(Issued { generation: generation + 1, at: now })));
    }
}

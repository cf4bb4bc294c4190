//! Files of blobs over a disk that forgets.

use super::*;
use highwater_disk::SimDisk;
use highwater_pds::Micros;
use highwater_pds::blob::{Blobs, Change};
use highwater_repo::cid::Codec;

const ALICE: AccountId = AccountId(7);

fn files(disk: &SimDisk) -> BlobFiles {
    BlobFiles::new(Arc::new(disk.clone()), PathBuf::from("/data/pds/blobs"))
}

fn upload(files: &BlobFiles, bytes: &[u8]) -> Result<Stored, BlobError> {
    let mut upload = files.begin(ALICE, 1 << 20)?;
    for part in bytes.chunks(4_096) {
        upload.write(part)?;
    }
    files.store(upload)
}

fn read(files: &BlobFiles, cid: Cid, bytes: u64) -> Result<Vec<u8>, BlobError> {
    let (mut reader, mut all) = (files.open(ALICE, cid, bytes)?, Vec::new());
    while let Some(chunk) = reader.read()? {
        all.extend_from_slice(&chunk);
    }
    Ok(all)
}

fn rows(blobs: &[&[u8]]) -> BTreeMap<AccountId, Blobs> {
    let mut rows = Blobs::default();
    for bytes in blobs {
        let (cid, media_type) = (Cid::of(Codec::Raw, bytes), "text/plain".to_owned());
        rows.apply(&Change::Uploaded { cid, bytes: bytes.len() as u64, media_type, at: Micros(0) });
    }
    BTreeMap::from([(ALICE, rows)])
}

fn names(disk: &SimDisk) -> Vec<String> {
    disk.list(Path::new("/data/pds/blobs/7")).expect("listed")
}

#[test]
fn an_upload_reads_back_under_the_name_of_its_bytes() {
    let (disk, bytes) = (SimDisk::new(1), vec![5; 200_000]);
    let files = files(&disk);
    let stored = upload(&files, &bytes).expect("stored");
    assert_eq!((stored.cid, stored.bytes), (Cid::of(Codec::Raw, &bytes), 200_000));
    assert_eq!(stored.head, [5; 64]);
    files.landed(&stored, || true).expect("landed");
    assert_eq!(read(&files, stored.cid, stored.bytes).expect("read"), bytes);
    assert!(matches!(files.open(AccountId(8), stored.cid, 200_000), Err(BlobError::Missing)), "each account's own");
}

#[test]
fn what_is_too_large_empty_or_given_up_leaves_nothing() {
    let disk = SimDisk::new(1);
    let files = files(&disk);
    let mut large = files.begin(ALICE, 10).expect("begun");
    large.write(b"ten bytes.").expect("fits");
    assert!(matches!(large.write(b"!"), Err(BlobError::TooLarge(10))));
    drop(large);
    assert!(matches!(upload(&files, b""), Err(BlobError::Empty)));
    drop(files.begin(ALICE, 10).expect("begun"));
    assert_eq!(names(&disk), [""; 0]);
    disk.set_capacity(Some(100 << 20));
    assert!(matches!(files.begin(ALICE, 10), Err(BlobError::Full)), "the log needs what is left");
}

/// Each of many uploads that began at once found room for itself alone, and together they took what the log needs.
#[test]
fn uploads_that_begin_together_do_not_together_take_what_the_log_needs() {
    let disk = SimDisk::new(1);
    let files = files(&disk);
    drop(files.begin(ALICE, 1).expect("the directory is there"));
    let piece = 1 << 20;
    disk.set_capacity(Some(disk.used_bytes() + FREE_BYTES_MIN + 3 * piece));
    let free = || disk.free_bytes(Path::new("/data/pds/blobs")).expect("free");
    let mut begun: Vec<Upload> = (0..32).filter_map(|_| files.begin(ALICE, piece).ok()).collect();
    for upload in &mut begun {
        for _ in 0..16 {
            upload.write(&[3; 1 << 16]).expect("there is room");
        }
    }
    assert_eq!(begun.len(), 3);
    assert!(free() >= FREE_BYTES_MIN, "{} are left", free());
    // One that was given up leaves its room to another, and one that ends short of what it announced the rest of it.
    drop(begun.pop());
    let mut short = files.begin(ALICE, piece).expect("room again");
    assert!(matches!(files.begin(ALICE, 1 << 16), Err(BlobError::Full)));
    short.write(b"short").expect("there is room");
    let stored = files.store(short).expect("stored");
    files.landed(&stored, || true).expect("landed");
    assert!(files.begin(ALICE, 1 << 16).is_ok());
}

/// The power goes at every operation of an upload. Before it was answered, the start finds it whole or removes it; afterwards it is
/// there, byte for byte.
#[test]
fn a_blob_whose_upload_was_answered_survives_a_loss_of_power_at_any_moment() {
    let bytes = vec![9; 20_000];
    let cid = Cid::of(Codec::Raw, &bytes);
    let mut answered = 0;
    for stop in 1..100 {
        for seed in 0..4 {
            let disk = SimDisk::new(seed);
            disk.stop_at(stop);
            let stored = upload(&files(&disk), &bytes).is_ok();
            disk.power_loss();
            disk.clear_faults();
            let files = files(&disk);
            let held = if stored { rows(&[&bytes]) } else { BTreeMap::new() };
            let swept = files.sweep(&held).expect("swept");
            assert_eq!(swept.missing, [], "stopped at {stop}");
            if stored {
                answered += 1;
                assert_eq!(read(&files, cid, 20_000).expect("read"), bytes);
            } else {
                assert!(matches!(files.open(ALICE, cid, 20_000), Err(BlobError::Missing)), "stopped at {stop}");
            }
        }
        if answered >= 8 {
            return;
        }
    }
    panic!("no upload came to its end");
}

/// A picture was deleted with its record while the same picture was being uploaded for another one. The deletion removed the new
/// upload's file, and the record that referred to it had none.
#[test]
fn a_deletion_does_not_remove_what_somebody_uploads_again() {
    let disk = SimDisk::new(1);
    let files = files(&disk);
    let first = upload(&files, b"a picture").expect("stored");
    files.landed(&first, || true).expect("landed");
    let again = upload(&files, b"a picture").expect("stored");
    // The row went, and the new one is on its way into the log.
    files.settle(ALICE, first.cid, || false).expect("kept");
    assert_eq!(read(&files, first.cid, 9).expect("read"), b"a picture");
    files.landed(&again, || true).expect("landed");
    assert_eq!(read(&files, first.cid, 9).expect("read"), b"a picture");
    files.settle(ALICE, first.cid, || true).expect("there is a row");
    assert!(read(&files, first.cid, 9).is_ok());
    files.settle(ALICE, first.cid, || false).expect("removed");
    assert!(matches!(read(&files, first.cid, 9), Err(BlobError::Missing)));
    files.settle(ALICE, first.cid, || false).expect("it is gone already");
}

#[test]
fn an_upload_without_a_row_goes_when_it_ends_unless_another_one_is_under_way() {
    let disk = SimDisk::new(1);
    let files = files(&disk);
    let (one, two) = (upload(&files, b"same").expect("stored"), upload(&files, b"same").expect("stored"));
    files.landed(&one, || false).expect("the other one has it");
    assert_eq!(names(&disk).len(), 1);
    files.landed(&two, || false).expect("removed");
    assert_eq!(names(&disk), [""; 0]);
}

#[test]
fn a_copy_finds_every_file_that_the_rows_named_when_it_began() {
    let disk = SimDisk::new(1);
    let files = files(&disk);
    for bytes in [b"one", b"two"] {
        let stored = upload(&files, bytes).expect("stored");
        files.landed(&stored, || true).expect("landed");
    }
    files.copying();
    let (one, two) = (Cid::of(Codec::Raw, b"one"), Cid::of(Codec::Raw, b"two"));
    files.settle(ALICE, one, || false).expect("waits");
    files.settle(ALICE, two, || false).expect("waits");
    assert_eq!(names(&disk).len(), 2);
    files.copied(|_, cid| *cid == two).expect("removed");
    assert_eq!(names(&disk), [two.to_string()], "it was uploaded again meanwhile");
}

#[test]
fn a_start_removes_what_no_row_names_and_tells_what_is_missing() {
    let disk = SimDisk::new(1);
    let kept = [&b"kept"[..], b"lost"];
    for bytes in [&b"kept"[..], b"orphan"] {
        upload(&files(&disk), bytes).expect("stored");
    }
    std::mem::forget(files(&disk).begin(ALICE, 10).expect("a crash in the middle"));
    disk.open(Path::new("/data/pds/blobs/7/README"), OpenMode::Create).expect("somebody's");
    let swept = files(&disk).sweep(&rows(&kept)).expect("swept");
    assert_eq!(swept, Swept { removed: 2, missing: vec![(ALICE, Cid::of(Codec::Raw, b"lost"))] });
    assert_eq!(names(&disk), ["README".to_owned(), Cid::of(Codec::Raw, b"kept").to_string()]);
    // An account that is gone with all its rows.
    assert_eq!(files(&disk).sweep(&BTreeMap::new()).expect("swept").removed, 1);
    let empty = BlobFiles::new(Arc::new(disk), PathBuf::from("/nowhere"));
    assert_eq!(empty.sweep(&BTreeMap::new()).expect("nothing there"), Swept::default());
}

#[test]
fn damaged_bytes_are_never_read_to_their_end() {
    let (disk, bytes) = (SimDisk::new(1), vec![3; 100_000]);
    let files = files(&disk);
    let stored = upload(&files, &bytes).expect("stored");
    disk.flip_bit(&files.path(ALICE, &stored.cid), 10).expect("flipped");
    let mut reader = files.open(ALICE, stored.cid, 100_000).expect("of its length");
    assert!(reader.read().is_ok_and(|chunk| chunk.is_some()), "the first part");
    assert!(matches!(reader.read(), Err(BlobError::Damaged(_))), "never the last");
    assert!(matches!(files.open(ALICE, stored.cid, 99_999), Err(BlobError::Damaged(_))));
}

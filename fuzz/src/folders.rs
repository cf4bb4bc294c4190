//! Whole directories that earlier programs wrote, damaged as the input says, and opened.

use highwater_base::{GroupId, OwnerId};
use highwater_disk::{Disk as _, OpenMode, SimDisk};
use highwater_sqlite::engine::{Engine, Layout, OpenOptions};
use highwater_store::{Options as StoreOptions, Store};
use highwater_wal::{Log, Options as WalOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of a directory, and what it held.
type Golden = (PathBuf, &'static [u8]);

/// Bytes of one damage.
const DAMAGE_BYTES: usize = 8;

/// Damages are applied up to this many; more hit the same few files again.
const DAMAGES_MAX: usize = 64;

/// Lays the files down and damages them: every eight bytes of `script` are one damage.
fn damaged(files: &[Golden], script: &[u8]) -> SimDisk {
    let mut contents: Vec<Option<Vec<u8>>> = files.iter().map(|(_, bytes)| Some(bytes.to_vec())).collect();
    for damage in script.chunks_exact(DAMAGE_BYTES).take(DAMAGES_MAX) {
        let (which, how) = (usize::from(damage[0]) % files.len(), damage[1]);
        let other = contents[usize::from(damage[2]) % files.len()].clone().unwrap_or_default();
        let Some(bytes) = &mut contents[which] else { continue };
        let place = u32::from_le_bytes([damage[4], damage[5], damage[6], damage[7]]) as usize;
        let at = place % (bytes.len() + 1);
        let sector = |length: usize| (at / 512 * 512).min(length)..(at / 512 * 512 + 512).min(length);
        match how % 16 {
            0 => bytes.truncate(at),
            1 => bytes.resize(bytes.len() + place % 5_000, damage[3]),
            2 => contents[which] = None,
            3 => sector(bytes.len()).for_each(|at| bytes[at] = 0),
            // A sector of another file, or of this one from before.
            4 => {
                let (from, to) = (sector(other.len()), sector(bytes.len()));
                let length = from.len().min(to.len());
                bytes[to.start..to.start + length].copy_from_slice(&other[from.start..from.start + length]);
            }
            _ if at == bytes.len() => {}
            5..=9 => bytes[at] = damage[3],
            _ => bytes[at] ^= 1 << (damage[3] % 8),
        }
    }
    let disk = SimDisk::new(0);
    for ((path, _), bytes) in files.iter().zip(contents) {
        disk.create_directory(path.parent().expect("it lies in a directory")).expect("memory takes it");
        if let Some(bytes) = bytes {
            disk.open(path, OpenMode::Create).and_then(|file| file.write_at(&bytes, 0)).expect("memory takes it");
        }
    }
    disk
}

/// A bound database's files. It opens, and then what it says can be asked for; or it is refused and left as it was.
pub fn sqlite_folder(script: &[u8]) {
    let path = Path::new("/d/app.db");
    let layout = Layout::of(path);
    let files: [Golden; 3] = [
        (layout.database.clone(), include_bytes!("../../crates/sqlite/golden/commit-log-1/app.db")),
        (layout.meta.clone(), include_bytes!("../../crates/sqlite/golden/commit-log-1/meta")),
        (layout.segment(Default::default()), include_bytes!("../../crates/sqlite/golden/commit-log-1/0.log")),
    ];
    let disk = damaged(&files, script);
    let kept = |disk: &SimDisk| {
        let of_it = |name: &Path| files.iter().any(|(path, _)| path == name);
        disk.files().into_iter().filter(|(name, _)| of_it(name)).collect::<Vec<_>>()
    };
    let before = kept(&disk);
    let options = OpenOptions { timer: false, ..OpenOptions::default() };
    let Ok(engine) = Engine::open(Arc::new(disk.clone()), path, options.clone()) else {
        assert!(kept(&disk) == before, "a refused database is left as it was found");
        return;
    };
    drop(engine.status());
    let progress = engine.progress();
    let pending = progress.confirmed_end.since(progress.acknowledged);
    if let Ok(length) = usize::try_from(pending.min(1 << 20)) {
        drop(engine.read_log(progress.acknowledged, length, &mut Vec::new()));
    }
    engine.close();
    drop(engine);
    let again = Engine::open(Arc::new(disk), path, options);
    assert!(again.is_ok(), "what opened and was closed opens again: {:?}", again.err());
}

/// A log's directory. It opens and is replayed, or it is refused.
pub fn wal_folder(script: &[u8]) {
    macro_rules! golden {
        ($name:literal) => {
            (PathBuf::from(concat!("/wal/", $name)), &include_bytes!(concat!("../../crates/wal/golden/1/", $name))[..])
        };
    }
    let files: [Golden; 5] = [
        golden!("0000000000000002.segment"),
        golden!("0000000000000003.segment"),
        golden!("0000000000000004.segment"),
        golden!("0000000000000005.segment"),
        golden!("state"),
    ];
    let disk = damaged(&files, script);
    let boot_id = "5e4ae5a5-0000-4000-8000-000000000001".to_owned();
    let options = WalOptions { segment_bytes: 16 << 10, log_bytes_max: 1 << 20, boot_id, ..WalOptions::default() };
    if let Ok((log, recovered)) = Log::open(Arc::new(disk.clone()), Path::new("/wal"), options.clone()) {
        drop(recovered.replay(|_| true, |_| Ok::<(), ()>(())));
        drop((log, recovered));
        disk.crash_process();
        let again = Log::open(Arc::new(disk), Path::new("/wal"), options);
        assert!(again.is_ok(), "what opened opens again: {:?}", again.err());
    }
    assert!(highwater_wal::decode_anything(script, script.len() as u64) <= 7, "there are seven decoders");
}

/// An owner's index and payload. It opens and every object is read, or refused.
pub fn store_folder(script: &[u8]) {
    let files: [Golden; 2] = [
        (PathBuf::from("/store/data-00000001"), include_bytes!("../../crates/store/golden/v3/data-00000001")),
        (
            PathBuf::from("/store/index-0000000000000002"),
            include_bytes!("../../crates/store/golden/v3/index-0000000000000002"),
        ),
    ];
    let disk = Arc::new(damaged(&files, script));
    let options = StoreOptions { file_bytes_max: 256 << 10, ..StoreOptions::default() };
    let opened = Store::open(disk.clone(), Path::new("/store"), OwnerId::group(GroupId(3)), options);
    let Ok((store, loaded)) = opened else { return };
    disk.create_directory(Path::new("/wal")).expect("memory takes it");
    let options = WalOptions { segment_bytes: 64 << 10, log_bytes_max: 1 << 20, ..WalOptions::default() };
    let (log, _) = Log::open(disk, Path::new("/wal"), options).expect("an empty log");
    let reader = store.reader(log.reader());
    for (object, _) in loaded.objects {
        let plan = store.plan_read(object, 0, 1 << 20);
        if let Ok(bytes) = reader.read(&plan) {
            assert_eq!(bytes.len() as u64, plan.length(), "a read that succeeds is whole");
        }
    }
}

//! Whether a directory that nobody has open is whole, down to every record and every signature.

use crate::backup;
use crate::blocks::{AccountBlocks, tree};
use crate::error::{OpenError, ReadError};
use crate::files;
use crate::layout::{Paths, check_key, damaged, decode_layout, read_floor};
use crate::open::{begin_store, load, load_object, share};
use crate::options::{Options, Seams};
use crate::shared::{EVENTS, Fault, Shared};
use crate::turn::key;
use crate::windows::Windows;
use crate::witness::Witnesses;
use bytes::{Bytes, BytesMut};
use highwater_base::codec::{DecodeError, Reader};
use highwater_disk::{Disk, OverlayDisk};
use highwater_pds::record::decode_event;
use highwater_pds::{Account, Head};
use highwater_repo::key::PublicKey;
use highwater_repo::mst::{Step, TreeError, Walk};
use highwater_repo::{Blocks as _, Commit, data};
use highwater_store::{LogError, LogSource};
use highwater_wal::Log;
use std::cell::RefCell;
use std::sync::Arc;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// The newest record.
    pub lsn: u64,
    /// Accounts, erased ones included.
    pub accounts: u64,
    /// Repositories that were gone through.
    pub repositories: u64,
    /// Records in them.
    pub records: u64,
    /// Frames that are kept.
    pub frames: u64,
    /// Blobs.
    pub blobs: u64,
    /// The highest number of the stream that may have been given out.
    pub ceiling: u64,
    /// Whether keys and secrets can be used.
    pub secrets: Secrets,
    /// What is wrong; nothing, if the directory is whole.
    pub faults: Vec<String>,
}

/// What is known of keys of accounts and of the session secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Secrets {
    /// None of them was looked at: they are encrypted under this key, and no key was given.
    #[default]
    Unchecked,
    /// So many were opened, and each key is the one that its account's document names; those that are not are faults.
    Opened(u64),
}

/// A copy has no log, and nothing of it lies there.
struct NoLog;

impl LogSource for NoLog {
    fn read(&self, _location: highwater_wal::Location) -> Result<Bytes, LogError> {
        Err(LogError::Failed("a copy has no log".into()))
    }
}

/// Reads all of a directory: that of a server that is stopped, or a copy. Nothing of it changes, and it may lie on a disk that takes no
/// writes. Without a key, what is encrypted under one is not looked at.
/// # Errors
/// [`OpenError`] if it cannot be opened at all, which is worse than any fault; `Key` if the key is not the one that it is bound to.
pub fn verify(options: Options, seams: Seams) -> Result<Verified, OpenError> {
    let paths = Paths::new(&options.directory);
    let disk: Arc<dyn Disk> = Arc::new(OverlayDisk::new(seams.disk));
    let seams = Seams { disk: Arc::clone(&disk), ..seams };
    let layout = paths.layout();
    let Some(bytes) = files::read(&*disk, &layout).map_err(OpenError::io(&layout))? else {
        return Err(OpenError::NoLayout { path: paths.directory, name: "nothing".into() });
    };
    let bound = decode_layout(&bytes).map_err(damaged(layout))?;
    let key = seams.sealer.as_ref().map(|sealer| sealer.id());
    if key.is_some() {
        check_key(bound, key)?;
    }
    let floor = read_floor(&*disk, &paths)?;
    // Held to the end: a server that runs keeps this from beginning, and this one from starting.
    let (shared, lsn, log) = read(options, seams, &disk, &paths)?;
    let mut verified = Verified { lsn, ceiling: shared.state().sequence.ceiling(), ..Verified::default() };
    if floor > verified.ceiling {
        verified.faults.push(format!("the file of the floor says {floor}, which is above every number of the stream"));
    }
    frames(&shared, &mut verified);
    let accounts: Vec<Account> = shared.state().accounts.values().cloned().collect();
    for account in &accounts {
        verified.accounts += 1;
        if let Some(head) = account.head.filter(|_| !account.standing.erased) {
            verified.repositories += 1;
            if let Err(what) = repository(&shared, account, &head, &mut verified.records) {
                verified.faults.push(format!("{}: {what}", account.did));
            }
        }
    }
    blobs(&shared, &mut verified);
    if bound.is_none() || key.is_some() {
        secrets(&shared, &accounts, &mut verified);
    }
    drop(log);
    Ok(verified)
}

/// Opens what there is: a copy without a log, or a server's directory with its log, which is returned.
fn read(
    options: Options,
    seams: Seams,
    disk: &Arc<dyn Disk>,
    paths: &Paths,
) -> Result<(Arc<Shared>, u64, Option<Log>), OpenError> {
    let copied = backup::read_note(&**disk, paths)?.is_some();
    if copied && !disk.exists(&paths.log()).map_err(OpenError::io(&paths.log()))? {
        let (opening, mut state) = begin_store(disk, paths, &options)?;
        let applied = opening.applied();
        let store = opening.load(&mut |visited| load_object(&mut state, visited))?;
        let reader = store.reader(NoLog);
        return Ok((share(options, seams, (state, store, reader), Witnesses::default())?, applied, None));
    }
    let loaded = load(disk, paths, &options, 0)?;
    let reader = loaded.store.reader(loaded.log.reader());
    let shared = share(options, seams, (loaded.state, loaded.store, reader), Witnesses::default())?;
    Ok((shared, loaded.lsn, Some(loaded.log)))
}

/// Opens every secret: a directory whose keys nobody can use is lost, however whole its records are.
fn secrets(shared: &Shared, accounts: &[Account], verified: &mut Verified) {
    let mut opened = 0;
    for account in accounts.iter().filter(|account| !account.standing.erased) {
        let slot = shared.slots.get(account.id);
        match key(shared, &slot, account) {
            Ok(key) if key.public().multibase() == account.key.public => opened += 1,
            Ok(_) => verified.faults.push(format!("{}: its key is not the one that its document names", account.did)),
            Err(error) => verified.faults.push(format!("{}: {error}", account.did)),
        }
    }
    match shared.state().session_secret.clone() {
        Some((sealed, secret)) if shared.unseal(sealed, &secret).is_none() => {
            verified.faults.push("the secret of session tokens cannot be decrypted".into());
        }
        Some(_) => opened += 1,
        None => {}
    }
    verified.secrets = Secrets::Opened(opened);
}

/// Goes through every frame that is kept.
fn frames(shared: &Shared, verified: &mut Verified) {
    let (first, end) = {
        let state = shared.state();
        let Some(first) = state.events.oldest() else { return };
        (first, state.events.end)
    };
    let (mut offset, mut newest, mut pending) = (first.offset, None, BytesMut::new());
    while offset < end {
        match shared.read_some(EVENTS, offset, 4 << 20) {
            Ok(bytes) if !bytes.is_empty() => {
                offset += bytes.len() as u64;
                pending.extend_from_slice(&bytes);
            }
            Ok(_) | Err(Fault::Gone) => {
                verified.faults.push(format!("frames are missing from byte {offset} on"));
                return;
            }
            Err(Fault::Damaged(why)) => {
                verified.faults.push(format!("frames, byte {offset}: {why}"));
                return;
            }
        }
        let mut input = Reader::new(pending.clone().freeze());
        let mut read = 0;
        loop {
            match decode_event(&mut input) {
                Ok((seq, ..)) => {
                    read = pending.len() - input.remaining();
                    if newest.is_some_and(|newest| newest >= seq) {
                        verified.faults.push(format!("frame {seq} is not above the one before it"));
                    }
                    newest = Some(seq);
                    verified.frames += 1;
                }
                Err(DecodeError::Short) => break,
                Err(error) => {
                    verified.faults.push(format!("frames before byte {offset}: {error}"));
                    return;
                }
            }
        }
        drop(pending.split_to(read));
    }
    if newest != shared.state().events.newest || !pending.is_empty() {
        verified.faults.push("the frames do not end with the newest one".into());
    }
}

/// Goes through a repository: the signature, every node, every record.
fn repository(shared: &Arc<Shared>, account: &Account, head: &Head, records: &mut u64) -> Result<(), String> {
    let slot = shared.slots.get(account.id);
    let windows = RefCell::new(Windows::new(account.blocks.front..account.blocks.end));
    let explain = |error: ReadError| error.to_string();
    let blocks = AccountBlocks::open(shared, &slot, account.blocks).map_err(explain)?.through(&windows);
    let commit = Commit::decode(blocks.get(&head.commit).map_err(explain)?).map_err(|error| error.to_string())?;
    if (&commit.did, commit.rev, commit.data) != (&account.did, head.rev, head.data) {
        return Err("the newest commit is not what the row says".into());
    }
    let key = PublicKey::parse(&account.key.public).map_err(|error| error.to_string())?;
    commit.verify(&key).map_err(|error| error.to_string())?;
    let tree = tree(shared, &slot, account).map_err(explain)?;
    let mut walk = Walk::new(&tree);
    while let Some(step) = walk.next(&blocks).map_err(|error| explain(blocks.explain(error)))? {
        if let Step::Record(key, cid) = step {
            let block = blocks.block(&cid).ok_or_else(|| explain(blocks.explain(TreeError::Missing(cid))))?;
            data::decode(block).map_err(|error| format!("{key}: {error}"))?;
            *records += 1;
        }
    }
    // What is in memory is no proof of what is stored.
    shared.slots.trim(0);
    Ok(())
}

fn blobs(shared: &Shared, verified: &mut Verified) {
    let all = shared.state().blobs.clone();
    for (account, blobs) in all {
        for (cid, blob) in blobs.0 {
            verified.blobs += 1;
            let read = shared.blob_files.open(account, cid, blob.bytes).and_then(|mut file| {
                while file.read()?.is_some() {}
                Ok(())
            });
            if let Err(error) = read {
                verified.faults.push(format!("blob {cid} of account {}: {error}", account.0));
            }
        }
    }
}

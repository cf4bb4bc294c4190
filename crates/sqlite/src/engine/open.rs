//! Opening a bound database: recovery is complete before SQLite sees the file.
//!
//! The order matters. The process lock comes first; nothing is written before the log and the file were judged; the
//! log is made durable before the file is written from it; `meta` moves last. A crash anywhere starts over.

use crate::engine::apply::Applier;
use crate::engine::pages::{Change, PageTable};
use crate::engine::{Layout, LogPosition, OpenError};
use crate::log::{Damage, Log, Scanned, read_records, scan};
use crate::meta::{Checkpoint, FINGERPRINT_HEADER_BYTES, Fingerprint, Meta, MetaError, MetaFile};
use crate::record::{Event, page_hash};
use highwater_disk::{Disk, File, OpenMode};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// SQLite's lock bytes: pending, reserved and shared.
const LOCK_BYTES: (u64, u64) = (0x4000_0000, 512);

/// What opening leaves to the engine.
pub(super) struct Opened {
    pub layout: Layout,
    pub locks: Locks,
    pub database: Arc<dyn File>,
    pub meta_file: MetaFile,
    pub meta: Meta,
    pub log: Log,
    pub table: PageTable,
    pub boot_id: Option<[u8; 16]>,
}

/// The locks of the owner; released when dropped.
pub(crate) struct Locks {
    _process: Arc<dyn File>,
    /// A handle of its own: the lock lives as long as it, whoever else shares the file.
    _database: Option<Arc<dyn File>>,
}

/// Handles on database files that turned out to be locked.
///
/// Closing any descriptor of a file drops the record locks that this process holds on it, so that probing a file
/// which stock SQLite has open in this very process would take its locks away. One handle a file is kept instead.
static PROBED: Mutex<Vec<Probed>> = Mutex::new(Vec::new());

/// The lock of [`PROBED`], held across a fork so that the child finds it free.
pub(crate) struct Frozen(#[expect(dead_code, reason = "held for its lock")] MutexGuard<'static, Vec<Probed>>);

/// Takes the lock of [`PROBED`] across a fork.
pub(crate) fn freeze() -> Frozen {
    Frozen(PROBED.lock().unwrap_or_else(PoisonError::into_inner))
}

struct Probed {
    /// Which disk, by its address.
    on: usize,
    path: String,
    file: Arc<dyn File>,
}

/// Takes the process lock of the folder, which exists, and writes our process id into it.
pub(crate) fn lock_process(disk: &dyn Disk, layout: &Layout) -> Result<Arc<dyn File>, OpenError> {
    let io_error = OpenError::io(layout);
    let file = disk.open(&layout.lock, OpenMode::Create).map_err(&io_error)?;
    if !file.try_lock().map_err(&io_error)? {
        return Err(OpenError::Busy { path: layout.database.display().to_string(), pid: read_pid(&*file) });
    }
    let pid = format!("{}\n", std::process::id());
    // On a full disk the lock still holds; only the message to a second process is poorer.
    drop(file.set_length(0).and_then(|()| file.write_at(pid.as_bytes(), 0)));
    Ok(file)
}

/// The process id in a lock file, 0 if there is none.
pub(crate) fn read_pid(file: &dyn File) -> u32 {
    let mut bytes = [0; 16];
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    let text = std::str::from_utf8(&bytes[..read]).unwrap_or("");
    text.lines().next().and_then(|line| line.parse().ok()).unwrap_or(0)
}

/// Locks stock SQLite out of the database file, or says that it has it open.
pub(crate) fn lock_database(disk: &dyn Disk, layout: &Layout) -> Result<Arc<dyn File>, OpenError> {
    let io_error = OpenError::io(layout);
    let path = layout.database.display().to_string();
    let mut probed = PROBED.lock().unwrap_or_else(PoisonError::into_inner);
    let on = std::ptr::from_ref(disk).cast::<()>() as usize;
    let known = probed.iter().position(|known| known.on == on && known.path == path);
    let file = match known.map(|index| probed.swap_remove(index).file) {
        // A handle on a file that was replaced since is of no use.
        Some(file) if file.try_lock_range(LOCK_BYTES.0, LOCK_BYTES.1).is_ok_and(|locked| !locked) => file,
        _ => disk.open(&layout.database, OpenMode::Write).map_err(&io_error)?,
    };
    if file.try_lock_range(LOCK_BYTES.0, LOCK_BYTES.1).map_err(&io_error)? {
        return Ok(file);
    }
    probed.push(Probed { on, path: path.clone(), file });
    Err(OpenError::InUse { path })
}

pub(super) fn open(disk: &Arc<dyn Disk>, path: &Path) -> Result<Opened, OpenError> {
    let layout = Layout::of(path);
    let io_error = OpenError::io(&layout);
    if !disk.exists(&layout.meta).map_err(&io_error)? {
        return Err(OpenError::NotBound { path: layout.database.display().to_string() });
    }
    let process = lock_process(&**disk, &layout)?;
    let (meta_file, meta) = open_meta(&**disk, &layout)?;
    if meta_file.is_fresh() {
        // The process that bound it may have died before it made the name of `meta` durable.
        disk.sync_directory(&layout.folder).map_err(&io_error)?;
    }
    find_database(&**disk, &layout, &meta)?;
    let guard = lock_database(&**disk, &layout)?;
    let locks = Locks { _process: process, _database: Some(guard) };
    let database = disk.open(&layout.database, OpenMode::Write).map_err(&io_error)?;
    refuse_foreign_journals(&**disk, &layout, &meta)?;
    let boot_id = highwater_disk::system::boot_id(&**disk);
    let recovery = Recovery { disk, layout: &layout, database: &database, boot_id };
    let (meta_file, meta, log, table) = recovery.run(meta_file, meta)?;
    remove_if_there(&**disk, &layout.wal).map_err(&io_error)?;
    if let Some(reason) = meta.stop {
        // Only now: the file holds every commit that was logged, and whoever copies it copies all of them.
        return Err(OpenError::Reset { reason, url: meta.binding.url });
    }
    Ok(Opened { layout, locks, database, meta_file, meta, log, table, boot_id })
}

fn open_meta(disk: &dyn Disk, layout: &Layout) -> Result<(MetaFile, Meta), OpenError> {
    let wrap = |error| OpenError::Meta { path: layout.meta.display().to_string(), error };
    let file = disk.open(&layout.meta, OpenMode::Write).map_err(|error| wrap(MetaError::Io(error)))?;
    MetaFile::open(file).map_err(wrap)
}

/// Finishes the last step of a bind or a restore if it was cut short.
fn find_database(disk: &dyn Disk, layout: &Layout, meta: &Meta) -> Result<(), OpenError> {
    let io_error = OpenError::io(layout);
    if disk.exists(&layout.database).map_err(&io_error)? {
        return Ok(());
    }
    if !disk.exists(&layout.database_new).map_err(&io_error)? {
        let path = layout.database.display().to_string();
        return Err(OpenError::Missing { path, url: meta.binding.url.clone() });
    }
    disk.rename(&layout.database_new, &layout.database).map_err(&io_error)?;
    disk.sync_directory(&layout.parent()).map_err(&io_error)
}

/// A journal beside a bound database is stock SQLite's: ours lie in the folder.
fn refuse_foreign_journals(disk: &dyn Disk, layout: &Layout, meta: &Meta) -> Result<(), OpenError> {
    for suffix in ["-wal", "-journal"] {
        if bytes_of(disk, &layout.beside(suffix)).map_err(OpenError::io(layout))? > 0 {
            return Err(OpenError::Foreign {
                path: layout.database.display().to_string(),
                what: format!("it left {}", layout.beside(suffix).display()),
                url: meta.binding.url.clone(),
            });
        }
    }
    Ok(())
}

/// Bytes of a file, 0 if there is none.
pub(crate) fn bytes_of(disk: &dyn Disk, path: &Path) -> io::Result<u64> {
    match disk.open(path, OpenMode::Read) {
        Ok(file) => file.length(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// Removes a file that may not be there.
pub(crate) fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// How the database file looks.
pub(crate) fn fingerprint(file: &dyn File) -> io::Result<Fingerprint> {
    let mut header = [0; FINGERPRINT_HEADER_BYTES];
    file.read_at(&mut header, 24)?;
    Ok(Fingerprint { length: file.length()?, header, modified_ns: file.modified_ns()? })
}

struct Recovery<'a> {
    disk: &'a Arc<dyn Disk>,
    layout: &'a Layout,
    database: &'a Arc<dyn File>,
    boot_id: Option<[u8; 16]>,
}

impl Recovery<'_> {
    /// Brings file, log and `meta` to the end of the log.
    fn run(&self, mut meta_file: MetaFile, meta: Meta) -> Result<(MetaFile, Meta, Log, PageTable), OpenError> {
        let io_error = OpenError::io(self.layout);
        let scanned = self.scan(&meta)?;
        let end = scanned.index.end();
        let from = meta.checkpoint;
        let target = scanned.index.checkpoint_at(end).unwrap_or(from);
        let target = if end == from.position { from } else { target };
        let now = fingerprint(&**self.database).map_err(&io_error)?;
        // Without a boot id nobody knows, and verifying is the safe side.
        let lost_power = meta.unsynced && (self.boot_id.is_none() || meta.boot_id != self.boot_id);
        let changed = lost_power || meta.fingerprint != Some(now);
        if changed {
            self.verify(&meta, &scanned, target, lost_power)?;
        }
        let (segments, replay) = (scanned.segments.clone(), end > from.position);
        if !scanned.obsolete.is_empty() {
            // What calls them obsolete may be a save that was not synced by the process that died.
            meta_file.sync().map_err(&io_error)?;
        }
        let log = Log::open(self.disk.clone(), self.layout, meta.binding.lineage, scanned).map_err(&io_error)?;
        let mut next = meta.clone();
        // A file that changed may be longer or shorter than the pages that count, without anything to replay.
        if replay || changed {
            let page_size = meta.binding.page_size;
            let mut applier = Applier::new(self.database.clone(), page_size, from.pages).map_err(&io_error)?;
            self.each(&segments, from.position, end, &mut |event| applier.event(&event)).map_err(&io_error)?;
            applier.finish().map_err(&io_error)?;
            next.checkpoint = target;
        }
        next.fingerprint = Some(fingerprint(&**self.database).map_err(&io_error)?);
        next.unsynced = false;
        if next != meta {
            meta_file.save(&next, true).map_err(&io_error)?;
        }
        Ok((meta_file, next, log, PageTable::new(meta.binding.page_size, target.pages, target.checksum)))
    }

    fn scan(&self, meta: &Meta) -> Result<Scanned, OpenError> {
        let (position, lsn) = meta.scan_start();
        let base = if position == meta.checkpoint.position {
            meta.checkpoint
        } else {
            // The database at this older place is not known, and nothing asks for it.
            Checkpoint { position, lsn, pages: 0, checksum: 0 }
        };
        let damaged = |damage| OpenError::Damaged {
            path: self.layout.database.display().to_string(),
            damage,
            url: meta.binding.url.clone(),
        };
        let scanned = scan(&**self.disk, self.layout, meta.binding.lineage, base, meta.durable_floor());
        let scanned = scanned.map_err(damaged)?;
        let at = meta.checkpoint;
        if scanned.index.checkpoint_at(at.position).map(|found| (found.lsn, found.checksum))
            != Some((at.lsn, at.checksum))
        {
            return Err(damaged(Damage::Record {
                lsn: at.lsn,
                position: at.position,
                segment: self.layout.meta.display().to_string(),
                why: "meta has a checkpoint where no such record ends".into(),
            }));
        }
        Ok(scanned)
    }

    /// Computes what the database will be once the log is written over the file, before anything is written, and
    /// compares it with the checksum that the log carries.
    fn verify(&self, meta: &Meta, scanned: &Scanned, target: Checkpoint, lost_power: bool) -> Result<(), OpenError> {
        let io_error = OpenError::io(self.layout);
        let mut table = PageTable::new(meta.binding.page_size, meta.checkpoint.pages, meta.checkpoint.checksum);
        let mut hashes = Vec::new();
        let page_bytes = meta.binding.page_size as usize;
        let mut fold = |event: Event<'_>| {
            match event {
                Event::Begin(_) => hashes.clear(),
                Event::Pages { numbers, images } => {
                    let pages = numbers.iter().zip(images.chunks_exact(page_bytes));
                    hashes.extend(pages.map(|(number, page)| (*number, page_hash(*number, page))));
                }
                Event::Commit { header, checksum, .. } => {
                    let hashes = std::mem::take(&mut hashes);
                    table.apply(Change { pages_after: header.pages_after, checksum, hashes });
                }
            }
            Ok(())
        };
        self.each(&scanned.segments, meta.checkpoint.position, scanned.index.end(), &mut fold).map_err(&io_error)?;
        if table.compute(&**self.database).map_err(&io_error)? == target.checksum {
            return Ok(());
        }
        let what = if lost_power {
            "its checksum differs from the log's: the power failed while synchronous was OFF, or another program wrote it"
        } else {
            "its checksum differs from the log's"
        };
        let path = self.layout.database.display().to_string();
        Err(OpenError::Foreign { path, what: what.into(), url: meta.binding.url.clone() })
    }

    fn each(
        &self,
        segments: &std::collections::VecDeque<LogPosition>,
        from: LogPosition,
        to: LogPosition,
        each: &mut dyn FnMut(Event<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        read_records(&**self.disk, self.layout, segments, (from, to), each)
    }
}

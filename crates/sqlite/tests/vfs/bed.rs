//! A bound database on a simulated disk, and SQLite to use it with.

use crate::counting::Counts;
use highwater_base::{Incarnation, Offset};
use highwater_disk::watched::WatchedDisk;
use highwater_disk::{Disk, SimDisk};
use highwater_sqlite::bind::{BindOptions, BoundStream, bind};
use highwater_sqlite::engine::OpenOptions;
use highwater_sqlite::ffi::api::EntryPoint;
use highwater_sqlite::host::Host;
use highwater_sqlite::vfs::registry::{Registry, Sending};
use highwater_sqlite::vfs::{Registered, Unbound};
use rusqlite::auto_extension::{RawAutoExtension, register_auto_extension};
use rusqlite::{Connection, OpenFlags};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// The SQLite of this test program, with the extension in it.
pub fn host() -> &'static Host {
    static LOADED: Once = Once::new();
    LOADED.call_once(|| {
        // SAFETY: both types are SQLite's entry point.
        unsafe {
            let entry = highwater_sqlite::host::entry::auto_extension as EntryPoint;
            register_auto_extension(std::mem::transmute::<EntryPoint, RawAutoExtension>(entry)).expect("register");
        }
        Connection::open_in_memory().expect("the first connection");
    });
    Host::numbered(0).expect("a host")
}

pub fn stream() -> BoundStream {
    BoundStream {
        url: "http://127.0.0.1:4437/v1/stream/test/app".to_owned(),
        incarnation: Incarnation::new(1 << 52).expect("an incarnation"),
        cluster_id: "test".to_owned(),
        protocol: 11,
        end: Offset(0),
    }
}

/// One process's view of a disk: its open databases, and a VFS of its own.
pub struct Bed {
    pub disk: SimDisk,
    pub registry: Arc<Registry>,
    counts: Arc<Counts>,
    vfs: Registered,
    name: CString,
}

impl Bed {
    /// A process that starts on this disk.
    pub fn on(disk: &SimDisk) -> Self {
        Self::with(disk, OpenOptions { timer: false, ..OpenOptions::default() })
    }

    pub fn with(disk: &SimDisk, options: OpenOptions) -> Self {
        static BEDS: AtomicU64 = AtomicU64::new(0);
        let name = CString::new(format!("bed-{}", BEDS.fetch_add(1, Ordering::Relaxed))).expect("a name");
        let counts = Arc::<Counts>::default();
        let watched = Arc::new(WatchedDisk::new(disk.clone(), counts.clone()));
        let registry = Arc::new(Registry::new(watched, options, Sending::Nowhere));
        let vfs = host().register(&name, Unbound::Refused, registry.clone()).expect("a VFS");
        Self { disk: disk.clone(), registry, counts, vfs, name }
    }

    /// A process on a new disk with one new bound database.
    pub fn bound(seed: u64, page_size: u32, auto_vacuum: u8) -> Self {
        let disk = SimDisk::new(seed);
        disk.create_directory(Path::new("/sim")).expect("a directory");
        disk.sync_directory(Path::new("/")).expect("a name");
        let bed = Self::on(&disk);
        bed.bind("app.db", page_size, auto_vacuum);
        bed
    }

    pub fn bind(&self, name: &str, page_size: u32, auto_vacuum: u8) {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let options = BindOptions { page_size, auto_vacuum };
        bind(&disk, &path(name), options, &stream(), &mut |_, _| {}).expect("bind");
    }

    pub fn open(&self) -> Connection {
        self.try_open("app.db").expect("open")
    }

    pub fn try_open(&self, name: &str) -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags_and_vfs(path(name), OpenFlags::default(), self.name.as_c_str())?;
        connection.busy_timeout(std::time::Duration::ZERO)?;
        Ok(connection)
    }

    /// The URI by which another database of this disk is attached.
    pub fn uri(&self, name: &str) -> String {
        format!("file:{}?vfs={}", path(name).display(), self.name.to_str().expect("a name"))
    }

    /// Syncs of files that this process has asked for.
    pub fn syncs(&self) -> u64 {
        self.counts.syncs.load(Ordering::Relaxed)
    }

    /// The next write of a file panics.
    pub fn panic_at_next_write(&self) {
        self.counts.panics.store(true, Ordering::Relaxed);
    }

    /// The bytes of a file.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let wanted = path(name);
        let file = self.disk.files().into_iter().find(|(path, _)| *path == wanted);
        file.unwrap_or_else(|| panic!("no file {name}")).1
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.vfs.remove();
    }
}

pub fn path(name: &str) -> PathBuf {
    Path::new("/sim").join(name)
}

/// One number of a query.
pub fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// What `PRAGMA integrity_check` says.
pub fn integrity(connection: &Connection) -> String {
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("integrity_check")
}

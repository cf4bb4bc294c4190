//! SQLite as a host program uses it.

use anyhow::Result;
use rusqlite::{Connection, OpenFlags, params};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

/// Rows of the table; each fills a page of 4 KiB.
const ROWS: u64 = 2000;

/// Pages that one commit changes.
const PAGES: u64 = 7;

/// `PRAGMA synchronous`.
#[derive(Debug, Clone, Copy)]
pub enum Synchronous {
    /// No sync per commit.
    Normal,
    /// One sync per commit.
    Full,
}

/// A database with a table of rows that fill a page each.
pub struct Database {
    connection: Connection,
    path: PathBuf,
    state: u64,
}

/// Loads the extension into this program's SQLite once.
pub fn load() {
    type Entry = unsafe extern "C" fn(
        *mut rusqlite::ffi::sqlite3,
        *mut *mut std::ffi::c_char,
        *const rusqlite::ffi::sqlite3_api_routines,
    ) -> std::ffi::c_int;
    static LOAD: Once = Once::new();
    LOAD.call_once(|| {
        let entry = highwater_sqlite::host::entry::auto_extension as *const ();
        // SAFETY: the entry point has this signature, with types of its own for the same C structures.
        let code =
            unsafe { rusqlite::ffi::sqlite3_auto_extension(Some(std::mem::transmute::<*const (), Entry>(entry))) };
        assert_eq!(code, rusqlite::ffi::SQLITE_OK, "SQLite takes the extension");
    });
}

impl Database {
    /// A stock WAL database.
    pub fn stock(path: &Path, synchronous: Synchronous) -> Result<Self> {
        let connection = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), c"unix")?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        Self::fill(connection, path, synchronous)
    }

    /// A new database bound to a new stream.
    pub fn replicated(path: &Path, url: &str, synchronous: Synchronous) -> Result<Self> {
        load();
        let loader = Connection::open_in_memory()?;
        let text = path.to_string_lossy().into_owned();
        loader.query_row("SELECT highwater_bind(?1, ?2)", params![text, url], |_| Ok(()))?;
        let connection = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), c"highwater")?;
        Self::fill(connection, path, synchronous)
    }

    fn fill(connection: Connection, path: &Path, synchronous: Synchronous) -> Result<Self> {
        let level = match synchronous {
            Synchronous::Normal => "normal",
            Synchronous::Full => "full",
        };
        connection.pragma_update(None, "synchronous", level)?;
        connection.execute_batch("CREATE TABLE page (id INTEGER PRIMARY KEY, bytes BLOB)")?;
        let mut database = Self { connection, path: path.to_owned(), state: 1 };
        database.connection.execute_batch("BEGIN")?;
        for id in 0..ROWS {
            let bytes = database.bytes();
            database
                .connection
                .prepare_cached("INSERT INTO page VALUES (?1, ?2)")?
                .execute(params![id.cast_signed(), bytes])?;
        }
        database.connection.execute_batch("COMMIT")?;
        Ok(database)
    }

    /// Half text, half noise: about what rows of an application compress to.
    fn bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(3000);
        while bytes.len() < 3000 {
            bytes.extend_from_slice(&self.next().to_le_bytes());
            bytes.extend_from_slice(b" of text");
        }
        bytes
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.state
    }

    /// Changes some pages in one commit; how long it took.
    pub fn commit(&mut self) -> Result<Duration> {
        let first = (self.next() >> 33) % (ROWS - PAGES);
        let images: Vec<Vec<u8>> = (0..PAGES).map(|_| self.bytes()).collect();
        let begun = Instant::now();
        let transaction = self.connection.unchecked_transaction()?;
        for (id, bytes) in (first..).zip(&images) {
            let mut update = self.connection.prepare_cached("UPDATE page SET bytes = ?2 WHERE id = ?1")?;
            update.execute(params![id.cast_signed(), bytes])?;
        }
        transaction.commit()?;
        Ok(begun.elapsed())
    }

    /// Waits until the stream holds everything.
    pub fn synced(&self) -> Result<()> {
        let path = self.path.to_string_lossy();
        self.connection.prepare_cached("SELECT highwater_synced(?1, 60000)")?.query_row([path], |_| Ok(()))?;
        Ok(())
    }

    /// Adds `count` rows of about 3 KB in commits of 1,000.
    pub fn grow(&mut self, count: u64) -> Result<()> {
        for batch in 0..count.div_ceil(1000) {
            self.connection.execute_batch("BEGIN")?;
            for row in 0..1000 {
                let bytes = self.bytes();
                let id = ROWS + batch * 1000 + row;
                self.connection
                    .prepare_cached("INSERT INTO page VALUES (?1, ?2)")?
                    .execute(params![id.cast_signed(), bytes])?;
            }
            self.connection.execute_batch("COMMIT")?;
        }
        Ok(())
    }
}

//! What the VFS would do: transactions, syncs and checkpoints.

use super::{Context, Database, pages};
use crate::swarm::chance;
use highwater_base::Random;
use highwater_disk::File;
use highwater_sqlite::engine::{AppendFailed, CommitShape, Engine, Refused, StopCode, StopReason};
use highwater_sqlite::replicator::machine::Event;
use std::io;
use std::sync::Arc;

/// Bytes of the largest database.
const DATABASE_BYTES_MAX: u32 = 96 << 10;

impl Database {
    /// One transaction: admitted, logged, and then confirmed, or cut off as a failed commit is.
    pub fn commit(&mut self, context: &mut Context<'_>) {
        let Some(engine) = self.engine.clone() else { return };
        if let Err(refused) = engine.admit_write() {
            if matches!(refused, Refused::BacklogFull { .. }) {
                context.trace.meet("a backlog was full");
            }
            context.trace.note(context.now_ms, format_args!("{} may not write: {}", self.name(), refused.code()));
            return;
        }
        let before = self.model(context.oracle).current();
        let pages_max = DATABASE_BYTES_MAX / self.page_size;
        let transaction = pages::transaction(&before, self.page_size, pages_max, &mut self.random);
        let shape = CommitShape {
            page_size: self.page_size,
            pages_after: transaction.after.len() as u32,
            pages: &transaction.pages,
        };
        let mut read_page = |index: usize, buffer: &mut [u8]| -> io::Result<()> {
            let page = &transaction.after[transaction.pages[index] as usize - 1];
            buffer.copy_from_slice(page);
            Ok(())
        };
        if let Err(failed) = engine.append_commit(shape, &mut read_page) {
            context.trace.note(context.now_ms, format_args!("{} failed to commit: {failed}", self.name()));
            if matches!(failed, AppendFailed::Full) {
                context.trace.meet("a database's disk was full");
            }
            if matches!(failed, AppendFailed::Stopped(_)) {
                // The disk failed over the cut too: the next start tells whether the record stands.
                self.model(context.oracle).logged(transaction.after);
            }
            return;
        }
        let lsn = self.model(context.oracle).logged(transaction.after.clone());
        if chance(&mut self.random, 40) {
            let cut = engine.cut().is_ok();
            context.trace.note(context.now_ms, format_args!("{} cut commit {lsn} off: {cut}", self.name()));
            if cut {
                self.model(context.oracle).cut();
            }
            return;
        }
        if chance(&mut self.random, 10) {
            // The process dies between the record and its confirmation.
            context.trace.note(context.now_ms, format_args!("{} stops before it confirms {lsn}", self.name()));
            self.die(crate::server::Death::Process);
            return;
        }
        engine.confirm();
        self.model(context.oracle).confirmed();
        let pages = transaction.pages.len();
        context.trace.note(context.now_ms, format_args!("{} commit {lsn}, {pages} pages", self.name()));
        if chance(&mut self.random, 300) {
            self.sync(context);
        }
        self.step(Event::Wanted, context);
    }

    /// The sync of `synchronous=FULL`, or the timer's.
    pub fn sync(&mut self, context: &mut Context<'_>) {
        let Some(engine) = self.engine.clone() else { return };
        if engine.sync_log().is_ok() {
            self.model(context.oracle).synced();
        }
    }

    /// A whole checkpoint, as SQLite does it: the log is synced, the file is written, cut to size and synced, and the
    /// engine lets the log go.
    pub fn checkpoint(&mut self, context: &mut Context<'_>) {
        let Some(engine) = self.engine.clone() else { return };
        if engine.stop_reason().is_some() || engine.sync_log().is_err() {
            return;
        }
        self.model(context.oracle).synced();
        let done = self.write_file(&engine, context);
        context.trace.note(context.now_ms, format_args!("{} checkpoint: {done:?}", self.name()));
    }

    fn write_file(&mut self, engine: &Arc<Engine>, context: &mut Context<'_>) -> io::Result<()> {
        let image = self.model(context.oracle).current();
        let (file, size) = (engine.database(), u64::from(self.page_size));
        let held = self.on_file.take();
        for (index, page) in image.iter().enumerate() {
            let same = held.as_ref().and_then(|held| held.get(index)).is_some_and(|held| Arc::ptr_eq(held, page));
            if !same {
                file.write_at(page, index as u64 * size)?;
            }
        }
        file.set_length(image.len() as u64 * size)?;
        if chance(&mut self.random, 100) {
            // A checkpoint that is cut short: the file is written and not synced, and the log is kept.
            return Ok(());
        }
        sync_file(&*file, engine)?;
        engine.checkpointed(engine.confirmed_end())?;
        self.on_file = Some(image);
        Ok(())
    }

    /// The choice of what the application does next.
    pub fn act(&mut self, quiet: bool, context: &mut Context<'_>) {
        if self.engine.is_none() {
            return;
        }
        if quiet {
            if self.random.below(4) == 0 {
                self.synced(context);
            }
            return;
        }
        match self.random.below(20) {
            0..=12 => self.commit(context),
            13..=14 => self.checkpoint(context),
            15 => {
                if let Some(engine) = self.engine.clone() {
                    engine.tick();
                    if engine.stop_reason().is_none() {
                        self.model(context.oracle).synced();
                    }
                }
            }
            16..=18 => self.synced(context),
            _ => self.back_up(context.oracle),
        }
    }
}

/// Syncs the database file; after a failure nobody knows what it holds, so that the database must be opened again.
fn sync_file(file: &dyn File, engine: &Engine) -> io::Result<()> {
    file.sync_data().inspect_err(|error| {
        engine.stop(StopReason::new(StopCode::LogFailed, format!("the database file cannot be synced: {error}")));
    })
}

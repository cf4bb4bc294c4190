//! Another process restores a database from its stream and goes on with it.

use super::model::{Model, difference};
use super::{Context, Database, FILE, RestoredFrom, lineage, make_place, read_image};
use crate::invariants::{Checked, Invariant, hold, violated};
use crate::server::Server;
use highwater_base::Offset;
use highwater_sqlite::batch::{Sink, StreamReader};
use highwater_sqlite::bind::{BoundStream, Restoring};
use highwater_sqlite::engine::Engine;
use std::io;
use std::path::Path;

struct Target(Restoring);

impl Sink for Target {
    fn record_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.push(bytes)
    }

    fn void(&mut self) {
        self.0.void();
    }

    fn committed(&mut self, _lsn: u64) -> io::Result<()> {
        Ok(())
    }
}

impl Database {
    /// Restores the database that a stream holds on a new machine; nothing if the server cannot be read now, or the
    /// stream holds no whole commit.
    /// # Errors
    /// `RestoreEqualsDatabase` if it cannot be restored, or is not what the stream's owners made it.
    pub fn restored(
        (index, page_size, seed): (usize, u32, u64),
        stream: &BoundStream,
        server: &mut Server,
        context: &mut Context<'_>,
    ) -> Checked<Option<Self>> {
        let path = stream.url.clone();
        let (lsn, claims) = match context.oracle.batches(&path) {
            Some(batches) if batches.lsn() > 0 => (batches.lsn(), batches.claims().len()),
            _ => return Ok(None),
        };
        let Some(bytes) = download(&path, stream, server) else { return Ok(None) };
        let mut this = Self::new(index, &path, page_size, seed);
        this.restored_from = RestoredFrom { claims, end: bytes.len() as u64 };
        let broken = |what: String| violated(Invariant::RestoreEqualsDatabase, format!("{path}: {what}"));
        match this.lay_down(&bytes, stream) {
            Ok(restored) if restored == lsn => {}
            Ok(restored) => return broken(format!("{restored} commits were restored, the stream has {lsn}")),
            Err(what) => return broken(what),
        }
        let engine = match Engine::open(this.handle(), Path::new(FILE), this.options()) {
            Ok(engine) => engine,
            Err(error) => return broken(format!("what was restored does not open: {error}")),
        };
        let image = match read_image(&engine) {
            Ok(image) => image,
            Err(error) => return broken(error.to_string()),
        };
        let held = context.oracle.batches(&path).map(|batches| batches.image().clone()).unwrap_or_default();
        let differs = difference(&held, &image);
        hold(Invariant::RestoreEqualsDatabase, differs.is_none() && engine.progress().last_lsn == lsn, || {
            format!("{path} at commit {lsn}: {differs:?}, {:?}", engine.progress())
        })?;
        this.lineage = engine.binding().lineage;
        context.oracle.databases.insert(this.lineage, Model::new(lsn, held));
        drop(engine);
        this.disk.crash_process();
        Ok(Some(this))
    }

    fn lay_down(&mut self, bytes: &[u8], stream: &BoundStream) -> Result<u64, String> {
        let disk = self.handle();
        make_place(&*disk).map_err(|error| error.to_string())?;
        let restoring = Restoring::begin(&disk, Path::new(FILE)).map_err(|error| error.to_string())?;
        let (mut reader, mut target) = (StreamReader::new(), Target(restoring));
        // In pieces, as they come from a network.
        for piece in bytes.chunks(5_000) {
            reader.push(piece, &mut target).map_err(|error| format!("at {}: {error}", reader.offset()))?;
        }
        let lsn = reader.lsn();
        let bound = BoundStream { end: reader.offset(), ..stream.clone() };
        target.0.finish_as(&bound, lineage(&mut self.random)).map_err(|error| error.to_string())?;
        Ok(lsn)
    }
}

/// All bytes of a stream, as the server has them.
fn download(path: &str, stream: &BoundStream, server: &mut Server) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let answer = server.probe_read(path, stream.incarnation, Offset(bytes.len() as u64))?.ok()?;
        bytes.extend_from_slice(&answer.body);
        if answer.up_to_date {
            return Some(bytes);
        }
    }
}

//! What is known of damage on disk, and how far the search for it is.

use crate::shard::{ShardCore, Token};
use highwater_base::GroupId;
use highwater_store::{Fault, IndexSlice, ScrubCursor, ScrubSlice, StoreReader};
use serde::Serialize;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Damaged places that are kept by name; more are counted. A lost file is one place for each stream in it.
const FAULTS_MAX: usize = 256;

/// A place on disk whose bytes cannot be believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StorageFault {
    /// The group whose file it is; the control group comes behind those of the streams.
    pub group: u32,
    /// The file.
    pub file: String,
    /// Position in the file, in bytes.
    pub position: u64,
    /// What is wrong.
    pub what: String,
    /// The stream whose bytes they are; absent if that is not known, or the index is damaged.
    pub stream: Option<String>,
    /// Whether they are bytes of its snapshot, or of a part for one, and not of the stream.
    pub snapshot: bool,
    /// The first offset of the stream (or of the part) that cannot be read, as a number of bytes.
    pub from: Option<u64>,
    /// The offset behind the last one.
    pub to: Option<u64>,
}

/// One scrub, under way or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ScrubPass {
    /// Milliseconds since the Unix epoch when it began.
    pub began_ms: u64,
    /// When it ended; absent while it runs.
    pub ended_ms: Option<u64>,
    /// Bytes read so far.
    pub bytes: u64,
    /// Places found damaged.
    pub faults: u64,
}

/// What the scrub did, and what is known to be damaged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ScrubStatus {
    /// Bytes a second that it may read; 0 if it is off.
    pub bytes_per_second: u64,
    /// The one under way.
    pub running: Option<ScrubPass>,
    /// The last one that ended since the server started.
    pub last: Option<ScrubPass>,
    /// Bytes read since the start.
    pub bytes: u64,
    /// Damaged places, found by a scrub or by a read. One that a later scrub no longer finds is dropped.
    pub faults: Vec<StorageFault>,
    /// Damaged places that are not listed because there are too many.
    pub faults_unlisted: u64,
}

struct Known {
    status: ScrubStatus,
    /// For each listed fault, the scrub that met it last.
    met: Vec<u64>,
    pass: u64,
}

/// The damage that a node knows of, shared by those who find it and those who tell.
pub(crate) struct Faults(Mutex<Known>);

impl Faults {
    pub fn new(bytes_per_second: u64) -> Self {
        let status = ScrubStatus { bytes_per_second, ..ScrubStatus::default() };
        Self(Mutex::new(Known { status, met: Vec::new(), pass: 0 }))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn status(&self) -> ScrubStatus {
        self.known().status.clone()
    }

    /// Whether damage of a stream's bytes is known.
    pub fn is_damaged(&self, path: &str) -> bool {
        self.known().status.faults.iter().any(|fault| fault.stream.as_deref() == Some(path))
    }

    pub fn began(&self, wall_ms: u64) {
        let mut known = self.known();
        known.pass += 1;
        known.status.faults_unlisted = 0;
        known.status.running = Some(ScrubPass { began_ms: wall_ms, ..ScrubPass::default() });
    }

    pub fn read(&self, bytes: u64) {
        let mut known = self.known();
        known.status.bytes += bytes;
        if let Some(running) = &mut known.status.running {
            running.bytes += bytes;
        }
    }

    /// The scrub has seen everything: what it did not find any more is gone, deleted or put right.
    pub fn ended(&self, wall_ms: u64) -> Option<ScrubPass> {
        let mut known = self.known();
        let pass = known.pass;
        let met = std::mem::take(&mut known.met);
        let mut still = met.iter().map(|last| *last == pass);
        known.status.faults.retain(|_| still.next().unwrap_or(true));
        known.met = met.into_iter().filter(|last| *last == pass).collect();
        let mut ended = known.status.running.take()?;
        ended.ended_ms = Some(wall_ms);
        ended.faults = known.status.faults.len() as u64 + known.status.faults_unlisted;
        known.status.last = Some(ended);
        Some(ended)
    }

    /// Notes a damaged place; says so in the log if it is new.
    pub fn note(&self, fault: StorageFault) {
        let mut known = self.known();
        let pass = known.pass;
        // Places in the log have no position here, and are told apart by what says where.
        let same = |known: &StorageFault| {
            (&known.file, known.position, known.group) == (&fault.file, fault.position, fault.group)
                && (fault.position > 0 || known.what == fault.what)
        };
        if let Some(index) = known.status.faults.iter().position(same) {
            known.met[index] = pass;
            return;
        }
        let StorageFault { group, file, position, what, stream, snapshot, from, to } = &fault;
        tracing::error!(
            event = "bytes_damaged",
            group,
            file,
            position,
            what,
            ?stream,
            snapshot,
            ?from,
            ?to,
            "bytes on disk are damaged"
        );
        if let Some(running) = &mut known.status.running {
            running.faults += 1;
        }
        if known.status.faults.len() == FAULTS_MAX {
            known.status.faults_unlisted += 1;
        } else {
            known.status.faults.push(fault);
            known.met.push(pass);
        }
    }
}

/// Whoever knows where a node's bytes lie. Each answer is `None` if nobody is there to answer.
pub(crate) trait ScrubSource {
    fn index(&self, id: GroupId) -> Option<Option<IndexSlice>>;
    fn slice(&self, id: GroupId, from: ScrubCursor) -> Option<Option<ScrubSlice>>;
    /// The streams whose bytes these objects hold.
    fn streams(&self, id: GroupId, objects: Vec<Option<u64>>) -> Option<Vec<Option<(String, bool)>>>;
}

impl<T: Token> ScrubSource for ShardCore<T> {
    fn index(&self, id: GroupId) -> Option<Option<IndexSlice>> {
        Some(self.scrub_index(id))
    }

    fn slice(&self, id: GroupId, from: ScrubCursor) -> Option<Option<ScrubSlice>> {
        Some(self.scrub_slice(id, from))
    }

    fn streams(&self, id: GroupId, objects: Vec<Option<u64>>) -> Option<Vec<Option<(String, bool)>>> {
        Some(objects.into_iter().map(|object| object.and_then(|object| self.stream_of(id, object))).collect())
    }
}

/// Scrubs one group: its index, then every block. `pace` waits, and says whether to go on. `None` if it did not come to
/// the end.
pub(crate) fn scrub_group(
    id: GroupId,
    reader: &StoreReader,
    source: &dyn ScrubSource,
    pace: &mut dyn FnMut(u64) -> bool,
    known: &Faults,
) -> Option<()> {
    let mut found = Vec::new();
    if let Some(index) = source.index(id)? {
        known.read(reader.scrub_index(&index, pace, &mut found));
    }
    let mut cursor = Some(ScrubCursor::default());
    while let Some(from) = cursor {
        let Some(slice) = source.slice(id, from)? else { break };
        let scrubbed = reader.scrub(&slice, pace, &mut found);
        cursor = scrubbed.next;
        known.read(scrubbed.bytes);
        report(id, source, known, &mut found)?;
        if !pace(0) {
            return None;
        }
    }
    report(id, source, known, &mut found)
}

/// Notes what was found, with the streams' names.
fn report(id: GroupId, source: &dyn ScrubSource, known: &Faults, found: &mut Vec<Fault>) -> Option<()> {
    if found.is_empty() {
        return Some(());
    }
    let objects = found.iter().map(|fault| fault.object.as_ref().map(|(key, _)| *key)).collect();
    let streams = source.streams(id, objects)?;
    for (fault, stream) in found.drain(..).zip(streams) {
        let range = fault.object.map(|(_, range)| range);
        known.note(StorageFault {
            group: id.0,
            file: fault.path.display().to_string(),
            position: fault.position,
            what: fault.what,
            snapshot: stream.as_ref().is_some_and(|(_, snapshot)| *snapshot),
            stream: stream.map(|(path, _)| path),
            from: range.as_ref().map(|range| range.start),
            to: range.as_ref().map(|range| range.end),
        });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(position: u64) -> StorageFault {
        StorageFault {
            group: 1,
            file: "data".to_owned(),
            position,
            what: "bad".to_owned(),
            stream: None,
            snapshot: false,
            from: None,
            to: None,
        }
    }

    #[test]
    fn a_place_is_listed_once_and_goes_when_a_later_scrub_does_not_find_it() {
        let faults = Faults::new(1);
        faults.note(fault(1));
        faults.began(10);
        (1..=3).for_each(|position| faults.note(fault(position)));
        faults.note(fault(2));
        assert_eq!(faults.ended(20).map(|pass| (pass.faults, pass.ended_ms)), Some((3, Some(20))));
        faults.began(30);
        faults.note(fault(2));
        assert_eq!(faults.status().faults.len(), 3, "nothing is forgotten before the scrub has seen everything");
        faults.ended(40);
        assert_eq!(faults.status().faults, [fault(2)]);
    }

    #[test]
    fn more_places_than_are_listed_are_counted() {
        let faults = Faults::new(1);
        faults.began(1);
        (0..FAULTS_MAX as u64 + 5).for_each(|position| faults.note(fault(position)));
        let status = faults.status();
        assert_eq!((status.faults.len(), status.faults_unlisted), (FAULTS_MAX, 5));
        assert_eq!(faults.ended(2).map(|pass| pass.faults), Some(FAULTS_MAX as u64 + 5));
    }
}

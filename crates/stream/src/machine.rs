//! The streams of one group, and what each command does to them.

use crate::append;
use crate::command::{Append, Command, Create, Operation};
use crate::effect::Effect;
use crate::history::Group;
use crate::outcome::{Applied, Created, Outcome, Refusal, SnapshotPart};
use crate::producer::Producers;
use crate::record;
use crate::state::{Lifetime, Stream};
use crate::usage::{Usage, Usages};
use bytes::Bytes;
use highwater_base::codec::DecodeError;
use highwater_base::{Digest, Incarnation, Millis, Offset, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod expiry;
mod load;
mod lookup;
mod read;
mod residence;
mod snapshot;

pub use expiry::Due;
pub use load::Loading;
pub use lookup::Holder;
pub use residence::{Resident, Swept};

use residence::Residence;

/// What a command that was not refused did.
type Done = (Outcome, Vec<Effect>);

/// The bounds of what a stream remembers of its producers; equal on every node of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Producers remembered for one stream.
    pub producers_max: usize,
    /// Idleness after which a producer is forgotten when it writes again, in milliseconds.
    pub producer_idle_ms_max: u64,
    /// Idleness after which a producer makes room for another one, in milliseconds.
    pub producer_evictable_ms_min: u64,
    /// Parts of one snapshot.
    pub snapshot_parts_max: usize,
    /// Bytes of one snapshot.
    pub snapshot_bytes_max: u64,
    /// Parts of one stream that no snapshot took.
    pub staged_parts_max: u64,
    /// Their bytes.
    pub staged_bytes_max: u64,
    /// Milliseconds after which such a part may be removed.
    pub staged_ms_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            producers_max: limits::PRODUCERS_PER_STREAM_MAX,
            producer_idle_ms_max: limits::PRODUCER_IDLE_MS_MAX,
            producer_evictable_ms_min: limits::PRODUCER_EVICTABLE_MS_MIN,
            snapshot_parts_max: limits::SNAPSHOT_PARTS_MAX,
            snapshot_bytes_max: limits::SNAPSHOT_BYTES_MAX,
            staged_parts_max: limits::STAGED_PARTS_MAX,
            staged_bytes_max: limits::STAGED_BYTES_MAX,
            staged_ms_max: limits::STAGED_MS_MAX,
        }
    }
}

/// All streams of one group: what they are called, where they end, who wrote last. Never their bytes.
///
/// An *object* is the key under which `store` keeps bytes and states. A stream's is the number of the token that it was
/// created with, whatever its token is now; a part of a snapshot has one of its own, and so has a name ([`crate::links`]).
///
/// Not all of them must be in memory. Before [`Self::apply`] or a question, [`Self::missing`] and its like say which must
/// be given back by [`Self::admit`]; then the answer is the same, whatever else is in memory.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    options: Options,
    group: Group,
    /// For each name in memory its key with each of its streams: all of them or none.
    names: BTreeSet<(u64, u64)>,
    /// Those in memory.
    streams: BTreeMap<u64, Box<Stream>>,
    /// Objects of parts in memory, staged or of a snapshot, and of the stream whose they are.
    parts: BTreeMap<u64, u64>,
    content_types: BTreeSet<Arc<str>>,
    usages: Usages,
    totals: Totals,
    /// When to look at a stream next; not part of the state. A stream that may expire, or has staged parts, is in here
    /// no later than that can happen, in memory or not.
    due: BTreeSet<(Millis, u64)>,
    /// Objects whose stored state is no longer the present one.
    changed: BTreeSet<u64>,
    residence: Residence,
}

/// What is counted of all streams, in memory or not.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    streams: u64,
    /// Streams whose expiry slides.
    sliding: u64,
}

impl Machine {
    /// No streams.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// The machine whose group was stored as `meta` and whose records as `objects`, each with its key, in rising order; all
    /// of it in memory.
    /// # Errors
    /// As [`Loading`] says.
    pub fn load(options: Options, meta: Bytes, objects: Vec<(u64, Bytes)>) -> Result<Self, DecodeError> {
        let mut loading = Loading::new(options);
        for (key, record) in objects {
            loading.take(key, record, true)?;
        }
        loading.finish(meta)
    }

    /// What belongs to the group as a whole, to be stored with the states of one moment.
    #[must_use]
    pub fn meta(&self) -> Bytes {
        self.group.encode()
    }

    /// Counts a stream that was not counted yet, and sees to it that it is looked at in time.
    fn count(&mut self, object: u64, stream: &Stream) {
        self.totals.streams += 1;
        self.totals.sliding += u64::from(stream.slides());
        self.usages.change(&stream.path, None, Some(stream.held_bytes()));
        self.watch(object, stream);
    }

    /// Applies one command, the only way in which the state moves. A refusal changes nothing.
    pub fn apply(&mut self, command: &Command) -> Applied {
        let Command { at, path, operation } = command;
        let at = *at;
        let done = match operation {
            Operation::Create(create) => self.create(path, at, create),
            Operation::Append(append) => self.append(path, at, append),
            Operation::Delete { incarnation } => self.delete(path, at, *incarnation),
            Operation::Touch { incarnation } => self.touch(path, at, *incarnation),
            Operation::Expire { incarnation } => self.expire(path, at, *incarnation),
            Operation::StagePart { incarnation, part, body } => {
                self.stage_part(path, at, *incarnation, *part, body.len() as u64)
            }
            Operation::DiscardParts { incarnation } => self.discard_parts(path, at, *incarnation),
            Operation::PublishSnapshot(publish) => self.publish(path, at, publish),
            Operation::Retain { incarnation, offset } => self.retain(path, at, *incarnation, *offset),
            Operation::History { nonce } => Ok(self.begin_history(*nonce)),
            Operation::Lead => Ok(self.lead(at)),
        };
        match done {
            Ok((outcome, effects)) => Applied { result: Ok(outcome), effects },
            Err(refusal) => Applied { result: Err(refusal), effects: Vec::new() },
        }
    }

    fn create(&mut self, path: &str, at: Millis, create: &Create) -> Result<Done, Refusal> {
        if let Some((_, stream)) = self.find(path, at) {
            append::check_token(stream, &self.group, create.incarnation)?;
            let whole = create.incarnation.is_some();
            let same = stream.content_type_is(&create.content_type, whole)
                && stream.closed == create.closed
                && stream.lifetime().map(Lifetime::expiry) == create.expiry;
            return if same {
                Ok((Outcome::Matched(self.created(stream)), Vec::new()))
            } else {
                Err(Refusal::AlreadyExists)
            };
        }
        if create.incarnation.is_some() {
            return Err(Refusal::IncarnationMismatch { current: None });
        }
        let incarnation = self.unused(create.new_incarnation);
        let object = incarnation.get();
        // One that is over and that nobody has removed yet.
        let over = self.object_at(path);
        let mut effects = over.map(|over| self.remove(over)).unwrap_or_default();
        let length = create.body.len() as u64;
        let mut stream = Stream {
            path: path.into(),
            incarnation,
            content_type: self.shared_content_type(&create.content_type),
            next: Offset(length),
            retained: Offset(0),
            closed: create.closed,
            history: self.group.events,
            rare: None,
            producers: Producers::default(),
            residence: Default::default(),
        };
        if let Some(expiry) = create.expiry {
            stream.rare_mut().lifetime = Some(Lifetime::begun(expiry, at));
        }
        let outcome = Outcome::Created(self.created(&stream));
        self.count(object, &stream);
        let name = record::name_key(path);
        self.names.insert((name, object));
        self.changed.extend([object, name]);
        self.put(object, Box::new(stream));
        effects.push(Effect::Created { object, length });
        Ok((outcome, effects))
    }

    fn append(&mut self, path: &str, at: Millis, append: &Append) -> Result<Done, Refusal> {
        let object = self.find(path, at).ok_or(Refusal::StreamNotFound)?.0;
        let stream = self.streams.get_mut(&object).ok_or(Refusal::StreamNotFound)?;
        let start = stream.next;
        let (outcome, changed) = append::append(stream, &self.group, &self.options, at, append)?;
        if !changed {
            return Ok((outcome, Vec::new()));
        }
        let length = stream.next.since(start);
        let closed = stream.closed;
        self.usages.change(path, Some(0), Some(length));
        self.note_change(object);
        Ok((outcome, vec![Effect::Append { object, start, length, closed }]))
    }

    fn delete(&mut self, path: &str, at: Millis, asked: Option<Incarnation>) -> Result<Done, Refusal> {
        let (object, _) = self.checked(path, at, asked)?;
        Ok((Outcome::Deleted, self.remove(object)))
    }

    /// Every token changes at once, without a look at any stream. The nonce of the newest event again is that event.
    fn begin_history(&mut self, nonce: u64) -> Done {
        if self.group.events > 0 && self.group.nonce == nonce {
            return (Outcome::HistoryBegun, Vec::new());
        }
        self.group.events += 1;
        self.group.nonce = nonce;
        (Outcome::HistoryBegun, vec![Effect::HistoryBegun])
    }

    fn lead(&mut self, at: Millis) -> Done {
        if at <= self.group.lead {
            return (Outcome::Led, Vec::new());
        }
        self.group.lead = at;
        (Outcome::Led, vec![Effect::Led])
    }

    /// Takes a stream out of every index, and out of the store.
    fn remove(&mut self, object: u64) -> Vec<Effect> {
        let Some(stream) = self.take_out(object) else { return Vec::new() };
        self.totals.streams -= 1;
        self.totals.sliding -= u64::from(stream.slides());
        self.usages.change(&stream.path, Some(stream.held_bytes()), None);
        let name = record::name_key(&stream.path);
        self.names.remove(&(name, object));
        self.changed.extend([object, name]);
        let mut effects = vec![Effect::Removed { object }];
        for SnapshotPart { object, .. } in stream.parts() {
            self.drop_part(object);
            effects.push(Effect::PartRemoved { object });
        }
        self.forget_content_type(stream.content_type);
        effects
    }

    /// Keeps a part of a stream.
    fn keep_part(&mut self, part: u64, stream: u64) {
        self.parts.insert(part, stream);
        self.changed.insert(part);
    }

    fn drop_part(&mut self, part: u64) {
        self.parts.remove(&part);
        self.changed.insert(part);
    }

    /// What a bucket holds; the bucket of streams with a path of one segment is the empty one.
    #[must_use]
    pub fn usage(&self, bucket: &str) -> Usage {
        self.usages.of(bucket)
    }

    /// What every bucket holds that holds something, in order of their names.
    pub fn usages(&self) -> impl Iterator<Item = (&str, Usage)> {
        self.usages.iter()
    }

    /// Streams that the group holds, those included that are over and not yet removed.
    #[must_use]
    pub fn streams(&self) -> u64 {
        self.totals.streams
    }

    /// Streams among them whose expiry slides.
    #[must_use]
    pub fn streams_sliding(&self) -> u64 {
        self.totals.sliding
    }

    /// History events that the group went through.
    #[must_use]
    pub fn history_events(&self) -> u64 {
        self.group.events
    }

    /// The nonce of the newest one.
    #[must_use]
    pub fn history_nonce(&self) -> Option<u64> {
        (self.group.events > 0).then_some(self.group.nonce)
    }

    /// The records that changed since the last call, with their keys; absent for what is gone.
    pub fn take_changed(&mut self) -> Vec<(u64, Option<Bytes>)> {
        let changed = std::mem::take(&mut self.changed);
        changed.iter().map(|key| (*key, self.record(*key))).collect()
    }

    /// What is to be stored under a key.
    fn record(&self, key: u64) -> Option<Bytes> {
        if record::is_name(key) {
            let objects: Vec<u64> = self.named(key).collect();
            return (!objects.is_empty()).then(|| record::encode_name(&objects));
        }
        if let Some(stream) = self.streams.get(&key) {
            return Some(record::encode_stream(stream));
        }
        self.parts.get(&key).map(|stream| record::encode_part(*stream))
    }

    /// A digest of everything the machine knows; equal on nodes that applied the same commands. Of a machine that has all of
    /// it in memory.
    #[must_use]
    pub fn fingerprint(&self) -> Digest {
        self.fingerprint_over(&BTreeMap::new())
    }

    /// The same of a machine whose other records are among `stored`.
    #[must_use]
    pub fn fingerprint_over(&self, stored: &BTreeMap<u64, Bytes>) -> Digest {
        let outdated = |key: &u64| self.changed.contains(key);
        let mut records: BTreeMap<u64, Bytes> =
            stored.iter().filter(|(key, _)| !outdated(key)).map(|(key, record)| (*key, record.clone())).collect();
        let names = self.names.iter().map(|(key, _)| *key);
        let resident = self.streams.keys().chain(self.parts.keys()).copied().chain(names);
        records.extend(resident.filter_map(|key| Some((key, self.record(key)?))));
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.group.encode());
        for (key, record) in &records {
            hasher.update(&key.to_le_bytes()).update(&(record.len() as u64).to_le_bytes()).update(record);
        }
        Digest(*hasher.finalize().as_bytes())
    }

    /// The streams of a name in memory.
    fn named(&self, name: u64) -> impl Iterator<Item = u64> + '_ {
        self.names.range((name, 0)..=(name, u64::MAX)).map(|(_, object)| *object)
    }

    /// The object of the stream at a path, over or not.
    fn object_at(&self, path: &str) -> Option<u64> {
        let at_path = |object: &u64| self.streams.get(object).is_some_and(|stream| *stream.path == *path);
        self.named(record::name_key(path)).find(at_path)
    }

    /// The stream at a path, unless it is over.
    fn find(&self, path: &str, at: Millis) -> Option<(u64, &Stream)> {
        let object = self.object_at(path)?;
        let stream = self.streams.get(&object)?;
        stream.residence.note_use();
        (!stream.ended(at, self.group.lead)).then_some((object, stream.as_ref()))
    }

    /// The same, held against a precondition.
    fn checked(&self, path: &str, at: Millis, asked: Option<Incarnation>) -> Result<(u64, Incarnation), Refusal> {
        let (object, stream) = self.find(path, at).ok_or(Refusal::StreamNotFound)?;
        Ok((object, append::check_token(stream, &self.group, asked)?))
    }

    /// The first number from `drawn` on that is no object. Two equal draws are rare, and would join the bytes of two
    /// streams.
    fn unused(&self, drawn: Incarnation) -> Incarnation {
        let mut token = drawn;
        while self.uses(token.get()) {
            token = following(token);
        }
        token
    }

    /// Whether a number is an object in memory.
    fn uses(&self, number: u64) -> bool {
        self.streams.contains_key(&number) || self.parts.contains_key(&number)
    }

    fn shared_content_type(&mut self, content_type: &str) -> Arc<str> {
        if let Some(shared) = self.content_types.get(content_type) {
            return Arc::clone(shared);
        }
        let shared: Arc<str> = Arc::from(content_type);
        self.content_types.insert(Arc::clone(&shared));
        shared
    }

    /// Drops a removed stream's content type, and the shared one if no other stream has it.
    fn forget_content_type(&mut self, content_type: Arc<str>) {
        // The set's own and this one.
        if Arc::strong_count(&content_type) == 2 {
            self.content_types.remove(&content_type);
        }
    }

    fn created(&self, stream: &Stream) -> Created {
        Created {
            incarnation: stream.identity(&self.group).incarnation,
            next: stream.next,
            closed: stream.closed,
            content_type: stream.content_type.as_ref().to_owned(),
        }
    }
}

/// The next token, from the last one on to the smallest that is ever issued.
fn following(token: Incarnation) -> Incarnation {
    Incarnation::new(token.get() + 1).or_else(|| Incarnation::new(1 << 52)).unwrap_or(token)
}

#[cfg(test)]
mod tests;

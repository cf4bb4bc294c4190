//! The streams of one group, and what each command does to them.

use crate::append;
use crate::command::{Append, Command, Create, Operation, ProducerKey};
use crate::outcome::{Applied, Created, Effect, Head, Outcome, ReadFrom, ReadScope, Refusal};
use crate::producer::{self, Producers};
use crate::state::{self, Stream};
use bytes::Bytes;
use highwater_base::codec::DecodeError;
use highwater_base::{Digest, Incarnation, Millis, Offset, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The bounds of what a stream remembers of its producers; equal on every node of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Producers remembered for one stream.
    pub producers_max: usize,
    /// Idleness after which a producer is forgotten when it writes again, in milliseconds.
    pub producer_idle_ms_max: u64,
    /// Idleness after which a producer makes room for another one, in milliseconds.
    pub producer_evictable_ms_min: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            producers_max: limits::PRODUCERS_PER_STREAM_MAX,
            producer_idle_ms_max: limits::PRODUCER_IDLE_MS_MAX,
            producer_evictable_ms_min: limits::PRODUCER_EVICTABLE_MS_MIN,
        }
    }
}

/// All streams of one group: what they are called, where they end, who wrote last. Never their bytes.
///
/// A stream's *object* is the key under which `store` keeps its bytes and its state: the number of the token that it
/// was created with.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    options: Options,
    paths: BTreeMap<Arc<str>, u64>,
    streams: BTreeMap<u64, Box<Stream>>,
    content_types: BTreeSet<Arc<str>>,
    /// Objects whose stored state is no longer the present one.
    changed: BTreeSet<u64>,
}

impl Machine {
    /// No streams.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// The machine whose streams were stored as `objects`, each with its key.
    /// # Errors
    /// What the codec says of the first bad one; `Invalid` if two are the same stream.
    pub fn load(options: Options, objects: Vec<(u64, Bytes)>) -> Result<Self, DecodeError> {
        let mut machine = Self::new(options);
        for (object, record) in objects {
            let mut stream = state::decode(record)?;
            if machine.streams.contains_key(&object) {
                return Err(DecodeError::Invalid("object"));
            }
            stream.content_type = machine.shared_content_type(&stream.content_type);
            if machine.paths.insert(Arc::clone(&stream.path), object).is_some() {
                return Err(DecodeError::Invalid("path"));
            }
            machine.streams.insert(object, Box::new(stream));
        }
        Ok(machine)
    }

    /// Applies one command, the only way in which the state moves. A refusal changes nothing.
    pub fn apply(&mut self, command: &Command) -> Applied {
        let done = match &command.operation {
            Operation::Create(create) => self.create(&command.path, create),
            Operation::Append(append) => self.append(&command.path, command.at, append),
            Operation::Delete { incarnation } => self.delete(&command.path, *incarnation),
        };
        match done {
            Ok((outcome, effect)) => {
                if let Some(effect) = effect {
                    self.changed.insert(effect.object());
                }
                Applied { result: Ok(outcome), effect }
            }
            Err(refusal) => Applied { result: Err(refusal), effect: None },
        }
    }

    fn create(&mut self, path: &str, create: &Create) -> Result<(Outcome, Option<Effect>), Refusal> {
        if let Some((_, stream)) = self.find(path) {
            append::check_token(stream, create.incarnation)?;
            let whole = create.incarnation.is_some();
            if !stream.content_type_is(&create.content_type, whole) || stream.closed != create.closed {
                return Err(Refusal::AlreadyExists);
            }
            return Ok((Outcome::Matched(created(stream)), None));
        }
        if create.incarnation.is_some() {
            return Err(Refusal::IncarnationMismatch { current: None });
        }
        let incarnation = self.unused_token(create.new_incarnation);
        let object = incarnation.get();
        let length = create.body.len() as u64;
        let path: Arc<str> = Arc::from(path);
        let stream = Stream {
            path: Arc::clone(&path),
            incarnation,
            content_type: self.shared_content_type(&create.content_type),
            next: Offset(length),
            retained: Offset(0),
            closed: create.closed,
            stream_seq: None,
            floor: None,
            history: 0,
            previous: None,
            producers: Producers::default(),
        };
        let outcome = Outcome::Created(created(&stream));
        self.paths.insert(path, object);
        self.streams.insert(object, Box::new(stream));
        Ok((outcome, Some(Effect::Created { object, length })))
    }

    fn append(&mut self, path: &str, at: Millis, append: &Append) -> Result<(Outcome, Option<Effect>), Refusal> {
        let object = *self.paths.get(path).ok_or(Refusal::StreamNotFound)?;
        let stream = self.streams.get_mut(&object).ok_or(Refusal::StreamNotFound)?;
        let start = stream.next;
        let (outcome, changed) = append::append(stream, &self.options, at, append)?;
        let effect = Effect::Append { object, start, length: stream.next.since(start), closed: stream.closed };
        Ok((outcome, changed.then_some(effect)))
    }

    fn delete(&mut self, path: &str, asked: Option<Incarnation>) -> Result<(Outcome, Option<Effect>), Refusal> {
        let (object, stream) = self.find(path).ok_or(Refusal::StreamNotFound)?;
        append::check_token(stream, asked)?;
        self.paths.remove(path);
        if let Some(stream) = self.streams.remove(&object) {
            self.forget_content_type(stream.content_type);
        }
        Ok((Outcome::Deleted, Some(Effect::Removed { object })))
    }

    /// What `HEAD` tells of the stream as it is at a time; no stream here ends by itself, so that every time is alike.
    /// # Errors
    /// `StreamNotFound`.
    pub fn head(&self, path: &str, _at: Millis) -> Result<Head, Refusal> {
        let (_, stream) = self.find(path).ok_or(Refusal::StreamNotFound)?;
        Ok(Head {
            incarnation: stream.incarnation,
            next: stream.next,
            retained: stream.retained,
            closed: stream.closed,
            content_type: stream.content_type.as_ref().to_owned(),
            previous: stream.previous.as_deref().copied(),
        })
    }

    /// What a read may take. The start of a stream is its first byte, so that a read from the start never passes over
    /// bytes that are gone.
    /// # Errors
    /// `StreamNotFound`, then `Gone` or `OffsetOutOfRange`, and only then `IncarnationMismatch`.
    pub fn check_read(
        &self,
        path: &str,
        incarnation: Option<Incarnation>,
        from: ReadFrom,
    ) -> Result<ReadScope, Refusal> {
        let (object, stream) = self.find(path).ok_or(Refusal::StreamNotFound)?;
        let start = match from {
            ReadFrom::Start => Offset(0),
            ReadFrom::Now => stream.next,
            ReadFrom::At(offset) => offset,
        };
        if start < stream.retained {
            return Err(Refusal::Gone { retained: stream.retained, incarnation: stream.incarnation });
        }
        if start > stream.next {
            return Err(Refusal::OffsetOutOfRange { next: stream.next, incarnation: stream.incarnation });
        }
        append::check_token(stream, incarnation)?;
        Ok(ReadScope {
            incarnation: stream.incarnation,
            object,
            start,
            next: stream.next,
            closed: stream.closed,
            content_type: stream.content_type.as_ref().to_owned(),
        })
    }

    /// The answer to a tokened keyed write that its head alone proves: a repeat, or a key that holds other bytes.
    ///
    /// It is an answer about a write that applied, so that it holds however long ago that was.
    #[must_use]
    pub fn early(&self, path: &str, incarnation: Incarnation, key: &ProducerKey) -> Option<Result<Outcome, Refusal>> {
        let (_, stream) = self.find(path).filter(|(_, stream)| stream.incarnation == incarnation)?;
        let record = stream.producers.get(&key.id);
        producer::early(producer::judge(record, key, append::circumstances(stream, true, stream.floor)))
    }

    /// The state of the streams that changed since the last call, with their keys; absent for one that is gone.
    pub fn take_changed(&mut self) -> Vec<(u64, Option<Bytes>)> {
        let changed = std::mem::take(&mut self.changed);
        let encoded = |object: &u64| self.streams.get(object).map(|stream| Bytes::from(state::encode(stream)));
        changed.iter().map(|object| (*object, encoded(object))).collect()
    }

    /// A digest of everything the machine knows; equal on nodes that applied the same commands.
    #[must_use]
    pub fn fingerprint(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        for (object, stream) in &self.streams {
            let record = state::encode(stream);
            hasher.update(&object.to_le_bytes()).update(&(record.len() as u64).to_le_bytes()).update(&record);
        }
        Digest(*hasher.finalize().as_bytes())
    }

    fn find(&self, path: &str) -> Option<(u64, &Stream)> {
        let object = *self.paths.get(path)?;
        self.streams.get(&object).map(|stream| (object, stream.as_ref()))
    }

    /// The first token from `drawn` on under which no stream lies. Two equal draws are rare, and would join the bytes
    /// of two streams.
    fn unused_token(&self, drawn: Incarnation) -> Incarnation {
        let used = |token: &Incarnation| self.streams.contains_key(&token.get());
        let mut token = drawn;
        while used(&token) {
            token = following(token);
        }
        token
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
}

/// The next token, from the last one on to the smallest that is ever issued.
fn following(token: Incarnation) -> Incarnation {
    Incarnation::new(token.get() + 1).or_else(|| Incarnation::new(1 << 52)).unwrap_or(token)
}

impl Effect {
    /// The object that it concerns.
    #[must_use]
    pub fn object(&self) -> u64 {
        match self {
            Self::Created { object, .. } | Self::Append { object, .. } | Self::Removed { object } => *object,
        }
    }
}

fn created(stream: &Stream) -> Created {
    Created {
        incarnation: stream.incarnation,
        next: stream.next,
        closed: stream.closed,
        content_type: stream.content_type.as_ref().to_owned(),
    }
}

#[cfg(test)]
mod tests;

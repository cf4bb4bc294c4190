//! What of a machine is in memory, what must be for a command or a question, and what leaves.
//!
//! Streams, parts and names come and go one by one, each under its key. Nothing here changes what is answered: a command
//! is applied only once nothing is missing for it, and what leaves was stored as it is.

use super::{Machine, following};
use crate::command::{Command, Create, Operation, PublishSnapshot, SnapshotSource};
use crate::outcome::SnapshotPart;
use crate::record::{self, Record};
use crate::state::Stream;
use bytes::Bytes;
use highwater_base::Incarnation;
use highwater_base::codec::DecodeError;

/// Bytes that a name or a part in memory takes: two numbers, at the usual filling of a tree.
const PAIR_BYTES: u64 = 24;

/// What eviction goes by.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Residence {
    /// Bytes of the streams in memory, about.
    stream_bytes: u64,
    /// Whether something may be stored and not in memory.
    partial: bool,
    /// The key at which the next sweep goes on.
    hand: u64,
}

/// What is in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resident {
    /// Streams.
    pub streams: u64,
    /// Records: these, their parts and their names.
    pub records: u64,
    /// Bytes that these, their parts and their names take, about.
    pub bytes: u64,
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Records that it looked at.
    pub looked_at: u64,
    /// Records that left memory.
    pub records: u64,
    /// Streams among them.
    pub streams: u64,
}

impl Machine {
    /// Whether everything is in memory: then nothing is ever missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.residence.partial
    }

    /// Records that are not yet stored as they are.
    #[must_use]
    pub fn changed_records(&self) -> u64 {
        self.changed.len() as u64
    }

    /// Notes that something is stored and not in memory.
    pub(super) fn note_partial(&mut self) {
        self.residence.partial = true;
    }

    /// What is in memory.
    #[must_use]
    pub fn resident(&self) -> Resident {
        let (streams, pairs) = (self.streams.len() as u64, (self.names.len() + self.parts.len()) as u64);
        Resident { streams, records: streams + pairs, bytes: self.residence.stream_bytes + PAIR_BYTES * pairs }
    }

    /// Keys of what is `stored` and must be admitted before the command is applied; none if it may be. What was admitted may
    /// lead to more, so that this is asked again.
    ///
    /// `stored` may be wrong about what is not there, until a look at the disk has told.
    #[must_use]
    pub fn missing(&self, command: &Command, stored: &dyn Fn(u64) -> bool) -> Vec<u64> {
        match &command.operation {
            Operation::History { .. } | Operation::Lead => return Vec::new(),
            // Of a drawn number the store must be certain even if everything is in memory.
            Operation::Create(_) | Operation::StagePart { .. } | Operation::PublishSnapshot(_) => {}
            _ if self.is_whole() => return Vec::new(),
            _ => {}
        }
        let mut missing = self.missing_at(&command.path, stored);
        if missing.is_empty() {
            self.missing_beside(command, stored, &mut missing);
        }
        missing
    }

    /// The same for a question about the stream at a path.
    #[must_use]
    pub fn missing_at(&self, path: &str, stored: &dyn Fn(u64) -> bool) -> Vec<u64> {
        if self.is_whole() {
            return Vec::new();
        }
        let name = record::name_key(path);
        let mut named = self.named(name).peekable();
        if named.peek().is_none() && self.lacks(name, stored) {
            return vec![name];
        }
        // All of them: which one has the path only they can tell.
        named.filter(|object| !self.streams.contains_key(object) && stored(*object)).collect()
    }

    /// Whether an object must be admitted before its bytes are asked for.
    #[must_use]
    pub fn misses_object(&self, object: u64, stored: &dyn Fn(u64) -> bool) -> bool {
        self.lacks(object, stored)
    }

    /// What a command needs beside its stream: the parts that it may free, and whatever has the number that it draws.
    fn missing_beside(&self, command: &Command, stored: &dyn Fn(u64) -> bool, missing: &mut Vec<u64>) {
        let object = self.object_at(&command.path);
        let stream = object.and_then(|object| self.streams.get(&object));
        let over = stream.is_some_and(|stream| stream.ended(command.at, self.group.lead));
        let mut lacks = |part: SnapshotPart| {
            if self.lacks(part.object, stored) {
                missing.push(part.object);
            }
        };
        match &command.operation {
            Operation::Delete { .. } | Operation::Expire { .. } | Operation::DiscardParts { .. } => {
                stream.into_iter().flat_map(|stream| stream.parts()).for_each(&mut lacks);
            }
            Operation::Create(_) if over => {
                stream.into_iter().flat_map(|stream| stream.parts()).for_each(&mut lacks);
            }
            Operation::PublishSnapshot(_) => {
                let former = stream.and_then(|stream| stream.snapshot());
                former.into_iter().flat_map(|former| former.parts.iter().copied()).for_each(&mut lacks);
            }
            _ => {}
        }
        let drawn = match &command.operation {
            Operation::Create(Create { new_incarnation, .. }) if stream.is_none() || over => Some(*new_incarnation),
            Operation::StagePart { part, .. }
            | Operation::PublishSnapshot(PublishSnapshot { source: SnapshotSource::Body { part, .. }, .. }) => {
                Some(*part)
            }
            _ => None,
        };
        missing.extend(drawn.and_then(|drawn| self.missing_drawn(drawn, stored)));
    }

    /// The first number from `drawn` on of which only the store can tell whether it is in use.
    fn missing_drawn(&self, drawn: Incarnation, stored: &dyn Fn(u64) -> bool) -> Option<u64> {
        let mut token = drawn;
        while self.uses(token.get()) {
            token = following(token);
        }
        self.lacks(token.get(), stored).then(|| token.get())
    }

    /// Whether something is stored under a key of which nothing is known here.
    pub(super) fn lacks(&self, key: u64, stored: &dyn Fn(u64) -> bool) -> bool {
        let known = self.uses(key) || self.changed.contains(&key) || self.named(key).next().is_some();
        !known && stored(key)
    }

    /// Takes a record that was stored and is still the newest of its key; one that is in memory stays as it is.
    /// # Errors
    /// What the codec says; `Invalid` for a stream of a later history than the group's.
    pub fn admit(&mut self, key: u64, record: Bytes) -> Result<(), DecodeError> {
        if self.changed.contains(&key) || self.uses(key) {
            return Ok(());
        }
        match Record::decode(key, record)? {
            Record::Name(objects) => self.names.extend(objects.into_iter().map(|object| (key, object))),
            Record::Part(stream) => drop(self.parts.insert(key, stream)),
            Record::Stream(stream) if stream.history > self.group.events => {
                return Err(DecodeError::Invalid("history"));
            }
            Record::Stream(stream) => self.put(key, stream),
        }
        Ok(())
    }

    /// Puts a stream into memory.
    pub(super) fn put(&mut self, object: u64, mut stream: Box<Stream>) {
        stream.content_type = self.shared_content_type(&stream.content_type);
        stream.residence.note_use();
        stream.residence.set_bytes(stream.memory_bytes());
        self.residence.stream_bytes += u64::from(stream.residence.bytes());
        self.streams.insert(object, stream);
    }

    /// Takes a stream out of memory, and leaves its content type to the caller.
    pub(super) fn take_out(&mut self, object: u64) -> Option<Box<Stream>> {
        let stream = self.streams.remove(&object)?;
        self.residence.stream_bytes -= u64::from(stream.residence.bytes());
        Some(stream)
    }

    /// Notes that a stream in memory is no longer as it was stored, and what it takes now.
    pub(super) fn note_change(&mut self, object: u64) {
        self.changed.insert(object);
        if let Some(stream) = self.streams.get(&object) {
            let (before, after) = (stream.residence.bytes(), stream.memory_bytes());
            stream.residence.set_bytes(after);
            self.residence.stream_bytes =
                self.residence.stream_bytes - u64::from(before) + u64::from(stream.residence.bytes());
        }
    }

    /// Lets records leave memory until what is left takes at most `bytes_max`, or `looks_max` of them were looked at. `let_go` is
    /// asked for each, and says whether the store has it as it is, and will give it back.
    ///
    /// In the order of the keys, round and round, each stream that was used since the last round stays for one more
    /// (second chance). A name stays as long as a stream of its.
    pub fn evict(&mut self, bytes_max: u64, looks_max: u64, let_go: &mut dyn FnMut(u64) -> bool) -> Swept {
        let mut swept = Swept::default();
        while self.resident().bytes > bytes_max && swept.looked_at < looks_max {
            swept.looked_at += 1;
            let Some(key) = self.next_resident() else {
                self.residence.hand = 0;
                continue;
            };
            self.residence.hand = key.saturating_add(1);
            if self.stays(key) || !let_go(key) {
                continue;
            }
            self.note_partial();
            swept.records += 1;
            if record::is_name(key) {
                let objects: Vec<u64> = self.named(key).collect();
                for object in objects {
                    self.names.remove(&(key, object));
                }
            } else if let Some(stream) = self.take_out(key) {
                self.forget_content_type(stream.content_type);
                swept.streams += 1;
            } else {
                self.parts.remove(&key);
            }
        }
        swept
    }

    /// The first key from the hand on of what is in memory.
    fn next_resident(&self) -> Option<u64> {
        let hand = self.residence.hand;
        let stream = self.streams.range(hand..).next().map(|(key, _)| *key);
        let part = self.parts.range(hand..).next().map(|(key, _)| *key);
        let object = stream.into_iter().chain(part).min();
        object.or_else(|| self.names.range((hand, 0)..).next().map(|(key, _)| *key))
    }

    fn stays(&self, key: u64) -> bool {
        if self.changed.contains(&key) {
            return true;
        }
        if record::is_name(key) {
            return self.named(key).any(|object| self.streams.contains_key(&object));
        }
        self.streams.get(&key).is_some_and(|stream| stream.residence.take_used())
    }
}

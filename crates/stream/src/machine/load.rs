//! A machine from what was stored, record by record, so that not all of it must be in memory at once.

use super::{Machine, Options};
use crate::history::Group;
use crate::record::{Record, name_key};
use bytes::Bytes;
use highwater_base::codec::DecodeError;

/// A machine whose records are being read. What must agree between records that are not in memory together is compared as
/// sums.
#[derive(Debug)]
pub struct Loading {
    machine: Machine,
    key_last: Option<u64>,
    /// The latest history that a stream is in.
    history: u64,
    /// Streams under their names' keys: as the streams say, and as the names say.
    named: Sum,
    names: Sum,
    /// Parts and their streams: as the streams say, and as the parts say.
    owned: Sum,
    parts: Sum,
}

/// A sum over pairs that depends on no order: equal for equal sets, and hardly ever for others.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    mixed: u64,
}

impl Sum {
    fn add(&mut self, first: u64, second: u64) {
        self.count += 1;
        let mut mixed = first.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ second.rotate_left(32);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.mixed = self.mixed.wrapping_add(mixed ^ (mixed >> 31));
    }
}

impl Loading {
    /// No record yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let machine = Machine::new(options);
        let (named, names, owned, parts) = Default::default();
        Self { machine, key_last: None, history: 0, named, names, owned, parts }
    }

    /// Bytes of memory that the machine takes so far, about.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.machine.resident().bytes
    }

    /// Whether a stream is in memory.
    #[must_use]
    pub fn holds(&self, object: u64) -> bool {
        self.machine.streams.contains_key(&object)
    }

    /// Takes the next record, in rising order of the keys; `keep` says whether it stays in memory.
    /// # Errors
    /// What the codec says of it; `Invalid` if two have one key.
    pub fn take(&mut self, key: u64, record: Bytes, keep: bool) -> Result<(), DecodeError> {
        if self.key_last.is_some_and(|last| last >= key) {
            return Err(DecodeError::Invalid("object"));
        }
        self.key_last = Some(key);
        if !keep {
            self.machine.note_partial();
        }
        let machine = &mut self.machine;
        match Record::decode(key, record)? {
            Record::Stream(stream) => {
                self.history = self.history.max(stream.history);
                self.named.add(name_key(&stream.path), key);
                stream.parts().for_each(|part| self.owned.add(part.object, key));
                machine.count(key, &stream);
                if keep {
                    machine.put(key, stream);
                }
            }
            Record::Part(stream) => {
                self.parts.add(key, stream);
                if keep {
                    machine.parts.insert(key, stream);
                }
            }
            Record::Name(objects) => {
                objects.iter().for_each(|object| self.names.add(key, *object));
                if keep {
                    machine.names.extend(objects.into_iter().map(|object| (key, object)));
                }
            }
        }
        Ok(())
    }

    /// The machine, whose group was stored as `meta`.
    /// # Errors
    /// What the codec says of it; `Invalid` if names and streams, or parts and streams, do not agree, if two streams have one
    /// path, or if a stream is in a later history than the group.
    pub fn finish(self, meta: Bytes) -> Result<Machine, DecodeError> {
        let mut machine = self.machine;
        machine.group = Group::decode(meta)?;
        if self.history > machine.group.events {
            return Err(DecodeError::Invalid("history"));
        }
        if self.named != self.names {
            return Err(DecodeError::Invalid("name"));
        }
        if self.owned != self.parts {
            return Err(DecodeError::Invalid("part"));
        }
        // Of one name there are hardly ever two streams: those that are in memory are compared.
        let pairs = machine.names.iter().zip(machine.names.iter().skip(1));
        let path = |object: &u64| machine.streams.get(object).map(|stream| &stream.path);
        let twice = |((one, first), (other, second)): (&(u64, u64), &(u64, u64))| {
            one == other && path(first).is_some_and(|path_first| path(second) == Some(path_first))
        };
        if pairs.into_iter().any(|(first, second)| twice((first, second))) {
            return Err(DecodeError::Invalid("path"));
        }
        Ok(machine)
    }
}

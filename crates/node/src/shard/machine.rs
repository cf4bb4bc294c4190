//! What a group decides about: streams, or keys and accounts. Everything else of a group is the same for both.

use bytes::Bytes;
use highwater_base::OwnerId;
use highwater_base::codec::DecodeError;
use highwater_consensus::{Entry, EntryKind};
use highwater_store::Store;
use highwater_wal::Location;
use std::sync::Arc;

/// A group's machine.
pub(super) enum GroupMachine {
    /// Of one of the groups to which streams hash.
    Streams(Box<highwater_stream::Machine>),
    /// Of the control group.
    Control(highwater_control::Machine),
}

/// What an applied command did.
pub(super) enum Done {
    /// To the stream at a path.
    Stream(String, highwater_stream::Applied),
    /// To a key, an account or a plan.
    Control(highwater_control::Applied),
}

impl GroupMachine {
    /// The machine of an owner, from what its checkpoint stored.
    /// # Errors
    /// What the codec says of the first bad record.
    pub fn load(owner: OwnerId, meta: Bytes, objects: Vec<(u64, Bytes)>) -> Result<Self, DecodeError> {
        if owner == OwnerId::CONTROL {
            let machine = highwater_control::Machine::load(objects).map(Self::Control);
            return if meta.is_empty() { machine } else { Err(DecodeError::Trailing(meta.len())) };
        }
        let machine = highwater_stream::Machine::load(highwater_stream::Options::default(), meta, objects)?;
        Ok(Self::Streams(Box::new(machine)))
    }

    /// What belongs to the group beside its objects, for a checkpoint.
    pub fn meta(&self) -> Bytes {
        match self {
            Self::Streams(machine) => machine.meta(),
            Self::Control(_) => Bytes::new(),
        }
    }

    /// The streams; the control group has none.
    pub fn streams(&self) -> Option<&highwater_stream::Machine> {
        match self {
            Self::Streams(machine) => Some(machine),
            Self::Control(_) => None,
        }
    }

    /// The streams, to be looked at with a clock.
    pub fn streams_mut(&mut self) -> Option<&mut highwater_stream::Machine> {
        match self {
            Self::Streams(machine) => Some(machine),
            Self::Control(_) => None,
        }
    }

    /// What the control group publishes.
    pub fn view(&self) -> Option<Arc<highwater_control::View>> {
        match self {
            Self::Streams(_) => None,
            Self::Control(machine) => Some(machine.view()),
        }
    }

    /// The state of the objects that changed since the last call, for a checkpoint.
    pub fn take_changed(&mut self) -> Vec<(u64, Option<Bytes>)> {
        match self {
            Self::Streams(machine) => machine.take_changed(),
            Self::Control(machine) => machine.take_changed(),
        }
    }

    /// Applies one entry, and gives its bytes, which lie in the log at `location`, to the store. `None` for an entry
    /// that is no command.
    /// # Errors
    /// What cannot be applied, in words: the group must stop, because every other replica would apply it.
    pub fn apply(&mut self, entry: Entry, location: Location, store: &mut Store) -> Result<Option<Done>, String> {
        let index = entry.index;
        match entry.kind {
            EntryKind::Noop => return Ok(None),
            EntryKind::Membership => {
                return Err(format!("entry {index} changes the membership, which needs a later program"));
            }
            EntryKind::Command => {}
        }
        let unreadable = |error| format!("entry {index} is no command: {error}");
        match self {
            Self::Streams(machine) => {
                let command = highwater_stream::Command::decode(entry.data()).map_err(unreadable)?;
                let applied = machine.apply(&command);
                keep(&command, &applied, location, store);
                Ok(Some(Done::Stream(command.path, applied)))
            }
            Self::Control(machine) => {
                let command = highwater_control::Command::decode(entry.data()).map_err(unreadable)?;
                Ok(Some(Done::Control(machine.apply(&command))))
            }
        }
    }
}

/// Tells the store what a command did to a stream's bytes.
fn keep(
    command: &highwater_stream::Command,
    applied: &highwater_stream::Applied,
    location: Location,
    store: &mut Store,
) {
    use highwater_stream::Effect;
    let within = command.body_range(location.length);
    for effect in &applied.effects {
        let within = within.clone();
        match *effect {
            Effect::Created { object, length } | Effect::Part { object, length } if length > 0 => {
                store.append(object, 0, location, within);
            }
            Effect::Append { object, start, length, .. } if length > 0 => {
                store.append(object, start.0, location, within);
            }
            // The store tells objects that it has not met from those that are on disk alone.
            Effect::Created { object, .. } | Effect::Part { object, .. } => store.create(object),
            Effect::Removed { object } | Effect::PartRemoved { object } => store.remove(object),
            Effect::Retained { object, offset } => store.release_front(object, offset.0),
            Effect::Append { .. }
            | Effect::Published { .. }
            | Effect::Touched { .. }
            | Effect::HistoryBegun
            | Effect::Led => {}
        }
    }
}

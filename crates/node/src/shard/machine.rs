//! What a group decides about: streams, or keys and accounts. Everything else of a group is the same for both.

use bytes::Bytes;
use highwater_base::OwnerId;
use highwater_base::codec::DecodeError;
use highwater_consensus::{Entry, EntryKind};
use highwater_store::{Keep, Residence, Store, Visited};
use highwater_stream::Loading;
use highwater_wal::Location;
use std::sync::Arc;

/// A group's machine.
pub(super) enum GroupMachine {
    /// Of one of the groups to which streams hash.
    Streams(Box<highwater_stream::Machine>),
    /// Of the control group.
    Control(highwater_control::Machine),
}

/// A command of a group's kind.
pub(super) enum GroupCommand {
    /// To a stream.
    Stream(highwater_stream::Command),
    /// To a key, an account or a plan.
    Control(highwater_control::Command),
}

/// What an applied command did.
pub(super) enum Done {
    /// To the stream at a path.
    Stream(String, highwater_stream::Applied),
    /// To a key, an account or a plan.
    Control(highwater_control::Applied),
}

impl GroupMachine {
    /// The machine of an owner and its store, from what its checkpoint stored. Of streams about as many stay in memory as
    /// take two thirds of `hot_bytes_max`; the others are looked up when they are asked for.
    /// # Errors
    /// What does not read, in words.
    pub fn open(
        owner: OwnerId,
        meta: Bytes,
        opening: highwater_store::Opening,
        hot_bytes_max: u64,
    ) -> Result<(Self, Store), String> {
        let unreadable = |error: DecodeError| format!("its checkpoint holds a record that does not read: {error}");
        let unopened = |error: highwater_store::OpenError| format!("its store does not open: {error}");
        if owner == OwnerId::CONTROL {
            let mut objects = Vec::new();
            let mut visit = |visited: Visited| {
                objects.push((visited.key, visited.state));
                Ok(Keep::Resident)
            };
            let store = opening.load(&mut visit).map_err(unopened)?;
            let machine = highwater_control::Machine::load(objects).map_err(unreadable)?;
            let whole = if meta.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(meta.len())) };
            return whole.map(|()| (Self::Control(machine), store)).map_err(unreadable);
        }
        let mut loading = Loading::new(highwater_stream::Options::default());
        let mut visit = |visited: Visited| {
            let Visited { key, state, evictable } = visited;
            // A name stays with its streams, and comes behind them.
            let named = highwater_stream::links(key, &state);
            let room = if named.is_empty() {
                loading.resident_bytes() < hot_bytes_max / 3 * 2
            } else {
                named.iter().any(|object| loading.holds(*object))
            };
            let keep = room || !evictable;
            loading.take(key, state, keep).map_err(|error| format!("a record that does not read: {error}"))?;
            Ok(if keep { Keep::Resident } else { Keep::Stored })
        };
        let store = opening.load(&mut visit).map_err(unopened)?;
        let machine = loading.finish(meta).map_err(unreadable)?;
        Ok((Self::Streams(Box::new(machine)), store))
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

    /// The command of an entry; `None` for one that has none.
    /// # Errors
    /// What cannot be applied, in words: the group must stop, because every other replica would apply it.
    pub fn command(&self, entry: &Entry) -> Result<Option<GroupCommand>, String> {
        let index = entry.index;
        match entry.kind {
            EntryKind::Noop => return Ok(None),
            EntryKind::Membership => {
                return Err(format!("entry {index} changes the membership, which needs a later program"));
            }
            EntryKind::Command => {}
        }
        let unreadable = |error| format!("entry {index} is no command: {error}");
        let command = match self {
            Self::Streams(_) => highwater_stream::Command::decode(entry.data()).map(GroupCommand::Stream),
            Self::Control(_) => highwater_control::Command::decode(entry.data()).map(GroupCommand::Control),
        };
        command.map(Some).map_err(unreadable)
    }

    /// Keys of what must be in memory before a command is applied.
    pub fn missing(&self, command: &GroupCommand, store: &Store) -> Vec<u64> {
        match (self, command) {
            (Self::Streams(machine), GroupCommand::Stream(command)) => {
                machine.missing(command, &|key| store.residence(key) == Residence::Stored)
            }
            _ => Vec::new(),
        }
    }

    /// Applies a command for which nothing is missing, and gives its bytes, which lie in the log at `location`, to the store.
    /// `None` for one of another kind of group, which [`Self::command`] never gives.
    pub fn apply(&mut self, command: GroupCommand, location: Location, store: &mut Store) -> Option<Done> {
        match (self, command) {
            (Self::Streams(machine), GroupCommand::Stream(command)) => {
                let applied = machine.apply(&command);
                keep(&command, &applied, location, store);
                Some(Done::Stream(command.path, applied))
            }
            (Self::Control(machine), GroupCommand::Control(command)) => Some(Done::Control(machine.apply(&command))),
            _ => None,
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

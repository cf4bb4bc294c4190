//! Entries that are committed and stored, applied in order.

use super::group::GroupCore;
use super::input::{Answer, Output};
use crate::api::{Durability, WriteAnswer};
use highwater_consensus::{Entry, EntryKind};
use highwater_stream::{Applied, Command, Effect};
use highwater_wal::Location;

impl<T> GroupCore<T> {
    /// Applies entries and answers whoever proposed them. The paths that changed are added to `changed`; bytes that
    /// are applied are taken off `uncommitted`.
    pub fn apply(
        &mut self,
        entries: Vec<Entry>,
        uncommitted: &mut u64,
        changed: &mut Vec<String>,
        out: &mut Vec<Output<T>>,
    ) -> Result<(), String> {
        let Some(last) = entries.last().map(|e| e.index) else { return Ok(()) };
        for entry in entries {
            let location = self.take_location(entry.index)?;
            let index = entry.index;
            // Whoever proposed one that cannot be applied is told with the others who wait.
            let done = apply_entry(entry, location, &mut self.machine, &mut self.store)?;
            let waiting = self.proposals.remove(&index);
            if let Some(waiting) = &waiting {
                *uncommitted = uncommitted.saturating_sub(waiting.bytes);
            }
            let Some((path, applied)) = done else { continue };
            self.count(applied.effect);
            if applied.effect.is_some() {
                changed.push(path);
            }
            if let Some(token) = waiting.and_then(|waiting| waiting.token) {
                let of = u32::try_from(self.raft.voters().len()).unwrap_or(u32::MAX);
                let durability = Durability { synced: self.raft.voters_persisted(index), of };
                let answer = WriteAnswer { result: applied.result, durability };
                out.push(Output::Answer(token, Answer::Write(Ok(answer))));
            }
        }
        self.raft.applied(last);
        Ok(())
    }

    fn take_location(&mut self, index: u64) -> Result<Location, String> {
        match self.located.pop_front() {
            Some((found, location)) if found == index => Ok(location),
            found => Err(format!("entry {index} is committed and its place in the log is not known ({found:?})")),
        }
    }

    pub fn count(&mut self, effect: Option<Effect>) {
        match effect {
            Some(Effect::Created { .. }) => self.streams += 1,
            Some(Effect::Removed { .. }) => self.streams = self.streams.saturating_sub(1),
            Some(Effect::Append { .. }) | None => {}
        }
    }
}

/// Applies one entry to the machine, and its bytes, which lie in the log at `location`, to the store. `None` for an
/// entry that is no command.
/// # Errors
/// What cannot be applied, in words: the group must stop, because every other replica would apply it.
pub(super) fn apply_entry(
    entry: Entry,
    location: Location,
    machine: &mut highwater_stream::Machine,
    store: &mut highwater_store::Store,
) -> Result<Option<(String, Applied)>, String> {
    let index = entry.index;
    match entry.kind {
        EntryKind::Noop => return Ok(None),
        EntryKind::Membership => {
            return Err(format!("entry {index} changes the membership, which needs a later program"));
        }
        EntryKind::Command => {}
    }
    let command = Command::decode(entry.data()).map_err(|error| format!("entry {index} is no command: {error}"))?;
    let within = command.body_range(location.length);
    let applied = machine.apply(&command);
    match applied.effect {
        Some(Effect::Created { object, length }) if length > 0 => store.append(object, 0, location, within),
        Some(Effect::Append { object, start, length, .. }) if length > 0 => {
            store.append(object, start.0, location, within);
        }
        Some(Effect::Removed { object }) => store.remove(object),
        Some(Effect::Created { .. } | Effect::Append { .. }) | None => {}
    }
    Ok(Some((command.path, applied)))
}

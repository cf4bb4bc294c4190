//! Entries that are committed and stored, applied in order.

use super::Changed;
use super::group::GroupCore;
use super::input::{Answer, Output};
use super::machine::Done;
use crate::api::{ControlAnswer, Durability, WriteAnswer};
use highwater_consensus::Entry;
use highwater_stream::Effect;
use highwater_wal::Location;

impl<T> GroupCore<T> {
    /// Applies entries and answers whoever proposed them, up to the first for which something is missing in memory: that is
    /// wanted, and the rest waits with it. The paths that changed are added to `changed`; bytes that are applied are taken
    /// off `uncommitted`.
    pub fn apply(
        &mut self,
        entries: Vec<Entry>,
        uncommitted: &mut u64,
        changed: &mut Changed,
        out: &mut Vec<Output<T>>,
    ) -> Result<(), String> {
        self.hot.entries.extend(entries);
        let mut last = None;
        while let Some(entry) = self.hot.entries.front() {
            // Whoever proposed one that cannot be applied is told with the others who wait.
            let command = self.machine.command(entry)?;
            let missing = command.as_ref().map_or_else(Vec::new, |command| self.machine.missing(command, &self.store));
            if !missing.is_empty() {
                self.hot.want(missing);
                break;
            }
            let index = entry.index;
            let location = self.take_location(index)?;
            self.hot.note_applied();
            let done = command.and_then(|command| self.machine.apply(command, location, &mut self.store));
            last = Some(index);
            let waiting = self.proposals.remove(&index);
            if let Some(waiting) = &waiting {
                *uncommitted = uncommitted.saturating_sub(waiting.bytes);
            }
            let Some(done) = done else { continue };
            let of = u32::try_from(self.raft.voters().len()).unwrap_or(u32::MAX);
            let durability = Durability { synced: self.raft.voters_persisted(index), of };
            let answer = match done {
                Done::Stream(path, applied) => {
                    self.note_applied(&path, &applied);
                    changed.history |= applied.effects.contains(&Effect::HistoryBegun);
                    if applied.effects.iter().any(Effect::wakes) {
                        changed.paths.push(path);
                    }
                    Answer::Write(Ok(WriteAnswer { result: applied.result, durability }))
                }
                Done::Control(applied) => {
                    self.unpublished |= applied.changed;
                    Answer::Control(Ok(ControlAnswer { result: applied.result, durability }))
                }
            };
            out.extend(waiting.and_then(|waiting| waiting.token).map(|token| Output::Answer(token, answer)));
        }
        if let Some(last) = last {
            self.raft.applied(last);
        }
        Ok(())
    }

    fn take_location(&mut self, index: u64) -> Result<Location, String> {
        match self.located.pop_front() {
            Some((found, location)) if found == index => Ok(location),
            found => Err(format!("entry {index} is committed and its place in the log is not known ({found:?})")),
        }
    }
}

//! Streams that end by themselves, and parts that nobody used.
//!
//! Nothing here moves the state but commands: an index says whom to look at, and a leader proposes what follows.

use super::{Done, Machine};
use crate::effect::Effect;
use crate::outcome::{Outcome, Refusal};
use crate::state::{Lifetime, Stream};
use highwater_base::{Incarnation, Millis};

/// Milliseconds after which a stream is named again that is still due: its command may have been lost.
const AGAIN_MS: u64 = 1_000;

/// A stream that an expire command would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Its path.
    pub path: String,
    /// Its token.
    pub incarnation: Incarnation,
}

impl Machine {
    /// Streams that are over at a time or whose staged parts are too old, at most `count_max`; each is named again only
    /// after a second. Those of them that are `stored` and not in memory are added to `missing` instead: they are looked
    /// at by a later call, once they were admitted.
    pub fn take_due(
        &mut self,
        at: Millis,
        count_max: usize,
        stored: &dyn Fn(u64) -> bool,
        missing: &mut Vec<u64>,
    ) -> Vec<Due> {
        let (mut due, mut unseen) = (Vec::new(), Vec::new());
        while due.len() + unseen.len() < count_max {
            let Some(&(time, object)) = self.due.first().filter(|(time, _)| *time <= at) else { break };
            self.due.remove(&(time, object));
            let Some(stream) = self.streams.get(&object) else {
                if self.lacks(object, stored) {
                    unseen.push((time, object));
                }
                continue;
            };
            // It may have been touched since, and its parts may be in a snapshot.
            let Some(next) = self.due_at(stream) else { continue };
            if next > at {
                self.due.insert((next, object));
                continue;
            }
            self.due.insert((at.plus(AGAIN_MS), object));
            let incarnation = stream.identity(&self.group).incarnation;
            due.push(Due { path: stream.path.as_ref().to_owned(), incarnation });
        }
        missing.extend(unseen.iter().map(|(_, object)| *object));
        self.due.extend(unseen);
        due
    }

    /// The token of a stream that a touch at a time would let live longer, by so much that it is worth a command.
    #[must_use]
    pub fn touch_due(&self, path: &str, at: Millis) -> Option<Incarnation> {
        let (_, stream) = self.find(path, at)?;
        let Some(Lifetime::Sliding { ttl_s, .. }) = stream.lifetime() else { return None };
        let deadline = stream.lifetime()?.deadline(self.group.lead);
        // The slack of the deadline that it has is used up.
        let worth = at.plus(ttl_s.saturating_mul(1_000)) >= deadline;
        worth.then(|| stream.identity(&self.group).incarnation)
    }

    /// Whether the stream's expiry slides: who waits for it keeps it alive.
    #[must_use]
    pub fn slides(&self, path: &str) -> bool {
        let stream = self.object_at(path).and_then(|object| self.streams.get(&object));
        stream.is_some_and(|stream| stream.slides())
    }

    pub(super) fn touch(&mut self, path: &str, at: Millis, asked: Incarnation) -> Result<Done, Refusal> {
        let (object, _) = self.checked(path, at, Some(asked))?;
        let stream = self.streams.get_mut(&object).ok_or(Refusal::StreamNotFound)?;
        if !stream.touch(at) {
            return Ok((Outcome::Touched, Vec::new()));
        }
        self.note_change(object);
        Ok((Outcome::Touched, vec![Effect::Touched { object }]))
    }

    pub(super) fn expire(&mut self, path: &str, at: Millis, asked: Incarnation) -> Result<Done, Refusal> {
        let object = self.object_at(path).ok_or(Refusal::StreamNotFound)?;
        let stream = self.streams.get(&object).ok_or(Refusal::StreamNotFound)?;
        crate::append::check_token(stream, &self.group, Some(asked))?;
        if stream.ended(at, self.group.lead) {
            return Ok((Outcome::Expired { stream: true }, self.remove(object)));
        }
        let staged_ms_max = self.options.staged_ms_max;
        let old = stream.staged().filter(|(_, staged)| at.since(staged.at) >= staged_ms_max).map(|(part, _)| part);
        let effects = self.unstage(object, old.collect());
        Ok((Outcome::Expired { stream: false }, effects))
    }

    /// Sees to it that the stream is looked at in time.
    pub(super) fn watch(&mut self, object: u64, stream: &Stream) {
        if let Some(at) = self.due_at(stream) {
            self.due.insert((at, object));
        }
    }

    fn due_at(&self, stream: &Stream) -> Option<Millis> {
        let ends = stream.lifetime().map(|lifetime| lifetime.deadline(self.group.lead));
        let oldest = stream.staged().map(|(_, staged)| staged.at).min();
        let parts_end = oldest.map(|oldest| oldest.plus(self.options.staged_ms_max));
        ends.into_iter().chain(parts_end).min()
    }
}

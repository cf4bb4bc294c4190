//! What those ask who read a group's files: a scrub, a backup, and the one who moves them.

use super::{Answer, GroupCore, Now, Output, ShardCore, Slot, Token};
use crate::api::{GroupState, Unavailable};
use highwater_base::GroupId;
use highwater_store::{CheckpointError, ColdPlan, IndexSlice, ScrubCursor, ScrubSlice};

/// Bytes of payload in one slice of a scrub.
const SLICE_BYTES: u64 = 8 << 20;

impl<T: Token> ShardCore<T> {
    fn group(&self, id: GroupId) -> Option<&GroupCore<T>> {
        match self.slots.get(id.0 as usize) {
            Some(Slot::Up(group)) => Some(group),
            Some(Slot::Down(_)) | None => None,
        }
    }

    /// What a scrub of a group reads next; `None` if the group's files were not opened.
    #[must_use]
    pub fn scrub_slice(&self, id: GroupId, from: ScrubCursor) -> Option<ScrubSlice> {
        self.group(id).map(|group| group.store.plan_scrub(from, SLICE_BYTES))
    }

    /// The group's index, for a scrub.
    #[must_use]
    pub fn scrub_index(&self, id: GroupId) -> Option<IndexSlice> {
        self.group(id).map(|group| group.store.plan_index_scrub())
    }

    /// Which of the group's files may move to the object store, or come back, for the one who moves them.
    #[must_use]
    pub fn cold_plan(&self, id: GroupId) -> Option<ColdPlan> {
        self.group(id).map(|group| group.store.plan_cold())
    }

    /// The stream whose bytes an object of the group holds, and whether they are its snapshot's.
    #[must_use]
    pub fn stream_of(&self, id: GroupId, object: u64) -> Option<(String, bool)> {
        let holder = self.group(id)?.machine.streams()?.holder_of(object)?;
        Some((holder.path.to_owned(), holder.snapshot))
    }

    pub(super) fn want_pin(&mut self, token: T, id: GroupId, out: &mut Vec<Output<T>>) {
        let refusal = match self.slots.get_mut(id.0 as usize) {
            Some(Slot::Up(group)) => match group.refusal() {
                None => return group.pins.push(token),
                Some(why) => why,
            },
            Some(Slot::Down(GroupState::Starting)) => Unavailable::GroupRestarting,
            Some(Slot::Down(_)) | None => Unavailable::ApplyStopped,
        };
        out.push(Output::Answer(token, Answer::Pin(Err(refusal))));
    }
}

impl<T: Token> ShardCore<T> {
    /// A group for whose checkpoint somebody waits.
    pub(super) fn pin_wanted(&self, now: Now) -> Option<GroupId> {
        let wanted = |group: &&GroupCore<T>| !group.pins.is_empty() && group.checkpoint.may_begin(now.monotonic);
        self.going_on().find(wanted).map(|group| group.id)
    }
}

impl<T> GroupCore<T> {
    /// Hands the checkpoint that just ended to those who wait for it.
    pub fn answer_pins(&mut self, out: &mut Vec<Output<T>>) {
        for token in std::mem::take(&mut self.pins_running) {
            let pin = self.store.pin().ok_or_else(|| Unavailable::Internal("a checkpoint is under way".to_owned()));
            out.push(Output::Answer(token, Answer::Pin(pin)));
        }
    }

    /// Tells them that there is none.
    pub fn refuse_pins(&mut self, error: &CheckpointError, out: &mut Vec<Output<T>>) {
        for token in std::mem::take(&mut self.pins_running) {
            let why = match () {
                () if error.is_full() => Unavailable::WalDiskPressure,
                () if error.is_damage() => Unavailable::StoredBytesDamaged(error.fault.to_string()),
                () => Unavailable::Internal(format!("group {}: {error}", self.id.0)),
            };
            out.push(Output::Answer(token, Answer::Pin(Err(why))));
        }
    }

    /// Everyone who waits for a checkpoint.
    pub fn take_pins(&mut self) -> Vec<T> {
        let mut pins = std::mem::take(&mut self.pins_running);
        pins.append(&mut self.pins);
        pins
    }
}

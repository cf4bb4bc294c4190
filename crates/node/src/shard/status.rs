//! What a shard tells of itself.

use super::{ShardCore, Slot, Token};
use crate::api::GroupStatus;

impl<T: Token> ShardCore<T> {
    /// Bytes that a bucket holds in all groups.
    #[must_use]
    pub fn stored_bytes(&self, bucket: &str) -> u64 {
        let of = |slot: &Slot<T>| match slot {
            Slot::Up(group) => group.machine.streams().map_or(0, |streams| streams.usage(bucket).bytes),
            Slot::Down(_) => 0,
        };
        self.slots.iter().map(of).sum()
    }

    /// Whether nothing is under way that a shutdown should wait for.
    #[must_use]
    pub fn idle(&self) -> bool {
        let waits = |slot: &Slot<T>| matches!(slot, Slot::Up(group) if !group.proposals.is_empty());
        self.in_flight.is_none() && !self.slots.iter().any(waits)
    }

    /// The groups of the streams, for the status page.
    #[must_use]
    pub fn status(&self) -> Vec<GroupStatus> {
        (0..self.groups()).map(|number| self.group_status(number)).collect()
    }

    /// The control group, for the status page.
    #[must_use]
    pub fn control_status(&self) -> GroupStatus {
        self.group_status(self.groups())
    }

    fn group_status(&self, number: u32) -> GroupStatus {
        match &self.slots[number as usize] {
            Slot::Up(group) => group.status(),
            Slot::Down(state) => GroupStatus::down(number, state.clone()),
        }
    }
}

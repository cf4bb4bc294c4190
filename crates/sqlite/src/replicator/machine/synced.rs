//! Who waits in `synced()`, and for what.

use super::types::WaiterId;
use std::collections::BTreeMap;

/// The callers of `synced()`, and the last round trip that proved the stream to be ours.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: BTreeMap<WaiterId, Waiter>,
    /// The number of the newest request whose answer proved that nothing was written after our own commits.
    proven: u64,
}

#[derive(Debug)]
struct Waiter {
    target_lsn: u64,
    /// The number of the last request at the time of the call: only a later one counts.
    round: u64,
}

impl Waiters {
    pub(super) fn add(&mut self, id: WaiterId, target_lsn: u64, round: u64) {
        self.waiting.insert(id, Waiter { target_lsn, round });
    }

    pub(super) fn remove(&mut self, id: WaiterId) {
        self.waiting.remove(&id);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The request of this number proved that nothing was written after us.
    pub(super) fn prove(&mut self, round: u64) {
        self.proven = self.proven.max(round);
    }

    /// Takes out those whose target is acknowledged and whose proof started after their call.
    pub(super) fn proven(&mut self, acknowledged_lsn: u64) -> Vec<WaiterId> {
        let proven = self.proven;
        self.take(|waiter| waiter.target_lsn <= acknowledged_lsn && proven > waiter.round)
    }

    /// Takes out everybody.
    pub(super) fn drain(&mut self) -> Vec<WaiterId> {
        self.take(|_| true)
    }

    fn take(&mut self, over: impl Fn(&Waiter) -> bool) -> Vec<WaiterId> {
        let ids: Vec<_> = self.waiting.iter().filter(|(_, waiter)| over(waiter)).map(|(&id, _)| id).collect();
        for id in &ids {
            self.waiting.remove(id);
        }
        ids
    }
}

//! What the connections are doing, for the metrics and the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counts of connections since the start.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Connections that were accepted.
    pub accepted: AtomicU64,
    /// Connections that are there now.
    pub open: AtomicU64,
    /// Connections that were refused because their address had as many as it may.
    pub refused: AtomicU64,
    /// Connections that ended in the TLS handshake.
    pub handshakes_failed: AtomicU64,
    /// Connections that were cut because their reader took nothing, or too little.
    pub readers_cut: AtomicU64,
    /// New certificates that were taken.
    pub certificates_taken: AtomicU64,
    /// New certificates that were refused.
    pub certificates_refused: AtomicU64,
    /// What of refused connections goes to the log.
    pub refusals_told: Rare,
    /// What of failed handshakes goes to the log.
    pub failures_told: Rare,
    /// What of slow requests does.
    pub slow_told: Rare,
}

impl Traffic {
    /// Counts a connection for as long as the result lives.
    pub(crate) fn enter(self: &std::sync::Arc<Self>) -> Present {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Present(self.clone())
    }
}

/// A connection that is there.
#[derive(Debug)]
pub(crate) struct Present(std::sync::Arc<Traffic>);

impl Drop for Present {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Something that others can provoke as often as they like, and that is told at most once in a while.
#[derive(Debug, Default)]
pub(crate) struct Rare(Mutex<(Option<Instant>, u64)>);

/// Between two lines of one kind. Whoever provokes them fills no disk: at most 8,640 lines a day.
const PAUSE: Duration = Duration::from_secs(10);

impl Rare {
    /// Whether to tell this one, and how many before it were not told.
    pub(crate) fn tell(&self) -> Option<u64> {
        self.tell_at(Instant::now())
    }

    fn tell_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, untold) = &mut *state;
        if last.is_some_and(|last| now < last + PAUSE) {
            *untold += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_provoke_is_told_once_in_a_while_with_a_count() {
        let rare = Rare::default();
        let start = Instant::now();
        assert_eq!(rare.tell_at(start), Some(0));
        for ms in 1..=100 {
            assert_eq!(rare.tell_at(start + Duration::from_millis(ms)), None);
        }
        assert_eq!(rare.tell_at(start + PAUSE), Some(100));
        assert_eq!(rare.tell_at(start + PAUSE * 2), Some(0));
    }
}

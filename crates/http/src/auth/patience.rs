//! Refusals that come ever later to whoever does not stop asking.
//!
//! Nothing is guessed sooner or later: a secret has 256 bits. But a program whose key was revoked may ask in a tight
//! loop, and some clients take every 403 for a reason to try again at once with a higher epoch.
//!
//! Source: rule X20 of the stream contract.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Refusals of one asker that are answered at once.
const FREE: u32 = 3;

/// The first wait; each further refusal doubles it.
const WAIT_MS_MIN: u64 = 100;

/// The longest wait: a client that retries is slowed to one request a second on each connection.
const WAIT_MS_MAX: u64 = 1_000;

/// Milliseconds of rest after which an asker is as good as new.
const FORGET_MS: u64 = 10_000;

/// Askers that are remembered, at 24 bytes each. Beyond them the one that asked longest ago is forgotten.
const ASKERS_MAX: usize = 1_024;

/// Answers that are held at once. Further ones leave at once: holding is a courtesy, and must not become a way to fill
/// the server up.
const HELD_MAX: usize = 256;

/// Who was refused, by a hash of who asked with what.
#[derive(Debug)]
pub(super) struct Patience {
    askers: Mutex<BTreeMap<u64, (u32, Instant)>>,
    places: Semaphore,
}

impl Default for Patience {
    fn default() -> Self {
        Self { askers: Mutex::default(), places: Semaphore::new(HELD_MAX) }
    }
}

impl Patience {
    /// Waits before the answer to a refused request may leave.
    pub(super) async fn hold(&self, asker: u64) {
        let wait = self.note(asker, Instant::now());
        if wait.is_zero() {
            return;
        }
        let Ok(_place) = self.places.try_acquire() else { return };
        tokio::time::sleep(wait).await;
    }

    /// Notes a refusal, and says how long its answer is held.
    fn note(&self, asker: u64, now: Instant) -> Duration {
        let mut askers = self.askers.lock().unwrap_or_else(PoisonError::into_inner);
        if askers.len() >= ASKERS_MAX && !askers.contains_key(&asker) {
            let oldest = askers.iter().min_by_key(|(_, (_, last))| *last).map(|(asker, _)| *asker);
            oldest.map(|oldest| askers.remove(&oldest));
        }
        let (refusals, last) = askers.entry(asker).or_insert((0, now));
        if now.saturating_duration_since(*last) >= Duration::from_millis(FORGET_MS) {
            *refusals = 0;
        }
        (*refusals, *last) = (refusals.saturating_add(1), now);
        match refusals.checked_sub(FREE + 1) {
            None => Duration::ZERO,
            Some(further) => Duration::from_millis((WAIT_MS_MIN << further.min(8)).min(WAIT_MS_MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_in_vain_again_and_again_waits_longer_each_time_and_is_forgiven_after_a_rest() {
        let (patience, start) = (Patience::default(), Instant::now());
        let waits: Vec<u128> = (0..9).map(|_| patience.note(1, start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!(patience.note(2, start), Duration::ZERO, "somebody else");
        assert_eq!(patience.note(1, start + Duration::from_millis(FORGET_MS)), Duration::ZERO);
    }

    #[test]
    fn askers_without_end_take_no_memory_without_end() {
        let (patience, start) = (Patience::default(), Instant::now());
        for asker in 0..5_000 {
            patience.note(asker, start + Duration::from_millis(asker));
        }
        assert_eq!(patience.askers.lock().expect("unpoisoned").len(), ASKERS_MAX);
    }
}

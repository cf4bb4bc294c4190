//! How long to wait, and how much to send.

use crate::batch::BATCH_BYTES_MAX;
use highwater_base::Random;

/// The first wait's bound, in milliseconds; it doubles with each failed attempt.
const BACKOFF_MS_MIN: u64 = 25;
/// The bound at which it stops doubling.
const BACKOFF_MS_MAX: u64 = 5_000;
/// The wait while a condition blocks replication.
pub(super) const BLOCKED_MS: u64 = 30_000;
/// The longest wait that an answer may ask for.
const RETRY_AFTER_MS_MAX: u64 = 60_000;

/// Bytes below which a batch is not made smaller for a slow link: two seconds at 32 KB/s, and small enough that a layer
/// which swallows a body whole and forwards it slowly still answers within the patience of an attempt at 7 KB/s.
pub(super) const BATCH_BYTES_FLOOR: u64 = 64 << 10;
/// Bytes of the smallest request that a layer must take.
pub(super) const REQUEST_BYTES_MIN: u64 = 4 << 10;
/// The time that a batch is meant to take.
const BATCH_MS: u64 = 2_000;

/// The wait after the `attempts`-th failure in a row: uniform below a bound that doubles from 25 ms to 5 s, and at least
/// what the answer asked for, up to a minute.
pub(super) fn backoff_ms(attempts: u32, retry_after_ms: Option<u64>, random: &mut dyn Random) -> u64 {
    let doublings = attempts.saturating_sub(1).min(8);
    let bound = (BACKOFF_MS_MIN << doublings).min(BACKOFF_MS_MAX);
    random.below(bound).max(asked(retry_after_ms))
}

/// The wait while blocked.
pub(super) fn blocked_ms(retry_after_ms: Option<u64>) -> u64 {
    BLOCKED_MS.max(asked(retry_after_ms))
}

fn asked(retry_after_ms: Option<u64>) -> u64 {
    retry_after_ms.unwrap_or(0).min(RETRY_AFTER_MS_MAX)
}

/// The size of the next batch.
#[derive(Debug, Clone)]
pub(super) struct Sizing {
    /// What the link moves in two seconds, as far as it was measured.
    measured: u64,
    /// What the server, or a layer before it, said it takes.
    advertised: u64,
    /// What is left after refusals without a limit, and after attempts that a large body made hopeless.
    halved: u64,
}

impl Default for Sizing {
    fn default() -> Self {
        // Nothing is known about the link yet: the first batch is small, and tells.
        Self { measured: BATCH_BYTES_FLOOR, advertised: u64::MAX, halved: u64::MAX }
    }
}

impl Sizing {
    /// Bytes of the largest batch to seal, its header included.
    pub(super) fn batch_bytes(&self) -> u64 {
        BATCH_BYTES_MAX.min(self.measured).min(self.advertised).min(self.halved)
    }

    /// A batch of `bytes` was acknowledged after `took_ms`.
    pub(super) fn took(&mut self, bytes: u64, took_ms: u64) {
        let rate = (bytes.saturating_mul(BATCH_MS) / took_ms.max(1)).clamp(BATCH_BYTES_FLOOR, BATCH_BYTES_MAX);
        // A small batch measures the round trip rather than the link, so it can only raise the estimate.
        self.measured = if bytes.saturating_mul(2) >= self.measured { rate } else { self.measured.max(rate) };
    }

    /// The head named the limit of a request, or none.
    pub(super) fn advertise(&mut self, limit: Option<u64>) {
        self.advertised = limit.unwrap_or(u64::MAX);
    }

    /// A body of `bytes` was refused as too large. `false` if nothing smaller is worth trying.
    pub(super) fn too_large(&mut self, bytes: u64, limit: Option<u64>) -> bool {
        let next = match limit {
            Some(limit) if limit < bytes => limit,
            _ if bytes <= REQUEST_BYTES_MIN => return false,
            _ => (bytes / 2).max(REQUEST_BYTES_MIN),
        };
        if next < REQUEST_BYTES_MIN {
            return false;
        }
        self.halved = next;
        true
    }

    /// A body of `bytes` gets no answer, again and again.
    pub(super) fn hopeless(&mut self, bytes: u64) {
        self.halved = (bytes / 4).max(BATCH_BYTES_FLOOR);
        self.measured = self.measured.min(self.halved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_base::random::SplitMix;

    #[test]
    fn the_wait_doubles_from_25_ms_to_5_s_with_full_jitter() {
        let mut random = SplitMix::new(1);
        let bounds = [25, 50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000];
        for (attempts, bound) in (1..).zip(bounds) {
            let waits: Vec<_> = (0..400).map(|_| backoff_ms(attempts, None, &mut random)).collect();
            assert!(waits.iter().all(|&wait| wait < bound), "attempt {attempts}");
            assert!(waits.iter().any(|&wait| wait < bound / 4), "attempt {attempts}: jitter reaches down");
            assert!(waits.iter().any(|&wait| wait > bound - bound / 4), "attempt {attempts}: jitter reaches up");
        }
    }

    #[test]
    fn retry_after_is_a_minimum_and_capped_at_a_minute() {
        let mut random = SplitMix::new(1);
        assert!(backoff_ms(1, Some(0), &mut random) < 25);
        assert_eq!(backoff_ms(1, Some(60_000), &mut random), 60_000);
        assert_eq!(backoff_ms(1, Some(3_600_000), &mut random), 60_000);
        assert_eq!(blocked_ms(None), 30_000);
        assert_eq!(blocked_ms(Some(u64::MAX)), 60_000);
    }

    #[test]
    fn batches_follow_the_link() {
        let mut sizing = Sizing::default();
        assert_eq!(sizing.batch_bytes(), BATCH_BYTES_FLOOR);
        sizing.took(BATCH_BYTES_FLOOR, 3);
        assert_eq!(sizing.batch_bytes(), BATCH_BYTES_MAX, "a fast link");
        sizing.took(300, 40);
        assert_eq!(sizing.batch_bytes(), BATCH_BYTES_MAX, "a small batch says nothing against it");
        sizing.took(BATCH_BYTES_MAX, 41_943);
        assert_eq!(sizing.batch_bytes(), 200_000, "100 KB/s");
        sizing.took(200_000, 10_000);
        assert_eq!(sizing.batch_bytes(), BATCH_BYTES_FLOOR, "20 KB/s");
    }

    #[test]
    fn a_refused_size_is_halved_down_to_4_kib() {
        let mut sizing = Sizing::default();
        let mut bytes = BATCH_BYTES_FLOOR;
        let mut halvings = 0;
        while sizing.too_large(bytes, None) {
            bytes = sizing.batch_bytes();
            halvings += 1;
        }
        assert_eq!((bytes, halvings), (REQUEST_BYTES_MIN, 4));
        let mut sizing = Sizing::default();
        assert!(sizing.too_large(BATCH_BYTES_FLOOR, Some(10_000)));
        assert_eq!(sizing.batch_bytes(), 10_000);
        assert!(!sizing.too_large(10_000, Some(1_000)));
    }
}

//! `Stream-Cursor`: lets a shared cache collapse readers that wait for the same bytes, without ever looping on a
//! cached answer.
//!
//! Source: PROTOCOL.md section 10, query-based caching and cursors.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// 2024-10-09T00:00:00Z, where the count of intervals begins, in seconds since the Unix epoch.
const EPOCH_S: u64 = 1_728_432_000;
/// Seconds of one interval.
const INTERVAL_S: u64 = 20;
/// The most seconds that a collision moves a cursor ahead.
const JITTER_S_MAX: u64 = 3_600;

/// The cursor of an answer at `now_s` (Unix seconds) to a reader that sent `sent`.
///
/// It is the number of the current interval, and always greater than the one that the reader sent: by 1 to 3,600
/// seconds' worth of intervals, drawn from `entropy`, so that readers who collided once part.
pub(crate) fn next(now_s: u64, sent: Option<u64>, entropy: u64) -> u64 {
    let current = now_s.saturating_sub(EPOCH_S) / INTERVAL_S;
    match sent {
        Some(sent) if sent >= current => {
            let jitter_s = 1 + entropy % JITTER_S_MAX;
            sent.saturating_add(jitter_s.div_ceil(INTERVAL_S))
        }
        _ => current,
    }
}

/// Unix seconds.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A number that no two readers share for long; not for secrets.
pub(crate) fn entropy() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_counts_intervals_of_twenty_seconds() {
        assert_eq!(next(EPOCH_S, None, 0), 0);
        assert_eq!(next(EPOCH_S + 59, None, 0), 2);
        assert_eq!(next(0, None, 0), 0, "a clock before the epoch");
    }

    #[test]
    fn a_cursor_never_stands_still_for_the_reader_who_sent_it() {
        let now = EPOCH_S + 1_000_000;
        let current = next(now, None, 0);
        assert_eq!(next(now, Some(current - 1), 7), current);
        for entropy in 0..4_000 {
            let ahead = next(now, Some(current), entropy) - current;
            assert!((1..=180).contains(&ahead), "{ahead}");
            assert!(next(now, Some(current + 500), entropy) > current + 500);
        }
    }
}

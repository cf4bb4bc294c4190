//! The machine's clocks and entropy, for production.

use highwater_base::{Clock, Millis, Random};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The operating system's clocks.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Clocks whose monotonic time begins now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn monotonic(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The operating system's entropy.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    /// # Panics
    /// If the kernel has no entropy to give, which it has from early boot on; going on with numbers that can be
    /// guessed would let two histories of a stream share a token.
    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        assert_eq!(filled, Ok(bytes.len()), "the kernel gives entropy");
        u64::from_le_bytes(bytes)
    }
}

//! When a stream ends by itself, as far as whoever made it can tell.

use highwater_base::Millis;
use highwater_stream::Expiry;

/// The end of a stream that ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    expiry: Expiry,
    /// No sooner than this.
    earliest: Millis,
}

impl Lifetime {
    /// That of a stream that is made at a time.
    #[must_use]
    pub fn begun(expiry: Expiry, at: Millis) -> Self {
        let earliest = match expiry {
            Expiry::Sliding { .. } => Millis(0),
            Expiry::At(end) => end,
        };
        let mut begun = Self { expiry, earliest };
        begun.reached(at);
        begun
    }

    /// A write reached the stream: a window begins anew. Readers reach it, too, and only make it live longer.
    pub fn reached(&mut self, at: Millis) {
        if let Expiry::Sliding { ttl_s } = self.expiry {
            self.earliest = self.earliest.max(at.plus(ttl_s * 1_000));
        }
    }

    /// Whether the stream may be over.
    #[must_use]
    pub fn may_be_over(self, wall: Millis) -> bool {
        wall >= self.earliest
    }

    /// Whether the stream must be over.
    #[must_use]
    pub fn must_be_over(self, wall: Millis) -> bool {
        matches!(self.expiry, Expiry::At(end) if wall >= end)
    }
}

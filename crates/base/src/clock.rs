//! Time as a value.

/// Milliseconds since the Unix epoch, as the leader's clock told them when a command was proposed.
///
/// Machines compare and store it; none of them asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub u64);

impl Millis {
    /// The time `milliseconds` later, stopping at the largest representable time.
    #[must_use]
    pub fn plus(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }

    /// Milliseconds from `earlier` to `self`, zero if the clock went backwards.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Where time comes from: the machine's clocks in production, the simulator's in tests.
pub trait Clock: Send + Sync + 'static {
    /// Wall-clock time, for what is stored. It may jump either way.
    fn wall(&self) -> Millis;

    /// Monotonic milliseconds since an arbitrary start, for waits and deadlines.
    fn monotonic(&self) -> u64;
}

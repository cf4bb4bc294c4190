//! How many events a host may send.

/// Milliseconds of the three windows.
const WINDOWS_MS: [u64; 3] = [1_000, 3_600_000, 86_400_000];

/// Events in a window that slides: what the window before had counts by the part of it that is still in sight.
#[derive(Debug, Clone, Copy)]
struct Window {
    span_ms: u64,
    most: u64,
    /// When the present window began, a multiple of its span.
    began: u64,
    before: u64,
    count: u64,
}

impl Window {
    /// Counts an event, if it is one that may pass.
    fn allow(&mut self, now: u64) -> bool {
        let began = now / self.span_ms * self.span_ms;
        if began > self.began {
            self.before = if began - self.began == self.span_ms { self.count } else { 0 };
            (self.began, self.count) = (began, 0);
        }
        // The relay counts with floating point and cuts it off; spans and counts are small enough for it to be the same.
        let in_sight = self.before * (self.span_ms - (now - self.began)) / self.span_ms;
        let allowed = in_sight + self.count < self.most;
        self.count += u64::from(allowed);
        allowed
    }
}

/// The limits per second, per hour and per day, for a host of so many accounts.
#[derive(Debug, Clone)]
pub struct Limits([Window; 3]);

impl Limits {
    /// How many limits there are.
    pub(super) const COUNT: usize = WINDOWS_MS.len();

    /// Of a host whose accounts the relay takes up to a limit.
    #[must_use]
    pub fn new(account_limit: u64) -> Self {
        let window = |span_ms| Window { span_ms, most: 0, began: 0, before: 0, count: 0 };
        let mut limits = Self(WINDOWS_MS.map(window));
        limits.set(account_limit);
        limits
    }

    /// Changes the limits; what was counted stays.
    pub fn set(&mut self, account_limit: u64) {
        let most = Self::most(account_limit);
        self.0.iter_mut().zip(most).for_each(|(window, most)| window.most = most);
    }

    /// Events per second, per hour and per day.
    #[must_use]
    pub fn most(account_limit: u64) -> [u64; 3] {
        [50 + account_limit / 1_000, 2_500 + account_limit, 20_000 + 10 * account_limit]
    }

    /// Lets an event pass one limit behind the other, from the one at which it waits: returns the one at which it waits now.
    pub(super) fn pass(&mut self, now: u64, mut waits_at: usize) -> usize {
        while self.0.get_mut(waits_at).is_some_and(|window| window.allow(now)) {
            waits_at += 1;
        }
        waits_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_limits_grow_with_its_accounts() {
        assert_eq!(Limits::most(100), [50, 2_600, 21_000]);
        assert_eq!(Limits::most(1_000), [51, 3_500, 30_000]);
    }

    #[test]
    fn a_window_lets_so_many_pass_and_the_next_one_remembers() {
        let mut limits = Limits::new(100);
        let mut passed = |now: u64| (0..100).filter(|_| limits.pass(now, 0) == Limits::COUNT).count();
        assert_eq!(passed(1_000), 50);
        assert_eq!(passed(1_999), 0);
        // Half of the second before is still in sight.
        assert_eq!(passed(2_500), 25);
        assert_eq!(passed(9_000), 50);
    }

    /// An event that waits for the hour was counted for its second.
    #[test]
    fn what_passed_one_limit_waits_at_the_next() {
        let mut limits = Limits::new(100);
        let passed = |limits: &mut Limits| {
            (0..600)
                .filter(|second| (0..50).filter(|_| limits.pass(second * 2_000, 0) == Limits::COUNT).count() == 50)
                .count()
        };
        assert_eq!(passed(&mut limits), 2_600 / 50);
        assert_eq!(limits.pass(1_300_000, 0), 1);
        assert_eq!(limits.pass(1_300_000, 1), 1);
        assert_eq!(limits.pass(7_200_000, 1), Limits::COUNT);
    }
}

//! Who holds how much of what all share.
//!
//! Nobody may hold more than is left for others. So one alone gets half, two get a third each, and whoever holds nothing yet finds
//! something for as long as there is any: none of them needs to know how many others there are.
//!
//! Source: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches" (1998), with a factor of one.

use std::collections::BTreeMap;

/// Why there is nothing to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// Whoever asks has as much as it may while others may want some.
    Own,
    /// All of it is taken.
    All,
}

/// What is shared, and who holds how much of it.
#[derive(Debug)]
pub struct Shares<K> {
    all_max: usize,
    taken: usize,
    held: BTreeMap<K, usize>,
}

impl<K: Ord + Copy> Shares<K> {
    /// So much, of which nobody holds any.
    #[must_use]
    pub fn new(all_max: usize) -> Self {
        Self { all_max, taken: 0, held: BTreeMap::new() }
    }

    /// How much is taken, by all.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// How much somebody holds.
    #[must_use]
    pub fn held(&self, who: &K) -> usize {
        self.held.get(who).copied().unwrap_or_default()
    }

    /// Takes so much more for somebody.
    /// # Errors
    /// [`Full`]; nothing is taken then.
    pub fn take(&mut self, who: K, amount: usize) -> Result<(), Full> {
        let (left, own) = (self.all_max.saturating_sub(self.taken), self.held(&who));
        if own.saturating_add(amount) > left {
            return Err(if own == 0 { Full::All } else { Full::Own });
        }
        self.taken += amount;
        *self.held.entry(who).or_default() += amount;
        Ok(())
    }

    /// Gives back what was taken.
    pub fn give(&mut self, who: &K, amount: usize) {
        let Some(held) = self.held.get_mut(who) else { return };
        let amount = amount.min(*held);
        *held -= amount;
        self.taken -= amount;
        if *held == 0 {
            self.held.remove(who);
        }
    }

    /// Counts what one holds for another from now on.
    pub fn pass(&mut self, from: &K, to: K, amount: usize) {
        let before = self.taken;
        self.give(from, amount);
        let amount = before - self.taken;
        self.taken = before;
        *self.held.entry(to).or_default() += amount;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(shares: &mut Shares<u8>, who: u8) -> (usize, Full) {
        let mut got = 0;
        loop {
            match shares.take(who, 1) {
                Ok(()) => got += 1,
                Err(full) => return (got, full),
            }
        }
    }

    #[test]
    fn one_gets_half_and_whoever_comes_later_still_gets_something() {
        let mut shares = Shares::new(32);
        let got: Vec<_> = (0..6).map(|who| fill(&mut shares, who)).collect();
        assert_eq!(got.iter().map(|(got, _)| *got).collect::<Vec<_>>(), [16, 8, 4, 2, 1, 1]);
        assert!(got.iter().all(|(_, full)| *full == Full::Own), "{got:?}");
        assert_eq!(shares.take(9, 1), Err(Full::All));
        assert_eq!(shares.take(0, 1), Err(Full::Own));
        shares.give(&0, 16);
        assert_eq!((shares.taken(), shares.held(&0)), (16, 0));
        assert_eq!(fill(&mut shares, 9).0, 8);
    }

    #[test]
    fn what_does_not_fit_takes_nothing_and_one_of_one_can_be_had() {
        let mut shares = Shares::new(1);
        assert_eq!(shares.take('a', 2), Err(Full::All));
        assert_eq!(shares.take('a', 1), Ok(()));
        assert_eq!((shares.take('a', 1), shares.take('b', 1)), (Err(Full::Own), Err(Full::All)));
        shares.pass(&'a', 'b', 1);
        assert_eq!((shares.taken(), shares.held(&'a'), shares.held(&'b')), (1, 0, 1));
        shares.give(&'b', 7);
        assert_eq!((shares.taken(), shares.held.len()), (0, 0), "nobody gives back more than it has");
    }
}

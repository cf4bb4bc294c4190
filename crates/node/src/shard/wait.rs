//! Readers that wait at the tail of a stream.

use crate::api::ReadRequest;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A reader that found nothing yet. Its request names the history and the offset that it was given.
#[derive(Debug)]
pub(super) struct Waiter<T> {
    pub token: T,
    pub request: ReadRequest,
    /// Monotonic milliseconds at which it goes away empty-handed.
    pub deadline: u64,
}

/// The waiting readers of one group, by stream and by deadline.
///
/// Invariant: each waiter's number is in `by_path` under its path and in `by_deadline` with its deadline.
#[derive(Debug)]
pub(super) struct Waiters<T> {
    next: u64,
    waiters: BTreeMap<u64, (Arc<str>, Waiter<T>)>,
    by_path: BTreeMap<Arc<str>, BTreeSet<u64>>,
    by_deadline: BTreeSet<(u64, u64)>,
}

impl<T> Waiters<T> {
    pub fn new() -> Self {
        Self { next: 0, waiters: BTreeMap::new(), by_path: BTreeMap::new(), by_deadline: BTreeSet::new() }
    }

    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    pub fn add(&mut self, waiter: Waiter<T>) {
        let number = self.next;
        self.next += 1;
        let path = match self.by_path.get_key_value(waiter.request.path.as_str()) {
            Some((path, _)) => Arc::clone(path),
            None => Arc::from(waiter.request.path.as_str()),
        };
        self.by_path.entry(Arc::clone(&path)).or_default().insert(number);
        self.by_deadline.insert((waiter.deadline, number));
        self.waiters.insert(number, (path, waiter));
    }

    /// Whether somebody waits for a stream.
    pub fn any(&self, path: &str) -> bool {
        self.by_path.contains_key(path)
    }

    /// Takes out everyone who waits for a stream, in the order in which they came.
    pub fn take_path(&mut self, path: &str) -> Vec<Waiter<T>> {
        let numbers = self.by_path.remove(path).unwrap_or_default();
        numbers.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    /// Takes out everyone whose deadline has come.
    pub fn take_due(&mut self, monotonic: u64) -> Vec<Waiter<T>> {
        let mut due = Vec::new();
        while let Some(&(deadline, number)) = self.by_deadline.first() {
            if deadline > monotonic {
                break;
            }
            due.extend(self.remove(number));
        }
        due
    }

    /// Takes out everyone.
    pub fn take_all(&mut self) -> Vec<Waiter<T>> {
        self.take_due(u64::MAX)
    }

    /// Takes out those of whom `gone` says so.
    pub fn drop_where(&mut self, gone: impl Fn(&T) -> bool) {
        let numbers: Vec<u64> = self.waiters.iter().filter(|(_, (_, w))| gone(&w.token)).map(|(n, _)| *n).collect();
        for number in numbers {
            self.remove(number);
        }
    }

    /// The next deadline.
    pub fn deadline(&self) -> Option<u64> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    fn remove(&mut self, number: u64) -> Option<Waiter<T>> {
        let (path, waiter) = self.waiters.remove(&number)?;
        self.by_deadline.remove(&(waiter.deadline, number));
        if let Some(numbers) = self.by_path.get_mut(&path) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_path.remove(&path);
            }
        }
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_stream::ReadFrom;

    fn waiter(token: u64, path: &str, deadline: u64) -> Waiter<u64> {
        let request = ReadRequest {
            path: path.to_owned(),
            incarnation: None,
            from: ReadFrom::Now,
            length_max: 1,
            leader: false,
            wait_ms: Some(1),
        };
        Waiter { token, request, deadline }
    }

    fn tokens(waiters: &[Waiter<u64>]) -> Vec<u64> {
        waiters.iter().map(|w| w.token).collect()
    }

    #[test]
    fn a_waiter_leaves_once_by_whatever_comes_first() {
        let mut waiters = Waiters::new();
        for (token, path, deadline) in [(1, "a", 30), (2, "b", 10), (3, "a", 20), (4, "a", 40)] {
            waiters.add(waiter(token, path, deadline));
        }
        assert_eq!(waiters.deadline(), Some(10));
        assert_eq!(tokens(&waiters.take_due(20)), [2, 3]);
        assert_eq!(tokens(&waiters.take_path("a")), [1, 4]);
        assert_eq!((waiters.len(), waiters.deadline()), (0, None));
        assert!(waiters.by_path.is_empty(), "a path without waiters keeps no memory");
        assert!(waiters.take_path("a").is_empty());
    }

    #[test]
    fn an_abandoned_waiter_makes_room() {
        let mut waiters = Waiters::new();
        for token in 0..4 {
            waiters.add(waiter(token, "a", 10));
        }
        waiters.drop_where(|token| token % 2 == 0);
        assert_eq!(tokens(&waiters.take_all()), [1, 3]);
    }
}

//! What each bucket holds, for quotas.

use std::collections::BTreeMap;

/// What the streams of one bucket hold together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Streams.
    pub streams: u64,
    /// Bytes that can be read, of snapshots, and of parts that are staged.
    pub bytes: u64,
}

/// The bucket of a stream: the first of two or more segments of its path; empty for a path of one.
#[must_use]
pub fn bucket_of(path: &str) -> &str {
    path.split_once('/').map_or("", |(bucket, _)| bucket)
}

/// The usage of every bucket that holds something, kept with each change.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usages(BTreeMap<Box<str>, Usage>);

impl Usages {
    pub fn of(&self, bucket: &str) -> Usage {
        self.0.get(bucket).copied().unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, Usage)> {
        self.0.iter().map(|(bucket, usage)| (bucket.as_ref(), *usage))
    }

    /// Takes what a stream held, and then what it holds; a missing side is a stream that is not there.
    pub fn change(&mut self, path: &str, before: Option<u64>, after: Option<u64>) {
        if before == after {
            return;
        }
        let bucket = bucket_of(path);
        if !self.0.contains_key(bucket) {
            self.0.insert(bucket.into(), Usage::default());
        }
        let Some(usage) = self.0.get_mut(bucket) else { return };
        usage.streams = usage.streams + u64::from(after.is_some()) - u64::from(before.is_some());
        usage.bytes = usage.bytes + after.unwrap_or(0) - before.unwrap_or(0);
        if *usage == Usage::default() {
            self.0.remove(bucket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_two_segments_is_the_bucket() {
        assert_eq!(["a/b/c", "a/b", "a", "/x"].map(bucket_of), ["a", "a", "", ""]);
    }

    #[test]
    fn a_bucket_without_streams_is_not_kept() {
        let mut usages = Usages::default();
        usages.change("a/b", None, Some(5));
        usages.change("a/c", None, Some(0));
        usages.change("a/b", Some(5), Some(7));
        assert_eq!(usages.iter().collect::<Vec<_>>(), [("a", Usage { streams: 2, bytes: 7 })]);
        usages.change("a/b", Some(7), None);
        usages.change("a/c", Some(0), None);
        assert_eq!((usages.of("a"), usages.iter().count()), (Usage::default(), 0));
    }
}

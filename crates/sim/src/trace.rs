//! What happened in a run, in order: a hash of all of it, and the last lines for a person.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// Lines kept for the report of a failure.
const LINES_MAX: usize = 400;

/// What runs are meant to meet: a simulator that never comes to these proves nothing about them.
pub const MEETINGS: [&str; 37] = [
    "the server died in the middle of a write",
    "the server's machine lost power",
    "the server's log failed",
    "the server did not start at once",
    "the server's log had no space",
    "a checkpoint moved payload",
    "a read's bytes had moved",
    "a write was repeated",
    "a write was answered early",
    "a write's outcome was unknown",
    "a raw stream was deleted",
    "a raw stream was closed",
    "a raw producer was fenced",
    "a raw producer was forgotten",
    "a part was staged",
    "parts were discarded",
    "a snapshot was published",
    "a snapshot had another digest",
    "a part was gone when a snapshot was made of it",
    "a snapshot was read",
    "a stream's front was given up",
    "a stream was over",
    "a key was revoked",
    "the server's files were old",
    "a database was recovered after a loss of power",
    "a database lost commits that nobody had",
    "an unconfirmed commit survived",
    "a database's disk was full",
    "a backlog was full",
    "a request was too large",
    "a claim closed an epoch",
    "a commit went over in parts",
    "a database was restored",
    "a database was fenced",
    "a database's files were old",
    "synced() answered",
    "synced() was refused",
];

/// The trace of one run.
///
/// Everything that a run decides or observes is noted here, so that two runs have the same hash only if they were the
/// same run.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    lines: VecDeque<String>,
    events: u64,
    met: BTreeMap<&'static str, u64>,
    /// Whether every line is printed as it comes, for whoever replays a seed.
    print: bool,
}

impl Trace {
    /// A trace of nothing.
    #[must_use]
    pub fn new(print: bool) -> Self {
        Self { print, ..Self::default() }
    }

    /// Notes one event.
    pub fn note(&mut self, now_ms: u64, event: fmt::Arguments<'_>) {
        let line = format!("{now_ms:>9} {event}");
        self.mix(line.len() as u64);
        for piece in line.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.mix(u64::from_le_bytes(word));
        }
        if self.print {
            eprintln!("{line}");
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
        self.events += 1;
    }

    /// Counts something that runs are meant to meet, one of [`MEETINGS`] or [`crate::pds::MEETINGS`].
    pub fn meet(&mut self, what: &'static str) {
        let listed = MEETINGS.contains(&what) || crate::pds::MEETINGS.contains(&what);
        debug_assert!(listed, "{what} is not listed");
        *self.met.entry(what).or_default() += 1;
    }

    /// What was met, and how often.
    #[must_use]
    pub fn met(&self) -> &BTreeMap<&'static str, u64> {
        &self.met
    }

    /// Mixes a number that has no line of its own into the hash.
    pub fn mix(&mut self, value: u64) {
        let mixed = (self.hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash = mixed ^ (mixed >> 29);
    }

    /// The hash of everything so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The last lines, oldest first.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}

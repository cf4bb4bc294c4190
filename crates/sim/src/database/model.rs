//! A local log as its process made it: the database after each commit.

use crate::invariants::{Checked, Invariant, hold};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One page's bytes.
pub type Page = Arc<[u8]>;

/// A whole database: page 1 first.
pub type Image = Arc<Vec<Page>>;

/// The history of one local log.
#[derive(Debug, Default)]
pub struct Model {
    images: BTreeMap<u64, Image>,
    /// The commit that the log started from.
    pub base: u64,
    /// The last commit that was confirmed.
    pub last: u64,
    /// The last commit that a sync covered after it was confirmed, or that was sent.
    pub durable: u64,
    /// An older copy of the files took the place of newer ones at some time.
    pub rewound: bool,
    /// What was made before that: requests of that time may still arrive.
    earlier: Vec<BTreeMap<u64, Image>>,
}

impl Model {
    /// A log that starts from this database, durable.
    #[must_use]
    pub fn new(lsn: u64, image: Image) -> Self {
        Self { images: BTreeMap::from([(lsn, image)]), base: lsn, last: lsn, durable: lsn, ..Self::default() }
    }

    /// The database after a commit.
    #[must_use]
    pub fn image(&self, lsn: u64) -> Option<&Image> {
        self.images.get(&lsn)
    }

    /// The database as it is.
    #[must_use]
    pub fn current(&self) -> Image {
        self.images.get(&self.last).cloned().unwrap_or_default()
    }

    /// A commit was logged; it counts once it is confirmed, and may survive a crash before.
    pub fn logged(&mut self, image: Image) -> u64 {
        let lsn = self.last + 1;
        self.images.retain(|at, _| *at < lsn);
        self.images.insert(lsn, image);
        lsn
    }

    /// The logged commit stands.
    pub fn confirmed(&mut self) {
        self.last += 1;
    }

    /// The logged commit was cut off.
    pub fn cut(&mut self) {
        self.images.retain(|at, _| *at <= self.last);
    }

    /// Everything confirmed is durable.
    pub fn synced(&mut self) {
        self.durable = self.last;
    }

    /// The database came back as `image`, after commit `last`.
    /// # Errors
    /// `ConfirmedSurvives` if commits are missing that cannot be, or if it is no state that it ever had.
    pub fn recovered(&mut self, name: &str, last: u64, lost_power: bool, image: &Image) -> Checked {
        let least = if lost_power { self.durable } else { self.last };
        hold(Invariant::ConfirmedSurvives, last >= least, || {
            format!("{name} came back with {last} commits, {least} were durable (power lost: {lost_power})")
        })?;
        let made = self.images.get(&last);
        hold(Invariant::ConfirmedSurvives, made.is_some(), || {
            format!("{name} came back with {last} commits, nobody made so many")
        })?;
        let differs = made.and_then(|made| difference(made, image));
        hold(Invariant::ConfirmedSurvives, differs.is_none(), || {
            format!("{name} came back and is not what commit {last} made it: {}", differs.unwrap_or_default())
        })?;
        self.last = last;
        self.durable = last;
        self.cut();
        Ok(())
    }

    /// All databases that commits made, by their commit.
    #[must_use]
    pub fn images(&self) -> &BTreeMap<u64, Image> {
        &self.images
    }

    /// What is wrong with `image` as the database after a commit of this log; nothing if the log made it so.
    #[must_use]
    pub fn differs(&self, lsn: u64, image: &Image) -> Option<String> {
        let made = self.earlier.iter().chain([&self.images]).filter_map(|images| images.get(&lsn));
        let mut differences = made.map(|made| difference(made, image));
        let first = differences.next().unwrap_or_else(|| Some("nobody made it".to_owned()));
        if first.is_none() || differences.any(|differs| differs.is_none()) { None } else { first }
    }

    /// The files became those of an earlier moment.
    pub fn rewind(&mut self, images: BTreeMap<u64, Image>, last: u64, durable: u64) {
        self.earlier.push(std::mem::replace(&mut self.images, images));
        self.last = last;
        self.durable = durable;
        self.rewound = true;
    }
}

/// The first difference between two databases, in words.
#[must_use]
pub fn difference(made: &Image, found: &Image) -> Option<String> {
    if made.len() != found.len() {
        return Some(format!("it has {} pages instead of {}", found.len(), made.len()));
    }
    let differs = made.iter().zip(found.iter()).position(|(a, b)| !Arc::ptr_eq(a, b) && a != b);
    differs.map(|index| format!("page {} differs", index + 1))
}

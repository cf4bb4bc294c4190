//! Clients of raw streams. Each has one request out at a time.

mod producer;
mod visitor;

pub use producer::Producer;
pub use visitor::Visitor;

use crate::message::{Ask, Reply};
use crate::ops::Draft;

/// A client.
#[derive(Debug)]
pub enum Client {
    /// One that writes under a key, and repeats what it does not know the outcome of.
    Producer(Producer),
    /// One that does anything, once.
    Visitor(Visitor),
}

impl Client {
    /// What it asks next; nothing if it has nothing to do. In the `quiet` end of a run it only finishes what it began.
    pub fn act(&mut self, quiet: bool, draft: &mut Draft<'_>) -> Option<Ask> {
        match self {
            Self::Producer(producer) => producer.act(quiet, draft),
            Self::Visitor(visitor) => (!quiet).then(|| visitor.act(draft)),
        }
    }

    /// How its request ended.
    pub fn answered(&mut self, reply: &Reply) {
        match self {
            Self::Producer(producer) => producer.answered(reply),
            Self::Visitor(_) => {}
        }
    }

    /// Whether it waits for nothing.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match self {
            Self::Producer(producer) => producer.is_done(),
            Self::Visitor(_) => true,
        }
    }
}

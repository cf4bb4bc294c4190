//! Clients of raw streams. Each has one request out at a time.

mod administrator;
mod producer;
mod publisher;
mod visitor;

pub use administrator::Administrator;
pub use producer::Producer;
pub use publisher::Publisher;
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
    /// One that publishes snapshots.
    Publisher(Publisher),
    /// One that changes keys, accounts and plans.
    Administrator(Administrator),
}

impl Client {
    /// What it asks next; nothing if it has nothing to do. In the `quiet` end of a run it only finishes what it began.
    pub fn act(&mut self, quiet: bool, draft: &mut Draft<'_>) -> Option<Ask> {
        match self {
            Self::Producer(producer) => producer.act(quiet, draft),
            _ if quiet => None,
            Self::Visitor(visitor) => Some(visitor.act(draft)),
            Self::Publisher(publisher) => publisher.act(draft),
            Self::Administrator(administrator) => Some(administrator.act(draft)),
        }
    }

    /// How its request ended.
    pub fn answered(&mut self, reply: &Reply) {
        match self {
            Self::Producer(producer) => producer.answered(reply),
            Self::Visitor(_) | Self::Publisher(_) | Self::Administrator(_) => {}
        }
    }

    /// Whether it waits for nothing.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match self {
            Self::Producer(producer) => producer.is_done(),
            Self::Visitor(_) | Self::Publisher(_) | Self::Administrator(_) => true,
        }
    }
}

//! A client that publishes snapshots.

use crate::message::Ask;
use crate::ops::{self, Draft};
use highwater_base::Random;

/// Publishes snapshots whole and in parts, discards parts, gives fronts up, and reads what is there.
#[derive(Debug)]
pub struct Publisher {
    /// The streams it knows.
    pub paths: Vec<String>,
}

impl Publisher {
    /// The next request; nothing while the stream that it looked at is not there.
    pub fn act(&mut self, draft: &mut Draft<'_>) -> Option<Ask> {
        let path = &self.paths[draft.random.below(self.paths.len() as u64) as usize];
        draft.oracle.token(path)?;
        Some(match draft.random.below(20) {
            0..=6 => ops::stage(draft, path),
            7..=8 => ops::publish(draft, path),
            9..=11 => ops::commit(draft, path),
            12 => ops::discard(draft, path),
            13..=15 => ops::retain(draft, path),
            _ => ops::snapshot(draft, path),
        })
    }
}

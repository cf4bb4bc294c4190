//! A client without a key.

use crate::message::Ask;
use crate::ops::{self, Draft};
use highwater_base::Random;

/// Reads, appends, makes, closes and deletes, without looking back.
#[derive(Debug)]
pub struct Visitor {
    /// The streams it knows.
    pub paths: Vec<String>,
}

impl Visitor {
    /// The next request.
    pub fn act(&mut self, draft: &mut Draft<'_>) -> Ask {
        let path = self.paths[draft.random.below(self.paths.len() as u64) as usize].clone();
        match draft.random.below(40) {
            0..=3 => ops::create(draft, &path),
            4 => ops::close(draft, &path),
            5..=6 => ops::delete(draft, &path),
            7..=8 => ops::head(&path),
            9..=18 => ops::read(draft, &path),
            _ => ops::append(draft, &path),
        }
    }
}

//! A client that changes keys, accounts and plans.

use crate::message::Ask;
use crate::ops::{self, Draft};

/// Changes whatever comes to its mind. What it knows of keys is what was published.
#[derive(Debug)]
pub struct Administrator;

impl Administrator {
    /// The next request.
    pub fn act(&mut self, draft: &mut Draft<'_>) -> Ask {
        ops::control(draft)
    }
}

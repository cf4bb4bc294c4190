//! Head: what a stream is, and where it ends.

use crate::message::Ask;

/// Asks for the head of the stream at `path`.
#[must_use]
pub fn head(path: &str) -> Ask {
    Ask::Head { path: path.to_owned() }
}

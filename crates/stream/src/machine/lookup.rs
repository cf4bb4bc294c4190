//! From an object back to its stream, for those who tell people about damage.

use super::Machine;

/// Whose bytes an object holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder<'a> {
    /// The stream's path.
    pub path: &'a str,
    /// Whether they are its snapshot's, or a part's for one, and not the stream's own.
    pub snapshot: bool,
}

impl Machine {
    /// Whose bytes are stored under this object key, if the stream is in memory.
    #[must_use]
    pub fn holder_of(&self, object: u64) -> Option<Holder<'_>> {
        let path = |stream: &u64| self.streams.get(stream).map(|stream| &*stream.path);
        if let Some(path) = path(&object) {
            return Some(Holder { path, snapshot: false });
        }
        let path = path(self.parts.get(&object)?)?;
        Some(Holder { path, snapshot: true })
    }
}

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
    /// Whose bytes are stored under this object key. Takes time in proportion to the streams if they are a part's.
    #[must_use]
    pub fn holder_of(&self, object: u64) -> Option<Holder<'_>> {
        if let Some(stream) = self.streams.get(&object) {
            return Some(Holder { path: &stream.path, snapshot: false });
        }
        if !self.parts.contains(&object) {
            return None;
        }
        let holds = |stream: &&super::Stream| stream.parts().any(|part| part.object == object);
        let stream = self.streams.values().map(|stream| &**stream).find(holds)?;
        Some(Holder { path: &stream.path, snapshot: true })
    }
}

//! Memory that reads use again.
//!
//! A fresh buffer costs a page fault for every 4 KiB, as much as copying what is read into it. So buffers of the usual
//! sizes of pieces go back when the last reader of their bytes drops them, and the next read takes them.

use bytes::Bytes;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Bytes of the largest buffer that is kept: a piece of a long answer, which ends with a whole frame of the log.
pub(crate) const BUFFER_BYTES_MAX: usize = 2 << 20;

/// Smaller buffers are the allocator's, which has them at hand.
const BUFFER_BYTES_MIN: usize = 64 << 10;

/// Bytes of all that are kept: what eight readers use who read as fast as they can.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Buffers that nobody uses.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Kept>);

/// One for all stores of the process: each group has one, and they share its memory.
static SHARED: LazyLock<Arc<Buffers>> = LazyLock::new(Arc::default);

/// The buffers of every store.
pub(crate) fn shared() -> &'static Arc<Buffers> {
    &SHARED
}

#[derive(Debug, Default)]
struct Kept {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Buffers {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty buffer with room for `bytes`.
    pub(crate) fn empty(&self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.take(bytes);
        buffer.clear();
        buffer
    }

    /// A buffer of at least `bytes`, whatever is in it.
    pub(crate) fn filled(&self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.take(bytes);
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        buffer
    }

    fn take(&self, bytes: usize) -> Vec<u8> {
        if (BUFFER_BYTES_MIN..=BUFFER_BYTES_MAX).contains(&bytes) {
            let mut kept = self.kept();
            // The last one to come back is the likeliest to be in a processor's cache.
            if let Some(at) = kept.buffers.iter().rposition(|buffer| buffer.capacity() >= bytes) {
                let buffer = kept.buffers.remove(at);
                kept.bytes -= buffer.capacity();
                return buffer;
            }
        }
        Vec::with_capacity(bytes)
    }

    /// Takes a buffer back, if it is one of those that are kept and there is room.
    pub(crate) fn give(&self, buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        if !(BUFFER_BYTES_MIN..=BUFFER_BYTES_MAX).contains(&bytes) {
            return;
        }
        let mut kept = self.kept();
        if kept.bytes + bytes <= KEPT_BYTES_MAX {
            kept.bytes += bytes;
            kept.buffers.push(buffer);
        }
    }

    /// The bytes of a buffer, which comes back when the last of them is dropped.
    pub(crate) fn lend(self: &Arc<Self>, buffer: Vec<u8>) -> Bytes {
        if buffer.capacity() < BUFFER_BYTES_MIN || buffer.capacity() > BUFFER_BYTES_MAX {
            return buffer.into();
        }
        Bytes::from_owner(Lent { buffer, home: Arc::clone(self) })
    }
}

/// A buffer in use.
struct Lent {
    buffer: Vec<u8>,
    home: Arc<Buffers>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.give(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_with_the_last_of_its_bytes_and_is_used_again() {
        let buffers = Arc::new(Buffers::default());
        let mut buffer = buffers.empty(100 << 10);
        buffer.extend_from_slice(&[7; 100 << 10]);
        let place = buffer.as_ptr();
        let bytes = buffers.lend(buffer);
        let part = bytes.slice(5..10);
        drop(bytes);
        assert_eq!((buffers.kept().buffers.len(), &part[..]), (0, &[7; 5][..]));
        drop(part);
        let again = buffers.empty(100 << 10);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let buffers = Arc::new(Buffers::default());
        let taken: Vec<_> = (0..40).map(|_| buffers.empty(BUFFER_BYTES_MAX)).collect();
        taken.into_iter().for_each(|buffer| drop(buffers.lend(buffer)));
        drop(buffers.lend(buffers.empty(BUFFER_BYTES_MAX * 2)));
        drop(buffers.lend(buffers.empty(10)));
        assert_eq!(buffers.kept().bytes, KEPT_BYTES_MAX);
        assert_eq!(buffers.kept().buffers.iter().map(Vec::capacity).sum::<usize>(), KEPT_BYTES_MAX);
    }
}

//! The memory that answers of reads hold until their readers took them.
//!
//! Room is taken before bytes are fetched: taken afterwards it would bound nothing, because a hundred readers who ask
//! at once would each have their bytes in memory while they wait. It goes with the bytes, wherever they go, and comes
//! back when the last of them is dropped.

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that one permit stands for.
const PERMIT_BYTES: u64 = 1 << 10;

/// Answers up to this size take no room. All connections together could hold 64 MiB of them, and most reads of a live
/// stream are smaller: for these a budget costs more than it protects.
const FREE_BYTES_MAX: u64 = 4 << 10;

/// The room for all answers.
#[derive(Debug)]
pub(crate) struct Rooms {
    permits: Arc<Semaphore>,
    all: usize,
    wait: Duration,
}

/// The room of one answer.
#[derive(Debug)]
pub(crate) struct Room(Option<OwnedSemaphorePermit>);

impl Rooms {
    /// Room for `bytes`, for which a read waits at most so long.
    pub(crate) fn new(bytes: u64, wait_ms_max: u64) -> Self {
        let all = permits(bytes).min(Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(all)), all, wait: Duration::from_millis(wait_ms_max) }
    }

    /// Takes room for `bytes`, or gives up after the longest wait. What is larger than all room takes all of it.
    pub(crate) async fn wait(&self, bytes: u64) -> Option<Room> {
        if bytes <= FREE_BYTES_MAX {
            return Some(Room(None));
        }
        let asked = u32::try_from(permits(bytes).min(self.all)).unwrap_or(u32::MAX);
        let permit = tokio::time::timeout(self.wait, self.permits.clone().acquire_many_owned(asked)).await;
        permit.ok()?.ok().map(|permit| Room(Some(permit)))
    }

    /// Bytes that are held.
    pub(crate) fn held(&self) -> u64 {
        (self.all - self.permits.available_permits()) as u64 * PERMIT_BYTES
    }
}

fn permits(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(usize::MAX)
}

impl Room {
    /// The bytes, which hold the room from now on; what fetching took beyond them is given back.
    pub(crate) fn around(self, bytes: Bytes) -> Bytes {
        let Some(mut all) = self.0 else { return bytes };
        let kept = permits(bytes.len() as u64).min(all.num_permits());
        match all.split(kept) {
            Some(_room) if kept > 0 => Bytes::from_owner(Roomed { bytes, _room }),
            _ => bytes,
        }
    }
}

/// Bytes with their room.
struct Roomed {
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Roomed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn room_is_held_by_the_bytes_and_by_every_part_of_them() {
        let rooms = Rooms::new(100 << 10, 20);
        let room = rooms.wait(80 << 10).await.expect("room");
        assert_eq!(rooms.held(), 80 << 10, "taken before anything is fetched");
        assert!(rooms.wait(21 << 10).await.is_none(), "no room for another");
        assert!(rooms.wait(FREE_BYTES_MAX).await.is_some(), "small answers need none");
        let bytes = room.around(Bytes::from(vec![7; 50 << 10]));
        assert_eq!(rooms.held(), 50 << 10, "what only fetching took is given back");
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_eq!(rooms.held(), 50 << 10, "a part keeps all of it in memory");
        drop(part);
        assert_eq!(rooms.held(), 0);
        let all = rooms.wait(1 << 30).await.expect("what is larger than all room takes all of it");
        assert_eq!(rooms.held(), 100 << 10);
        drop(all.around(Bytes::new()));
        assert_eq!(rooms.held(), 0);
    }
}

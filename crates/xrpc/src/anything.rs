//! The readers of what strangers send, for fuzzers.

use crate::firehose::Incoming;
use crate::query::Query;
use crate::repo;

/// Reads bytes as whatever a request consists of: the first one says as what.
///
/// # Panics
/// If a reader is wrong: an input that was taken twice means two things, or messages mean something else when they are cut.
pub fn request_anything(data: &[u8]) -> bool {
    let Some((kind, data)) = data.split_first() else { return false };
    match kind % 3 {
        0 => std::str::from_utf8(data).is_ok_and(|text| Query::parse(Some(text)).is_ok()),
        1 => repo::write_anything(data),
        _ => {
            let read = |piece: usize| {
                let (mut incoming, mut asked) = (Incoming::default(), Vec::new());
                let sound = data.chunks(piece).try_for_each(|piece| incoming.take(piece, &mut asked)).is_ok();
                (sound, asked)
            };
            let whole = read(data.len().max(1));
            assert_eq!(whole, read(1), "messages mean the same however they are cut");
            whole.0
        }
    }
}

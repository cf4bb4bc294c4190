//! A log on a simulated disk, and what every test asks of it.

use bytes::Bytes;
use highwater_base::OwnerId;
use highwater_disk::SimDisk;
use highwater_wal::{Frame, Log, OpenError, Options, Recovered, ReplayedFrame};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

pub const DIRECTORY: &str = "/data/wal";
pub const PAGE: u64 = 4096;
pub const SEGMENT: u64 = 8 * PAGE;

/// Small segments, so that a short script rolls often.
pub fn options() -> Options {
    let boot_id = "boot-1".to_owned();
    Options { segment_bytes: SEGMENT, log_bytes_max: 1 << 20, spare_segments_max: 2, boot_id, ..Options::default() }
}

/// A frame whose payload follows from its owner, position and length.
pub fn frame(owner: u64, position: u64, length: usize) -> Frame {
    let seed = owner.wrapping_mul(31).wrapping_add(position.wrapping_mul(7));
    let payload: Vec<u8> = (0..length as u64).map(|at| (seed + at * at) as u8).collect();
    Frame { owner: OwnerId(owner), kind: (position % 3) as u8, position, payload: Bytes::from(payload) }
}

pub fn try_open(disk: &SimDisk) -> Result<(Log, Recovered), OpenError> {
    Log::open(Arc::new(disk.clone()), Path::new(DIRECTORY), options())
}

pub fn open(disk: &SimDisk) -> (Log, Recovered) {
    try_open(disk).expect("the log opens")
}

/// All frames that survive, in order.
pub fn survivors(recovered: &Recovered) -> Vec<Frame> {
    let mut frames = Vec::new();
    let each = |found: ReplayedFrame| {
        let ReplayedFrame { owner, kind, position, payload, .. } = found;
        frames.push(Frame { owner, kind, position, payload });
        Ok::<(), Infallible>(())
    };
    recovered.replay(|_| true, each).expect("every survivor reads back");
    frames
}

/// Owner and position of each frame: what a failed assertion should print.
pub fn names(frames: &[Frame]) -> Vec<(u64, u64)> {
    frames.iter().map(|frame| (frame.owner.0, frame.position)).collect()
}

/// Where `part` begins in `whole`, compared byte by byte.
pub fn found_in(part: &[Frame], whole: &[Frame]) -> Option<usize> {
    (0..=whole.len().checked_sub(part.len())?).find(|start| whole[*start..*start + part.len()] == *part)
}

/// No owner is marked.
pub fn assert_whole(recovered: &Recovered, story: &str) {
    for (owner, found) in recovered.owners() {
        assert!(found.verdict.is_whole(), "{story}: {owner} is {:?}", found.verdict);
    }
    assert!(recovered.verdict(OwnerId(999)).is_whole(), "{story}: an unheard-of owner is marked");
}

pub fn segment_path(number: u64) -> std::path::PathBuf {
    Path::new(DIRECTORY).join(format!("{number:016x}.segment"))
}

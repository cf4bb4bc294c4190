//! What waits to be written to a socket.

use super::message::{self, Kind};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Messages up to this size are copied together, because each write to a socket costs more than that; a longer one is written
/// from where all subscribers share it.
const COPIED_BYTES_MAX: usize = 8 << 10;
/// Bytes of messages that are copied together at the most, for each socket.
const TOGETHER_BYTES_MAX: usize = 64 << 10;

/// Bytes to be written at once, and whether a message ends with them, so that another may come between.
#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    whole: bool,
}

/// What waits to be written, in order; pongs and pings come before messages that have not begun.
#[derive(Debug, Default)]
pub struct Outgoing {
    pieces: VecDeque<Piece>,
    /// Behind the pieces; shared with other subscribers.
    frames: VecDeque<Bytes>,
    /// Whether a message has begun and not ended.
    within: bool,
    pong: Option<Bytes>,
    ping: bool,
}

impl Outgoing {
    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wants_messages() && self.pong.is_none() && !self.ping
    }

    /// Whether no message waits; a ping may.
    #[must_use]
    pub fn wants_messages(&self) -> bool {
        self.pieces.is_empty() && self.frames.is_empty()
    }

    /// Adds messages of bytes, behind all others.
    pub fn messages(&mut self, frames: impl IntoIterator<Item = Bytes>) {
        self.frames.extend(frames);
    }

    /// Puts the next frames into pieces: short ones together, a longer one by itself. Only as many as are written at once: what
    /// waits for a subscriber that takes nothing stays where all of them share it.
    fn prepare(&mut self) {
        let mut together = BytesMut::new();
        while together.len() < TOGETHER_BYTES_MAX
            && let Some(frame) =
                self.frames.pop_front_if(|frame| together.is_empty() || frame.len() <= COPIED_BYTES_MAX)
        {
            let header = message::header(Kind::Binary, frame.len());
            if frame.len() > COPIED_BYTES_MAX {
                self.push(header.into(), false);
                self.push(frame, true);
                return;
            }
            together.extend_from_slice(&header);
            together.extend_from_slice(&frame);
        }
        self.push(together.freeze(), true);
    }

    fn push(&mut self, bytes: Bytes, whole: bool) {
        if !bytes.is_empty() {
            self.pieces.push_back(Piece { bytes, whole });
        }
    }

    /// Answers a ping. Of several that wait, the newest is answered, as the protocol permits.
    pub fn pong(&mut self, payload: &[u8]) {
        self.pong = Some(message::short(Kind::Pong, payload));
    }

    /// Asks whether the client is there, unless that waits already.
    pub fn ping(&mut self) {
        self.ping = true;
    }

    /// Ends with a message: whatever did not begin is left out, except for what `last` holds before it.
    pub fn close(&mut self, last: Option<Bytes>, code: u16, reason: &str) {
        let begun =
            if self.within { self.pieces.iter().position(|piece| piece.whole).map_or(0, |end| end + 1) } else { 0 };
        self.pieces.truncate(begun);
        self.frames.clear();
        (self.pong, self.ping) = (None, false);
        self.messages(last);
        self.prepare();
        self.push(message::close(code, reason), true);
    }

    /// What to write next.
    pub fn next(&mut self) -> Option<&[u8]> {
        if self.pieces.is_empty() {
            self.prepare();
        }
        if !self.within {
            if std::mem::take(&mut self.ping) {
                self.pieces.push_front(Piece { bytes: message::short(Kind::Ping, b""), whole: true });
            }
            if let Some(bytes) = self.pong.take() {
                self.pieces.push_front(Piece { bytes, whole: true });
            }
        }
        self.pieces.front().map(|piece| piece.bytes.as_ref())
    }

    /// So many bytes of it were written.
    pub fn wrote(&mut self, bytes: usize) {
        let Some(front) = self.pieces.front_mut() else { return };
        let bytes = bytes.min(front.bytes.len());
        drop(front.bytes.split_to(bytes));
        let done = front.bytes.is_empty();
        self.within = !(done && front.whole);
        if done {
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes everything, so many bytes at a time.
    fn written(outgoing: &mut Outgoing, step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(next) = outgoing.next() {
            let now = next.len().min(step);
            out.extend_from_slice(&next[..now]);
            outgoing.wrote(now);
        }
        out
    }

    fn whole(frames: &[Bytes]) -> Vec<u8> {
        frames.iter().flat_map(|frame| [message::header(Kind::Binary, frame.len()), frame.to_vec()].concat()).collect()
    }

    #[test]
    fn messages_come_in_order_however_few_bytes_are_taken_and_large_ones_are_not_copied() {
        let sizes = [1, 100, 70_000, 8 << 10, (8 << 10) + 1, 0, 5];
        let frames: Vec<Bytes> = (0u8..).zip(sizes).map(|(byte, size)| vec![byte; size].into()).collect();
        for step in [1, 10, 1_000, usize::MAX] {
            let mut outgoing = Outgoing::default();
            outgoing.messages(frames.clone());
            assert_eq!(written(&mut outgoing, step), whole(&frames), "steps of {step}");
            assert!(outgoing.is_empty());
        }
        let mut outgoing = Outgoing::default();
        outgoing.messages([frames[2].clone()]);
        outgoing.next();
        assert!(outgoing.pieces.iter().any(|piece| piece.bytes.as_ptr() == frames[2].as_ptr()), "its bytes are shared");
    }

    /// What waited for a subscriber that took nothing was a copy of its own: 400 MB with five hundred of them.
    #[test]
    fn what_waits_is_copied_only_as_far_as_it_is_written_at_once() {
        let frame: Bytes = vec![7; 1_000].into();
        let mut outgoing = Outgoing::default();
        outgoing.messages(vec![frame.clone(); 1_000]);
        let first = outgoing.next().expect("a piece").len();
        assert!((TOGETHER_BYTES_MAX..TOGETHER_BYTES_MAX + 2_000).contains(&first), "{first}");
        assert_eq!(outgoing.pieces.len(), 1);
        assert!(outgoing.frames.iter().all(|waiting| waiting.as_ptr() == frame.as_ptr()));
    }

    /// A pong that waited behind a replay of gigabytes would come after the client had given up.
    #[test]
    fn a_pong_goes_before_whatever_has_not_begun_and_never_into_a_message() {
        let large: Bytes = vec![7; 100_000].into();
        let mut outgoing = Outgoing::default();
        outgoing.messages([large.clone(), large.clone()]);
        let mut out = outgoing.next().expect("the header").to_vec();
        outgoing.wrote(out.len());
        out.extend_from_slice(&outgoing.next().expect("the message")[..10]);
        outgoing.wrote(10);
        outgoing.pong(b"first");
        outgoing.pong(b"there");
        outgoing.ping();
        out.extend(written(&mut outgoing, 4_096));
        let pong = message::short(Kind::Pong, b"there");
        let ping = message::short(Kind::Ping, b"");
        let expected = [whole(std::slice::from_ref(&large)).as_slice(), &pong, &ping, &whole(&[large])].concat();
        assert!(out == expected);
    }

    #[test]
    fn the_end_comes_behind_what_has_begun_and_instead_of_all_else() {
        let large: Bytes = vec![7; 100_000].into();
        let mut outgoing = Outgoing::default();
        outgoing.messages([large.clone(), large.clone()]);
        let mut out = outgoing.next().expect("the header")[..1].to_vec();
        outgoing.wrote(1);
        outgoing.ping();
        outgoing.close(Some(Bytes::from_static(b"why")), 1008, "slow");
        out.extend(written(&mut outgoing, 1_000));
        let expected = [whole(&[large, Bytes::from_static(b"why")]), message::close(1008, "slow").to_vec()].concat();
        assert!(out == expected);
        let mut fresh = Outgoing::default();
        fresh.messages([Bytes::from_static(b"never")]);
        fresh.close(None, 1001, "");
        assert_eq!(written(&mut fresh, 9), message::close(1001, "").to_vec());
    }
}

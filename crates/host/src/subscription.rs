//! Following the stream: what is kept from a cursor on, then what comes, each frame once.
//!
//! A subscriber is a place in the stream, counted in events: the ring and the disk count alike, so that going over from one to
//! the other loses and repeats nothing. No thread belongs to it; it reads when it is asked.

use crate::error::CursorRefused;
use crate::ring::{Found, RING_FRAMES_MAX, Reached};
use crate::shared::{EVENTS, Fault, Shared};
use bytes::Bytes;
use highwater_base::codec::Reader;
use highwater_base::limits::READ_BYTES_MAX;
use highwater_base::planted::{Bug, active};
use highwater_pds::cursor::{self, Start};
use highwater_pds::frame::{self, Kind};
use highwater_pds::record::{EVENT_HEAD_BYTES, decode_event};
use highwater_pds::{AccountId, State};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Bytes that are read from the disk at a time, but for a single larger frame. A subscriber who takes nothing holds what was read
/// for it, and nobody shares that: a thousand of them hold 128 MiB.
const REPLAY_BYTES: u64 = 128 << 10;
/// Bytes of frames that are handed over from memory at once, but for a single larger one.
const BATCH_BYTES: usize = 1 << 20;

/// What a subscriber gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// Messages to be sent, in order.
    Frames(Vec<Bytes>),
    /// More live frames wait for it than may: say `ConsumerTooSlow` and close.
    TooSlow,
    /// The server stops, or cannot read what it kept; why, for the log.
    Ended(String),
}

/// Somebody who follows the stream.
pub struct Subscription {
    shared: Arc<Shared>,
    id: u64,
    /// How many events lie before the next one.
    next: u64,
    /// Where that is in the object of events, while it is read from there.
    offset: Option<u64>,
    /// Events with numbers up to this one are passed over.
    behind: u64,
    /// The number of the last event that was handed over or passed over.
    seq: u64,
    /// Events before this place were there when it came: of those of erased accounts some are left out.
    came: u64,
    /// Accounts of which something was left out. What they wrote after it came, and before they were erased, is left out as well:
    /// it would not follow what was sent before.
    left_out: BTreeSet<AccountId>,
    /// How many events there were when the last of them was found.
    left_out_until: u64,
    /// Since when frames count as live: how many events there were when it first read from memory.
    live: Option<u64>,
    /// What is sent before anything else.
    first: Option<Bytes>,
}

impl Subscription {
    pub(crate) fn new(shared: Arc<Shared>, cursor: Option<u64>) -> Result<Self, CursorRefused> {
        if let Some(why) = shared.ring.ended() {
            return Err(CursorRefused::Stopped(why));
        }
        let state = shared.state();
        let (count, newest) = (state.events.count, state.events.newest.map_or(0, |seq| seq.0));
        let (behind, outdated) = match cursor::start(cursor, &state.events, &state.sequence) {
            Start::Live => (None, false),
            Start::Behind { seq, outdated } => (Some(seq), outdated),
            Start::Future { ceiling } => {
                let cursor = cursor.unwrap_or_default();
                tracing::warn!(
                    event = "future_cursor",
                    cursor,
                    ceiling,
                    "a consumer has seen numbers that this server never handed out: if its data was restored from a copy, stop it, run \
                     `highwater pds mark-restored` and start it again"
                );
                return Err(CursorRefused::Future { cursor, ceiling });
            }
        };
        let point = behind.and_then(|seq| state.events.start_behind(seq));
        drop(state);
        let (next, offset) = point.map_or((count, None), |point| (point.ordinal, Some(point.offset)));
        let first = outdated.then(|| {
            frame::outdated_cursor("the frames behind the cursor are not kept any more; what follows begins later")
        });
        let seq = behind.unwrap_or(newest);
        let id = shared.ring.join(Reached { next, seq, live: point.is_none() });
        Ok(Self {
            shared,
            id,
            next,
            offset,
            behind: behind.unwrap_or_default(),
            seq,
            came: count,
            left_out: BTreeSet::new(),
            left_out_until: 0,
            live: None,
            first,
        })
    }

    /// Whether the next call of [`Self::take`] reads from the disk, so that it should be made where that may be done.
    #[must_use]
    pub fn reads_disk(&self) -> bool {
        self.first.is_none() && matches!(self.shared.ring.behind(self.next, 0), Found::Before)
    }

    /// Which one it is, as the status names it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Live frames that wait for it.
    #[must_use]
    pub fn lag(&self) -> u64 {
        let since = self.live.map_or(u64::MAX, |live| live.max(self.next));
        self.shared.ring.end_ordinal().saturating_sub(since)
    }

    /// What there is now; `None` if there is nothing yet. Never waits, but may read from the disk.
    pub fn take(&mut self) -> Option<Delivery> {
        if let Some(first) = self.first.take() {
            return Some(Delivery::Frames(vec![first]));
        }
        if active(Bug::CutReplay) && self.reads_disk() {
            self.next = self.shared.ring.end_ordinal();
        }
        loop {
            if self.lag() > RING_FRAMES_MAX {
                return Some(Delivery::TooSlow);
            }
            let frames = match self.shared.ring.behind(self.next, BATCH_BYTES) {
                Found::Nothing => return None,
                Found::Ended(why) => return Some(Delivery::Ended(why)),
                Found::Before => match self.replay() {
                    Ok(frames) => frames,
                    Err(why) => return Some(Delivery::Ended(why)),
                },
                Found::Frames(sent, end) => {
                    self.live.get_or_insert(end);
                    let replayed = self.offset.take().is_some();
                    let frames = self.pick(sent);
                    if replayed && active(Bug::RepeatAtCutover) {
                        return Some(Delivery::Frames(frames.iter().take(1).chain(&frames).cloned().collect()));
                    }
                    frames
                }
            };
            let live = self.live.is_some();
            self.shared.ring.moved(self.id, Some(Reached { next: self.next, seq: self.seq, live }));
            if !frames.is_empty() {
                return Some(Delivery::Frames(frames));
            }
        }
    }

    fn pick(&mut self, sent: Vec<crate::ring::Sent>) -> Vec<Bytes> {
        let (at, next) = (self.next, self.next + sent.len() as u64);
        self.next = next;
        self.seq = sent.last().map_or(self.seq, |sent| sent.seq.0);
        if at >= self.came && self.left_out.is_empty() {
            return sent.into_iter().map(|sent| sent.frame).collect();
        }
        let shared = Arc::clone(&self.shared);
        let state = shared.state();
        let kept = (at..).zip(sent).filter(|(ordinal, sent)| {
            let skipped = *ordinal < self.came && sent.seq.0 <= self.behind;
            !skipped && !self.leaves_out(&state, *ordinal, sent.account, sent.kind)
        });
        let kept = kept.map(|(_, sent)| sent.frame).collect();
        if next >= self.left_out_until {
            // Whoever is erased writes nothing after it.
            self.left_out.clear();
        }
        kept
    }

    /// Whether an event is not sent, because its account is erased.
    fn leaves_out(&mut self, state: &State, ordinal: u64, account: AccountId, kind: Kind) -> bool {
        if ordinal >= self.came {
            return kind != Kind::Account && self.left_out.contains(&account);
        }
        let left_out = cursor::is_left_out(state, account, kind);
        if left_out {
            self.left_out.insert(account);
            self.left_out_until = state.events.count;
        }
        left_out
    }

    /// Where the next event lies in the object of events.
    fn place(&mut self) -> Option<(u64, u64)> {
        if let Some(offset) = self.offset {
            return Some((self.next, offset));
        }
        let state = self.shared.state();
        state.events.start_at(self.next).map(|point| (point.ordinal, point.offset))
    }

    /// Reads events from the disk; none does not mean that there are none.
    fn replay(&mut self) -> Result<Vec<Bytes>, String> {
        let Some((mut ordinal, mut offset)) = self.place() else {
            return Err("frames that were to be replayed are not kept any more".into());
        };
        let mut bytes_max = REPLAY_BYTES;
        loop {
            let begun = ordinal;
            let bytes = match self.shared.read_some(EVENTS, offset, bytes_max) {
                Ok(bytes) if bytes.is_empty() => {
                    return Err("frames that were to be replayed are not kept any more".into());
                }
                Ok(bytes) => bytes,
                Err(Fault::Gone) => return Err("frames that were to be replayed are not kept any more".into()),
                Err(Fault::Damaged(why)) => return Err(why),
            };
            let (mut input, mut frames) = (Reader::new(bytes), Vec::new());
            let shared = Arc::clone(&self.shared);
            let state = shared.state();
            while let Some(length) = whole_event(&input) {
                let before = input.remaining();
                let (seq, _, account, kind, frame) = decode_event(&mut input).map_err(|error| error.to_string())?;
                debug_assert_eq!(before - input.remaining(), length);
                let skipped = ordinal < self.next || seq.0 <= self.behind;
                if !skipped && !self.leaves_out(&state, ordinal, account, kind) {
                    frames.push(frame);
                }
                self.seq = self.seq.max(seq.0);
                (ordinal, offset) = (ordinal + 1, offset + length as u64);
            }
            drop(state);
            if ordinal > self.next {
                (self.next, self.offset) = (ordinal, Some(offset));
                return Ok(frames);
            }
            // Either what was read lies before the place, or one event is longer than what was asked for.
            self.offset = Some(offset).filter(|_| ordinal == self.next);
            bytes_max = match event_bytes(&input) {
                Some(bytes) if ordinal == begun && bytes > bytes_max && bytes <= READ_BYTES_MAX => bytes,
                _ if ordinal > begun => REPLAY_BYTES,
                _ => return Err(format!("what lies at byte {offset} of the frames is none")),
            };
        }
    }

    /// Waits until [`Self::take`] has something.
    pub async fn ready(&mut self) {
        poll_fn(|context| self.poll_ready(context)).await;
    }

    /// As [`Self::ready`], for whoever polls.
    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.first.is_some() || !self.shared.ring.wake_behind(self.id, self.next, context.waker()) {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Waits on this thread until there is something, or for so long; whether there is.
    pub fn wait(&mut self, longest: Duration) -> bool {
        struct Unpark(std::thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        if self.poll_ready(&mut context).is_ready() {
            return true;
        }
        std::thread::park_timeout(longest);
        self.poll_ready(&mut context).is_ready()
    }
}

/// The length of the event at the front, if its head is there.
fn event_bytes(input: &Reader) -> Option<u64> {
    let mut head = input.clone();
    head.raw(EVENT_HEAD_BYTES - 4).ok()?;
    Some(EVENT_HEAD_BYTES as u64 + u64::from(head.u32().ok()?))
}

/// The length of the event at the front, if all of it is there.
fn whole_event(input: &Reader) -> Option<usize> {
    let length = usize::try_from(event_bytes(input)?).ok()?;
    (input.remaining() >= length).then_some(length)
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.shared.ring.moved(self.id, None);
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").field("next", &self.next).field("live", &self.live).finish_non_exhaustive()
    }
}

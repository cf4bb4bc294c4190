//! What goes into a shard's core and what comes out of it.

use super::hot::Load;
use super::snapshot::{ObjectLocated, SnapshotAnswer, SnapshotQuestion};
use crate::api::{ControlAnswer, ReadAnswer, ReadRequest, Unavailable, WriteAnswer};
use crate::json;
use bytes::{Buf, Bytes};
use highwater_base::{GroupId, Incarnation, Millis, Offset, OwnerId};
use highwater_consensus::entry::ENTRY_HEADER_BYTES;
use highwater_store::{
    Checkpoint, CheckpointDone, CheckpointError, Found, LookupError, Pin, ReadError, ReadPlan, Reclaim, StoreReader,
};
use highwater_stream::{Command, Head, Operation, ProducerKey, Refusal};
use highwater_wal::{AppendError, Frame, Location};
use std::ops::Range;
use std::sync::Arc;

/// The moment of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Monotonic milliseconds, for waits and deadlines.
    pub monotonic: u64,
    /// The wall clock, by which streams expire.
    pub wall: Millis,
}

/// Who waits for an answer: a channel in production, a number in the simulator.
pub trait Token {
    /// Whether nobody waits any more. A waiting read is then dropped.
    fn abandoned(&self) -> bool {
        false
    }
}

impl Token for u64 {}

/// Which group a write is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// That of the stream at a path.
    Stream(String),
    /// The control group.
    Control,
}

/// A write as it is proposed: a command, encoded behind the room for an entry's header.
#[derive(Debug)]
pub struct Proposal {
    /// Whose it is.
    pub place: Place,
    /// The record.
    pub record: Vec<u8>,
    /// Whether it may use what a full log keeps back: a delete and its like, which make room, and what a key is revoked
    /// with.
    pub makes_room: bool,
}

impl Proposal {
    /// Encodes a write. Done by whoever asks, so that the shard's thread copies no body.
    #[must_use]
    pub fn new(at: Millis, path: String, operation: Operation) -> Self {
        let makes_room = matches!(
            operation,
            Operation::Delete { .. }
                | Operation::DiscardParts { .. }
                | Operation::Retain { .. }
                | Operation::Expire { .. }
        );
        let command = Command { at, path, operation };
        let record = command.encode_behind(&[0; ENTRY_HEADER_BYTES]);
        Self { place: Place::Stream(command.path), record, makes_room }
    }

    /// Encodes a change of the control plane.
    #[must_use]
    pub fn control(at: Millis, operation: highwater_control::Operation) -> Self {
        let command = highwater_control::Command { at, operation };
        let record = command.encode_behind(&[0; ENTRY_HEADER_BYTES]);
        Self { place: Place::Control, record, makes_room: true }
    }

    /// The answer to one of this kind that is not proposed.
    pub(super) fn refuse<T>(place: &Place, token: T, why: Unavailable) -> Output<T> {
        let answer = match place {
            Place::Stream(_) => Answer::Write(Err(why)),
            Place::Control => Answer::Control(Err(why)),
        };
        Output::Answer(token, answer)
    }
}

/// What a shard's core is told.
#[derive(Debug)]
pub enum Input<T> {
    /// Order a write and apply it; answered with [`Answer::Write`], or [`Answer::Control`] for the control plane.
    Write {
        /// Who waits.
        token: T,
        /// The write.
        proposal: Proposal,
    },
    /// What is known about a stream; answered with [`Answer::Head`].
    Head {
        /// Who waits.
        token: T,
        /// The stream.
        path: String,
        /// The time for which it is asked.
        at: Millis,
    },
    /// A range of a stream; answered with [`Answer::Read`].
    Read {
        /// Who waits.
        token: T,
        /// What to read.
        request: ReadRequest,
    },
    /// A keyed write's early answer; answered with [`Answer::Early`].
    Early {
        /// Who waits.
        token: T,
        /// The stream.
        path: String,
        /// Its token, as the write states it.
        incarnation: Incarnation,
        /// The write's key.
        key: ProducerKey,
    },
    /// A question about a snapshot; answered with [`Answer::Snapshot`].
    Snapshot {
        /// Who waits.
        token: T,
        /// What is asked.
        question: SnapshotQuestion,
    },
    /// Where bytes of a snapshot's part lie; answered with [`Answer::Located`].
    Locate {
        /// Who waits.
        token: T,
        /// The stream, which decides the group.
        path: String,
        /// The part's object.
        object: u64,
        /// Which bytes of it.
        range: Range<u64>,
    },
    /// The log's word on the frames of the one [`Output::Append`] under way.
    Appended(Result<Vec<Location>, AppendError>),
    /// A checkpoint's end.
    Checkpointed {
        /// Whose it was.
        group: GroupId,
        /// What became of it.
        result: Result<CheckpointDone, CheckpointError>,
    },
    /// A checkpoint of a group, kept while it is copied; answered with [`Answer::Pin`] once there is a fresh one.
    Pin {
        /// Who waits.
        token: T,
        /// The group.
        group: GroupId,
    },
    /// What a trip to a group's index found.
    Loaded {
        /// Whose it was.
        group: GroupId,
        /// What became of it.
        result: Result<Vec<Found>, LookupError>,
        /// Microseconds that it took.
        took_us: u64,
    },
    /// Bytes of file that the log can still take, if the disk has no space for a further segment.
    LogRoom(Option<u64>),
    /// A thread that the node cannot do without is gone: nothing can be acknowledged any more.
    Failed(String),
    /// A tenth of a second has passed.
    Tick,
}

/// What a shard's core wants done.
pub enum Output<T> {
    /// Answer a request.
    Answer(T, Answer),
    /// Make these frames durable, as one batch, and say so with [`Input::Appended`]. One at a time.
    Append(Vec<Frame>),
    /// Tell the front ends what the control plane knows now, before any answer that comes out with this.
    Publish(Arc<highwater_control::View>),
    /// Run a checkpoint, away from the shard's thread. One at a time.
    Checkpoint(GroupId, Checkpoint),
    /// Look up what a group wants in memory, away from the shard's thread, and say so with [`Input::Loaded`]. One at a time of
    /// each group.
    Load(GroupId, Load),
    /// Delete data files that nothing names any more, by dropping this where I/O is done.
    Reclaim(Reclaim),
    /// Tell the log that an owner needs nothing below a position.
    Release(OwnerId, u64),
    /// Tell the log that an owner releases nothing any more, so that it holds nobody up for its sake.
    Abandon(OwnerId),
    /// Every group has recorded the new history of a restored directory: remove its mark, away from the shard's thread.
    HistoryRecorded,
    /// The log or a thread failed: nothing will be acknowledged any more. Stop the node.
    Failed(String),
}

/// An answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// To a write.
    Write(Result<WriteAnswer, Unavailable>),
    /// To a change of the control plane.
    Control(Result<ControlAnswer, Unavailable>),
    /// To a head.
    Head(Result<Result<Head, Refusal>, Unavailable>),
    /// To a read: where the bytes are.
    Read(Result<Result<ReadLocated, Refusal>, Unavailable>),
    /// To a question about a snapshot.
    Snapshot(Result<Result<SnapshotAnswer, Refusal>, Unavailable>),
    /// Where bytes of a part lie.
    Located(Result<ObjectLocated, Unavailable>),
    /// To an early answer.
    Early(Result<Option<WriteAnswer>, Unavailable>),
    /// To one who wants to copy a group: its checkpoint.
    Pin(Result<Pin, Unavailable>),
}

/// A read whose bytes are located and not yet fetched.
#[derive(Debug)]
pub struct ReadLocated {
    /// Whose store holds them.
    pub group: GroupId,
    /// Where they lie; absent if there are none to read.
    pub plan: Option<ReadPlan>,
    /// Where the read begins.
    pub start: Offset,
    /// Where it ends.
    pub next: Offset,
    /// The stream's token.
    pub incarnation: Incarnation,
    /// Its content type.
    pub content_type: String,
    /// Whether `next` is the stream's end.
    pub up_to_date: bool,
    /// Whether `next` is the end of a closed stream.
    pub closed: bool,
    /// Whether the read waited and nothing came.
    pub timed_out: bool,
    /// Whether the plan begins with the byte in front of `start`, which tells whether that is between two messages.
    pub led: bool,
}

impl ReadLocated {
    /// Fetches the bytes; blocks on the disk.
    /// # Errors
    /// `Moved` if they must be located again, or what is wrong.
    pub fn fetch(self, reader: Option<&StoreReader>) -> Result<ReadAnswer, ReadError> {
        let mut body = match (&self.plan, reader) {
            (Some(plan), Some(reader)) => reader.read(plan)?,
            (Some(_), None) => return Err(ReadError::Log("the group's files were not opened".to_owned())),
            (None, _) => Bytes::new(),
        };
        let boundary = !self.led || body.first() == Some(&json::BOUNDARY);
        if self.led {
            body.advance(1);
        }
        Ok(ReadAnswer {
            start: self.start,
            next: self.next,
            incarnation: self.incarnation,
            content_type: self.content_type,
            up_to_date: self.up_to_date,
            closed: self.closed,
            body,
            boundary,
            timed_out: self.timed_out,
        })
    }
}

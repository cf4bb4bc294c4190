//! Where an answer goes.

use crate::api::{ControlAnswer, Unavailable, WriteAnswer};
use crate::handle::Admission;
use crate::shard::{Answer, ObjectLocated, ReadLocated, SnapshotAnswer, Token};
use highwater_store::Pin;
use highwater_stream::{Head, Refusal};
use tokio::sync::oneshot::Sender;

/// A task that waits. A write holds its room for the body until it is answered.
pub(crate) enum Reply {
    Write(Sender<Result<WriteAnswer, Unavailable>>, Admission),
    Control(Sender<Result<ControlAnswer, Unavailable>>),
    Head(Sender<Result<Result<Head, Refusal>, Unavailable>>),
    Read(Sender<Result<Result<ReadLocated, Refusal>, Unavailable>>),
    Early(Sender<Result<Option<WriteAnswer>, Unavailable>>),
    Pin(Sender<Result<Pin, Unavailable>>),
    Snapshot(Sender<Result<Result<SnapshotAnswer, Refusal>, Unavailable>>),
    Located(Sender<Result<ObjectLocated, Unavailable>>),
}

impl Reply {
    /// Sends an answer; one whose task has gone is dropped.
    pub fn send(self, answer: Answer) {
        let gone = match (self, answer) {
            (Self::Write(sender, admission), Answer::Write(answer)) => {
                drop(admission);
                sender.send(answer).is_err()
            }
            (Self::Control(sender), Answer::Control(answer)) => sender.send(answer).is_err(),
            (Self::Head(sender), Answer::Head(answer)) => sender.send(answer).is_err(),
            (Self::Read(sender), Answer::Read(answer)) => sender.send(answer).is_err(),
            (Self::Early(sender), Answer::Early(answer)) => sender.send(answer).is_err(),
            (Self::Pin(sender), Answer::Pin(answer)) => sender.send(answer).is_err(),
            (Self::Snapshot(sender), Answer::Snapshot(answer)) => sender.send(answer).is_err(),
            (Self::Located(sender), Answer::Located(answer)) => sender.send(answer).is_err(),
            // The core answers a question in its own kind.
            _ => unreachable!("an answer of another kind than its question"),
        };
        if gone {
            tracing::trace!("an answer found nobody waiting");
        }
    }
}

impl Token for Reply {
    fn abandoned(&self) -> bool {
        match self {
            Self::Write(sender, _) => sender.is_closed(),
            Self::Control(sender) => sender.is_closed(),
            Self::Head(sender) => sender.is_closed(),
            Self::Read(sender) => sender.is_closed(),
            Self::Early(sender) => sender.is_closed(),
            Self::Pin(sender) => sender.is_closed(),
            Self::Snapshot(sender) => sender.is_closed(),
            Self::Located(sender) => sender.is_closed(),
        }
    }
}

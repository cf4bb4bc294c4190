//! What is asked about snapshots, and where the bytes of an object lie.

use super::group::GroupCore;
use super::hot::Parked;
use super::input::{Answer, Output};
use highwater_base::{GroupId, Incarnation, Millis, Offset};
use highwater_store::ReadPlan;
use highwater_stream::{Outcome, Refusal, SnapshotHead, SnapshotPart, SnapshotScope};
use std::ops::Range;

/// A question about a stream's snapshot, as of now at the earliest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotQuestion {
    /// The stream.
    pub path: String,
    /// Only of this history of it.
    pub incarnation: Option<Incarnation>,
    /// What is asked.
    pub about: SnapshotAbout,
}

/// What is asked about a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotAbout {
    /// Whether one of this name may be published, or is the latest one already.
    Publish(SnapshotHead),
    /// The staged parts that one would be made of.
    Parts(Vec<Incarnation>),
    /// The latest one, if it is at this offset.
    Latest(Offset),
}

/// The answer, each to its own question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotAnswer {
    /// What it was answered with if it is published already; nothing if its bytes decide.
    Publish(Option<Outcome>),
    /// The parts, in the order asked for.
    Parts(Vec<SnapshotPart>),
    /// The snapshot.
    Latest(SnapshotScope),
}

/// Where bytes of an object lie.
#[derive(Debug)]
pub struct ObjectLocated {
    /// Whose store holds them.
    pub group: GroupId,
    /// Where they lie; it may end early, and is empty if the object is gone.
    pub plan: ReadPlan,
}

impl<T> GroupCore<T> {
    /// Answers a question about a snapshot from the state as it is.
    pub fn snapshot(&self, question: &SnapshotQuestion, at: Millis) -> Result<SnapshotAnswer, Refusal> {
        let streams = self.machine.streams().ok_or(Refusal::StreamNotFound)?;
        let (path, asked) = (&question.path, question.incarnation);
        match &question.about {
            SnapshotAbout::Publish(named) => {
                streams.check_publish(path, at, asked, *named).map(SnapshotAnswer::Publish)
            }
            SnapshotAbout::Parts(parts) => streams.check_parts(path, at, asked, parts).map(SnapshotAnswer::Parts),
            SnapshotAbout::Latest(offset) => {
                streams.check_snapshot(path, at, asked, *offset).map(SnapshotAnswer::Latest)
            }
        }
    }

    /// Tells where bytes of a part lie now, once its places are in memory. A part never changes while it is there, so that no
    /// confirmation is needed.
    pub fn locate_object(&mut self, token: T, object: u64, range: Range<u64>, out: &mut Vec<Output<T>>) {
        if self.lacks_object(object) {
            return self.hot.park(Parked::Locate(token, object, range));
        }
        let plan = self.store.plan_read(object, range.start, range.end.saturating_sub(range.start));
        let answer = Answer::Located(Ok(ObjectLocated { group: self.id, plan }));
        out.push(Output::Answer(token, answer));
    }
}

//! Turns that were handed over, and everything else that the writer of the log is told.

use crate::error::Unsettled;
use crate::slot::{Slot, lock};
use highwater_pds::Draft;
use highwater_repo::Tree;
use highwater_store::{CheckpointDone, CheckpointError};
use highwater_wal::log::SpareDone;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of turns that wait at the most: sixteen batches, a second of a disk that writes 64 MB/s.
const QUEUED_BYTES_MAX: usize = 64 << 20;
/// Bytes of one batch, but for a single larger turn: written and synced in a few milliseconds.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Who is told what became of a turn.
pub(crate) type Done = Box<dyn FnOnce(Result<(), Unsettled>) + Send>;

/// Who is told whether a checkpoint was made.
pub(crate) type Told = Box<dyn FnOnce(Result<(), String>) + Send>;

/// What an account hands over.
pub(crate) struct Turn {
    /// Whose it is, and the generation that it was built in.
    pub slot: Option<(Arc<Slot>, u64)>,
    /// Shared with turns that are of no use without each other: set once one of them was refused.
    pub chain: Option<Arc<AtomicBool>>,
    /// Without parts it only waits for what was handed over before.
    pub draft: Draft,
    /// Instead of it, when its frames find no room.
    pub fallback: Option<Draft>,
    /// It takes something away from an account, so that room on a full disk is kept for it.
    pub urgent: bool,
    /// The account's tree after it, if it is another one, without the layers that do not stay in memory.
    pub tree: Option<Tree>,
    pub done: Done,
}

impl Turn {
    /// Bytes of its record, about.
    pub fn bytes(&self) -> usize {
        self.draft.bytes()
    }
}

/// What else the writer is told.
pub(crate) enum Mail {
    Spare(SpareDone),
    Checkpointed(Result<CheckpointDone, CheckpointError>),
    /// Make a checkpoint now, and say when it is done.
    Checkpoint(Told),
}

#[derive(Default)]
struct Inner {
    turns: VecDeque<Turn>,
    bytes: usize,
    mail: Vec<Mail>,
    stopping: bool,
    ended: Option<String>,
}

/// What waits for the writer of the log.
#[derive(Default)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    work: Condvar,
}

/// What the writer takes at once.
pub(crate) struct Batch {
    pub turns: Vec<Turn>,
    pub mail: Vec<Mail>,
    /// Nothing is left, and nothing more will come.
    pub last: bool,
}

impl Queue {
    /// Hands a turn over. If it is not taken, the caller hears it here and from nowhere else.
    pub fn push(&self, turn: Turn) -> Result<(), Unsettled> {
        self.offer(turn).map_err(|refused| refused.1)
    }

    /// The same, and who is refused gets the turn back.
    pub fn offer(&self, turn: Turn) -> Result<(), Box<(Turn, Unsettled)>> {
        let mut inner = lock(&self.inner);
        let why = match &inner.ended {
            Some(why) => Some(Unsettled::Stopped(why.clone())),
            None if inner.stopping => Some(Unsettled::Stopped("it is being stopped".into())),
            // What takes something away from an account is small, and waits for nobody's large writes to be taken.
            None if inner.bytes > QUEUED_BYTES_MAX && !turn.urgent => Some(Unsettled::Busy),
            None => None,
        };
        if let Some(why) = why {
            return Err(Box::new((turn, why)));
        }
        inner.bytes += turn.bytes();
        inner.turns.push_back(turn);
        drop(inner);
        self.work.notify_one();
        Ok(())
    }

    /// Tells the writer something; lost if it ended.
    pub fn tell(&self, mail: Mail) {
        let mut inner = lock(&self.inner);
        if inner.ended.is_none() {
            inner.mail.push(mail);
            drop(inner);
            self.work.notify_one();
        }
    }

    /// What is there now.
    pub fn take(&self) -> Batch {
        let mut inner = lock(&self.inner);
        let (mut turns, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES_MAX
            && let Some(turn) = inner.turns.pop_front()
        {
            bytes += turn.bytes();
            turns.push(turn);
        }
        inner.bytes -= bytes;
        let mail = std::mem::take(&mut inner.mail);
        let last = inner.stopping && inner.turns.is_empty();
        Batch { turns, mail, last }
    }

    /// Waits until something is there, or for so long.
    pub fn wait(&self, longest: Duration) {
        let inner = lock(&self.inner);
        let idle = |inner: &mut Inner| inner.turns.is_empty() && inner.mail.is_empty() && !inner.stopping;
        drop(self.work.wait_timeout_while(inner, longest, idle).unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes nothing more; what was handed over is still done.
    pub fn stop(&self) {
        lock(&self.inner).stopping = true;
        self.work.notify_all();
    }

    /// Why nothing is taken any more, once that is so.
    pub fn ended(&self) -> Option<String> {
        lock(&self.inner).ended.clone()
    }

    /// Nothing is done any more; whoever waits hears why.
    pub fn end(&self, why: &str) {
        let mut inner = lock(&self.inner);
        let why = inner.ended.get_or_insert_with(|| why.to_owned()).clone();
        let turns = std::mem::take(&mut inner.turns);
        let mail = std::mem::take(&mut inner.mail);
        drop(inner);
        for turn in turns {
            (turn.done)(Err(Unsettled::Stopped(why.clone())));
        }
        for mail in mail {
            if let Mail::Checkpoint(done) = mail {
                done(Err(why.clone()));
            }
        }
    }
}

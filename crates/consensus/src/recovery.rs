//! A log as it was found on disk, validated before the crate `raft` sees it.
//!
//! `raft` panics over a state that breaks its invariants ("hs.commit is out of range", "to_commit is out of range").
//! Here such a state is an error with a name, and the group refuses to serve instead of taking the process down.

use crate::entry::{Base, ConfState, Entry, EntryKind, HardState};
use crate::message::NUMBER_END;
use highwater_base::NodeId;
use std::collections::{BTreeSet, VecDeque};
use thiserror::Error;

/// Why a replica's stored state cannot be one that it wrote.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecoveryError {
    /// A replica begins with index 1 at the least.
    #[error("the log's base is at index 0 or term 0")]
    BaseUnset,
    /// A term or an index that no group will ever reach.
    #[error("the log holds a term or an index beyond every log")]
    Range,
    /// An entry between two that are there is missing.
    #[error("entry {expected} is missing: the next one found is {found}")]
    Gap {
        /// The index that was due.
        expected: u64,
        /// The index that came.
        found: u64,
    },
    /// Terms never fall along a log (Raft paper, section 5.3).
    #[error("entry {index} has term {term}, behind one of term {previous}")]
    TermFell {
        /// The entry.
        index: u64,
        /// Its term.
        term: u64,
        /// The term before it.
        previous: u64,
    },
    /// An entry replaces one that was committed (Raft paper, figure 3, Leader Completeness).
    #[error("entry {index} replaces a committed one; the log is committed up to {commit}")]
    CommittedReplaced {
        /// The entry.
        index: u64,
        /// The commit index.
        commit: u64,
    },
    /// Entries that were committed are not there.
    #[error("the log was committed up to {commit} and ends at {last}")]
    CommitBeyondLog {
        /// The commit index.
        commit: u64,
        /// The last entry found.
        last: u64,
    },
    /// A replica's own term is at least that of every entry it stored.
    #[error("the replica's term is {term}, and its log holds an entry of term {log_term}")]
    TermBehindLog {
        /// The replica's term.
        term: u64,
        /// The greatest term in its log.
        log_term: u64,
    },
    /// The membership contradicts itself.
    #[error("the membership is not one: {0}")]
    Membership(&'static str),
    /// The replica is not part of its own group.
    #[error("node {} is not a member of the group", .0.0)]
    NotAMember(NodeId),
}

/// Collects a replica's records in the order in which they were written.
///
/// Entries known to be committed can be taken out as soon as they are known to be, so that a long log is never in
/// memory as a whole.
#[derive(Debug, Clone)]
pub struct RecoveredLog {
    base: Base,
    entries: VecDeque<Entry>,
}

impl RecoveredLog {
    /// A log that begins at a checkpoint or a bootstrap.
    #[must_use]
    pub fn new(base: Base) -> Self {
        Self { base, entries: VecDeque::new() }
    }

    /// The last index that is there.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.base.index + self.entries.len() as u64
    }

    /// The base as it stands now: it moves with [`Self::take_committed`].
    #[must_use]
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// Adds the next stored entry. One at or below the base is covered by the checkpoint; one inside the log cuts it
    /// there first, because a replica stores an entry twice only when a leader replaced the tail.
    /// # Errors
    /// `Gap`, `TermFell` or `CommittedReplaced`; the log is unchanged.
    pub fn entry(&mut self, entry: Entry) -> Result<(), RecoveryError> {
        if entry.index <= self.base.index {
            return Ok(());
        }
        let expected = self.last() + 1;
        if entry.index > expected {
            return Err(RecoveryError::Gap { expected, found: entry.index });
        }
        let commit = self.base.hard_state.commit;
        if entry.index < expected && entry.index <= commit {
            return Err(RecoveryError::CommittedReplaced { index: entry.index, commit });
        }
        let keep = usize::try_from(entry.index - self.base.index - 1).expect("entries in memory fit its size");
        let previous = match keep.checked_sub(1) {
            Some(before) => self.entries[before].term,
            None => self.base.term,
        };
        if entry.term < previous {
            return Err(RecoveryError::TermFell { index: entry.index, term: entry.term, previous });
        }
        self.entries.truncate(keep);
        self.entries.push_back(entry);
        Ok(())
    }

    /// Adds the next stored hard state. An older one than the base's is covered by it.
    pub fn hard_state(&mut self, state: HardState) {
        let known = &mut self.base.hard_state;
        if state.term > known.term || (state.term == known.term && known.vote == 0) {
            (known.term, known.vote) = (state.term, state.vote);
        }
        known.commit = known.commit.max(state.commit);
    }

    /// Takes out what is known to be committed, oldest first, and moves the base behind it. Stops before a change of
    /// membership, which only the running group can apply.
    pub fn take_committed(&mut self) -> Vec<Entry> {
        let mut committed = Vec::new();
        while let Some(first) = self.entries.front() {
            if first.index > self.base.hard_state.commit || first.kind == EntryKind::Membership {
                break;
            }
            (self.base.index, self.base.term) = (first.index, first.term);
            committed.extend(self.entries.pop_front());
        }
        committed
    }

    /// Checks everything that `raft` would panic about.
    pub(crate) fn validate(mut self, node: NodeId) -> Result<(Base, VecDeque<Entry>), RecoveryError> {
        let base = &mut self.base;
        if base.index == 0 || base.term == 0 {
            return Err(RecoveryError::BaseUnset);
        }
        let HardState { term, commit, .. } = base.hard_state;
        if [base.index, base.term, term, commit].iter().any(|n| *n >= NUMBER_END) {
            return Err(RecoveryError::Range);
        }
        base.hard_state.commit = base.hard_state.commit.max(base.index);
        let (commit, last) = (base.hard_state.commit, base.index + self.entries.len() as u64);
        if commit > last {
            return Err(RecoveryError::CommitBeyondLog { commit, last });
        }
        let log_term = self.entries.back().map_or(base.term, |e| e.term);
        if base.hard_state.term < log_term {
            return Err(RecoveryError::TermBehindLog { term: base.hard_state.term, log_term });
        }
        check_membership(&base.conf_state, node)?;
        Ok((self.base, self.entries))
    }
}

fn check_membership(state: &ConfState, node: NodeId) -> Result<(), RecoveryError> {
    let set = |list: &[NodeId], what| -> Result<BTreeSet<NodeId>, RecoveryError> {
        let set: BTreeSet<_> = list.iter().copied().collect();
        if set.len() != list.len() || set.contains(&NodeId(0)) {
            return Err(RecoveryError::Membership(what));
        }
        Ok(set)
    };
    let voters = set(&state.voters, "a voter is listed twice or has id 0")?;
    let outgoing = set(&state.voters_outgoing, "an outgoing voter is listed twice or has id 0")?;
    let learners = set(&state.learners, "a learner is listed twice or has id 0")?;
    let next = set(&state.learners_next, "a next learner is listed twice or has id 0")?;
    if voters.is_empty() {
        return Err(RecoveryError::Membership("there is no voter"));
    }
    if learners.iter().any(|l| voters.contains(l) || outgoing.contains(l)) {
        return Err(RecoveryError::Membership("a learner is a voter too"));
    }
    if next.iter().any(|l| !outgoing.contains(l) || voters.contains(l)) {
        return Err(RecoveryError::Membership("a next learner is not an outgoing voter alone"));
    }
    if outgoing.is_empty() && state.auto_leave {
        return Err(RecoveryError::Membership("a joint change ends that never began"));
    }
    if !(voters.contains(&node) || outgoing.contains(&node) || learners.contains(&node)) {
        return Err(RecoveryError::NotAMember(node));
    }
    Ok(())
}

//! What replicas tell each other, with its own codec (`docs/formats/raft.md`).
//!
//! Bytes from a network never reach a protobuf parser, and what was decoded is checked against the replica's state
//! before `raft`, which panics over an impossible message, sees it.

use crate::entry::{ConfState, Entry, FORMAT_VERSION, read_conf_state, version, write_conf_state};
use bytes::Bytes;
use highwater_base::NodeId;
use highwater_base::codec::{DecodeError, Reader, Writer};
use raft::eraftpb::{self, MessageType};
use thiserror::Error;

/// Entries of one message; a leader sends at most a few MiB at once.
const ENTRIES_MAX: u32 = 1 << 16;

/// One more than the largest term or index: a thousand years of a billion a second. Sums of two stay in range.
pub(crate) const NUMBER_END: u64 = 1 << 62;

/// Why a message was not taken. The replica is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum StepError {
    /// A kind of message that this replica does not take from others.
    #[error("a message of this kind is not taken from another node")]
    Kind,
    /// The message is for another node.
    #[error("the message is for node {0}")]
    NotForUs(u64),
    /// The sender does not belong to the group.
    #[error("node {0} does not belong to the group")]
    Stranger(u64),
    /// The leader counts on entries that are not here: this replica lost its log.
    #[error("the leader holds entry {commit} for stored here, and the log ends at {last}")]
    CommitBeyondLog {
        /// What the leader says is committed here.
        commit: u64,
        /// The last entry.
        last: u64,
    },
    /// A term or an index that no group will ever reach.
    #[error("the message holds a number beyond every log")]
    Range,
    /// Entries that do not follow one another, or that replace a committed one.
    #[error("the message's entries cannot follow this log")]
    Entries,
}

/// A message between two replicas of one group.
#[derive(Debug, Clone, PartialEq)]
pub struct Message(eraftpb::Message);

/// The kinds that travel, with their stored numbers.
const KINDS: [(u8, MessageType); 10] = [
    (1, MessageType::MsgAppend),
    (2, MessageType::MsgAppendResponse),
    (3, MessageType::MsgRequestVote),
    (4, MessageType::MsgRequestVoteResponse),
    (5, MessageType::MsgSnapshot),
    (6, MessageType::MsgHeartbeat),
    (7, MessageType::MsgHeartbeatResponse),
    (9, MessageType::MsgTimeoutNow),
    (10, MessageType::MsgRequestPreVote),
    (11, MessageType::MsgRequestPreVoteResponse),
];

impl Message {
    pub(crate) fn from_raft(message: eraftpb::Message) -> Self {
        Self(message)
    }

    /// Who it is for.
    #[must_use]
    pub fn to(&self) -> NodeId {
        NodeId(self.0.to)
    }

    /// Who sent it.
    #[must_use]
    pub fn from(&self) -> NodeId {
        NodeId(self.0.from)
    }

    /// The form in which it travels, or `None` for a kind that stays inside a replica.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let message = &self.0;
        let kind = KINDS.iter().find(|(_, kind)| *kind == message.get_msg_type())?.0;
        let mut writer = Writer::new();
        writer.u8(FORMAT_VERSION).u8(kind).u64(message.to).u64(message.from).u64(message.term);
        writer.u64(message.log_term).u64(message.index).u64(message.commit).u64(message.commit_term);
        writer.u64(message.request_snapshot).bool(message.reject).u64(message.reject_hint);
        writer.u64(message.priority.cast_unsigned()).bytes(&message.context);
        writer.option(message.snapshot.as_ref(), |w, snapshot| {
            let meta = snapshot.get_metadata();
            w.u64(meta.index).u64(meta.term);
            write_conf_state(&ConfState::from_raft(meta.get_conf_state()), w);
            w.bytes(&snapshot.data);
        });
        writer.u32(u32::try_from(message.entries.len()).ok()?);
        for entry in &message.entries {
            let entry = Entry::from_raft(entry.clone());
            writer.u64(entry.index).bytes(&entry.record);
        }
        Some(writer.into_vec())
    }

    /// Reads the form in which it travels.
    /// # Errors
    /// `Short`, `Trailing`, `Version`, or `Invalid` for a field that no message has.
    pub fn decode(record: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(record);
        version(&mut reader)?;
        let kind = reader.u8()?;
        let (_, kind) = KINDS.iter().find(|(n, _)| *n == kind).ok_or(DecodeError::Invalid("message kind"))?;
        let mut message = eraftpb::Message::default();
        message.set_msg_type(*kind);
        (message.to, message.from, message.term) = (reader.u64()?, reader.u64()?, reader.u64()?);
        (message.log_term, message.index) = (reader.u64()?, reader.u64()?);
        (message.commit, message.commit_term) = (reader.u64()?, reader.u64()?);
        (message.request_snapshot, message.reject) = (reader.u64()?, reader.bool()?);
        (message.reject_hint, message.priority) = (reader.u64()?, reader.u64()?.cast_signed());
        message.context = reader.bytes()?;
        if reader.bool()? {
            message.snapshot = Some(read_snapshot(&mut reader)?).into();
        }
        let count = reader.u32()?;
        if count > ENTRIES_MAX {
            return Err(DecodeError::Invalid("entry count"));
        }
        for _ in 0..count {
            let index = reader.u64()?;
            message.entries.push(Entry::decode(index, reader.bytes()?)?.to_raft());
        }
        reader.finish()?;
        Ok(Self(message))
    }

    /// Checks everything that `raft` would panic about, against the log `committed..=last` whose terms `term` tells.
    pub(crate) fn admit(
        self,
        node: NodeId,
        committed: u64,
        last: u64,
        term: impl Fn(u64) -> Option<u64>,
    ) -> Result<eraftpb::Message, StepError> {
        let message = self.0;
        if message.to != node.0 {
            return Err(StepError::NotForUs(message.to));
        }
        let numbers = [
            message.term,
            message.log_term,
            message.index,
            message.commit,
            message.commit_term,
            message.reject_hint,
            message.request_snapshot,
        ];
        // Term 0 marks what a replica tells itself, and no log holds an entry of it.
        if message.term == 0 || numbers.iter().any(|n| *n >= NUMBER_END) {
            return Err(StepError::Range);
        }
        match message.get_msg_type() {
            // A replica that lags behind the base waits for a transfer of files, which does not exist yet.
            MessageType::MsgSnapshot => return Err(StepError::Kind),
            MessageType::MsgHeartbeat if message.commit > last => {
                return Err(StepError::CommitBeyondLog { commit: message.commit, last });
            }
            MessageType::MsgAppend => {
                if message.log_term == 0 || message.log_term > message.term {
                    return Err(StepError::Range);
                }
                let mut previous = message.log_term;
                for (entry, index) in message.entries.iter().zip(message.index.saturating_add(1)..) {
                    let replaces = index <= committed && term(index).is_some_and(|t| t != entry.term);
                    if entry.index != index || entry.term < previous || entry.term > message.term || replaces {
                        return Err(StepError::Entries);
                    }
                    previous = entry.term;
                }
            }
            _ if !message.entries.is_empty() => return Err(StepError::Entries),
            kind if KINDS.iter().all(|(_, k)| *k != kind) => return Err(StepError::Kind),
            _ => {}
        }
        Ok(message)
    }
}

fn read_snapshot(reader: &mut Reader) -> Result<eraftpb::Snapshot, DecodeError> {
    let mut snapshot = eraftpb::Snapshot::default();
    let meta = snapshot.mut_metadata();
    (meta.index, meta.term) = (reader.u64()?, reader.u64()?);
    meta.set_conf_state(read_conf_state(reader)?.to_raft());
    snapshot.data = reader.bytes()?;
    Ok(snapshot)
}

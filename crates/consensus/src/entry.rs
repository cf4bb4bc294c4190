//! Entries, hard state, configuration and the base of a log, with their stored form (`docs/formats/raft.md`).

use bytes::Bytes;
use highwater_base::NodeId;
use highwater_base::codec::{DecodeError, Reader, Writer};
use raft::eraftpb;

/// The version that every stored record of this crate begins with.
pub const FORMAT_VERSION: u8 = 1;

/// Bytes in front of an entry's data: version, kind, term.
pub const ENTRY_HEADER_BYTES: usize = 10;

/// Members of one list of a configuration; far above any cluster, so that a flipped bit cannot ask for gigabytes.
const MEMBERS_MAX: u32 = 64;

/// What an entry is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A command of the state machine.
    Command,
    /// The entry without data that a leader begins its term with (Raft paper, section 8).
    Noop,
    /// A change of membership.
    Membership,
}

/// One entry of the replicated log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the log, from 1.
    pub index: u64,
    /// The term of the leader that appended it.
    pub term: u64,
    /// What it is for.
    pub kind: EntryKind,
    /// The stored form: a header of [`ENTRY_HEADER_BYTES`], then the data. Shared, not copied, from the proposal to
    /// the write-ahead log.
    pub record: Bytes,
}

impl Entry {
    /// The stored form of an entry with this data.
    #[must_use]
    pub fn record(kind: EntryKind, term: u64, data: &[u8]) -> Bytes {
        let mut record = Vec::with_capacity(ENTRY_HEADER_BYTES + data.len());
        record.extend_from_slice(&Self::header(kind, term));
        record.extend_from_slice(data);
        record.into()
    }

    fn header(kind: EntryKind, term: u64) -> [u8; ENTRY_HEADER_BYTES] {
        let mut header = [0; ENTRY_HEADER_BYTES];
        header[0] = FORMAT_VERSION;
        header[1] = match kind {
            EntryKind::Command => 0,
            EntryKind::Noop => 1,
            EntryKind::Membership => 2,
        };
        header[2..].copy_from_slice(&term.to_le_bytes());
        header
    }

    /// The data behind the header.
    #[must_use]
    pub fn data(&self) -> Bytes {
        self.record.slice(ENTRY_HEADER_BYTES..)
    }

    /// Reads the stored form of the entry at `index`.
    /// # Errors
    /// `Short`, `Version`, or `Invalid` for an unknown kind, a term of zero, or a noop that has data.
    pub fn decode(index: u64, record: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(record.clone());
        version(&mut reader)?;
        let kind = match reader.u8()? {
            0 => EntryKind::Command,
            1 => EntryKind::Noop,
            2 => EntryKind::Membership,
            _ => return Err(DecodeError::Invalid("entry kind")),
        };
        let term = reader.u64()?;
        if term == 0 {
            return Err(DecodeError::Invalid("entry term"));
        }
        if kind == EntryKind::Noop && reader.remaining() > 0 {
            return Err(DecodeError::Trailing(reader.remaining()));
        }
        Ok(Self { index, term, kind, record })
    }

    /// As the crate `raft` keeps it. A command travels with its header, so that its bytes are never copied.
    pub(crate) fn to_raft(&self) -> eraftpb::Entry {
        let mut entry = eraftpb::Entry { index: self.index, term: self.term, ..Default::default() };
        match self.kind {
            EntryKind::Command => entry.data = self.record.clone(),
            EntryKind::Noop => {}
            EntryKind::Membership => {
                entry.set_entry_type(eraftpb::EntryType::EntryConfChangeV2);
                entry.data = self.data();
            }
        }
        entry
    }

    /// Back from the crate `raft`.
    pub(crate) fn from_raft(entry: eraftpb::Entry) -> Self {
        let (index, term) = (entry.index, entry.term);
        let (kind, record) = match entry.get_entry_type() {
            eraftpb::EntryType::EntryNormal if entry.data.is_empty() => {
                (EntryKind::Noop, Self::record(EntryKind::Noop, term, &[]))
            }
            eraftpb::EntryType::EntryNormal => (EntryKind::Command, entry.data),
            eraftpb::EntryType::EntryConfChange | eraftpb::EntryType::EntryConfChangeV2 => {
                (EntryKind::Membership, Self::record(EntryKind::Membership, term, &entry.data))
            }
        };
        Self { index, term, kind, record }
    }
}

/// What a replica must remember across a restart (Raft paper, figure 2), and how far it knows the log committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HardState {
    /// The latest term seen.
    pub term: u64,
    /// The candidate voted for in that term, 0 for none.
    pub vote: u64,
    /// The highest index known to be committed. May lag behind; never runs ahead of the stored log.
    pub commit: u64,
}

impl HardState {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut writer = Writer::new();
        writer.u8(FORMAT_VERSION);
        self.write(&mut writer);
        writer.into_vec().into()
    }

    /// Reads the stored form.
    /// # Errors
    /// `Short`, `Trailing` or `Version`.
    pub fn decode(record: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(record);
        version(&mut reader)?;
        let state = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(state)
    }

    fn write(&self, writer: &mut Writer) {
        writer.u64(self.term).u64(self.vote).u64(self.commit);
    }

    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { term: reader.u64()?, vote: reader.u64()?, commit: reader.u64()? })
    }

    pub(crate) fn to_raft(self) -> eraftpb::HardState {
        eraftpb::HardState { term: self.term, vote: self.vote, commit: self.commit, ..Default::default() }
    }

    pub(crate) fn from_raft(state: &eraftpb::HardState) -> Self {
        Self { term: state.term, vote: state.vote, commit: state.commit }
    }
}

/// Who belongs to a group. The two middle lists are empty outside a joint change (Raft thesis, section 4.3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfState {
    /// Who votes.
    pub voters: Vec<NodeId>,
    /// Who receives the log without a vote.
    pub learners: Vec<NodeId>,
    /// Who voted before a joint change that is under way.
    pub voters_outgoing: Vec<NodeId>,
    /// Who becomes a learner when it ends.
    pub learners_next: Vec<NodeId>,
    /// Whether it ends by itself.
    pub auto_leave: bool,
}

impl ConfState {
    /// A group of one.
    #[must_use]
    pub fn lone(voter: NodeId) -> Self {
        Self { voters: vec![voter], ..Self::default() }
    }

    fn lists(&self) -> [&Vec<NodeId>; 4] {
        [&self.voters, &self.learners, &self.voters_outgoing, &self.learners_next]
    }

    fn write(&self, writer: &mut Writer) {
        for list in self.lists() {
            writer.u32(u32::try_from(list.len()).expect("a cluster has fewer than 2^32 members"));
            for member in list {
                writer.u64(member.0);
            }
        }
        writer.bool(self.auto_leave);
    }

    fn read(reader: &mut Reader) -> Result<Self, DecodeError> {
        let mut list = || -> Result<Vec<NodeId>, DecodeError> {
            let length = reader.u32()?;
            if length > MEMBERS_MAX {
                return Err(DecodeError::Invalid("member count"));
            }
            (0..length).map(|_| reader.u64().map(NodeId)).collect()
        };
        let (voters, learners, voters_outgoing, learners_next) = (list()?, list()?, list()?, list()?);
        Ok(Self { voters, learners, voters_outgoing, learners_next, auto_leave: reader.bool()? })
    }

    pub(crate) fn to_raft(&self) -> eraftpb::ConfState {
        let ids = |list: &[NodeId]| list.iter().map(|n| n.0).collect();
        eraftpb::ConfState {
            voters: ids(&self.voters),
            learners: ids(&self.learners),
            voters_outgoing: ids(&self.voters_outgoing),
            learners_next: ids(&self.learners_next),
            auto_leave: self.auto_leave,
            ..Default::default()
        }
    }

    pub(crate) fn from_raft(state: &eraftpb::ConfState) -> Self {
        let nodes = |list: &[u64]| list.iter().copied().map(NodeId).collect();
        Self {
            voters: nodes(&state.voters),
            learners: nodes(&state.learners),
            voters_outgoing: nodes(&state.voters_outgoing),
            learners_next: nodes(&state.learners_next),
            auto_leave: state.auto_leave,
        }
    }
}

/// Where a log begins: the last entry that is no longer needed, and the state of the replica there.
///
/// One record, so that its parts cannot come from different moments. A bootstrap writes it, and every checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// The last entry that the state machine's checkpoint covers.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// Hard state when the record was made; a later one may be in the log.
    pub hard_state: HardState,
    /// Membership as of `index`.
    pub conf_state: ConfState,
}

impl Base {
    /// The base of a new group of one voter.
    ///
    /// It stands at index 1, as if the membership had been an entry there, so that a replica without any state can
    /// be told from one that was initialised.
    #[must_use]
    pub fn bootstrap(voter: NodeId) -> Self {
        let hard_state = HardState { term: 1, vote: 0, commit: 1 };
        Self { index: 1, term: 1, hard_state, conf_state: ConfState::lone(voter) }
    }

    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut writer = Writer::new();
        writer.u8(FORMAT_VERSION).u64(self.index).u64(self.term);
        self.hard_state.write(&mut writer);
        self.conf_state.write(&mut writer);
        writer.into_vec().into()
    }

    /// Reads the stored form.
    /// # Errors
    /// `Short`, `Trailing`, `Version`, or `Invalid` for an impossible member count.
    pub fn decode(record: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(record);
        version(&mut reader)?;
        let (index, term) = (reader.u64()?, reader.u64()?);
        let hard_state = HardState::read(&mut reader)?;
        let conf_state = ConfState::read(&mut reader)?;
        reader.finish()?;
        Ok(Self { index, term, hard_state, conf_state })
    }
}

pub(crate) fn write_conf_state(state: &ConfState, writer: &mut Writer) {
    state.write(writer);
}

pub(crate) fn read_conf_state(reader: &mut Reader) -> Result<ConfState, DecodeError> {
    ConfState::read(reader)
}

pub(crate) fn version(reader: &mut Reader) -> Result<(), DecodeError> {
    match reader.u8()? {
        FORMAT_VERSION => Ok(()),
        other => Err(DecodeError::Version(u16::from(other))),
    }
}

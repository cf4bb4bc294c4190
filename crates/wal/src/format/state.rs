//! The state file.

use super::VERSION;
use crate::recovered::Verdict;
use highwater_base::OwnerId;
use highwater_base::codec::{DecodeError, Reader, Writer};
use std::collections::BTreeMap;

const MAGIC: [u8; 8] = *b"HWLOGSTA";

/// How the log's user ended, as recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It has the log open, or went down with it.
    Open,
    Clean,
    Poisoned(String),
}

/// A place in the log. Places compare in the order in which they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Spot {
    pub segment: u64,
    pub offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnerState {
    pub first_needed: u64,
    /// Frames before are no part of the log.
    pub base: Spot,
    /// The sequence of the first frame after `base`.
    pub base_sequence: u64,
    pub mark: Verdict,
}

impl Default for OwnerState {
    /// An owner that the log never heard of.
    fn default() -> Self {
        Self { first_needed: 0, base: Spot::default(), base_sequence: 1, mark: Verdict::Whole }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub identity: u64,
    pub condition: Condition,
    pub boot_id: String,
    pub first_segment: u64,
    /// Everything before was synced when this was written.
    pub synced: Spot,
    /// The mark of owners that are not listed.
    pub unlisted: Verdict,
    pub owners: BTreeMap<OwnerId, OwnerState>,
}

impl State {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Writer::new();
        let (condition, reason) = match &self.condition {
            Condition::Open => (0, ""),
            Condition::Clean => (1, ""),
            Condition::Poisoned(reason) => (2, reason.as_str()),
        };
        body.u64(self.identity).u8(condition).bytes(self.boot_id.as_bytes()).bytes(reason.as_bytes());
        body.u64(self.first_segment).u64(self.synced.segment).u64(self.synced.offset);
        encode_mark(&mut body, self.unlisted);
        body.u32(self.owners.len() as u32);
        for (owner, state) in &self.owners {
            body.u64(owner.0).u64(state.first_needed).u64(state.base.segment).u64(state.base.offset);
            body.u64(state.base_sequence);
            encode_mark(&mut body, state.mark);
            body.u64(0);
        }
        let body = body.into_vec();
        let mut record = Writer::new();
        record.raw(&MAGIC).u16(VERSION).u32(crc(VERSION, &body)).raw(&body);
        record.into_vec()
    }

    /// # Errors
    /// `Version` only if the record is whole; anything else for one that is not.
    pub(crate) fn decode(record: Vec<u8>) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(record.into());
        if reader.array()? != MAGIC {
            return Err(DecodeError::Invalid("magic"));
        }
        let version = reader.u16()?;
        let found = reader.u32()?;
        let body = reader.raw(reader.remaining())?;
        if crc(version, &body) != found {
            return Err(DecodeError::Invalid("checksum"));
        }
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let mut reader = Reader::new(body);
        let identity = reader.u64()?;
        let condition = reader.u8()?;
        let boot_id = reader.string()?;
        let reason = reader.string()?;
        let condition = match condition {
            0 => Condition::Open,
            1 => Condition::Clean,
            2 => Condition::Poisoned(reason),
            _ => return Err(DecodeError::Invalid("condition")),
        };
        let first_segment = reader.u64()?;
        let synced = Spot { segment: reader.u64()?, offset: reader.u64()? };
        let unlisted = decode_mark(&mut reader)?;
        let count = reader.u32()?;
        let mut owners = BTreeMap::new();
        for _ in 0..count {
            let owner = OwnerId(reader.u64()?);
            owners.insert(owner, Self::decode_owner(&mut reader)?);
        }
        reader.finish()?;
        Ok(Self { identity, condition, boot_id, first_segment, synced, unlisted, owners })
    }

    fn decode_owner(reader: &mut Reader) -> Result<OwnerState, DecodeError> {
        let first_needed = reader.u64()?;
        let base = Spot { segment: reader.u64()?, offset: reader.u64()? };
        let base_sequence = reader.u64()?;
        let mark = decode_mark(reader)?;
        reader.u64()?;
        Ok(OwnerState { first_needed, base, base_sequence, mark })
    }
}

fn encode_mark(body: &mut Writer, mark: Verdict) {
    let (kind, segment, offset) = match mark {
        Verdict::Whole => (0, 0, 0),
        Verdict::Recovering { segment, offset } => (1, segment, offset),
        Verdict::Damaged { segment, offset } => (2, segment, offset),
    };
    body.u8(kind).u64(segment).u64(offset);
}

fn decode_mark(reader: &mut Reader) -> Result<Verdict, DecodeError> {
    let kind = reader.u8()?;
    let (segment, offset) = (reader.u64()?, reader.u64()?);
    match kind {
        0 => Ok(Verdict::Whole),
        1 => Ok(Verdict::Recovering { segment, offset }),
        2 => Ok(Verdict::Damaged { segment, offset }),
        _ => Err(DecodeError::Invalid("mark")),
    }
}

/// The version is covered too, so that a turned bit in it is not taken for a later program's file.
fn crc(version: u16, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&version.to_le_bytes()), body)
}

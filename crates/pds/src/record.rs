//! What the log holds of one turn: one record, which applies as a whole.
//!
//! `docs/formats/pds.md` describes every byte.

use crate::account::{Account, AccountId, Head, Position, Standing};
use crate::frame::Kind;
use crate::sequence::{SEQ_MAX, Seq};
use crate::time::Micros;
use crate::{blob, credentials};
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_repo::Tid;
use std::ops::Range;

/// The version of a record.
pub(crate) const VERSION: u16 = 1;

const FACT: u8 = 1;
const EVENT: u8 = 2;
const COMMITTED_SENT: u8 = 3;
const COMMITTED_ALONE: u8 = 4;
const COPIED: u8 = 5;

/// A fact that changes the state by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// An account was made; its names are taken for good.
    Created(Box<Account>),
    /// An account stands elsewhere.
    Standing(AccountId, Standing),
    /// An `#account` frame with this position has a number: it stands in the same record.
    Announced(AccountId, Position),
    /// A `#sync` frame in the same record tells of the commit with this revision, which had gone without one.
    HeadSent(AccountId, Tid),
    /// An account's credentials changed.
    Credentials(AccountId, credentials::Change),
    /// An account's blobs changed.
    Blob(AccountId, blob::Change),
    /// Every later number is above this one.
    Floor(u64),
    /// A restore's course.
    Restore(Restore),
    /// Relays have to be asked to crawl, or need not any more.
    PokePending(bool),
    /// The server started, under a number that no other start has.
    Booted(u64),
    /// What the server signs session tokens with, as it is stored.
    SessionSecret {
        /// Whether it is encrypted.
        sealed: bool,
        /// The secret, or what the encryption made of it.
        secret: Bytes,
    },
}

/// A step of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restore {
    /// It began, under the marker's number, and fresh revisions are above this one.
    Begun {
        /// The marker's number.
        id: u64,
        /// From the marker.
        rev_min: Option<Tid>,
    },
    /// An account's frames stand in the same record.
    Progress {
        /// The marker's number.
        id: u64,
        /// Whose.
        account: AccountId,
    },
    /// It ended; only the marker is left to be removed.
    Done {
        /// The marker's number.
        id: u64,
    },
}

/// A frame with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub seq: Seq,
    /// When it was made.
    pub at: Micros,
    /// Whom it is about.
    pub account: AccountId,
    /// What it is.
    pub kind: Kind,
    /// The message, as it is sent.
    pub frame: Bytes,
    /// Where the event lies in the record: what the server keeps of it.
    pub place: Range<u32>,
}

/// A repository's new head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Whose.
    pub account: AccountId,
    /// The head.
    pub head: Head,
    /// Where its new blocks lie in the record, as sections of an archive.
    pub place: Range<u32>,
}

/// Blocks of a repository that were written together once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Whose.
    pub account: AccountId,
    /// Where they lie in the record, as sections of an archive.
    pub place: Range<u32>,
    /// With the last of them: what lies below this offset of the account's blocks is not needed any more.
    pub front: Option<u64>,
}

/// A part of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A fact.
    Fact(Fact),
    /// A frame.
    Event(Event),
    /// A head.
    Committed(Committed),
    /// Blocks.
    Copied(Copied),
}

/// One turn, as the log holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// When it was made.
    pub at: Micros,
    /// What it consists of, in order.
    pub entries: Vec<Entry>,
}

/// Bytes of an event that the server keeps, before the message.
pub const EVENT_HEAD_BYTES: usize = 8 + 8 + 8 + 1 + 4;

/// Takes an event off what the server keeps of events, or off a record.
/// # Errors
/// If there is none.
pub fn decode_event(input: &mut Reader) -> Result<(Seq, Micros, AccountId, Kind, Bytes), DecodeError> {
    let (seq, at, account) = (Seq(input.u64()?), Micros(input.u64()?), AccountId(input.u64()?));
    if !(1..=SEQ_MAX).contains(&seq.0) {
        return Err(DecodeError::Invalid("number of a frame"));
    }
    let kind = Kind::of_code(input.u8()?).ok_or(DecodeError::Invalid("kind of a frame"))?;
    Ok((seq, at, account, kind, input.bytes()?))
}

pub(crate) fn encode_fact(fact: &Fact, out: &mut Writer) {
    out.u8(FACT);
    match fact {
        Fact::Created(account) => account.encode(out.u8(1)),
        Fact::Standing(account, standing) => standing.encode(out.u8(2).u64(account.0)),
        Fact::Announced(account, position) => Position::encode_option(Some(*position), out.u8(3).u64(account.0)),
        Fact::Credentials(account, change) => change.encode(out.u8(4).u64(account.0)),
        Fact::HeadSent(account, rev) => {
            out.u8(13).u64(account.0).u64(rev.bits());
        }
        Fact::Blob(account, change) => change.encode(out.u8(5).u64(account.0)),
        Fact::Floor(floor) => {
            out.u8(6).u64(*floor);
        }
        Fact::Restore(Restore::Begun { id, rev_min }) => {
            out.u8(7).u64(*id).option(*rev_min, |out, rev| {
                out.u64(rev.bits());
            });
        }
        Fact::Restore(Restore::Progress { id, account }) => {
            out.u8(8).u64(*id).u64(account.0);
        }
        Fact::Restore(Restore::Done { id }) => {
            out.u8(9).u64(*id);
        }
        Fact::PokePending(pending) => {
            out.u8(10).bool(*pending);
        }
        Fact::Booted(nonce) => {
            out.u8(11).u64(*nonce);
        }
        Fact::SessionSecret { sealed, secret } => {
            out.u8(12).bool(*sealed).bytes(secret);
        }
    }
}

fn decode_fact(input: &mut Reader) -> Result<Fact, DecodeError> {
    let account = |input: &mut Reader| input.u64().map(AccountId);
    Ok(match input.u8()? {
        1 => Fact::Created(Box::new(Account::decode(input)?)),
        2 => Fact::Standing(account(input)?, Standing::decode(input)?),
        3 => {
            let account = account(input)?;
            let position = Position::decode_option(input)?.ok_or(DecodeError::Invalid("position"))?;
            Fact::Announced(account, position)
        }
        4 => Fact::Credentials(account(input)?, credentials::Change::decode(input)?),
        5 => Fact::Blob(account(input)?, blob::Change::decode(input)?),
        6 => Fact::Floor(input.u64()?),
        7 => {
            let id = input.u64()?;
            let rev_min = input.option(crate::account::decode_tid)?;
            Fact::Restore(Restore::Begun { id, rev_min })
        }
        8 => Fact::Restore(Restore::Progress { id: input.u64()?, account: account(input)? }),
        9 => Fact::Restore(Restore::Done { id: input.u64()? }),
        10 => Fact::PokePending(input.bool()?),
        11 => Fact::Booted(input.u64()?),
        12 => Fact::SessionSecret { sealed: input.bool()?, secret: input.bytes()? },
        13 => Fact::HeadSent(account(input)?, crate::account::decode_tid(input)?),
        _ => return Err(DecodeError::Invalid("fact")),
    })
}

/// Writes a record's start.
pub(crate) fn encode_start(at: Micros, out: &mut Writer) {
    out.u16(VERSION).u64(at.0);
}

/// Writes an event. Returns where its message begins.
pub(crate) fn encode_event(
    (seq, at, account): (Seq, Micros, AccountId),
    (kind, frame): (Kind, &[u8]),
    out: &mut Writer,
) -> usize {
    out.u8(EVENT).u64(seq.0).u64(at.0).u64(account.0).u8(kind.code()).bytes(frame);
    out.len() - frame.len()
}

/// Writes a head whose blocks lie in an event's message before it, at `place` in the record.
pub(crate) fn encode_sent(account: AccountId, head: &Head, place: &Range<usize>, out: &mut Writer) {
    head.encode(out.u8(COMMITTED_SENT).u64(account.0));
    out.u32(place.start as u32).u32(place.end as u32);
}

/// Writes a head with its blocks.
pub(crate) fn encode_alone(account: AccountId, head: &Head, sections: &[u8], out: &mut Writer) {
    head.encode(out.u8(COMMITTED_ALONE).u64(account.0));
    out.bytes(sections);
}

/// Writes copied blocks.
pub(crate) fn encode_copied(account: AccountId, front: Option<u64>, sections: &[u8], out: &mut Writer) {
    out.u8(COPIED).u64(account.0).option(front, |out, front| {
        out.u64(front);
    });
    out.bytes(sections);
}

/// Bytes of a record at the most: places in it are kept in 32 bits.
pub const RECORD_BYTES_MAX: usize = 1 << 30;

impl Record {
    /// Reads a record of the log. Frames are slices of it, not copies.
    /// # Errors
    /// If it is none, or of a later version.
    pub fn decode(payload: Bytes) -> Result<Self, DecodeError> {
        if payload.len() > RECORD_BYTES_MAX {
            return Err(DecodeError::Invalid("length of a record"));
        }
        let mut parts = Parts { total: payload.len(), input: Reader::new(payload), archive: None };
        match parts.input.u16()? {
            VERSION => {}
            version => return Err(DecodeError::Version(version)),
        }
        let (at, mut entries) = (Micros(parts.input.u64()?), Vec::new());
        while parts.input.remaining() > 0 {
            entries.push(parts.entry()?);
        }
        Ok(Self { at, entries })
    }
}

/// Takes the parts of a record off it.
struct Parts {
    total: usize,
    input: Reader,
    /// Whose the newest message with an archive is, and where it lies.
    archive: Option<(AccountId, Range<u32>)>,
}

impl Parts {
    fn position(&self) -> u32 {
        (self.total - self.input.remaining()) as u32
    }

    /// Where bytes of this length lie that end here.
    fn before(&self, bytes: &Bytes) -> Range<u32> {
        let end = self.position();
        end - bytes.len() as u32..end
    }

    fn entry(&mut self) -> Result<Entry, DecodeError> {
        Ok(match self.input.u8()? {
            FACT => Entry::Fact(decode_fact(&mut self.input)?),
            EVENT => {
                let start = self.position();
                let (seq, at, account, kind, frame) = decode_event(&mut self.input)?;
                if matches!(kind, Kind::Commit | Kind::Sync) {
                    self.archive = Some((account, self.before(&frame)));
                }
                Entry::Event(Event { seq, at, account, kind, frame, place: start..self.position() })
            }
            COMMITTED_SENT => {
                let (account, head) = (AccountId(self.input.u64()?), Head::decode(&mut self.input)?);
                let place = self.input.u32()?..self.input.u32()?;
                let inside = self.archive.as_ref().is_some_and(|(whose, message)| {
                    *whose == account
                        && message.start <= place.start
                        && place.start <= place.end
                        && place.end <= message.end
                });
                if !inside {
                    return Err(DecodeError::Invalid("place of blocks"));
                }
                Entry::Committed(Committed { account, head, place })
            }
            COMMITTED_ALONE => {
                let (account, head) = (AccountId(self.input.u64()?), Head::decode(&mut self.input)?);
                let sections = self.input.bytes()?;
                Entry::Committed(Committed { account, head, place: self.before(&sections) })
            }
            COPIED => {
                let (account, front) = (AccountId(self.input.u64()?), self.input.option(Reader::u64)?);
                let sections = self.input.bytes()?;
                Entry::Copied(Copied { account, place: self.before(&sections), front })
            }
            _ => return Err(DecodeError::Invalid("entry")),
        })
    }
}

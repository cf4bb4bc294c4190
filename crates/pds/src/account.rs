//! An account: its row, where it stands, and what relays are told of that.

use crate::credentials::Credentials;
use crate::draft::{Draft, Part};
use crate::record::Fact;
use crate::time::Micros;
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_repo::key::Curve;
use highwater_repo::syntax::{Did, Handle};
use highwater_repo::{Cid, Tid};
use thiserror::Error;

/// An account's number on this server, from 1; never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub u64);

impl AccountId {
    /// The largest: the server's store numbers what it keeps of an account in four times as many.
    pub const MAX: u64 = (1 << 61) - 1;

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let id = input.u64()?;
        if (1..=Self::MAX).contains(&id) { Ok(Self(id)) } else { Err(DecodeError::Invalid("number of an account")) }
    }
}

/// Why an account is not active, in the protocol's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// By the admin API.
    TakenDown,
    /// By the operator's lock.
    Suspended,
    /// Erased.
    Deleted,
    /// By its owner, or because it went elsewhere.
    Deactivated,
}

impl Status {
    /// As it is sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TakenDown => "takendown",
            Self::Suspended => "suspended",
            Self::Deleted => "deleted",
            Self::Deactivated => "deactivated",
        }
    }
}

/// What an `#account` frame says: the `active` and `status` pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Active, without a status.
    Active,
    /// Not active.
    Inactive(Status),
}

impl Position {
    fn encode(self, out: &mut Writer) {
        out.u8(match self {
            Self::Active => 0,
            Self::Inactive(Status::TakenDown) => 1,
            Self::Inactive(Status::Suspended) => 2,
            Self::Inactive(Status::Deleted) => 3,
            Self::Inactive(Status::Deactivated) => 4,
        });
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match input.u8()? {
            0 => Self::Active,
            1 => Self::Inactive(Status::TakenDown),
            2 => Self::Inactive(Status::Suspended),
            3 => Self::Inactive(Status::Deleted),
            4 => Self::Inactive(Status::Deactivated),
            _ => return Err(DecodeError::Invalid("position")),
        })
    }

    pub(crate) fn encode_option(position: Option<Self>, out: &mut Writer) {
        out.option(position, |out, position| position.encode(out));
    }

    pub(crate) fn decode_option(input: &mut Reader) -> Result<Option<Self>, DecodeError> {
        input.option(Self::decode)
    }
}

/// Why nothing of an account is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unserved {
    /// There is none, or relays are not to hear of it yet, or it was erased.
    #[error("there is no such repository")]
    NotFound,
    /// It stands where nothing is served.
    #[error("the account is {}", .0.as_str())]
    Inactive(Status),
}

/// What was done to an account. Each is done and undone by itself; the strongest shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// It was activated, and relays may hear of it.
    pub activated: bool,
    /// Relays hear of it with its first write.
    pub until_first_write: bool,
    /// Locked by the operator.
    pub suspended: bool,
    /// Taken down by the admin API.
    pub taken_down: bool,
    /// Deactivated by its owner.
    pub deactivated: bool,
    /// Handed to another host, or retired.
    pub decommissioned: bool,
    /// Erased, for good.
    pub erased: bool,
}

impl Standing {
    /// What an `#account` frame would say now; none for an account of which no relay was to hear yet.
    #[must_use]
    pub fn position(self) -> Option<Position> {
        if !self.activated || self.until_first_write {
            return None;
        }
        Some(self.shown())
    }

    /// What it would say if relays were to hear of the account.
    #[must_use]
    pub(crate) fn shown(self) -> Position {
        match self {
            Self { erased: true, .. } => Position::Inactive(Status::Deleted),
            Self { taken_down: true, .. } => Position::Inactive(Status::TakenDown),
            Self { suspended: true, .. } => Position::Inactive(Status::Suspended),
            Self { deactivated: true, .. } | Self { decommissioned: true, .. } => {
                Position::Inactive(Status::Deactivated)
            }
            _ => Position::Active,
        }
    }

    /// Whether it may write now.
    #[must_use]
    pub fn may_write(self) -> bool {
        let stopped = self.suspended || self.taken_down || self.deactivated || self.decommissioned || self.erased;
        self.activated && !stopped
    }

    pub(crate) fn encode(self, out: &mut Writer) {
        let flags = [
            self.activated,
            self.until_first_write,
            self.suspended,
            self.taken_down,
            self.deactivated,
            self.decommissioned,
            self.erased,
        ];
        out.u8(flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag)));
    }

    pub(crate) fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let bits = input.u8()?;
        if bits >> 7 != 0 {
            return Err(DecodeError::Invalid("standing"));
        }
        let flag = |place: u8| bits >> place & 1 == 1;
        Ok(Self {
            activated: flag(0),
            until_first_write: flag(1),
            suspended: flag(2),
            taken_down: flag(3),
            deactivated: flag(4),
            decommissioned: flag(5),
            erased: flag(6),
        })
    }
}

/// The newest commit of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The commit's block.
    pub commit: Cid,
    /// Its revision.
    pub rev: Tid,
    /// The root of the tree of records.
    pub data: Cid,
    /// A `#commit` or `#sync` frame that names it was numbered.
    pub sent: bool,
}

impl Head {
    pub(crate) fn encode(&self, out: &mut Writer) {
        encode_cid(&self.commit, out);
        encode_tid(self.rev, out);
        encode_cid(&self.data, out);
        out.bool(self.sent);
    }

    pub(crate) fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let (commit, rev, data) = (decode_cid(input)?, decode_tid(input)?, decode_cid(input)?);
        Ok(Self { commit, rev, data, sent: input.bool()? })
    }
}

/// A signing key as it is stored: plain, or encrypted under the key that lies outside the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// Its curve.
    pub curve: Curve,
    /// Its public half, as a multibase Multikey.
    pub public: String,
    /// Whether the secret is encrypted.
    pub sealed: bool,
    /// The secret: 32 bytes, or what the encryption made of them.
    pub secret: Bytes,
}

impl StoredKey {
    fn encode(&self, out: &mut Writer) {
        out.u8(match self.curve {
            Curve::K256 => 0,
            Curve::P256 => 1,
        });
        out.bytes(self.public.as_bytes()).bool(self.sealed).bytes(&self.secret);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let curve = match input.u8()? {
            0 => Curve::K256,
            1 => Curve::P256,
            _ => return Err(DecodeError::Invalid("curve")),
        };
        Ok(Self { curve, public: input.string()?, sealed: input.bool()?, secret: input.bytes()? })
    }
}

/// Where an account's blocks lie: offsets, in bytes, in the object of them that the server keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// Nothing below is needed.
    pub front: u64,
    /// Where the next block goes.
    pub end: u64,
    /// How far it reached, counted from `front`, when the blocks were last written together.
    pub compacted_bytes: u64,
}

impl Extent {
    /// Takes note of blocks behind the others; returns where they go.
    pub(crate) fn keep(&mut self, bytes: u64) -> u64 {
        let offset = self.end;
        self.end += bytes;
        offset
    }

    /// What lies below is not needed any more; what is left was written together.
    pub(crate) fn release(&mut self, front: u64) {
        self.front = front;
        self.compacted_bytes = self.end.saturating_sub(front);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let extent = Self { front: input.u64()?, end: input.u64()?, compacted_bytes: input.u64()? };
        let sound = extent.front <= extent.end && extent.compacted_bytes <= extent.end - extent.front;
        if sound { Ok(extent) } else { Err(DecodeError::Invalid("extent of blocks")) }
    }
}

/// An account's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its number.
    pub id: AccountId,
    /// Its name for good.
    pub did: Did,
    /// Its name for people, fixed as well.
    pub handle: Handle,
    /// What signs its commits, fixed as well.
    pub key: StoredKey,
    /// When it was made.
    pub created: Micros,
    /// Where it stands.
    pub standing: Standing,
    /// The position that the newest numbered `#account` frame stated.
    pub announced: Option<Position>,
    /// Its repository's newest commit, once it has one.
    pub head: Option<Head>,
    /// Where its blocks lie.
    pub blocks: Extent,
    /// What it logs in with.
    pub credentials: Credentials,
}

/// The version of a stored row.
const VERSION: u16 = 1;

impl Account {
    /// A new one, of which relays are not told and which has no repository yet.
    #[must_use]
    pub fn new((id, did, handle): (AccountId, Did, Handle), key: StoredKey, created: Micros) -> Self {
        Self {
            id,
            did,
            handle,
            key,
            created,
            standing: Standing::default(),
            announced: None,
            head: None,
            blocks: Extent::default(),
            credentials: Credentials::default(),
        }
    }

    /// What an `#account` frame would say now.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.standing.position()
    }

    /// Whether its repository, records and blobs are served: exactly while relays are told that it is active, since they ask what
    /// they were told of.
    /// # Errors
    /// [`Unserved`].
    /// Source: docs/reference/pds-accounts.md.
    pub fn served(&self) -> Result<(), Unserved> {
        match self.position() {
            Some(Position::Active) => Ok(()),
            None | Some(Position::Inactive(Status::Deleted)) => Err(Unserved::NotFound),
            Some(Position::Inactive(status)) => Err(Unserved::Inactive(status)),
        }
    }

    /// Whether its owner reads and exports it although nobody else does: while it is deactivated, and nothing else.
    ///
    /// Source: docs/reference/pds-accounts.md.
    #[must_use]
    pub fn owner_reads(&self) -> bool {
        self.position() == Some(Position::Inactive(Status::Deactivated)) && !self.standing.decommissioned
    }

    /// The newest commit of an account that may write, if no frame told of it yet: whoever sends the next frame needs its block.
    #[must_use]
    pub fn head_untold(&self) -> Option<Cid> {
        self.head.filter(|head| !head.sent && self.standing.may_write()).map(|head| head.commit)
    }

    /// Does what a turn hands over to this row, as the state will do it: for whoever builds the next turn before this one is durable.
    pub fn advance(&mut self, draft: &Draft) {
        for part in &draft.parts {
            match part {
                Part::Fact(fact) => self.advance_fact(fact),
                Part::Frame(..) => {}
                Part::Sent { account, head, stored } if *account == self.id => {
                    self.head = Some(*head);
                    self.blocks.keep(stored.len() as u64);
                }
                Part::Alone { account, head, sections } if *account == self.id => {
                    self.head = Some(*head);
                    self.blocks.keep(sections.len() as u64);
                }
                Part::Copied { account, sections, front } if *account == self.id => {
                    self.blocks.keep(sections.len() as u64);
                    let front = if self.standing.erased { Some(self.blocks.end) } else { *front };
                    if let Some(front) = front.filter(|front| *front > self.blocks.front) {
                        self.blocks.release(front);
                    }
                }
                Part::Sent { .. } | Part::Alone { .. } | Part::Copied { .. } => {}
            }
        }
    }

    fn advance_fact(&mut self, fact: &Fact) {
        match fact {
            Fact::Created(account) if account.id == self.id => self.clone_from(account),
            Fact::Standing(id, standing) if *id == self.id => self.stand(*standing),
            Fact::Announced(id, position) if *id == self.id => self.announced = Some(*position),
            Fact::HeadSent(id, rev) if *id == self.id => self.note_sent(*rev),
            Fact::Credentials(id, change) if *id == self.id => self.credentials.apply(change),
            _ => {}
        }
    }

    /// It stands elsewhere. What is erased keeps its names and its place in the stream, and nothing that anybody logs in with.
    pub(crate) fn stand(&mut self, standing: Standing) {
        self.standing = standing;
        if standing.erased {
            self.blocks.release(self.blocks.end);
            self.credentials = Credentials::default();
        }
    }

    /// A frame told of the commit with this revision.
    pub(crate) fn note_sent(&mut self, rev: Tid) {
        if let Some(head) = self.head.as_mut().filter(|head| head.rev == rev) {
            head.sent = true;
        }
    }

    /// Appends the row.
    pub fn encode(&self, out: &mut Writer) {
        out.u16(VERSION).u64(self.id.0).bytes(self.did.as_str().as_bytes()).bytes(self.handle.as_str().as_bytes());
        self.key.encode(out);
        out.u64(self.created.0);
        self.standing.encode(out);
        Position::encode_option(self.announced, out);
        out.option(self.head.as_ref(), |out, head| head.encode(out));
        out.u64(self.blocks.front).u64(self.blocks.end).u64(self.blocks.compacted_bytes);
        self.credentials.encode(out);
    }

    /// Takes a row off a record.
    /// # Errors
    /// If it is none, or of a later version.
    pub fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match input.u16()? {
            VERSION => {}
            version => return Err(DecodeError::Version(version)),
        }
        Ok(Self {
            id: AccountId::decode(input)?,
            did: input.string()?.parse().map_err(|_| DecodeError::Invalid("DID"))?,
            handle: input.string()?.parse().map_err(|_| DecodeError::Invalid("handle"))?,
            key: StoredKey::decode(input)?,
            created: Micros(input.u64()?),
            standing: Standing::decode(input)?,
            announced: Position::decode_option(input)?,
            head: input.option(Head::decode)?,
            blocks: Extent::decode(input)?,
            credentials: Credentials::decode(input)?,
        })
    }
}

pub(crate) fn encode_cid(cid: &Cid, out: &mut Writer) {
    out.raw(&cid.to_bytes());
}

pub(crate) fn decode_cid(input: &mut Reader) -> Result<Cid, DecodeError> {
    let bytes: [u8; highwater_repo::cid::CID_BYTES] = input.array()?;
    Cid::from_bytes(&bytes).map_err(|_| DecodeError::Invalid("CID"))
}

pub(crate) fn encode_tid(tid: Tid, out: &mut Writer) {
    out.u64(tid.bits());
}

pub(crate) fn decode_tid(input: &mut Reader) -> Result<Tid, DecodeError> {
    Tid::from_bits(input.u64()?).ok_or(DecodeError::Invalid("TID"))
}

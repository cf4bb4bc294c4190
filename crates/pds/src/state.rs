//! Everything, as the log made it.

use crate::account::{Account, AccountId, Extent};
use crate::blob::{Blobs, Change};
use crate::events::Events;
use crate::frame::Kind;
use crate::record::{Committed, Copied, Entry, Event, Fact, Record, Restore};
use crate::sequence::{SEQ_MAX, Sequence};
use crate::time::Micros;
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_repo::Tid;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use thiserror::Error;

/// The version of the stored state.
const VERSION: u16 = 1;

/// How far a restore has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restoring {
    /// The marker's number.
    pub id: u64,
    /// When it began: frames of it are kept as long as any.
    pub begun: Micros,
    /// Fresh revisions are above this one.
    pub rev_min: Option<Tid>,
    /// Accounts whose frames are durable.
    pub progress: BTreeSet<AccountId>,
    /// Whether it ended.
    pub done: bool,
}

/// What the server remembers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// Accounts, erased ones included: their names are never given again.
    pub accounts: BTreeMap<AccountId, Account>,
    /// Their blobs.
    pub blobs: BTreeMap<AccountId, Blobs>,
    /// Accounts by their DIDs.
    dids: BTreeMap<String, AccountId>,
    /// Accounts by their handles.
    handles: BTreeMap<String, AccountId>,
    /// Numbers.
    pub sequence: Sequence,
    /// Frames.
    pub events: Events,
    /// The newest restore.
    pub restore: Option<Restoring>,
    /// Relays have to be asked to crawl.
    pub poke_pending: bool,
    /// The newest start's number.
    pub boot_nonce: u64,
    /// That of the start before it.
    pub boot_nonce_before: u64,
    /// What session tokens are signed with: whether it is encrypted, and the bytes.
    pub session_secret: Option<(bool, Bytes)>,
    /// The newest record's time.
    pub newest: Micros,
    /// Rows that changed since they were stored.
    changed: BTreeSet<AccountId>,
    /// Blob lists that changed since they were stored.
    blobs_changed: BTreeSet<AccountId>,
}

/// What a record means for what is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A part of the record is an event, at an offset of the object of events.
    EventKept {
        /// Where it goes, in bytes.
        offset: u64,
        /// Where it lies in the record.
        place: Range<u32>,
    },
    /// A part of the record is blocks, at an offset of the account's object of blocks.
    BlocksKept {
        /// Whose.
        account: AccountId,
        /// Where they go, in bytes.
        offset: u64,
        /// Where they lie in the record.
        place: Range<u32>,
    },
    /// Blocks of an account below an offset are not needed any more.
    BlocksReleased {
        /// Whose.
        account: AccountId,
        /// In bytes.
        front: u64,
    },
    /// A blob is not needed any more. When a log is replayed, a later record may bring it back: its file goes only if the account does
    /// not hold it once everything was applied.
    BlobRemoved(AccountId, highwater_repo::Cid),
}

/// Rows and lists that have to be stored, encoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changed {
    /// Rows.
    pub rows: Vec<(AccountId, Bytes)>,
    /// Lists of blobs; none is left of an erased account.
    pub blobs: Vec<(AccountId, Option<Bytes>)>,
}

/// A record that contradicts what was there before it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the record contradicts the state: {0}")]
pub struct Contradiction(pub String);

impl State {
    /// An account by its DID.
    #[must_use]
    pub fn by_did(&self, did: &str) -> Option<&Account> {
        self.accounts.get(self.dids.get(did)?)
    }

    /// An account by its handle, erased ones included.
    #[must_use]
    pub fn by_handle(&self, handle: &str) -> Option<&Account> {
        self.accounts.get(self.handles.get(handle)?)
    }

    /// Accounts in the order of their DIDs.
    pub fn by_did_order(&self) -> impl Iterator<Item = &Account> {
        self.dids.values().filter_map(|id| self.accounts.get(id))
    }

    /// Fresh revisions are above this one: what the lost run of the newest restore may have minted, as far as its operator knew. An
    /// account that was locked during the restore gets its fresh commit later.
    #[must_use]
    pub fn rev_min(&self) -> Option<Tid> {
        self.restore.as_ref().and_then(|restore| restore.rev_min)
    }

    /// Gives up events that are older than `window_seconds` or beyond `bytes_max`, but none of a restore that is younger than that.
    /// Returns the offset below which no events are kept, if it moved.
    pub fn expire(&mut self, now: Micros, window_seconds: u64, bytes_max: u64) -> Option<u64> {
        let before = Micros(now.0.saturating_sub(window_seconds.saturating_mul(1_000_000)));
        let restored = self.restore.as_ref().map(|restore| restore.begun).filter(|begun| *begun > before);
        let moved = self.events.expire(before, bytes_max, restored);
        if let Some(oldest) = self.events.oldest() {
            self.sequence.forget_gaps(oldest.seq.0);
        }
        moved
    }

    /// An account by whichever name somebody gave: its DID, letter by letter, or its handle, whose case does not matter.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Account> {
        self.by_did(name).or_else(|| self.by_handle(&name.to_ascii_lowercase()))
    }

    /// The number of the next account.
    #[must_use]
    pub fn next_account(&self) -> AccountId {
        AccountId(self.accounts.keys().next_back().map_or(1, |id| id.0 + 1))
    }

    /// Applies a record. Returns what it means for what is stored, in order.
    /// # Errors
    /// [`Contradiction`]; the state is then of no use.
    pub fn apply(&mut self, record: &Record) -> Result<Vec<Effect>, Contradiction> {
        self.newest = self.newest.max(record.at);
        let (mut effects, mut told) = (Vec::new(), None);
        for entry in &record.entries {
            match entry {
                Entry::Fact(fact) => {
                    check_told(fact, told)?;
                    self.apply_fact(fact, record.at, &mut effects)?;
                }
                Entry::Event(event) => {
                    told = Some((event.kind, event.account));
                    self.event(event, &mut effects)?;
                }
                Entry::Committed(committed) => self.commit(committed, &mut effects)?,
                Entry::Copied(copied) => self.copy(copied, &mut effects)?,
            }
        }
        Ok(effects)
    }

    fn event(&mut self, event: &Event, effects: &mut Vec<Effect>) -> Result<(), Contradiction> {
        if event.seq.0 <= self.sequence.ceiling() {
            return Err(Contradiction(format!("frame {} is not above the stream", event.seq)));
        }
        if !self.accounts.contains_key(&event.account) {
            return Err(Contradiction(format!(
                "frame {} is about account {}, which is none",
                event.seq, event.account.0
            )));
        }
        let offset = self.events.push(event);
        self.sequence.note(event.seq);
        effects.push(Effect::EventKept { offset, place: event.place.clone() });
        Ok(())
    }

    fn apply_fact(&mut self, fact: &Fact, at: Micros, effects: &mut Vec<Effect>) -> Result<(), Contradiction> {
        match fact {
            Fact::Created(account) => self.create(account)?,
            Fact::Standing(id, standing) => {
                let account = self.account(*id)?;
                account.stand(*standing);
                if standing.erased {
                    effects.push(Effect::BlocksReleased { account: *id, front: account.blocks.end });
                    self.erase_blobs(*id, effects);
                }
            }
            Fact::Announced(id, position) => self.account(*id)?.announced = Some(*position),
            Fact::HeadSent(id, rev) => self.account(*id)?.note_sent(*rev),
            Fact::Credentials(id, change) => self.account(*id)?.credentials.apply(change),
            Fact::Blob(id, change) => self.change_blobs(*id, change, effects)?,
            Fact::Floor(floor) if *floor > SEQ_MAX => {
                return Err(Contradiction(format!("floor {floor} is above every number")));
            }
            Fact::Floor(floor) => self.sequence.raise(*floor),
            Fact::Restore(step) => self.restore(*step, at)?,
            Fact::PokePending(pending) => self.poke_pending = *pending,
            Fact::Booted(nonce) => self.boot_nonce_before = std::mem::replace(&mut self.boot_nonce, *nonce),
            Fact::SessionSecret { sealed, secret } => self.session_secret = Some((*sealed, secret.clone())),
        }
        Ok(())
    }

    /// The row of an account that is about to change.
    fn account(&mut self, id: AccountId) -> Result<&mut Account, Contradiction> {
        self.changed.insert(id);
        self.accounts.get_mut(&id).ok_or_else(|| Contradiction(format!("there is no account {}", id.0)))
    }

    fn create(&mut self, account: &Account) -> Result<(), Contradiction> {
        if self.is_taken(account) {
            return Err(Contradiction(format!("{} or its handle is taken", account.did)));
        }
        self.insert(account.clone());
        self.changed.insert(account.id);
        Ok(())
    }

    fn is_taken(&self, account: &Account) -> bool {
        self.dids.contains_key(account.did.as_str())
            || self.handles.contains_key(account.handle.as_str())
            || self.accounts.contains_key(&account.id)
    }

    fn insert(&mut self, account: Account) {
        self.dids.insert(account.did.as_str().to_owned(), account.id);
        self.handles.insert(account.handle.as_str().to_owned(), account.id);
        self.accounts.insert(account.id, account);
    }

    fn change_blobs(&mut self, id: AccountId, change: &Change, effects: &mut Vec<Effect>) -> Result<(), Contradiction> {
        let Some(account) = self.accounts.get(&id) else {
            return Err(Contradiction(format!("there is no account {}", id.0)));
        };
        if account.standing.erased {
            // An upload that was under way.
            if let Change::Uploaded { cid, .. } = change {
                effects.push(Effect::BlobRemoved(id, *cid));
            }
            return Ok(());
        }
        self.blobs_changed.insert(id);
        let blobs = self.blobs.entry(id).or_default();
        blobs.apply(change);
        if let Change::Removed(cid) = change
            && !blobs.0.contains_key(cid)
        {
            effects.push(Effect::BlobRemoved(id, *cid));
        }
        Ok(())
    }

    fn erase_blobs(&mut self, id: AccountId, effects: &mut Vec<Effect>) {
        if let Some(blobs) = self.blobs.remove(&id) {
            self.blobs_changed.insert(id);
            effects.extend(blobs.0.into_keys().map(|cid| Effect::BlobRemoved(id, cid)));
        }
    }

    fn commit(&mut self, committed: &Committed, effects: &mut Vec<Effect>) -> Result<(), Contradiction> {
        let account = self.account(committed.account)?;
        if account.standing.erased {
            return Err(Contradiction(format!("{} has a commit behind its end", account.did)));
        }
        if account.head.is_some_and(|head| committed.head.rev <= head.rev) {
            return Err(Contradiction(format!("{} has a revision that is not newer", account.did)));
        }
        account.head = Some(committed.head);
        effects.push(keep(committed.account, &mut account.blocks, &committed.place));
        Ok(())
    }

    fn copy(&mut self, copied: &Copied, effects: &mut Vec<Effect>) -> Result<(), Contradiction> {
        let account = self.account(copied.account)?;
        effects.push(keep(copied.account, &mut account.blocks, &copied.place));
        // An erasure that came in between gave everything up already, and the copy goes the same way.
        let front = if account.standing.erased { Some(account.blocks.end) } else { copied.front };
        if let Some(front) = front.filter(|front| *front > account.blocks.front) {
            if front > account.blocks.end {
                return Err(Contradiction(format!(
                    "blocks of {} are given up to {front}, where none are",
                    account.did
                )));
            }
            account.blocks.release(front);
            effects.push(Effect::BlocksReleased { account: copied.account, front });
        }
        Ok(())
    }

    fn restore(&mut self, step: Restore, at: Micros) -> Result<(), Contradiction> {
        match (step, &mut self.restore) {
            (Restore::Begun { id, rev_min }, restore) => {
                *restore = Some(Restoring { id, begun: at, rev_min, progress: BTreeSet::new(), done: false });
            }
            (Restore::Progress { id, account }, Some(restore)) if restore.id == id => {
                restore.progress.insert(account);
            }
            (Restore::Done { id }, Some(restore)) if restore.id == id => restore.done = true,
            (step, _) => return Err(Contradiction(format!("{step:?} of a restore that did not begin"))),
        }
        Ok(())
    }

    /// What changed since the last call.
    pub fn take_changed(&mut self) -> Changed {
        let rows = std::mem::take(&mut self.changed).into_iter().filter_map(|id| {
            let mut out = Writer::new();
            self.accounts.get(&id)?.encode(&mut out);
            Some((id, out.into_vec().into()))
        });
        let rows: Vec<_> = rows.collect();
        let lists = std::mem::take(&mut self.blobs_changed).into_iter().map(|id| {
            let list = self.blobs.get(&id).map(|blobs| {
                let mut out = Writer::new();
                blobs.encode(&mut out);
                Bytes::from(out.into_vec())
            });
            (id, list)
        });
        Changed { rows, blobs: lists.collect() }
    }

    /// Everything but rows and blob lists.
    #[must_use]
    pub fn encode_rest(&self) -> Bytes {
        let mut out = Writer::new();
        out.u16(VERSION);
        self.sequence.encode(&mut out);
        self.events.encode(&mut out);
        out.option(self.restore.as_ref(), |out, restore| {
            out.u64(restore.id).u64(restore.begun.0).option(restore.rev_min, |out, rev| {
                out.u64(rev.bits());
            });
            out.bool(restore.done).u32(restore.progress.len() as u32);
            for account in &restore.progress {
                out.u64(account.0);
            }
        });
        out.bool(self.poke_pending).u64(self.boot_nonce).u64(self.boot_nonce_before).u64(self.newest.0);
        out.option(self.session_secret.as_ref(), |out, (sealed, secret)| {
            out.bool(*sealed).bytes(secret);
        });
        out.into_vec().into()
    }

    /// The state that was stored; rows and blob lists follow with [`Self::load_row`] and [`Self::load_blobs`].
    /// # Errors
    /// If these bytes are none, or of a later version.
    pub fn decode_rest(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut input = Reader::new(bytes);
        match input.u16()? {
            VERSION => {}
            version => return Err(DecodeError::Version(version)),
        }
        let sequence = Sequence::decode(&mut input)?;
        let events = Events::decode(&mut input)?;
        let restore = input.option(decode_restoring)?;
        let (poke_pending, boot_nonce, boot_nonce_before) = (input.bool()?, input.u64()?, input.u64()?);
        let newest = Micros(input.u64()?);
        let session_secret = input.option(|input| Ok((input.bool()?, input.bytes()?)))?;
        input.finish()?;
        Ok(Self {
            sequence,
            events,
            restore,
            poke_pending,
            boot_nonce,
            boot_nonce_before,
            newest,
            session_secret,
            ..Self::default()
        })
    }

    /// Takes in a stored row. Returns whose it is.
    /// # Errors
    /// If it is none, or names in it are those of another row.
    pub fn load_row(&mut self, row: Bytes) -> Result<AccountId, DecodeError> {
        let mut input = Reader::new(row);
        let account = Account::decode(&mut input)?;
        input.finish()?;
        let id = account.id;
        if self.is_taken(&account) {
            return Err(DecodeError::Invalid("names of an account"));
        }
        self.insert(account);
        Ok(id)
    }

    /// Takes in a stored list of blobs.
    /// # Errors
    /// If it is none.
    pub fn load_blobs(&mut self, account: AccountId, list: Bytes) -> Result<(), DecodeError> {
        let mut input = Reader::new(list);
        let blobs = Blobs::decode(&mut input)?;
        input.finish()?;
        self.blobs.insert(account, blobs);
        Ok(())
    }
}

/// What relays were told stands beside the frame that tells them.
fn check_told(fact: &Fact, told: Option<(Kind, AccountId)>) -> Result<(), Contradiction> {
    let needed = match fact {
        Fact::Announced(account, _) => Some((Kind::Account, *account)),
        Fact::HeadSent(account, _) => Some((Kind::Sync, *account)),
        _ => None,
    };
    if needed.is_some() && needed != told {
        return Err(Contradiction(format!("{fact:?} stands behind no frame that says so")));
    }
    Ok(())
}

fn decode_restoring(input: &mut Reader) -> Result<Restoring, DecodeError> {
    let (id, begun) = (input.u64()?, Micros(input.u64()?));
    let rev_min = input.option(crate::account::decode_tid)?;
    let (done, mut progress) = (input.bool()?, BTreeSet::new());
    for _ in 0..input.u32()? {
        let account = AccountId(input.u64()?);
        if progress.last().is_some_and(|last| *last >= account) {
            return Err(DecodeError::Invalid("progress of a restore"));
        }
        progress.insert(account);
    }
    Ok(Restoring { id, begun, rev_min, progress, done })
}

/// Takes note of blocks behind the others.
fn keep(account: AccountId, blocks: &mut Extent, place: &Range<u32>) -> Effect {
    let offset = blocks.keep(u64::from(place.end - place.start));
    Effect::BlocksKept { account, offset, place: place.clone() }
}

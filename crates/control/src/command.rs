//! What can be asked of the control plane.

use crate::credential::KeyId;
use crate::limits::{BUCKETS_MAX, PREFIXES_MAX};
use crate::record::{put_text, put_texts, put_time, take_scopes, take_texts, take_time};
use crate::scope::Scopes;
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_base::{Digest, Millis};

/// One change, as it is proposed, ordered and applied. The time and every random number were made by the proposer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The leader's wall clock when it proposed this.
    pub at: Millis,
    /// What to do.
    pub operation: Operation,
}

/// What a change does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Makes a key.
    CreateKey(CreateKey),
    /// Refuses a key from now on, for good. A key that is revoked stays listed.
    RevokeKey {
        /// Which.
        id: KeyId,
        /// Even if it is the last that could make another, or the last of all.
        last: bool,
    },
    /// Gives a key an end.
    ExpireKey {
        /// Which.
        id: KeyId,
        /// From when on it is refused; absent takes its end away.
        expires: Option<Millis>,
    },
    /// Makes an account, or finds one with the same plan and buckets.
    CreateAccount(CreateAccount),
    /// Changes an account.
    PatchAccount(PatchAccount),
    /// Makes a plan, or finds one with the same limits.
    CreatePlan {
        /// Drawn; names it in the store.
        number: u64,
        /// Its name.
        name: String,
        /// What it grants. Those that are [`Change::Keep`] have no bound.
        limits: PlanChanges,
    },
    /// Changes limits of a plan, at once and for every account that has it.
    PatchPlan {
        /// Which.
        name: String,
        /// The new limits.
        limits: PlanChanges,
    },
    /// Removes an account that has neither buckets nor keys that are not revoked.
    DeleteAccount {
        /// Which.
        name: String,
    },
    /// Removes a plan that no account has.
    DeletePlan {
        /// Which.
        name: String,
    },
}

/// A new key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateKey {
    /// The id that was drawn; the key gets the first free one from it on.
    pub id: KeyId,
    /// The hash of the secret that was drawn.
    pub secret: Digest,
    /// What it may do.
    pub scopes: Scopes,
    /// Where; everywhere if there are none.
    pub prefixes: Vec<String>,
    /// Whose it is.
    pub account: Option<String>,
    /// From when on it is refused.
    pub expires: Option<Millis>,
    /// For people.
    pub note: String,
    /// The request's id: the same one twice is one key.
    pub request: Option<String>,
}

/// A new account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateAccount {
    /// Drawn; names it in the store.
    pub number: u64,
    /// Its name.
    pub name: String,
    /// The name of its plan, which must be there.
    pub plan: String,
    /// Its buckets.
    pub buckets: Vec<String>,
}

/// Changes of an account; what is absent stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchAccount {
    /// Which.
    pub name: String,
    /// Its new plan.
    pub plan: Option<String>,
    /// Its new buckets, in place of those it had.
    pub buckets: Option<Vec<String>>,
    /// Whether its keys are refused.
    pub revoked: Option<bool>,
}

/// What becomes of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Change {
    /// It stays.
    #[default]
    Keep,
    /// It has no bound any more.
    Clear,
    /// It is this.
    Set(u64),
}

impl Change {
    /// The limit after it.
    #[must_use]
    pub fn apply(self, limit: Option<u64>) -> Option<u64> {
        match self {
            Self::Keep => limit,
            Self::Clear => None,
            Self::Set(limit) => Some(limit),
        }
    }
}

/// What becomes of each limit of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanChanges {
    /// Of [`crate::PlanLimits::storage_bytes_max`].
    pub storage_bytes_max: Change,
    /// Of [`crate::PlanLimits::requests_per_second`].
    pub requests_per_second: Change,
    /// Of [`crate::PlanLimits::requests_burst`].
    pub requests_burst: Change,
    /// Of [`crate::PlanLimits::append_bytes_per_second`].
    pub append_bytes_per_second: Change,
    /// Of [`crate::PlanLimits::replicas`].
    pub replicas: Change,
}

impl PlanChanges {
    /// All of them, in the order of the formats.
    pub(crate) fn all(&self) -> [Change; 5] {
        let Self { storage_bytes_max, requests_per_second, requests_burst, append_bytes_per_second, replicas } = *self;
        [storage_bytes_max, requests_per_second, requests_burst, append_bytes_per_second, replicas]
    }

    fn of(all: [Change; 5]) -> Self {
        let [storage_bytes_max, requests_per_second, requests_burst, append_bytes_per_second, replicas] = all;
        Self { storage_bytes_max, requests_per_second, requests_burst, append_bytes_per_second, replicas }
    }
}

/// The only version of the encoding that there is (`docs/formats/control.md`).
const VERSION: u16 = 1;

const CREATE_KEY: u8 = 1;
const REVOKE_KEY: u8 = 2;
const EXPIRE_KEY: u8 = 3;
const CREATE_ACCOUNT: u8 = 4;
const PATCH_ACCOUNT: u8 = 5;
const CREATE_PLAN: u8 = 6;
const PATCH_PLAN: u8 = 7;
const DELETE_ACCOUNT: u8 = 8;
const DELETE_PLAN: u8 = 9;

impl Command {
    /// The command's bytes, as the log keeps them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.encode_behind(&[])
    }

    /// As [`Command::encode`], behind a header that another record needs.
    #[must_use]
    pub fn encode_behind(&self, header: &[u8]) -> Vec<u8> {
        let mut w = Writer::new();
        w.raw(header).u16(VERSION).u64(self.at.0);
        match &self.operation {
            Operation::CreateKey(key) => {
                w.u8(CREATE_KEY).u64(key.id.get()).raw(&key.secret.0).u16(key.scopes.bits());
                put_texts(&mut w, &key.prefixes);
                w.option(key.account.as_deref(), put_text).option(key.expires, put_time);
                w.bytes(key.note.as_bytes()).option(key.request.as_deref(), put_text);
            }
            Operation::RevokeKey { id, last } => {
                w.u8(REVOKE_KEY).u64(id.get()).bool(*last);
            }
            Operation::ExpireKey { id, expires } => {
                w.u8(EXPIRE_KEY).u64(id.get()).option(*expires, put_time);
            }
            Operation::CreateAccount(account) => {
                w.u8(CREATE_ACCOUNT).u64(account.number).bytes(account.name.as_bytes());
                put_texts(w.bytes(account.plan.as_bytes()), &account.buckets);
            }
            Operation::PatchAccount(patch) => {
                w.u8(PATCH_ACCOUNT).bytes(patch.name.as_bytes()).option(patch.plan.as_deref(), put_text);
                w.option(patch.buckets.as_deref(), put_texts).option(patch.revoked, |w, revoked| {
                    w.bool(revoked);
                });
            }
            Operation::CreatePlan { number, name, limits } => {
                put_changes(w.u8(CREATE_PLAN).u64(*number).bytes(name.as_bytes()), limits);
            }
            Operation::PatchPlan { name, limits } => put_changes(w.u8(PATCH_PLAN).bytes(name.as_bytes()), limits),
            Operation::DeleteAccount { name } => {
                w.u8(DELETE_ACCOUNT).bytes(name.as_bytes());
            }
            Operation::DeletePlan { name } => {
                w.u8(DELETE_PLAN).bytes(name.as_bytes());
            }
        }
        w.into_vec()
    }

    /// Reads a command back. Whatever [`Command::encode`] wrote of a command that [`crate::Machine`] could take reads
    /// back, so that none that was ordered can stop the group that applies it.
    /// # Errors
    /// `Version` for a later program's record, otherwise whatever the codec says.
    pub fn decode(record: Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::new(record);
        let version = r.u16()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let at = Millis(r.u64()?);
        let operation = match r.u8()? {
            CREATE_KEY => Operation::CreateKey(CreateKey {
                id: take_id(&mut r)?,
                secret: Digest(r.array()?),
                scopes: take_scopes(&mut r)?,
                prefixes: take_texts(&mut r, PREFIXES_MAX, "prefixes")?,
                account: r.option(Reader::string)?,
                expires: r.option(take_time)?,
                note: r.string()?,
                request: r.option(Reader::string)?,
            }),
            REVOKE_KEY => Operation::RevokeKey { id: take_id(&mut r)?, last: r.bool()? },
            EXPIRE_KEY => Operation::ExpireKey { id: take_id(&mut r)?, expires: r.option(take_time)? },
            CREATE_ACCOUNT => Operation::CreateAccount(CreateAccount {
                number: r.u64()?,
                name: r.string()?,
                plan: r.string()?,
                buckets: take_texts(&mut r, BUCKETS_MAX, "buckets")?,
            }),
            PATCH_ACCOUNT => Operation::PatchAccount(PatchAccount {
                name: r.string()?,
                plan: r.option(Reader::string)?,
                buckets: r.option(|r| take_texts(r, BUCKETS_MAX, "buckets"))?,
                revoked: r.option(Reader::bool)?,
            }),
            CREATE_PLAN => Operation::CreatePlan { number: r.u64()?, name: r.string()?, limits: take_changes(&mut r)? },
            PATCH_PLAN => Operation::PatchPlan { name: r.string()?, limits: take_changes(&mut r)? },
            DELETE_ACCOUNT => Operation::DeleteAccount { name: r.string()? },
            DELETE_PLAN => Operation::DeletePlan { name: r.string()? },
            _ => return Err(DecodeError::Invalid("operation")),
        };
        r.finish()?;
        Ok(Self { at, operation })
    }
}

fn take_id(r: &mut Reader) -> Result<KeyId, DecodeError> {
    let number = r.u64()?;
    if number > KeyId::NUMBER_MAX { Err(DecodeError::Invalid("key id")) } else { Ok(KeyId::new(number)) }
}

fn put_changes(w: &mut Writer, changes: &PlanChanges) {
    for change in changes.all() {
        match change {
            Change::Keep => w.u8(0),
            Change::Clear => w.u8(1),
            Change::Set(limit) => w.u8(2).u64(limit),
        };
    }
}

fn take_changes(r: &mut Reader) -> Result<PlanChanges, DecodeError> {
    let mut all = [Change::Keep; 5];
    for change in &mut all {
        *change = match r.u8()? {
            0 => Change::Keep,
            1 => Change::Clear,
            2 => Change::Set(r.u64()?),
            _ => return Err(DecodeError::Invalid("change")),
        };
    }
    Ok(PlanChanges::of(all))
}

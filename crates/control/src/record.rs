//! Keys, accounts and plans, and the bytes in which they are stored (`docs/formats/control.md`).

use crate::credential::KeyId;
use crate::limits::{BUCKETS_MAX, PREFIXES_MAX};
use crate::scope::Scopes;
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_base::{Digest, Millis};

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub id: KeyId,
    /// The hash of its secret.
    pub secret: Digest,
    /// What it may do.
    pub scopes: Scopes,
    /// Where it may do that; everywhere if there are none.
    pub prefixes: Vec<String>,
    /// Whose it is: it reaches that account's buckets only, and its requests count for that account's plan.
    pub account: Option<String>,
    /// When it was made.
    pub created: Millis,
    /// From when on it is refused.
    pub expires: Option<Millis>,
    /// Since when it is refused for good.
    pub revoked: Option<Millis>,
    /// For people.
    pub note: String,
    /// The id of the request that made it, so that a repeat makes no second one.
    pub request: Option<String>,
}

impl Key {
    /// Whether it is taken at `at`.
    #[must_use]
    pub fn is_active(&self, at: Millis) -> bool {
        self.revoked.is_none() && !self.is_expired(at)
    }

    /// Whether its time is over at `at`.
    #[must_use]
    pub fn is_expired(&self, at: Millis) -> bool {
        self.expires.is_some_and(|expires| at >= expires)
    }
}

/// Who pays for some buckets, and by which plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// The name of its plan.
    pub plan: String,
    /// Buckets that are its own; no other account has one of them.
    pub buckets: Vec<String>,
    /// When it was made.
    pub created: Millis,
    /// Since when the keys of this account are refused; may be taken back.
    pub revoked: Option<Millis>,
    /// Its object in the store.
    pub(crate) object: u64,
}

/// What accounts of a kind may use. What is absent has no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanLimits {
    /// Bytes that all buckets of an account may hold together.
    pub storage_bytes_max: Option<u64>,
    /// Requests a second, on average, of all keys of an account together.
    pub requests_per_second: Option<u64>,
    /// Requests that may come at once after a pause; as many as a second's if absent.
    pub requests_burst: Option<u64>,
    /// Bytes a second, on average, that may be appended.
    pub append_bytes_per_second: Option<u64>,
    /// Nodes that hold a new spool of an account.
    pub replicas: Option<u64>,
}

/// A named set of limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// What it grants.
    pub limits: PlanLimits,
    /// When it was made.
    pub created: Millis,
    /// Its object in the store.
    pub(crate) object: u64,
}

/// The only version of the encoding that there is.
const VERSION: u16 = 1;

const KIND_KEY: u8 = 1;
const KIND_ACCOUNT: u8 = 2;
const KIND_PLAN: u8 = 3;

/// Where the kind of a record stands in its object's number, above the 60 bits of its own.
const KIND_SHIFT: u32 = 60;

/// A stored record of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Key(Key),
    Account(Account),
    Plan(Plan),
}

/// The object of the key.
pub(crate) fn key_object(id: KeyId) -> u64 {
    u64::from(KIND_KEY) << KIND_SHIFT | id.get()
}

/// The object of an account for which `number` was drawn.
pub(crate) fn account_object(number: u64) -> u64 {
    u64::from(KIND_ACCOUNT) << KIND_SHIFT | KeyId::new(number).get()
}

/// The object of a plan for which `number` was drawn.
pub(crate) fn plan_object(number: u64) -> u64 {
    u64::from(KIND_PLAN) << KIND_SHIFT | KeyId::new(number).get()
}

impl Key {
    pub(crate) fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        w.u16(VERSION).u8(KIND_KEY).raw(&self.secret.0).u16(self.scopes.bits());
        put_texts(&mut w, &self.prefixes);
        w.option(self.account.as_deref(), put_text).u64(self.created.0);
        w.option(self.expires, put_time).option(self.revoked, put_time);
        w.bytes(self.note.as_bytes()).option(self.request.as_deref(), put_text);
        w.into_vec().into()
    }
}

impl Account {
    pub(crate) fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        w.u16(VERSION).u8(KIND_ACCOUNT).bytes(self.name.as_bytes()).bytes(self.plan.as_bytes());
        put_texts(&mut w, &self.buckets);
        w.u64(self.created.0).option(self.revoked, put_time);
        w.into_vec().into()
    }
}

impl Plan {
    pub(crate) fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        w.u16(VERSION).u8(KIND_PLAN).bytes(self.name.as_bytes());
        for limit in self.limits.all() {
            w.option(limit, |w, limit| {
                w.u64(limit);
            });
        }
        w.u64(self.created.0);
        w.into_vec().into()
    }
}

impl PlanLimits {
    /// All of them, in the order of the stored formats.
    pub(crate) fn all(&self) -> [Option<u64>; 5] {
        let Self { storage_bytes_max, requests_per_second, requests_burst, append_bytes_per_second, replicas } = *self;
        [storage_bytes_max, requests_per_second, requests_burst, append_bytes_per_second, replicas]
    }

    /// The limits of [`Self::all`].
    pub(crate) fn of(all: [Option<u64>; 5]) -> Self {
        let [storage_bytes_max, requests_per_second, requests_burst, append_bytes_per_second, replicas] = all;
        Self { storage_bytes_max, requests_per_second, requests_burst, append_bytes_per_second, replicas }
    }
}

impl Record {
    /// Reads the record of an object back. Its number must be one of the record's kind.
    pub(crate) fn decode(object: u64, record: Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::new(record);
        let version = r.u16()?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let kind = r.u8()?;
        if object >> KIND_SHIFT != u64::from(kind) {
            return Err(DecodeError::Invalid("object"));
        }
        let record = match kind {
            KIND_KEY => Self::Key(Key {
                id: KeyId::new(object),
                secret: Digest(r.array()?),
                scopes: take_scopes(&mut r)?,
                prefixes: take_texts(&mut r, PREFIXES_MAX, "prefixes")?,
                account: r.option(Reader::string)?,
                created: Millis(r.u64()?),
                expires: r.option(take_time)?,
                revoked: r.option(take_time)?,
                note: r.string()?,
                request: r.option(Reader::string)?,
            }),
            KIND_ACCOUNT => Self::Account(Account {
                name: r.string()?,
                plan: r.string()?,
                buckets: take_texts(&mut r, BUCKETS_MAX, "buckets")?,
                created: Millis(r.u64()?),
                revoked: r.option(take_time)?,
                object,
            }),
            KIND_PLAN => {
                let name = r.string()?;
                let mut all = [None; 5];
                for limit in &mut all {
                    *limit = r.option(Reader::u64)?;
                }
                Self::Plan(Plan { name, limits: PlanLimits::of(all), created: Millis(r.u64()?), object })
            }
            _ => return Err(DecodeError::Invalid("kind")),
        };
        r.finish()?;
        Ok(record)
    }
}

pub(crate) fn put_text(w: &mut Writer, text: &str) {
    w.bytes(text.as_bytes());
}

pub(crate) fn put_time(w: &mut Writer, time: Millis) {
    w.u64(time.0);
}

pub(crate) fn put_texts(w: &mut Writer, texts: &[String]) {
    w.u16(u16::try_from(texts.len()).expect("lists are capped far below 2^16"));
    for text in texts {
        put_text(w, text);
    }
}

pub(crate) fn take_time(r: &mut Reader) -> Result<Millis, DecodeError> {
    r.u64().map(Millis)
}

pub(crate) fn take_texts(r: &mut Reader, max: usize, what: &'static str) -> Result<Vec<String>, DecodeError> {
    let count = usize::from(r.u16()?);
    if count > max {
        return Err(DecodeError::Invalid(what));
    }
    (0..count).map(|_| r.string()).collect()
}

pub(crate) fn take_scopes(r: &mut Reader) -> Result<Scopes, DecodeError> {
    Scopes::from_bits(r.u16()?).ok_or(DecodeError::Invalid("scopes"))
}

//! What writes are asked for, read as far as the limits reach and no further.

use crate::error::{Error, Name, Result};
use bytes::Bytes;
use highwater_host::{Action, RecordWrite};
use highwater_repo::data::{Bounded, TooLarge};
use highwater_repo::write::{OPERATIONS_MAX, RECORD_BYTES_MAX, WriteError};
use highwater_repo::{Cid, Value, data, record};
use serde::de::{DeserializeSeed as _, Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// What the types of `applyWrites` begin with.
pub const APPLY_WRITES: &str = "com.atproto.repo.applyWrites#";

/// Bytes of a name, a key or a type at the most: a DID may have so many, and nothing has more.
const WORD_BYTES_MAX: usize = 2_048;

/// What somebody asks for, checked as far as it can be without the repository.
pub struct Asked {
    /// Whose repository it is, in his words.
    pub repo: String,
    /// The writes.
    pub writes: Vec<RecordWrite>,
    /// The commit that must be the newest.
    pub swap_commit: Option<Cid>,
}

/// A name, a key or a type.
struct Word(String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(input: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        if text.len() > WORD_BYTES_MAX {
            return Err(D::Error::custom(format!("a name, a key or a type has {WORD_BYTES_MAX} bytes at the most")));
        }
        Ok(Self(text))
    }
}

/// A record as it came, in its encoding: as values it may take fifty times as much, so no two stand in memory together.
struct Record(std::result::Result<Bytes, TooLarge>);

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(input: D) -> std::result::Result<Self, D::Error> {
        let value = Bounded { bytes_max: RECORD_BYTES_MAX }.deserialize(input)?;
        Ok(Self(value.map(|value| data::encode(&value).into())))
    }
}

impl Record {
    /// The record's one encoding. The data model's rules hold whatever `validate` says; a record without a `$type` gets that of
    /// its collection.
    fn encoded(self, collection: &str) -> Result<Bytes> {
        let too_large = |TooLarge| {
            let message = format!("a record of {collection} has more than {RECORD_BYTES_MAX} bytes");
            Error::new(Name::RecordTooLarge, message)
        };
        let encoded = self.0.map_err(too_large)?;
        // What is stored must be readable: it is read here.
        let value = data::decode(encoded.clone()).map_err(|error| Error::invalid(error.to_string()))?;
        let Value::Map(mut map) = value else { return Err(Error::invalid("a record is an object")) };
        let untyped = map.get("$type").is_none();
        if untyped {
            map.insert("$type", Value::Text(collection.to_owned()));
        }
        let value = Value::Map(map);
        record::check(&value, collection).map_err(|error| Error::invalid(error.to_string()))?;
        Ok(if untyped { data::encode(&value).into() } else { encoded })
    }
}

/// A member that may be absent, null or a value, which all mean something else.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> std::result::Result<Option<Option<T>>, D::Error> {
    Option::deserialize(input).map(Some)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateRecord {
    repo: Word,
    collection: Word,
    rkey: Option<Word>,
    validate: Option<bool>,
    record: Record,
    swap_commit: Option<Word>,
}

impl CreateRecord {
    /// What it asks for.
    /// # Errors
    /// `InvalidRequest`, `RecordTooLarge`.
    pub fn asked(self) -> Result<Asked> {
        check_validate(self.validate)?;
        let write = RecordWrite {
            action: Action::Create,
            record: Some(self.record.encoded(&self.collection.0)?),
            collection: self.collection.0,
            rkey: self.rkey.map(|rkey| rkey.0),
            swap_record: None,
        };
        asked(self.repo, vec![write], self.swap_commit)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PutRecord {
    repo: Word,
    collection: Word,
    rkey: Word,
    validate: Option<bool>,
    record: Record,
    #[serde(default, deserialize_with = "present")]
    swap_record: Option<Option<Word>>,
    swap_commit: Option<Word>,
}

impl PutRecord {
    /// What it asks for.
    /// # Errors
    /// `InvalidRequest`, `RecordTooLarge`.
    pub fn asked(self) -> Result<Asked> {
        check_validate(self.validate)?;
        let swap = |text: Word| cid("swapRecord", &text);
        let write = RecordWrite {
            action: Action::Put,
            record: Some(self.record.encoded(&self.collection.0)?),
            collection: self.collection.0,
            rkey: Some(self.rkey.0),
            swap_record: self.swap_record.map(|record| record.map(swap).transpose()).transpose()?,
        };
        asked(self.repo, vec![write], self.swap_commit)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteRecord {
    repo: Word,
    collection: Word,
    rkey: Word,
    swap_record: Option<Word>,
    swap_commit: Option<Word>,
}

impl DeleteRecord {
    /// What it asks for.
    /// # Errors
    /// `InvalidRequest`.
    pub fn asked(self) -> Result<Asked> {
        let swap = self.swap_record.map(|text| cid("swapRecord", &text)).transpose()?;
        let write = RecordWrite {
            action: Action::Remove,
            collection: self.collection.0,
            rkey: Some(self.rkey.0),
            record: None,
            swap_record: swap.map(Some),
        };
        asked(self.repo, vec![write], self.swap_commit)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplyWrites {
    repo: Word,
    validate: Option<bool>,
    writes: Writes,
    swap_commit: Option<Word>,
}

impl ApplyWrites {
    /// What it asks for.
    /// # Errors
    /// `InvalidRequest`, `RecordTooLarge`.
    pub fn asked(self) -> Result<Asked> {
        check_validate(self.validate)?;
        if self.writes.count > self.writes.kept.len() {
            return Err(Error::invalid(WriteError::Count(self.writes.count).to_string()));
        }
        let writes = self.writes.kept.into_iter().map(OneWrite::asked).collect::<Result<_>>()?;
        asked(self.repo, writes, self.swap_commit)
    }
}

/// As many writes as a commit may have; what comes behind them is counted alone.
struct Writes {
    kept: Vec<OneWrite>,
    count: usize,
}

impl<'de> Deserialize<'de> for Writes {
    fn deserialize<D: Deserializer<'de>>(input: D) -> std::result::Result<Self, D::Error> {
        input.deserialize_seq(WritesVisitor)
    }
}

struct WritesVisitor;

impl<'de> Visitor<'de> for WritesVisitor {
    type Value = Writes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of writes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> std::result::Result<Writes, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < OPERATIONS_MAX {
            let Some(write) = access.next_element()? else { return Ok(Writes { count: kept.len(), kept }) };
            kept.push(write);
        }
        let mut count = kept.len();
        while access.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(Writes { kept, count })
    }
}

#[derive(Deserialize)]
struct OneWrite {
    #[serde(rename = "$type")]
    kind: Word,
    collection: Word,
    rkey: Option<Word>,
    value: Option<Record>,
}

impl OneWrite {
    fn asked(self) -> Result<RecordWrite> {
        let Self { kind, collection, rkey, value } = self;
        let action = match kind.0.strip_prefix(APPLY_WRITES) {
            Some("create") => Action::Create,
            Some("update") => Action::Update,
            Some("delete") => Action::Delete,
            _ => {
                let kinds = format!("{APPLY_WRITES}create, update or delete");
                return Err(Error::invalid(format!("a write's $type is {kinds}, not {:?}", kind.0)));
            }
        };
        if action != Action::Create && rkey.is_none() {
            return Err(Error::invalid("an update or a delete needs an rkey"));
        }
        let record = match (action, value) {
            (Action::Delete, _) => None,
            (_, Some(value)) => Some(value.encoded(&collection.0)?),
            (_, None) => return Err(Error::invalid("a create or an update needs a value")),
        };
        let (collection, rkey) = (collection.0, rkey.map(|rkey| rkey.0));
        Ok(RecordWrite { action, collection, rkey, record, swap_record: None })
    }
}

fn asked(repo: Word, writes: Vec<RecordWrite>, swap_commit: Option<Word>) -> Result<Asked> {
    let swap_commit = swap_commit.map(|text| cid("swapCommit", &text)).transpose()?;
    Ok(Asked { repo: repo.0, writes, swap_commit })
}

fn cid(name: &str, text: &Word) -> Result<Cid> {
    text.0.parse().map_err(|error| Error::invalid(format!("{name}: {error}")))
}

/// Whoever wants a record held against its kind's rules must hear that this cannot be done.
fn check_validate(validate: Option<bool>) -> Result<()> {
    match validate {
        Some(true) => Err(Error::invalid(
            "this server knows no lexicons, so it cannot validate records: leave `validate` out, or set it to false",
        )),
        _ => Ok(()),
    }
}

/// Reads bytes as the input of each method; whether one of them took it.
pub fn write_anything(data: &[u8]) -> bool {
    let create = serde_json::from_slice(data).is_ok_and(|input: CreateRecord| taken(input.asked()));
    let put = serde_json::from_slice(data).is_ok_and(|input: PutRecord| taken(input.asked()));
    let delete = serde_json::from_slice(data).is_ok_and(|input: DeleteRecord| taken(input.asked()));
    let apply = serde_json::from_slice(data).is_ok_and(|input: ApplyWrites| taken(input.asked()));
    create || put || delete || apply
}

/// Whether writes are taken; a record that is taken reads back as it was.
fn taken(asked: Result<Asked>) -> bool {
    let Ok(asked) = asked else { return false };
    for write in &asked.writes {
        let Some(record) = &write.record else { continue };
        let again = Record(Ok(record.clone())).encoded(&write.collection).ok();
        assert_eq!(again.as_ref(), Some(record), "a record has one encoding");
        let value = data::decode(record.clone()).expect("what is taken is readable");
        assert_eq!(data::encode(&value), *record, "a record has one encoding");
    }
    true
}

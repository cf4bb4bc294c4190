//! Writes of records.

use crate::answer;
use crate::auth::Access;
use crate::call::{self, Call};
use crate::context::Context;
use crate::error::{Error, Name, Result};
use crate::limits::{Points, Rate};
use highwater_host::{Action, RecordWrite, WriteBatch, Written};
use highwater_repo::syntax::Did;
use highwater_repo::{Cid, Value, data, record};
use serde::{Deserialize, Deserializer};
use serde_json::{Value as Json, json};

/// What is said of every record: no kind of record is known to this server, so none was held against its rules.
const VALIDATION: &str = "unknown";

/// A member that may be absent, null or a value, which all mean something else.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> std::result::Result<Option<Option<T>>, D::Error> {
    Option::deserialize(input).map(Some)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreateRecord {
    repo: String,
    collection: String,
    rkey: Option<String>,
    validate: Option<bool>,
    record: Value,
    swap_commit: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PutRecord {
    repo: String,
    collection: String,
    rkey: String,
    validate: Option<bool>,
    record: Value,
    #[serde(default, deserialize_with = "present")]
    swap_record: Option<Option<String>>,
    swap_commit: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeleteRecord {
    repo: String,
    collection: String,
    rkey: String,
    swap_record: Option<String>,
    swap_commit: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApplyWrites {
    repo: String,
    validate: Option<bool>,
    writes: Vec<OneWrite>,
    swap_commit: Option<String>,
}

#[derive(Deserialize)]
struct OneWrite {
    #[serde(rename = "$type")]
    kind: String,
    collection: String,
    rkey: Option<String>,
    value: Option<Value>,
}

/// `com.atproto.repo.createRecord`
pub async fn create_record(mut call: Call) -> Result {
    let access = call.access()?;
    let input: CreateRecord = call.json().await?;
    check_validate(input.validate)?;
    let record = encode(&input.collection, input.record)?;
    let write = RecordWrite {
        action: Action::Create,
        collection: input.collection,
        rkey: input.rkey,
        record: Some(record),
        swap_record: None,
    };
    let (did, written, rate) =
        commit(&call.context, (&access, &input.repo), vec![write], input.swap_commit.as_deref()).await?;
    let mut answer = result(&did, &written, 0);
    answer["commit"] = told(&written);
    rated(&answer, rate)
}

/// `com.atproto.repo.putRecord`
pub async fn put_record(mut call: Call) -> Result {
    let access = call.access()?;
    let input: PutRecord = call.json().await?;
    check_validate(input.validate)?;
    let record = encode(&input.collection, input.record)?;
    let swap = |text: String| cid("swapRecord", &text);
    let write = RecordWrite {
        action: Action::Put,
        collection: input.collection,
        rkey: Some(input.rkey),
        record: Some(record),
        swap_record: input.swap_record.map(|record| record.map(swap).transpose()).transpose()?,
    };
    let (did, written, rate) =
        commit(&call.context, (&access, &input.repo), vec![write], input.swap_commit.as_deref()).await?;
    let mut answer = result(&did, &written, 0);
    if written.commit.is_some() {
        answer["commit"] = told(&written);
    }
    rated(&answer, rate)
}

/// `com.atproto.repo.deleteRecord`
pub async fn delete_record(mut call: Call) -> Result {
    let access = call.access()?;
    let input: DeleteRecord = call.json().await?;
    let swap = input.swap_record.as_deref().map(|text| cid("swapRecord", text)).transpose()?;
    let write = RecordWrite {
        action: Action::Remove,
        collection: input.collection,
        rkey: Some(input.rkey),
        record: None,
        swap_record: swap.map(Some),
    };
    let (_, written, rate) =
        commit(&call.context, (&access, &input.repo), vec![write], input.swap_commit.as_deref()).await?;
    rated(&if written.commit.is_some() { json!({ "commit": told(&written) }) } else { json!({}) }, rate)
}

/// `com.atproto.repo.applyWrites`
pub async fn apply_writes(mut call: Call) -> Result {
    const PREFIX: &str = "com.atproto.repo.applyWrites#";
    let access = call.access()?;
    let input: ApplyWrites = call.json().await?;
    check_validate(input.validate)?;
    let (mut writes, mut kinds) = (Vec::with_capacity(input.writes.len()), Vec::with_capacity(input.writes.len()));
    for write in input.writes {
        let OneWrite { kind, collection, rkey, value } = write;
        let (action, told) = match kind.strip_prefix(PREFIX) {
            Some("create") => (Action::Create, "createResult"),
            Some("update") => (Action::Update, "updateResult"),
            Some("delete") => (Action::Delete, "deleteResult"),
            _ => {
                return Err(Error::invalid(format!(
                    "a write's $type is {PREFIX}create, update or delete, not {kind:?}"
                )));
            }
        };
        if action != Action::Create && rkey.is_none() {
            return Err(Error::invalid("an update or a delete needs an rkey"));
        }
        let record = match (action, value) {
            (Action::Delete, _) => None,
            (_, Some(value)) => Some(encode(&collection, value)?),
            (_, None) => return Err(Error::invalid("a create or an update needs a value")),
        };
        kinds.push(told);
        writes.push(RecordWrite { action, collection, rkey, record, swap_record: None });
    }
    let (did, written, rate) =
        commit(&call.context, (&access, &input.repo), writes, input.swap_commit.as_deref()).await?;
    let results = kinds.iter().enumerate().map(|(at, kind)| {
        let mut result = if *kind == "deleteResult" { json!({}) } else { result(&did, &written, at) };
        result["$type"] = format!("{PREFIX}{kind}").into();
        result
    });
    let mut answer = json!({ "results": results.collect::<Vec<_>>() });
    if written.commit.is_some() {
        answer["commit"] = told(&written);
    }
    rated(&answer, rate)
}

/// Makes the writes of an account's owner one commit.
async fn commit(
    context: &Context,
    (access, repo): (&Access, &str),
    writes: Vec<RecordWrite>,
    swap_commit: Option<&str>,
) -> Result<(Did, Written, Option<Rate>)> {
    let named = context.host.state(|state| {
        let row = state.accounts.get(&access.account);
        row.filter(|row| row.did.as_str() == repo || row.handle.as_str().eq_ignore_ascii_case(repo))
            .map(|row| row.did.clone())
    });
    let did = named.ok_or_else(|| Error::new(Name::Forbidden, "the session is another account's"))?;
    let swap_commit = swap_commit.map(|text| cid("swapCommit", text)).transpose()?;
    let points = writes.iter().map(|write| match write.action {
        Action::Create => Points::Create,
        Action::Put | Action::Update => Points::Update,
        Action::Delete | Action::Remove => Points::Delete,
    });
    let rate = context.limits.write(access.account, points, context.clock.wall())?;
    let batch = WriteBatch { writes, swap_commit };
    let (host, asker) = (context.host.clone(), access.asker());
    // It signs, and may read nodes of the tree from the disk.
    let written = call::blocking(move || host.write(asker, batch)).await?.await?;
    Ok((did, written, rate))
}

/// An answer that tells how many points the account has left, rather than how many requests its address.
fn rated(answer: &Json, rate: Option<Rate>) -> Result {
    let mut response = answer::json(answer)?;
    response.headers_mut().extend(rate.iter().flat_map(Rate::headers));
    Ok(response)
}

fn told(written: &Written) -> Json {
    written.commit.map_or(Json::Null, |(cid, rev)| json!({ "cid": cid.to_string(), "rev": rev.to_string() }))
}

fn result(did: &Did, written: &Written, at: usize) -> Json {
    let Some(result) = written.results.get(at) else { return json!({}) };
    let cid = result.cid.map(|cid| cid.to_string());
    json!({ "uri": format!("at://{did}/{}", result.path), "cid": cid, "validationStatus": VALIDATION })
}

fn cid(name: &str, text: &str) -> Result<Cid> {
    text.parse().map_err(|error| Error::invalid(format!("{name}: {error}")))
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

/// The record's one encoding. The data model's rules hold whatever `validate` says; a record without a `$type` gets that of its
/// collection.
fn encode(collection: &str, value: Value) -> Result<bytes::Bytes> {
    let Value::Map(mut map) = value else { return Err(Error::invalid("a record is an object")) };
    if map.get("$type").is_none() {
        map.insert("$type", Value::Text(collection.to_owned()));
    }
    let value = Value::Map(map);
    record::check(&value, collection).map_err(|error| Error::invalid(error.to_string()))?;
    let encoded = bytes::Bytes::from(data::encode(&value));
    // What is stored must be readable: the depth of lists and maps is bounded there.
    data::decode(encoded.clone()).map_err(|error| Error::invalid(error.to_string()))?;
    Ok(encoded)
}

/// Reads bytes as the input of each method; whether one of them took it.
pub fn write_anything(data: &[u8]) -> bool {
    let create = serde_json::from_slice(data).is_ok_and(|input: CreateRecord| taken(&input.collection, input.record));
    let put = serde_json::from_slice(data).is_ok_and(|input: PutRecord| taken(&input.collection, input.record));
    let delete = serde_json::from_slice::<DeleteRecord>(data).is_ok();
    let apply = serde_json::from_slice(data).is_ok_and(|input: ApplyWrites| {
        let mut writes = input.writes.into_iter();
        writes.all(|write| write.value.is_none_or(|value| taken(&write.collection, value)))
    });
    create || put || delete || apply
}

/// Whether a record is taken; what is taken reads back as it was.
fn taken(collection: &str, value: Value) -> bool {
    let Ok(encoded) = encode(collection, value) else { return false };
    let again = data::decode(encoded.clone()).ok().and_then(|value| encode(collection, value).ok());
    assert_eq!(again, Some(encoded), "a record has one encoding");
    true
}

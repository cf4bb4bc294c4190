//! Writes of records.

use super::input::{APPLY_WRITES, ApplyWrites, Asked, CreateRecord, DeleteRecord, PutRecord};
use crate::answer;
use crate::auth::Access;
use crate::call::{self, Call, Read};
use crate::context::Context;
use crate::error::{Error, Name, Result};
use crate::limits::{Points, Rate};
use highwater_host::{Action, WriteBatch, Written};
use highwater_repo::syntax::Did;
use serde_json::{Value as Json, json};

/// What is said of every record: no kind of record is known to this server, so none was held against its rules.
const VALIDATION: &str = "unknown";

/// `com.atproto.repo.createRecord`
pub async fn create_record(mut call: Call) -> Result {
    let access = call.access()?;
    let asked = call.large_json(CreateRecord::asked).await?;
    let (did, written, rate) = commit(&call.context, &access, asked).await?;
    let mut answer = result(&did, &written, 0);
    answer["commit"] = told(&written);
    rated(&answer, rate)
}

/// `com.atproto.repo.putRecord`
pub async fn put_record(mut call: Call) -> Result {
    let access = call.access()?;
    let asked = call.large_json(PutRecord::asked).await?;
    let (did, written, rate) = commit(&call.context, &access, asked).await?;
    let mut answer = result(&did, &written, 0);
    if written.commit.is_some() {
        answer["commit"] = told(&written);
    }
    rated(&answer, rate)
}

/// `com.atproto.repo.deleteRecord`
pub async fn delete_record(mut call: Call) -> Result {
    let access = call.access()?;
    let asked = call.large_json(DeleteRecord::asked).await?;
    let (_, written, rate) = commit(&call.context, &access, asked).await?;
    rated(&if written.commit.is_some() { json!({ "commit": told(&written) }) } else { json!({}) }, rate)
}

/// `com.atproto.repo.applyWrites`
pub async fn apply_writes(mut call: Call) -> Result {
    let access = call.access()?;
    let asked = call.large_json(ApplyWrites::asked).await?;
    let actions: Vec<Action> = asked.what.writes.iter().map(|write| write.action).collect();
    let (did, written, rate) = commit(&call.context, &access, asked).await?;
    let results = actions.iter().enumerate().map(|(at, action)| {
        let (mut result, kind) = match action {
            Action::Create | Action::Put => (result(&did, &written, at), "createResult"),
            Action::Update => (result(&did, &written, at), "updateResult"),
            Action::Delete | Action::Remove => (json!({}), "deleteResult"),
        };
        result["$type"] = format!("{APPLY_WRITES}{kind}").into();
        result
    });
    let mut answer = json!({ "results": results.collect::<Vec<_>>() });
    if written.commit.is_some() {
        answer["commit"] = told(&written);
    }
    rated(&answer, rate)
}

/// Makes the writes of an account's owner one commit.
async fn commit(context: &Context, access: &Access, asked: Read<Asked>) -> Result<(Did, Written, Option<Rate>)> {
    let Read { what: Asked { repo, writes, swap_commit }, room } = asked;
    let named = context.host.state(|state| {
        let row = state.accounts.get(&access.account);
        row.filter(|row| row.did.as_str() == repo || row.handle.as_str().eq_ignore_ascii_case(&repo))
            .map(|row| row.did.clone())
    });
    let did = named.ok_or_else(|| Error::new(Name::Forbidden, "the session is another account's"))?;
    let points = writes.iter().map(|write| match write.action {
        Action::Create => Points::Create,
        Action::Put | Action::Update => Points::Update,
        Action::Delete | Action::Remove => Points::Delete,
    });
    let rate = context.limits.write(access.account, points, context.clock.wall())?;
    let batch = WriteBatch { writes, swap_commit };
    let (host, asker) = (context.host.clone(), access.asker());
    // It signs, and may read nodes of the tree from the disk. The body's room goes with what was made of it, until that is written.
    let (writing, _room) = call::blocking(move || (host.write(asker, batch), room)).await?;
    let written = writing.await?;
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

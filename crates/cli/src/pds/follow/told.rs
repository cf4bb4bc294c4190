//! What a follower found, for people and for programs.

use crate::output;
use anyhow::Result;
use highwater_consumer::follower::{Lacks, Output, Unverified};
use highwater_consumer::frame::ErrorFrame;
use highwater_repo::syntax::Did;
use highwater_repo::write::Operation;
use serde_json::{Value, json};

/// Tells of one.
///
/// # Errors
/// Standard output's.
pub fn tell(found: &Output, json: bool) -> Result<()> {
    print(&describe(found), json)
}

fn print(event: &Value, json: bool) -> Result<()> {
    if json {
        return output::json(event);
    }
    let words: Vec<String> = ["sequence", "event", "did", "rev", "active", "status", "handle", "reason"]
        .iter()
        .filter(|name| !event[**name].is_null())
        .map(|name| crate::manage::text(&event[*name]))
        .collect();
    println!("{}", words.join("  "));
    for operation in event["operations"].as_array().into_iter().flatten() {
        println!("    {}  {}", crate::manage::text(&operation["action"]), crate::manage::text(&operation["path"]));
    }
    Ok(())
}

/// Tells of an event that could not be verified, the last one of an account so far.
///
/// # Errors
/// Standard output's.
pub fn tell_unverified(sequence: Option<u64>, did: &Did, found: Unverified, json: bool) -> Result<()> {
    let mut event = nothing();
    event["event"] = "unverified".into();
    event["sequence"] = sequence.into();
    event["did"] = did.as_str().into();
    event["reason"] = format!("{}; events that wait: {}", lacks(found.lacks), found.events).into();
    print(&event, json)
}

/// What is missing, in words.
pub fn lacks(lacks: Lacks) -> &'static str {
    match lacks {
        Lacks::Key => "its key is not to be had",
        Lacks::Repository => "its repository is not to be had",
    }
}

/// Tells how it ended, as the last object.
///
/// # Errors
/// Standard output's.
pub fn tell_end(counts: &Counts, unverified: u64) -> Result<()> {
    let mut event = nothing();
    event["event"] = "end".into();
    event["sequence"] = counts.sequence.into();
    event["messages"] = counts.messages.into();
    event["violations"] = counts.violations.into();
    event["unverified"] = unverified.into();
    output::json(&event)
}

/// What came, and what of it was wrong.
#[derive(Debug, Default)]
pub struct Counts {
    /// The number of the last event.
    pub sequence: Option<u64>,
    /// Messages that came.
    pub messages: u64,
    /// Rules that the server broke.
    pub violations: u64,
}

/// An event of which nothing is known.
fn nothing() -> Value {
    json!({
        "event": null, "sequence": null, "did": null, "rev": null, "active": null, "status": null, "handle": null,
        "reason": null, "operations": null, "messages": null, "violations": null, "unverified": null,
    })
}

/// What was found, as JSON: every member is there, and `null` where the event has none.
fn describe(found: &Output) -> Value {
    let mut event = nothing();
    let mut set = |name: &str, value: Value| event[name] = value;
    match found {
        Output::Account { sequence, did, position } => {
            set("event", "account".into());
            set("sequence", (*sequence).into());
            set("did", did.as_str().into());
            set("active", position.is_active().into());
            set("status", position.status().map(|status| status.as_str()).into());
        }
        Output::Identity { sequence, did, handle } => {
            set("event", "identity".into());
            set("sequence", (*sequence).into());
            set("did", did.as_str().into());
            set("handle", handle.as_ref().map(|handle| handle.as_str()).into());
        }
        Output::Committed { sequence, did, rev, operations, .. } => {
            set("event", "commit".into());
            set("sequence", (*sequence).into());
            set("did", did.as_str().into());
            set("rev", rev.to_string().into());
            set("operations", operations.iter().map(operation).collect());
        }
        Output::Advanced { sequence, did, rev } => {
            set("event", "sync".into());
            set("sequence", (*sequence).into());
            set("did", did.as_str().into());
            set("rev", rev.to_string().into());
        }
        Output::Ignored { sequence, did, rev, held, .. } => {
            set("event", "ignored".into());
            set("sequence", (*sequence).into());
            set("did", did.as_str().into());
            set("rev", rev.to_string().into());
            set("reason", format!("{held} is held").into());
        }
        Output::Desynchronized { sequence, did, cause } => {
            set("event", "desynchronized".into());
            set("sequence", (*sequence).into());
            set("did", did.as_str().into());
            set("reason", format!("{cause:?}").to_lowercase().into());
        }
        Output::Resynchronized { did, rev } => {
            set("event", "resynchronized".into());
            set("did", did.as_str().into());
            set("rev", rev.to_string().into());
        }
        Output::Outdated => set("event", "outdated".into()),
        Output::Refused(error) => {
            set("event", "refused".into());
            set("reason", refusal(error).into());
        }
        Output::Violation { sequence, did, violation } => {
            set("event", "violation".into());
            set("sequence", (*sequence).into());
            set("did", did.as_ref().map(Did::as_str).into());
            set("reason", violation.to_string().into());
        }
        // What is asked for is answered before it is told of.
        Output::Resolve { did } | Output::GetRepo { did } => set("did", did.as_str().into()),
    }
    event
}

/// Why a server closes a stream, in one line.
pub fn refusal(error: &ErrorFrame) -> String {
    let message = error.message.as_deref().map(|message| format!(": {message}")).unwrap_or_default();
    format!("{}{message}", error.error)
}

fn operation(operation: &Operation) -> Value {
    let action = match (&operation.previous, &operation.cid) {
        (None, _) => "create",
        (Some(_), Some(_)) => "update",
        (Some(_), None) => "delete",
    };
    json!({ "action": action, "path": operation.path, "cid": operation.cid.map(|cid| cid.to_string()) })
}

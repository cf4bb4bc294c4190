//! Commits.

use super::fields::Fields;
use super::{COMMIT_BLOCKS_BYTES_MAX, Fault, FrameError, OPERATIONS_MAX};
use bytes::Bytes;
use highwater_repo::data::Decoder;
use highwater_repo::mst::is_key;
use highwater_repo::syntax::Did;
use highwater_repo::write::Operation;
use highwater_repo::{Cid, Tid};
use std::collections::BTreeSet;

const KIND: &str = "#commit";

/// A `#commit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitFrame {
    /// The event's number.
    pub sequence: u64,
    /// The account.
    pub did: Did,
    /// The commit's revision.
    pub rev: Tid,
    /// The revision before it; `None` for an account's first commit.
    pub since: Option<Tid>,
    /// The root of the tree before it; `None` for an account's first commit.
    pub previous_data: Option<Cid>,
    /// The commit's name.
    pub commit: Cid,
    /// When it was sent, as a datetime.
    pub time: String,
    /// What it did, at each key once.
    pub operations: Vec<Operation>,
    /// An archive of the commit, of what it made, and of what undoing it needs.
    pub blocks: Bytes,
}

/// Reads a body. Its keys are in the order of their encodings: shorter ones first.
pub(super) fn decode(data: Decoder) -> Result<CommitFrame, FrameError> {
    let (mut fields, keys) = Fields::begin(KIND, data, 11..=12)?;
    let operations = operations(&mut fields)?;
    let rev = fields.parsed("rev", "TID")?;
    let sequence = fields.sequence()?;
    let did = fields.parsed("repo", "DID")?;
    let time = fields.time()?;
    if fields.read("blobs", Decoder::list)? > 0 {
        return Err(fields.fail("blobs", Fault::Rule("the list is empty since blobs are no part of events")));
    }
    let since = fields.parsed_or_null("since", "TID")?;
    let blocks = fields.blocks(COMMIT_BLOCKS_BYTES_MAX)?;
    let commit = fields.link("commit")?;
    for field in ["rebase", "tooBig"] {
        if fields.bool(field)? {
            return Err(fields.fail(field, Fault::Rule("it is false since nothing is left out of events")));
        }
    }
    let previous_data = if keys == 12 { Some(fields.link("prevData")?) } else { None };
    match (since, previous_data) {
        (Some(_), None) => return Err(fields.fail("prevData", Fault::Rule("only the first commit has none"))),
        (None, Some(_)) => return Err(fields.fail("since", Fault::Rule("only the first commit has null"))),
        _ => {}
    }
    if since.is_some_and(|since| since >= rev) {
        return Err(fields.fail("since", Fault::Rule("it is not older than rev")));
    }
    fields.finish()?;
    Ok(CommitFrame { sequence, did, rev, since, previous_data, commit, time, operations, blocks })
}

fn operations(fields: &mut Fields) -> Result<Vec<Operation>, FrameError> {
    let count = fields.read("ops", Decoder::list)?;
    if count > OPERATIONS_MAX as u64 {
        return Err(fields.fail("ops", Fault::TooMuch { found: count, most: OPERATIONS_MAX as u64 }));
    }
    let operations = (0..count).map(|_| operation(fields)).collect::<Result<Vec<_>, _>>()?;
    let paths: BTreeSet<&str> = operations.iter().map(|operation| operation.path.as_str()).collect();
    if paths.len() < operations.len() {
        return Err(fields.fail("ops", Fault::Rule("two operations at one key")));
    }
    Ok(operations)
}

/// One operation. A create has no `prev` at all, a delete has a `cid` that is null.
fn operation(fields: &mut Fields) -> Result<Operation, FrameError> {
    let keys = fields.keys("an operation of #commit", 3..=4)?;
    let cid = fields.read("cid", Decoder::optional_link)?;
    let path = fields.text("path")?;
    if !is_key(&path) {
        return Err(fields.fail("path", Fault::Syntax { expected: "key of a record", text: path }));
    }
    let previous = if keys == 4 { Some(fields.link("prev")?) } else { None };
    let action = fields.text("action")?;
    match (action.as_str(), cid, previous) {
        ("create", Some(_), None) | ("update", Some(_), Some(_)) | ("delete", None, Some(_)) => {
            Ok(Operation { path, cid, previous })
        }
        ("create" | "update" | "delete", ..) => {
            Err(fields.fail("action", Fault::Rule("cid and prev do not fit the action")))
        }
        _ => Err(fields.fail("action", Fault::Syntax { expected: "action", text: action })),
    }
}

//! Writes of records.

use crate::blocks::AccountBlocks;
use crate::error::{ReadError, WriteRefused};
use crate::host::Host;
use crate::pending::Pending;
use crate::turn::{Building, Built, Handed, take_turn};
use crate::types::{Action, RecordWrite, WriteBatch, WriteResult, Written};
use highwater_pds::{Asker, Unserved, blob, turn};
use highwater_repo::data::{self, Value};
use highwater_repo::write::{self, Change, Prepared, Write, WriteError};
use highwater_repo::{Blocks as _, Cid, Codec, Tid, Tree};

impl From<highwater_pds::Refused> for WriteRefused {
    fn from(refused: highwater_pds::Refused) -> Self {
        match refused {
            highwater_pds::Refused::Inactive(status) => Self::Account(Unserved::Inactive(status)),
            highwater_pds::Refused::NotActivated | highwater_pds::Refused::Erased => Self::Account(Unserved::NotFound),
            other => Self::Turn(other),
        }
    }
}

/// What a batch came to, before anything is handed over.
struct Judged {
    /// One for each write.
    results: Vec<WriteResult>,
    /// Those that change something.
    writes: Vec<Write>,
}

impl Host {
    /// Makes the writes of a batch one commit. Signs on this thread, and may read the disk.
    ///
    /// A put of what is there already is no change, and a batch without a change makes no commit. What let the asker in is judged when
    /// the account's turn has come.
    pub fn write(&self, asker: impl Into<Asker>, batch: WriteBatch) -> Pending<Result<Written, WriteRefused>> {
        let absent = Unserved::NotFound.into();
        take_turn(&self.shared, &asker.into(), absent, |building| self.build(building, batch))
    }

    fn build(&self, building: &mut Building<'_>, batch: WriteBatch) -> Result<Built<Written>, WriteRefused> {
        turn::may_write(building.row())?;
        let head = building.row().head;
        if let Some(swap) = batch.swap_commit
            && head.map(|head| head.commit) != Some(swap)
        {
            return Err(WriteRefused::SwapCommit { commit: head.map(|head| head.commit) });
        }
        if !(1..=write::OPERATIONS_MAX).contains(&batch.writes.len()) {
            return Err(WriteRefused::Write(WriteError::Count(batch.writes.len())));
        }
        let tree = building.tree()?;
        let blocks = building.blocks()?;
        let Judged { results, writes } = self.judge(batch, &tree, &blocks)?;
        if writes.is_empty() {
            return Ok(Built::nothing(building, Written { commit: None, results }));
        }
        let staged = write::stage(&tree, &writes, &blocks).map_err(|error| match error {
            WriteError::Tree(error) => blocks.explain(error).into(),
            other => WriteRefused::Write(other),
        })?;
        let key = building.key()?;
        let signer = building.signer(key);
        let rev = signer.rev(building.row(), building.at);
        let prepared = staged.commit(building.row().did.clone(), rev, key);
        let changes = blob_changes(building, &prepared, &writes, &blocks)?;
        let head_block = building.head_block()?;
        let draft = turn::commit(building.row(), &prepared, changes, head_block.as_ref(), building.at)?;
        drop(blocks);
        let commit = Some((prepared.cid, rev));
        let mut made: std::collections::BTreeMap<_, _> = prepared.made.into_iter().collect();
        made.insert(prepared.cid, prepared.block);
        let handed = Handed { fallback: None, urgent: false, tree: Some(prepared.tree), blocks: made };
        Ok(Built { draft, handed, answer: Written { commit, results } })
    }

    /// Looks at each write by what is there.
    fn judge(&self, batch: WriteBatch, tree: &Tree, blocks: &AccountBlocks<'_>) -> Result<Judged, WriteRefused> {
        let mut judged = Judged { results: Vec::new(), writes: Vec::new() };
        for write in batch.writes {
            let RecordWrite { action, collection, rkey, record, swap_record } = write;
            let rkey = match (rkey, action) {
                (Some(rkey), _) => rkey,
                (None, Action::Create) => Tid::new(self.shared.now_once().0, self.shared.clock_id).to_string(),
                (None, _) => return Err(WriteRefused::Invalid("a record key is needed".into())),
            };
            let path = format!("{collection}/{rkey}");
            let needs_current = swap_record.is_some() || matches!(action, Action::Put | Action::Remove);
            let current = match needs_current && highwater_repo::mst::is_key(&path) {
                true => tree.get(&path, blocks).map_err(|error| blocks.explain(error))?,
                false => None,
            };
            if let Some(swap) = swap_record
                && swap != current
            {
                return Err(WriteRefused::SwapRecord { path, record: current });
            }
            let cid = record.as_ref().map(|record| Cid::of(Codec::DagCbor, record));
            let change = match (action, record, current) {
                (Action::Create, Some(record), _) | (Action::Put, Some(record), None) => Some(Change::Create(record)),
                (Action::Update, Some(record), _) => Some(Change::Update(record)),
                (Action::Put, Some(record), Some(_)) => (cid != current).then_some(Change::Update(record)),
                (Action::Delete, None, _) | (Action::Remove, None, Some(_)) => Some(Change::Delete),
                (Action::Remove, None, None) => None,
                (Action::Delete | Action::Remove, Some(_), _) => {
                    return Err(WriteRefused::Invalid("a delete has no record".into()));
                }
                (_, None, _) => return Err(WriteRefused::Invalid("a record is needed".into())),
            };
            if let Some(change) = change {
                judged.writes.push(Write { path: path.clone(), change });
            }
            judged.results.push(WriteResult { path, cid });
        }
        Ok(judged)
    }
}

/// Whether a record may refer to a blob: one that does says so in its text.
fn may_refer(record: &[u8]) -> bool {
    const MARK: &[u8] = b"blob";
    record.windows(MARK.len()).any(|window| window == MARK)
}

/// What the writes mean for the account's blobs.
fn blob_changes(
    building: &Building<'_>,
    prepared: &Prepared,
    writes: &[Write],
    blocks: &AccountBlocks<'_>,
) -> Result<Vec<blob::Change>, WriteRefused> {
    let record = |write: &Write| match &write.change {
        Change::Create(record) | Change::Update(record) => Some(record.clone()),
        Change::Delete => None,
    };
    let refers = writes.iter().filter_map(record).any(|record| may_refer(&record));
    let held = building.has_blobs();
    if !refers && !held {
        return Ok(Vec::new());
    }
    let invalid = |error: data::DataError| WriteRefused::Invalid(error.to_string());
    let damaged = |error: data::DataError| ReadError::Damaged(format!("a record is none: {error}"));
    let mut values: Vec<(Option<Value>, Option<Value>)> = Vec::with_capacity(writes.len());
    for (write, operation) in writes.iter().zip(&prepared.operations) {
        let after = record(write).filter(|record| may_refer(record)).map(data::decode).transpose().map_err(invalid)?;
        let before = match operation.previous.filter(|_| held) {
            None => None,
            Some(cid) => match blocks.block(&cid) {
                Some(bytes) => {
                    Some(bytes).filter(|bytes| may_refer(bytes)).map(data::decode).transpose().map_err(damaged)?
                }
                None => return Err(blocks.explain(highwater_repo::mst::TreeError::Missing(cid)).into()),
            },
        };
        values.push((before, after));
    }
    let written: Vec<blob::Written<'_>> = writes
        .iter()
        .zip(&values)
        .map(|(write, (before, after))| blob::Written {
            path: &write.path,
            before: before.as_ref(),
            after: after.as_ref(),
        })
        .collect();
    building.blobs().written(&written, prepared.commit.rev).map_err(WriteRefused::Blob)
}

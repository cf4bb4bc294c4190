//! What can be verified of a message or an archive by itself, with the account's key alone.

use crate::frame::{CommitFrame, SyncFrame};
use crate::violation::Violation;
use bytes::Bytes;
use highwater_repo::car::Reader;
use highwater_repo::key::PublicKey;
use highwater_repo::mst::{Step, Walk, invert};
use highwater_repo::syntax::Did;
use highwater_repo::write::Operation;
use highwater_repo::{Cid, Commit, Tree, data, record};
use std::collections::BTreeMap;

/// Blocks by their names.
pub(super) type Found = BTreeMap<Cid, Bytes>;

/// A repository as it was asked for.
#[derive(Debug)]
pub(super) struct Whole {
    /// Its newest commit.
    pub commit: Commit,
    /// The commit's name.
    pub cid: Cid,
    /// Its records by key.
    pub records: BTreeMap<String, (Cid, Bytes)>,
}

/// The root of a tree without records.
pub(super) fn empty_root() -> Cid {
    Tree::new().seal().0
}

/// An archive's first root and its blocks.
fn archive(bytes: &[u8]) -> Result<(Cid, Found), Violation> {
    let (mut reader, mut blocks) = (Reader::new(), Found::new());
    reader.push(bytes);
    while let Some((cid, block)) = reader.block()? {
        blocks.insert(cid, block);
    }
    let roots = reader.finish()?;
    Ok((roots[0], blocks))
}

/// The commit that an archive begins with, whoever signed it.
pub(crate) fn told_commit(bytes: &[u8]) -> Option<Commit> {
    let (root, blocks) = archive(bytes).ok()?;
    Commit::decode(blocks.get(&root)?.clone()).ok()
}

/// The commit among the blocks, of this account and signed by it.
fn signed(cid: Cid, blocks: &Found, did: &Did, key: &PublicKey) -> Result<Commit, Violation> {
    let block = blocks.get(&cid).ok_or(Violation::CommitMissing(cid))?;
    let commit = Commit::decode(block.clone())?;
    if commit.did != *did {
        return Err(Violation::Account { signed: commit.did });
    }
    if let Some(previous) = commit.previous {
        return Err(Violation::Previous(previous));
    }
    commit.verify(key).map_err(|_| Violation::Signature)?;
    Ok(commit)
}

/// A `#sync`: returns its commit and the commit's name.
pub(super) fn sync(frame: &SyncFrame, key: &PublicKey) -> Result<(Commit, Cid), Violation> {
    let (root, blocks) = archive(&frame.blocks)?;
    let commit = signed(root, &blocks, &frame.did, key)?;
    if blocks.len() > 1 {
        return Err(Violation::SyncBlocks(blocks.len()));
    }
    if commit.rev != frame.rev {
        return Err(Violation::Rev { told: frame.rev, signed: commit.rev });
    }
    Ok((commit, root))
}

/// The part of a `#commit` that only its account could have made: returns the commit and the blocks.
pub(super) fn commit(frame: &CommitFrame, key: &PublicKey) -> Result<(Commit, Found), Violation> {
    let (root, blocks) = archive(&frame.blocks)?;
    if root != frame.commit {
        return Err(Violation::Root { told: frame.commit, found: root });
    }
    let commit = signed(root, &blocks, &frame.did, key)?;
    if commit.rev != frame.rev {
        return Err(Violation::Rev { told: frame.rev, signed: commit.rev });
    }
    Ok((commit, blocks))
}

/// Whether a `#commit` says all that happened: its records are there, and undoing its operations leads from its tree to the
/// one that it builds on.
pub(super) fn operations(frame: &CommitFrame, commit: &Commit, blocks: &Found) -> Result<(), Violation> {
    for operation in &frame.operations {
        if let Some(cid) = operation.cid {
            sound(&operation.path, cid, blocks)?;
        }
    }
    let told = frame.previous_data.unwrap_or_else(empty_root);
    let found = invert(commit.data, &frame.operations, blocks)?;
    if found != told {
        return Err(Violation::Undone { told, found });
    }
    let kept = |cid: Cid| frame.operations.iter().any(|operation| operation.cid == Some(cid));
    let gone = |operation: &Operation| operation.previous.filter(|cid| !kept(*cid) && blocks.contains_key(cid));
    match frame.operations.iter().find_map(|operation| gone(operation).map(|cid| (operation, cid))) {
        Some((operation, cid)) => Err(Violation::RecordGone { path: operation.path.clone(), cid }),
        None => Ok(()),
    }
}

/// A record that is among the blocks and is one of its collection.
fn sound(path: &str, cid: Cid, blocks: &Found) -> Result<Bytes, Violation> {
    let missing = || Violation::RecordMissing { path: path.to_owned(), cid };
    let block = blocks.get(&cid).ok_or_else(missing)?;
    let value = data::decode(block.clone()).map_err(|error| Violation::RecordData { path: path.to_owned(), error })?;
    let collection = path.split('/').next().unwrap_or_default();
    record::check(&value, collection).map_err(|error| Violation::Record { path: path.to_owned(), error })?;
    Ok(block.clone())
}

/// An answer to `getRepo`: the whole tree is walked, and every record is there.
pub(super) fn whole(bytes: &[u8], did: &Did, key: &PublicKey) -> Result<Whole, Violation> {
    let (cid, blocks) = archive(bytes)?;
    let commit = signed(cid, &blocks, did, key)?;
    let (mut walk, mut records) = (Walk::new(&Tree::open(commit.data, &blocks)?), BTreeMap::new());
    while let Some(step) = walk.next(&blocks)? {
        if let Step::Record(path, cid) = step {
            let block = sound(&path, cid, &blocks)?;
            records.insert(path.to_string(), (cid, block));
        }
    }
    Ok(Whole { commit, cid, records })
}

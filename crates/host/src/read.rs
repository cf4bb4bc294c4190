//! What readers are answered: records, lists of them, proofs, blocks. All of it is durable.

use crate::blocks::{AccountBlocks, tree};
use crate::error::ReadError;
use crate::export::{self, Export, Wanted};
use crate::host::Host;
use crate::types::{List, Listed, Page};
use bytes::Bytes;
use highwater_pds::{Account, AccountId, Head, Unserved};
use highwater_repo::mst::{Order, Step, Walk};
use highwater_repo::{Blocks as _, Cid, Tree};
use std::collections::BTreeSet;

/// How much a repository consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Its blocks: the commit, nodes of the tree, and records.
    pub blocks: u64,
    /// Its records, by their keys.
    pub records: u64,
}

impl Host {
    /// The newest commit of an account, and its row, if it is served to whoever reads through this handle.
    pub(crate) fn served(&self, id: AccountId) -> Result<(Head, Account), Unserved> {
        let state = self.shared.state();
        let account = state.accounts.get(&id).ok_or(Unserved::NotFound)?;
        if !(self.owner && account.owner_reads()) {
            account.served()?;
        }
        let head = account.head.ok_or(Unserved::NotFound)?;
        Ok((head, account.clone()))
    }

    /// Does something with the tree and the blocks of an account's newest commit, which names every block that is read.
    fn with_tree<T>(
        &self,
        id: AccountId,
        read: impl Fn(&Head, &Tree, &AccountBlocks<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.with_blocks(id, read).map_err(ReadError::of_repository)
    }

    /// Does something with the tree and the blocks of an account's newest commit, which need not name what is read.
    fn with_blocks<T>(
        &self,
        id: AccountId,
        read: impl Fn(&Head, &Tree, &AccountBlocks<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let slot = self.shared.slots.get(id);
        let attempt = || {
            let (head, row) = self.served(id)?;
            let tree = tree(&self.shared, &slot, &row)?;
            let blocks = AccountBlocks::open(&self.shared, &slot, row.blocks)?;
            read(&head, &tree, &blocks)
        };
        match attempt() {
            // What an older commit needs may have gone while it was read: then there is a newer one.
            Err(ReadError::Tree(_) | ReadError::NoBlock(_)) => attempt(),
            other => other,
        }
    }

    /// A record: its name and its bytes.
    /// # Errors
    /// [`ReadError`].
    pub fn record(&self, account: AccountId, path: &str) -> Result<Option<(Cid, Bytes)>, ReadError> {
        self.with_tree(account, |_, tree, blocks| {
            let found = tree.get(path, blocks).map_err(|error| blocks.explain(error))?;
            found.map(|cid| Ok((cid, blocks.get(&cid)?))).transpose()
        })
    }

    /// Records of a collection.
    /// # Errors
    /// [`ReadError`].
    pub fn list(&self, account: AccountId, list: &List) -> Result<Page, ReadError> {
        let order = if list.ascending { Order::Ascending } else { Order::Descending };
        self.with_tree(account, |_, tree, blocks| {
            let mut records = tree.records_of(&list.collection, list.behind.as_deref(), order);
            let (mut listed, mut bytes) = (Vec::new(), 0);
            while listed.len() < list.limit && bytes < list.bytes_max {
                let next = records.next(blocks).map_err(|error| blocks.explain(error))?;
                let Some((key, cid)) = next else { return Ok(Page { records: listed, full: false }) };
                let rkey = key.split_once('/').map_or("", |(_, rkey)| rkey).to_owned();
                let record = blocks.get(&cid)?;
                bytes += record.len();
                listed.push(Listed { rkey, cid, record });
            }
            Ok(Page { records: listed, full: true })
        })
    }

    /// The first collections that hold a record, up to `limit`.
    /// # Errors
    /// [`ReadError`].
    pub fn collections(&self, account: AccountId, limit: usize) -> Result<Vec<String>, ReadError> {
        self.with_tree(account, |_, tree, blocks| {
            tree.collections(limit, blocks).map_err(|error| blocks.explain(error))
        })
    }

    /// Bytes of blocks of an account by their names, without those that are not here. No block is read.
    /// # Errors
    /// [`ReadError`].
    pub fn blocks_bytes(&self, account: AccountId, cids: &[Cid]) -> Result<u64, ReadError> {
        self.with_blocks(account, |_, _, blocks| {
            Ok(cids.iter().filter_map(|cid| blocks.block_bytes(cid)).map(|bytes| bytes as u64).sum())
        })
    }

    /// How much the newest commit names.
    /// # Errors
    /// [`ReadError`].
    pub fn counts(&self, account: AccountId) -> Result<Counts, ReadError> {
        self.with_tree(account, |_, tree, blocks| {
            let (mut walk, mut records, mut counts) =
                (Walk::new(tree), BTreeSet::new(), Counts { blocks: 1, records: 0 });
            while let Some(step) = walk.next(blocks).map_err(|error| blocks.explain(error))? {
                match step {
                    Step::Node(..) => counts.blocks += 1,
                    Step::Record(_, cid) => {
                        counts.records += 1;
                        // Several keys may name one record.
                        counts.blocks += u64::from(records.insert(cid));
                    }
                }
            }
            Ok(counts)
        })
    }

    /// Blocks of an account by their names, in this order.
    /// # Errors
    /// [`ReadError::NoBlock`] for the first that is not here.
    pub fn blocks(&self, account: AccountId, cids: &[Cid]) -> Result<Vec<(Cid, Bytes)>, ReadError> {
        self.with_blocks(account, |_, _, blocks| cids.iter().map(|cid| Ok((*cid, blocks.get(cid)?))).collect())
    }

    /// An archive that proves what a key names, or that it names nothing.
    /// # Errors
    /// [`ReadError`].
    pub fn proof(&self, account: AccountId, path: &str) -> Result<Bytes, ReadError> {
        self.with_tree(account, |head, tree, blocks| {
            let commit = blocks.get(&head.commit)?;
            let archive = highwater_repo::export::record(&head.commit, &commit, tree, path, blocks);
            archive.map(Bytes::from).map_err(|error| blocks.explain(error))
        })
    }

    /// An account's newest commit, if the account is served.
    /// # Errors
    /// [`Unserved`].
    pub fn head(&self, account: AccountId) -> Result<Head, Unserved> {
        self.served(account).map(|(head, _)| head)
    }

    /// The whole repository as an archive, of which this is the beginning. Waits for a place if many are exported.
    /// # Errors
    /// [`ReadError`].
    pub fn export(&self, account: AccountId) -> Result<Export, ReadError> {
        export::begin(self, account, Wanted::default())
    }

    /// As [`Self::export`], of what is wanted of it: since a revision that is not known here, everything.
    /// # Errors
    /// [`ReadError`].
    pub fn export_wanted(&self, account: AccountId, wanted: Wanted) -> Result<Export, ReadError> {
        export::begin(self, account, wanted)
    }
}

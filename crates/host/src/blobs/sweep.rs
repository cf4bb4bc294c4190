//! What a start does with files of blobs.

use super::{BlobError, BlobFiles};
use highwater_pds::AccountId;
use highwater_pds::blob::Blobs;
use highwater_repo::Cid;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

pub(super) const UPLOAD_PREFIX: &str = "upload-";
pub(super) const UPLOAD_SUFFIX: &str = ".new";

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Files that no row names, and parts of uploads: removed.
    pub removed: u64,
    /// Blobs whose files are gone.
    pub missing: Vec<(AccountId, Cid)>,
}

impl BlobFiles {
    /// Removes files that no row names, and tells which are missing. Before anybody uploads.
    ///
    /// Names that are none of a blob or an upload are left alone: somebody else put them there.
    /// # Errors
    /// The system's.
    pub fn sweep(&self, rows: &BTreeMap<AccountId, Blobs>) -> Result<Swept, BlobError> {
        let mut swept = Swept::default();
        let nothing = Blobs::default();
        let mut accounts: BTreeSet<AccountId> = rows.keys().copied().collect();
        for name in self.names(&self.directory)? {
            accounts.extend(name.parse().ok().filter(|number: &u64| number.to_string() == name).map(AccountId));
        }
        for account in accounts {
            self.sweep_account(account, rows.get(&account).unwrap_or(&nothing), &mut swept)?;
        }
        Ok(swept)
    }

    /// Names of all files of an account.
    pub(super) fn names_of(&self, account: AccountId) -> Result<BTreeSet<String>, BlobError> {
        Ok(self.names(&self.directory_of(account))?.into_iter().collect())
    }

    fn names(&self, directory: &std::path::Path) -> Result<Vec<String>, BlobError> {
        match self.disk.list(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            names => Ok(names?),
        }
    }

    fn sweep_account(&self, account: AccountId, rows: &Blobs, swept: &mut Swept) -> Result<(), BlobError> {
        let directory = self.directory_of(account);
        let mut missing: BTreeSet<Cid> = rows.0.keys().copied().collect();
        for name in self.names(&directory)? {
            let cid = name.parse::<Cid>().ok().filter(|cid| cid.to_string() == name);
            let upload = name.starts_with(UPLOAD_PREFIX) && name.ends_with(UPLOAD_SUFFIX);
            if cid.is_some_and(|cid| missing.remove(&cid)) || cid.is_none() && !upload {
                continue;
            }
            self.disk.remove(&directory.join(&name))?;
            swept.removed += 1;
        }
        swept.missing.extend(missing.into_iter().map(|cid| (account, cid)));
        Ok(())
    }
}

//! A blob's file and its row, together.

use super::{BlobError, BlobReader, Stored, Upload};
use crate::error::Refused;
use crate::host::Host;
use crate::turn::{Built, Handed, take_turn};
use highwater_pds::blob::{Blobs, Change, LIST_BYTES_MAX, TEMPORARY_MAX, media_type};
use highwater_pds::{AccountId, Asker, Draft, Fact, Micros};
use highwater_repo::Cid;
use std::collections::BTreeSet;
use thiserror::Error;

/// Why an upload was not kept.
#[derive(Debug, Error)]
pub enum KeepError {
    /// Its file.
    #[error(transparent)]
    File(#[from] BlobError),
    /// Its row.
    #[error(transparent)]
    Row(#[from] Refused),
    /// Too many were uploaded and never referred to.
    #[error(
        "the account has {TEMPORARY_MAX} blobs that no record refers to: write the records, or wait until the blobs expire"
    )]
    Temporary,
    /// The account has as many blobs, and records that refer to them, as are kept account of.
    #[error(
        "the account has as many blobs, and records that refer to them, as the server keeps account of: delete records that do"
    )]
    ListFull,
}

/// A blob that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its name.
    pub cid: Cid,
    /// Its bytes.
    pub bytes: u64,
    /// Its media type.
    pub media_type: String,
}

impl Host {
    /// Begins an upload of at most `bytes_max` bytes. What let the asker in is judged now by what is durable, and once more at its end.
    /// # Errors
    /// [`KeepError`].
    pub fn begin_blob(&self, asker: impl Into<Asker>, bytes_max: u64) -> Result<Upload, KeepError> {
        let asker = asker.into();
        let account = asker.account;
        let (temporary, list_bytes) = self.state(|state| {
            let row = state.accounts.get(&account).ok_or(Refused::NoAccount)?;
            asker.authority.judge(row).and_then(|()| row.may_act()).map_err(Refused::from)?;
            Ok::<_, Refused>(state.blobs.get(&account).map_or((0, 0), |blobs| (blobs.temporary(), blobs.bytes())))
        })?;
        if list_bytes > LIST_BYTES_MAX {
            return Err(KeepError::ListFull);
        }
        if temporary >= TEMPORARY_MAX {
            return Err(KeepError::Temporary);
        }
        Ok(self.blob_files().begin(account, bytes_max)?.asked_by(asker.authority))
    }

    /// Ends an upload of which its sender `said` a media type: file and row are durable when this returns. Waits on this thread.
    /// # Errors
    /// [`KeepError`]; nothing is kept then.
    pub fn keep_blob(&self, upload: Upload, said: Option<&str>) -> Result<Kept, KeepError> {
        let authority = upload.authority().clone();
        let stored = self.blob_files().store(upload)?;
        let Stored { account, cid, bytes, .. } = stored;
        let uploaded = Change::Uploaded { cid, bytes, media_type: media_type(&stored.head, said), at: self.now() };
        let row = self.fact(Asker { account, authority }, Fact::Blob(account, uploaded)).wait();
        // What records refer to already keeps the type that they name.
        let kept = self.state(|state| state.blobs.get(&account)?.0.get(&cid).map(|blob| blob.media_type.clone()));
        self.blob_files().landed(&stored, || self.shared.holds_blob(account, &cid))?;
        row?;
        let media_type = kept.unwrap_or_else(|| media_type(&stored.head, said));
        Ok(Kept { cid, bytes, media_type })
    }

    /// A blob that everybody may see, for reading, and its media type. `None` if there is none.
    /// # Errors
    /// [`BlobError`].
    pub fn open_blob(&self, account: AccountId, cid: &Cid) -> Result<Option<(BlobReader, u64, String)>, BlobError> {
        let public = || self.state(|state| state.blobs.get(&account)?.public(cid).cloned());
        let Some(blob) = public() else { return Ok(None) };
        match self.blob_files().open(account, *cid, blob.bytes) {
            Ok(reader) => Ok(Some((reader, blob.bytes, blob.media_type))),
            // Its last record may have gone meanwhile, and the file with it; a file that a row names is there.
            Err(BlobError::Missing) if public().is_none() => Ok(None),
            Err(BlobError::Missing) => Err(BlobError::Lost(*cid)),
            Err(error) => Err(error),
        }
    }

    /// Blobs that records refer to and whose files are not there, after one of them, with the key of a record that refers to each: they
    /// were lost with files that no copy brought back. Whoever uploads one again mends it.
    /// # Errors
    /// The system's.
    pub fn missing_blobs(
        &self,
        account: AccountId,
        after: Option<Cid>,
        limit: usize,
    ) -> Result<Vec<(Cid, String)>, BlobError> {
        let public = |blobs: &highwater_pds::blob::Blobs| blobs.list(after, None).copied().collect::<BTreeSet<Cid>>();
        let before = self.state(|state| state.blobs.get(&account).map(public)).unwrap_or_default();
        let files = self.blob_files().names_of(account)?;
        // One that has its row before and after the look at its file had it in between: its file was there, or is lost.
        Ok(self.state(|state| {
            let Some(blobs) = state.blobs.get(&account) else { return Vec::new() };
            let lost = before.iter().filter(|cid| !files.contains(&cid.to_string()));
            let named = lost.filter_map(|cid| Some((*cid, blobs.public(cid)?.records.keys().next()?.clone())));
            named.take(limit).collect()
        }))
    }

    /// Lets temporary blobs go whose upload is so many seconds ago, of all accounts. Returns how many; waits on this thread.
    ///
    /// What a record refers to meanwhile, or somebody uploads once more, stays: the account's turn decides which came first.
    /// # Errors
    /// The first refusal; the others were tried all the same.
    pub fn expire_blobs(&self, now: Micros, lifetime_seconds: u64) -> Result<u64, Refused> {
        let expired = |blobs: &Blobs| blobs.expired(now, lifetime_seconds);
        let accounts: Vec<AccountId> = self.state(|state| {
            state.blobs.iter().filter(|(_, blobs)| !expired(blobs).is_empty()).map(|(account, _)| *account).collect()
        });
        let (mut count, mut result) = (0, Ok(()));
        for account in accounts {
            let done = take_turn(&self.shared, &account.into(), Refused::NoAccount, |building| {
                // By what the turn finds: a blob that was uploaded once more meanwhile has its time before it.
                let expired = expired(&building.blobs());
                let removed = expired.iter().map(|cid| Fact::Blob(account, Change::Removed(*cid)));
                let draft = removed.fold(Draft::new(building.at), Draft::fact);
                Ok(Built { draft, handed: Handed::default(), answer: expired.len() as u64 })
            });
            match done.wait() {
                Ok(removed) => count += removed,
                Err(refused) => result = result.and(Err(refused)),
            }
        }
        crate::slot::lock(&self.shared.figures).blobs_expired += count;
        result.map(|()| count)
    }
}

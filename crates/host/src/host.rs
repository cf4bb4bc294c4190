//! The handle of a running server.

use crate::error::{CursorRefused, Unsettled};
use crate::layout::Paths;
use crate::options::Options;
use crate::pending::{Pending, pending};
use crate::shared::Shared;
use crate::subscription::Subscription;
use highwater_pds::names::Zone;
use highwater_pds::{Draft, Fact, Micros, State};
use std::sync::Arc;

/// A running server; clones are the same one.
#[derive(Clone)]
pub struct Host {
    pub(crate) shared: Arc<Shared>,
    /// Reads through this handle are the owner's.
    pub(crate) owner: bool,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("directory", &self.shared.options.directory).finish_non_exhaustive()
    }
}

pub(crate) fn stopped<T, E: From<Unsettled>>() -> Result<T, E> {
    Err(Unsettled::Stopped("the server's writer ended".into()).into())
}

impl Host {
    /// A handle whose reads are those of the owner of what is read: they are served while the account is deactivated.
    #[must_use]
    pub fn for_owner(&self) -> Self {
        Self { owner: true, ..self.clone() }
    }

    /// Looks at what is durable. Nothing is written while this runs: be brief, and do not look again within.
    pub fn state<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.shared.state())
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.shared.now()
    }

    /// How it is kept.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Where it gives names.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.shared.zone
    }

    /// Where its files are.
    #[must_use]
    pub fn paths(&self) -> &Paths {
        &self.shared.paths
    }

    /// The disk that they lie on.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn highwater_disk::Disk> {
        &self.shared.disk
    }

    /// The files of blobs.
    #[must_use]
    pub fn blob_files(&self) -> &Arc<crate::blobs::BlobFiles> {
        &self.shared.blob_files
    }

    /// 64 random bits, from where keys are drawn.
    #[must_use]
    pub fn random_u64(&self) -> u64 {
        self.shared.random_u64()
    }

    /// Encrypts a secret as the directory's secrets are: whether it is encrypted, and the bytes.
    #[must_use]
    pub fn seal(&self, secret: &[u8]) -> (bool, bytes::Bytes) {
        self.shared.seal(secret)
    }

    /// Decrypts a secret of the directory. `None` if it is not whole.
    #[must_use]
    pub fn unseal(&self, sealed: bool, secret: &[u8]) -> Option<Vec<u8>> {
        self.shared.unseal(sealed, secret)
    }

    /// Follows the stream: from what comes next, or behind a cursor.
    /// # Errors
    /// [`CursorRefused`].
    pub fn subscribe(&self, cursor: Option<u64>) -> Result<Subscription, CursorRefused> {
        Subscription::new(Arc::clone(&self.shared), cursor)
    }

    /// Has a fact of no account's row become durable, such as that relays were poked.
    pub fn note(&self, fact: Fact) -> Pending<Result<(), Unsettled>> {
        let (answer, waiting) = pending(stopped);
        let draft = Draft::new(self.now()).fact(fact);
        let done = Box::new(move |result| answer.send(result));
        match crate::turn::hand_over_alone(&self.shared, draft, done) {
            Ok(()) => waiting,
            Err(why) => Pending::ready(Err(why)),
        }
    }

    /// Why nothing is written any more, once that is so.
    #[must_use]
    pub fn ended(&self) -> Option<String> {
        self.shared.queue.ended()
    }
}

//! The front ends' way in.

use crate::api::{Identity, ReadAnswer, ReadRequest, Status, Unavailable, WriteAnswer};
use highwater_base::{Incarnation, Random};
use highwater_stream::{Head, Operation, Outcome, ProducerKey, Refusal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a body that a request may hold in memory, until this is dropped.
#[derive(Debug)]
pub struct Admission {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.shared.ingress_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

pub(crate) struct Shared {
    identity: Identity,
    random: Mutex<Box<dyn Random>>,
    ingress_bytes: AtomicU64,
    ingress_bytes_max: u64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// The front ends' way to a node. Cheap to clone; it outlives the node, and answers `OutcomeUnknown` or
/// `GroupRestarting` then.
#[derive(Debug, Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// Who this server is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    /// A token for a stream that is about to be created.
    #[must_use]
    pub fn issue_incarnation(&self) -> Incarnation {
        let mut random = self.shared.random.lock().unwrap_or_else(PoisonError::into_inner);
        Incarnation::issue(random.as_mut())
    }

    /// Asks for room for a body of `bytes`, before it is read. Hand the result to [`Self::write_admitted`].
    /// # Errors
    /// What a write would be refused with now: `IngressBodyBytesLimit`, `RaftUncommittedBackpressure`,
    /// `WalDiskPressure`.
    pub fn admit(&self, bytes: u64) -> Result<Admission, Unavailable> {
        let shared = &self.shared;
        let held = shared.ingress_bytes.fetch_add(bytes, Ordering::Relaxed);
        let admission = Admission { shared: Arc::clone(shared), bytes };
        if held.saturating_add(bytes) > shared.ingress_bytes_max {
            return Err(Unavailable::IngressBodyBytesLimit);
        }
        Ok(admission)
    }

    /// Orders a write and applies it. The node's clock gives it its time.
    /// # Errors
    /// [`Unavailable`]: whether it applied, its variants say.
    pub async fn write(&self, path: String, operation: Operation) -> Result<WriteAnswer, Unavailable> {
        let admission = self.admit(body_bytes(&operation))?;
        self.write_admitted(path, operation, admission).await
    }

    /// As [`Self::write`], for a body that was admitted before it was read.
    /// # Errors
    /// As [`Self::write`].
    pub async fn write_admitted(
        &self,
        _path: String,
        _operation: Operation,
        _admission: Admission,
    ) -> Result<WriteAnswer, Unavailable> {
        Err(Unavailable::GroupRestarting)
    }

    /// What `HEAD` tells, as of now at the earliest (linearizable).
    /// # Errors
    /// `NoLeader` or that of a stopped group.
    pub async fn head(&self, _path: &str) -> Result<Result<Head, Refusal>, Unavailable> {
        Err(Unavailable::GroupRestarting)
    }

    /// Reads bytes, and waits for them at the tail if the request says so.
    /// # Errors
    /// `NoLeader`, `LiveReadsExhausted`, or that of a stopped group.
    pub async fn read(&self, _request: ReadRequest) -> Result<Result<ReadAnswer, Refusal>, Unavailable> {
        Err(Unavailable::GroupRestarting)
    }

    /// The answer to a tokened keyed write that its head alone proves: a repeat or a key conflict.
    /// # Errors
    /// `NoLeader` or that of a stopped group.
    pub async fn early(
        &self,
        _path: &str,
        _incarnation: Incarnation,
        _key: &ProducerKey,
    ) -> Result<Option<Result<Outcome, Refusal>>, Unavailable> {
        Err(Unavailable::GroupRestarting)
    }

    /// The node, for the status page; at most a tick (100 ms) old.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            identity: self.shared.identity.clone(),
            uptime_ms: 0,
            ready: self.ready(),
            failed: None,
            groups: Vec::new(),
            wal_bytes: 0,
            wal_syncs: 0,
            wal_batches: 0,
            ingress_bytes: self.shared.ingress_bytes.load(Ordering::Relaxed),
            uncommitted_bytes: 0,
            live_reads: 0,
        }
    }

    /// Whether the node serves.
    #[must_use]
    pub fn ready(&self) -> bool {
        false
    }
}

fn body_bytes(operation: &Operation) -> u64 {
    match operation {
        Operation::Create(create) => create.body.len() as u64,
        Operation::Append(append) => append.body.len() as u64,
        Operation::Delete { .. } => 0,
    }
}

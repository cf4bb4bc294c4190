//! Append under a producer's key: the same write in every attempt. Number 0 claims the epoch.

use super::{CONTENT_TYPE, Draft};
use crate::message::{Ask, WriteId};
use crate::oracle::register::{Deed, Key};
use highwater_base::{Digest, Incarnation};
use highwater_stream::{Append, Operation, ProducerKey};

/// A new write under a key, tokened.
pub fn keyed(draft: &mut Draft<'_>, path: &str, incarnation: Incarnation, key: Key) -> WriteId {
    let (_, body) = draft.body();
    draft.oracle.register.add(path, Deed::Keyed(key), Some(incarnation), false, body)
}

impl Draft<'_> {
    /// One more attempt of a keyed write.
    #[must_use]
    pub fn attempt(&self, write: WriteId) -> Option<Ask> {
        let fact = self.oracle.register.get(write)?;
        let Deed::Keyed(Key { producer, epoch, seq }) = &fact.deed else { return None };
        let digest = Some(Digest::of(&fact.body));
        let operation = Operation::Append(Append {
            incarnation: fact.token,
            producer: Some(ProducerKey { id: producer.clone(), epoch: *epoch, seq: *seq, digest }),
            body_fault: None,
            content_type: Some(CONTENT_TYPE.to_owned()),
            stream_seq: None,
            close: false,
            body: fact.body.clone(),
        });
        Some(Ask::Write { path: fact.path.clone(), operation, write })
    }
}

//! What answers about snapshots promise, and what a bucket is said to hold.

use super::paths::Oracle;
use super::register::{Deed, Fact};
use super::snapshots::Part;
use crate::invariants::{Checked, Invariant, hold, violated};
use crate::message::WriteId;
use crate::server::Server;
use highwater_base::Incarnation;
use highwater_stream::usage::bucket_of;
use highwater_stream::{Outcome, Refusal, SnapshotScope};
use std::collections::{BTreeMap, BTreeSet};

impl Oracle {
    /// Holds an answer about snapshots against the stream, and notes what follows from it.
    /// # Errors
    /// `SnapshotIsWhole`, `RetainedNeverGoesBack`.
    pub(super) fn kept(&mut self, write: WriteId, outcome: &Outcome) -> Checked {
        let Some(Fact { path, deed, body, .. }) = self.register.get(write).cloned() else { return Ok(()) };
        let token = match outcome {
            Outcome::PartStaged { incarnation, .. }
            | Outcome::PartsDiscarded { incarnation }
            | Outcome::Published { incarnation, .. }
            | Outcome::Retained { incarnation, .. } => *incarnation,
            _ => return Ok(()),
        };
        // A delete of the same turn may have taken the stream away again.
        let Some(history) = self.history_mut(&path).filter(|history| history.token() == token) else { return Ok(()) };
        let snapshots = &mut history.snapshots;
        match outcome {
            Outcome::PartStaged { part, .. } => snapshots.staged(*part, body),
            Outcome::PartsDiscarded { .. } => snapshots.discarded(),
            Outcome::Published { snapshot, .. } => {
                if let Deed::Publish { parts, honest, .. } = &deed {
                    snapshots.taken(parts);
                    hold(Invariant::SnapshotIsWhole, *honest, || {
                        format!("{path}: {snapshot:?} was published with bytes of another digest")
                    })?;
                }
                let latest = snapshots.latest();
                hold(
                    Invariant::SnapshotIsWhole,
                    latest.is_some_and(|latest| latest.offset >= snapshot.offset),
                    || format!("{path}: {snapshot:?} was acknowledged, the latest is {latest:?}"),
                )?;
            }
            Outcome::Retained { offset, .. } => {
                let retained = snapshots.retained();
                hold(Invariant::RetainedNeverGoesBack, retained >= *offset, || {
                    format!("{path}: {offset} was acknowledged as given up below, and it is {retained}")
                })?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Holds a refusal of parts against what is known of them.
    /// # Errors
    /// `SnapshotIsWhole` if all of them are there.
    pub fn refused_parts(&self, path: &str, parts: &[Incarnation], refusal: &Refusal) -> Checked {
        let Refusal::UnknownPart { incarnation } = refusal else { return Ok(()) };
        let Some(history) = self.history(path).filter(|history| history.token() == *incarnation) else { return Ok(()) };
        let known = history.snapshots.parts();
        let sure = |part: &Incarnation| known.get(&part.get()).is_some_and(Part::is_sure);
        let distinct: BTreeSet<_> = parts.iter().collect();
        let missing = distinct.len() < parts.len() || !parts.iter().all(sure);
        hold(Invariant::SnapshotIsWhole, missing, || format!("{path}: the parts {parts:?} are there, and {refusal}"))
    }

    /// Holds a snapshot that a reader was given against what was published; without bytes if they were gone.
    /// # Errors
    /// `SnapshotIsWhole`.
    pub fn snapshot_read(&self, path: &str, scope: &SnapshotScope, bytes: Option<&[u8]>) -> Checked {
        let history = self.history(path).filter(|history| history.token() == scope.incarnation);
        let latest = history.and_then(|history| history.snapshots.latest());
        match (bytes, history) {
            (Some(bytes), Some(history)) => history.snapshots.check_bytes(path, scope, bytes),
            (None, _) if latest == Some(scope.head) => {
                violated(Invariant::SnapshotIsWhole, format!("{path}: the bytes of {:?} are gone", scope.head))
            }
            // Another one took its place while it was read, or the stream is gone.
            _ => Ok(()),
        }
    }

    /// Holds the server to what is left once time has run out: nothing that ends by itself, and no part that waits.
    /// # Errors
    /// `TimeIsKept`, `UsageIsWhatIsStored`.
    pub fn check_run_out(&self, server: &Server) -> Checked {
        let mut buckets: BTreeMap<&str, u64> = BTreeMap::new();
        for (path, known) in &self.paths {
            let bytes = buckets.entry(bucket_of(path)).or_default();
            let Some(history) = &known.current else { continue };
            hold(Invariant::TimeIsKept, history.lifetime.is_none(), || format!("{path} is there for ever"))?;
            *bytes += history.held_bytes();
        }
        for (bucket, stored) in buckets {
            let told = server.stored_bytes(bucket);
            hold(Invariant::UsageIsWhatIsStored, told == stored, || {
                format!("when time has run out, the bucket {bucket} is said to hold {told} bytes of {stored}")
            })?;
        }
        Ok(())
    }

    /// Holds what each bucket is said to hold against what is stored. To be asked when every answer was taken in.
    /// # Errors
    /// `UsageIsWhatIsStored`.
    pub fn check_usage(&self, server: &Server) -> Checked {
        if !server.serves() || server.answers_wait() || !self.is_settled() {
            return Ok(());
        }
        let mut buckets: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (path, known) in &self.paths {
            let (least, most) = buckets.entry(bucket_of(path)).or_default();
            if let Some(history) = &known.current {
                let parts = history.snapshots.parts().values();
                let (sure, doubtful): (Vec<_>, Vec<_>) = parts.partition(|part| part.is_sure());
                *least += history.held_bytes() + sure.iter().map(|part| part.bytes.len() as u64).sum::<u64>();
                let parts = doubtful.iter().chain(&sure).map(|part| part.bytes.len() as u64);
                *most = most.saturating_add(history.held_bytes() + parts.sum::<u64>());
            }
            // Over, perhaps before it was seen, and perhaps not removed yet.
            let ends = |fact: &Fact| matches!(fact.deed, Deed::Create(_, Some(_))) && fact.possible();
            if known.current.is_none() && self.register.of_path(path).any(ends) {
                *most = u64::MAX;
                continue;
            }
            let undecided = self.register.of_path(path).filter(|fact| fact.undecided > 0);
            *most = most.saturating_add(
                undecided.filter(|f| matches!(f.deed, Deed::Stage(_))).map(|f| f.body.len() as u64).sum::<u64>(),
            );
        }
        for (bucket, (least, most)) in buckets {
            let told = server.stored_bytes(bucket);
            hold(Invariant::UsageIsWhatIsStored, (least..=most).contains(&told), || {
                format!("the bucket {bucket} is said to hold {told} bytes, and holds {least} to {most}")
            })?;
        }
        Ok(())
    }
}

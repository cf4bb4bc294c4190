//! What is known of the snapshots of one history: how far it is given up, the latest snapshot, and the parts that wait.

use super::register::{Deed, Fact, Register};
use crate::invariants::{Checked, Invariant, hold, violated};
use crate::server::Server;
use bytes::Bytes;
use highwater_base::{Incarnation, Offset};
use highwater_node::SnapshotHasher;
use highwater_node::shard::{SnapshotAbout, SnapshotAnswer, SnapshotQuestion};
use highwater_store::ReadError;
use highwater_stream::{Head, SnapshotHead, SnapshotScope};
use std::collections::BTreeMap;

/// The content type of every snapshot here.
pub const SNAPSHOT_TYPE: &str = "application/vnd.example.snapshot";

/// A part that the server said it keeps.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its bytes.
    pub bytes: Bytes,
    /// Whether something of unknown outcome may have taken it away.
    doubtful: bool,
    /// Whether it may be so old that it is taken away.
    aged: bool,
}

impl Part {
    /// Whether it must be there.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        !self.doubtful && !self.aged
    }
}

/// The snapshots of one history.
#[derive(Debug, Clone, Default)]
pub struct Snapshots {
    retained: Offset,
    latest: Option<(SnapshotHead, Bytes)>,
    parts: BTreeMap<u64, Part>,
}

/// A stream of which a question is asked.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Where it is.
    pub path: &'a str,
    /// Its token.
    pub token: Incarnation,
}

impl Snapshots {
    /// The first offset that can be read.
    #[must_use]
    pub fn retained(&self) -> Offset {
        self.retained
    }

    /// What names the latest snapshot.
    #[must_use]
    pub fn latest(&self) -> Option<SnapshotHead> {
        self.latest.as_ref().map(|(head, _)| *head)
    }

    /// The parts that no snapshot took, as far as it is known, by their numbers.
    #[must_use]
    pub fn parts(&self) -> &BTreeMap<u64, Part> {
        &self.parts
    }

    /// Bytes of the latest snapshot.
    #[must_use]
    pub fn latest_bytes(&self) -> u64 {
        self.latest.as_ref().map_or(0, |(_, bytes)| bytes.len() as u64)
    }

    /// A part is kept.
    pub fn staged(&mut self, part: Incarnation, bytes: Bytes) {
        self.parts.insert(part.get(), Part { bytes, doubtful: false, aged: false });
    }

    /// Parts are not kept any more: a snapshot took them.
    pub fn taken(&mut self, parts: &[Incarnation]) {
        parts.iter().for_each(|part| drop(self.parts.remove(&part.get())));
    }

    /// No part is kept any more.
    pub fn discarded(&mut self) {
        self.parts.clear();
    }

    /// It is not known any more which parts are there: all of them, or those with these numbers.
    pub fn doubt(&mut self, parts: Option<&[Incarnation]>) {
        let named = |number: u64| parts.is_none_or(|parts| parts.iter().any(|part| part.get() == number));
        let hit = self.parts.iter_mut().filter(|(number, _)| named(**number));
        hit.for_each(|(_, part)| part.doubtful = true);
    }

    /// The wall clock jumped: each part may be too old from now on.
    pub fn age(&mut self) {
        self.parts.values_mut().for_each(|part| part.aged = true);
    }

    /// Holds the head of the stream against what is known, and learns what moved.
    /// # Errors
    /// `RetainedNeverGoesBack`, `SnapshotIsWhole`, `NothingUnwritten`.
    pub fn look(&mut self, at: Place<'_>, head: &Head, register: &Register, server: &mut Server) -> Checked {
        let path = at.path;
        if head.retained != self.retained {
            hold(Invariant::RetainedNeverGoesBack, head.retained > self.retained, || {
                format!("{path} was given up below {} and is below {} now", self.retained, head.retained)
            })?;
            let asks = |fact: &Fact| fact.deed == Deed::Retain(head.retained) && fact.possible();
            let asked = register.of_path(path).any(asks);
            hold(Invariant::RetainedNeverGoesBack, asked, || {
                format!("{path} is given up below {}, which nobody asked for", head.retained)
            })?;
            self.retained = head.retained;
        }
        let latest = self.latest();
        if head.snapshot != latest {
            self.replaced(at, latest, head.snapshot, register, server)?;
        }
        let covered = head.retained == Offset(0) || head.snapshot.is_some_and(|named| named.offset >= head.retained);
        hold(Invariant::SnapshotIsWhole, covered, || {
            format!("{path} is given up below {}, and its snapshot is {:?}", head.retained, head.snapshot)
        })
    }

    fn replaced(
        &mut self,
        at: Place<'_>,
        before: Option<SnapshotHead>,
        now: Option<SnapshotHead>,
        register: &Register,
        server: &mut Server,
    ) -> Checked {
        let path = at.path;
        let Some(named) = now else {
            return violated(Invariant::SnapshotIsWhole, format!("the snapshot {before:?} of {path} is gone"));
        };
        hold(Invariant::SnapshotIsWhole, before.is_none_or(|before| before.offset < named.offset), || {
            format!("the snapshot {named:?} of {path} took the place of {before:?}")
        })?;
        let published = register.of_path(path).find_map(|fact| match &fact.deed {
            Deed::Publish { head, honest: true, parts } if *head == named && fact.possible() => Some((fact, parts)),
            _ => None,
        });
        let Some((fact, parts)) = published else {
            return violated(Invariant::NothingUnwritten, format!("nobody published {named:?} of {path}"));
        };
        self.taken(parts);
        self.latest = Some((named, fact.body.clone()));
        self.verify_latest(at, server).map(|_| ())
    }

    /// Reads the latest snapshot; `false` if the server cannot tell now.
    /// # Errors
    /// `SnapshotIsWhole`.
    pub fn verify_latest(&self, Place { path, token }: Place<'_>, server: &mut Server) -> Checked<bool> {
        let Some((named, _)) = &self.latest else { return Ok(true) };
        let about = SnapshotAbout::Latest(named.offset);
        let question = SnapshotQuestion { path: path.to_owned(), incarnation: Some(token), about };
        let scope = match server.probe_snapshot(question) {
            Some(Ok(SnapshotAnswer::Latest(scope))) => scope,
            Some(other) => {
                return violated(Invariant::SnapshotIsWhole, format!("{path}: {named:?} is answered with {other:?}"));
            }
            None => return Ok(false),
        };
        let mut bytes = Vec::new();
        for part in &scope.parts {
            match server.probe_object(path, part.object, part.length) {
                Some(Ok(Some(piece))) => bytes.extend_from_slice(&piece),
                Some(Ok(None)) => {
                    let seen = format!("{path}: the bytes of the snapshot {named:?} are gone");
                    return violated(Invariant::SnapshotIsWhole, seen);
                }
                Some(Err(error @ ReadError::Damaged { .. })) => {
                    return violated(Invariant::SnapshotIsWhole, format!("{path}: {error}"));
                }
                Some(Err(_)) | None => return Ok(false),
            }
        }
        self.check_bytes(path, &scope, &bytes).map(|()| true)
    }

    /// Holds a snapshot that was read against its digest, and against what was published if it is the latest.
    /// # Errors
    /// `SnapshotIsWhole`.
    pub fn check_bytes(&self, path: &str, scope: &SnapshotScope, bytes: &[u8]) -> Checked {
        let named = scope.head;
        let mut hasher = SnapshotHasher::new(&scope.content_type);
        hasher.update(bytes);
        hold(Invariant::SnapshotIsWhole, hasher.finish() == named.digest, || {
            format!("{path}: {} bytes of the snapshot {named:?} have another digest", bytes.len())
        })?;
        let published = self.latest.as_ref().filter(|(latest, _)| *latest == named);
        hold(Invariant::SnapshotIsWhole, published.is_none_or(|(_, published)| published == bytes), || {
            format!("{path}: the snapshot {named:?} is not what was published")
        })
    }

    /// Looks for every part, and for those of writes whose outcome nobody told; `false` if the server cannot tell now.
    /// # Errors
    /// `SnapshotIsWhole` for one that is gone, or has other bytes.
    pub fn verify_parts(&mut self, at: Place<'_>, register: &Register, server: &mut Server) -> Checked<bool> {
        let undecided = register.of_path(at.path).filter_map(|fact| match fact.deed {
            Deed::Stage(drawn) if fact.undecided > 0 => {
                Some((drawn.get(), Part { bytes: fact.body.clone(), doubtful: true, aged: true }))
            }
            _ => None,
        });
        let mut found = BTreeMap::new();
        let known = self.parts.iter().map(|(number, part)| (*number, part.clone()));
        for (number, part) in known.chain(undecided) {
            match server.probe_object(at.path, number, part.bytes.len() as u64) {
                Some(Ok(Some(piece))) => {
                    hold(Invariant::SnapshotIsWhole, piece == part.bytes, || {
                        format!("{}: the part {number} has other bytes", at.path)
                    })?;
                    found.insert(number, Part { doubtful: false, ..part });
                }
                Some(Ok(None)) => hold(Invariant::SnapshotIsWhole, !part.is_sure(), || {
                    format!("{}: the part {number} is gone", at.path)
                })?,
                Some(Err(error @ ReadError::Damaged { .. })) => {
                    return violated(Invariant::SnapshotIsWhole, format!("{}: {error}", at.path));
                }
                Some(Err(_)) | None => return Ok(false),
            }
        }
        // One that a snapshot took is an object, too, and is no part that waits.
        if let Some((named, _)) = &self.latest {
            let taken = register.of_path(at.path).filter_map(|fact| match &fact.deed {
                Deed::Publish { head, parts, .. } if head == named => Some(parts),
                _ => None,
            });
            taken.flatten().for_each(|part| drop(found.remove(&part.get())));
        }
        self.parts = found;
        Ok(true)
    }
}

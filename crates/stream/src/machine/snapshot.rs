//! Snapshots, their parts, and what they allow to give up.

use super::{Done, Machine};
use crate::command::{PublishSnapshot, SnapshotSource};
use crate::effect::Effect;
use crate::outcome::{Outcome, Refusal, SnapshotHead, SnapshotPart, SnapshotScope, StagedLimit};
use crate::state::{Snapshot, Staged, Stream};
use highwater_base::planted::{Bug, active};
use highwater_base::{Incarnation, Millis, Offset};
use std::collections::BTreeSet;

impl Machine {
    pub(super) fn stage_part(
        &mut self,
        path: &str,
        at: Millis,
        asked: Option<Incarnation>,
        drawn: Incarnation,
        length: u64,
    ) -> Result<Done, Refusal> {
        let (object, incarnation) = self.checked(path, at, asked)?;
        let part = self.unused(drawn);
        let options = self.options;
        let stream = self.streams.get_mut(&object).ok_or(Refusal::StreamNotFound)?;
        let (count, bytes) = stream.staged().fold((0, 0), |(n, bytes), (_, staged)| (n + 1, bytes + staged.length));
        if count >= options.staged_parts_max {
            let limit = StagedLimit::Parts(options.staged_parts_max);
            return Err(Refusal::StagedPartsLimit { limit, incarnation });
        }
        if bytes + length > options.staged_bytes_max {
            let limit = StagedLimit::Bytes(options.staged_bytes_max);
            return Err(Refusal::StagedPartsLimit { limit, incarnation });
        }
        stream.rare_mut().staged.insert(part.get(), Staged { length, at });
        if count == 0 {
            self.due.insert((at.plus(options.staged_ms_max), object));
        }
        self.keep_part(part.get(), object);
        self.usages.change(path, Some(0), Some(length));
        self.note_change(object);
        Ok((Outcome::PartStaged { part, incarnation }, vec![Effect::Part { object: part.get(), length }]))
    }

    pub(super) fn discard_parts(
        &mut self,
        path: &str,
        at: Millis,
        asked: Option<Incarnation>,
    ) -> Result<Done, Refusal> {
        let (object, incarnation) = self.checked(path, at, asked)?;
        let parts = self.streams.get(&object).map(|stream| stream.staged().map(|(part, _)| part).collect());
        Ok((Outcome::PartsDiscarded { incarnation }, self.unstage(object, parts.unwrap_or_default())))
    }

    /// Forgets staged parts of a stream.
    pub(super) fn unstage(&mut self, object: u64, parts: Vec<u64>) -> Vec<Effect> {
        let Some(stream) = self.streams.get_mut(&object).filter(|_| !parts.is_empty()) else { return Vec::new() };
        let mut freed = 0;
        for part in &parts {
            freed += stream.rare_mut().staged.remove(part).map_or(0, |staged| staged.length);
        }
        stream.tidy();
        if !active(Bug::MiscountParts) {
            self.usages.change(&stream.path, Some(freed), Some(0));
        }
        self.note_change(object);
        parts.iter().for_each(|part| self.drop_part(*part));
        parts.into_iter().map(|object| Effect::PartRemoved { object }).collect()
    }

    /// Judges a snapshot by its name: the answer if it is the latest one already, nothing if its bytes decide.
    ///
    /// A snapshot never takes the place of a later one, and none reaches beyond the stream's end.
    /// # Errors
    /// `StreamNotFound`, `IncarnationMismatch`, `Gone`, `SnapshotBeyondEnd`, `SnapshotConflict`.
    pub fn check_publish(
        &self,
        path: &str,
        at: Millis,
        asked: Option<Incarnation>,
        named: SnapshotHead,
    ) -> Result<Option<Outcome>, Refusal> {
        let (object, incarnation) = self.checked(path, at, asked)?;
        let stream = self.streams.get(&object).ok_or(Refusal::StreamNotFound)?;
        let latest = stream.snapshot().map(|snapshot| snapshot.head);
        if latest == Some(named) {
            return Ok(Some(Outcome::Published { snapshot: named, incarnation }));
        }
        if named.offset < stream.retained {
            return Err(Refusal::Gone { retained: stream.retained, incarnation });
        }
        if named.offset > stream.next {
            return Err(Refusal::SnapshotBeyondEnd { next: stream.next, incarnation });
        }
        if latest.is_some_and(|latest| latest.offset >= named.offset) {
            return Err(Refusal::SnapshotConflict { latest, incarnation });
        }
        Ok(None)
    }

    /// The staged parts that a snapshot would be made of, in its order.
    /// # Errors
    /// `StreamNotFound`, `IncarnationMismatch`, `UnknownPart` for one that is not staged or comes twice, and
    /// `SnapshotTooLarge`.
    pub fn check_parts(
        &self,
        path: &str,
        at: Millis,
        asked: Option<Incarnation>,
        parts: &[Incarnation],
    ) -> Result<Vec<SnapshotPart>, Refusal> {
        let (object, incarnation) = self.checked(path, at, asked)?;
        let stream = self.streams.get(&object).ok_or(Refusal::StreamNotFound)?;
        self.named_parts(stream, incarnation, parts)
    }

    fn named_parts(
        &self,
        stream: &Stream,
        incarnation: Incarnation,
        parts: &[Incarnation],
    ) -> Result<Vec<SnapshotPart>, Refusal> {
        let bytes_max = self.options.snapshot_bytes_max;
        if parts.len() > self.options.snapshot_parts_max {
            return Err(Refusal::SnapshotTooLarge { bytes_max });
        }
        let staged = stream.rare.as_deref().map(|rare| &rare.staged);
        let mut seen = BTreeSet::new();
        let mut named = Vec::with_capacity(parts.len());
        for part in parts {
            let found = staged.and_then(|staged| staged.get(&part.get())).filter(|_| seen.insert(part.get()));
            let Staged { length, .. } = found.ok_or(Refusal::UnknownPart { incarnation })?;
            named.push(SnapshotPart { object: part.get(), length: *length });
        }
        let length: u64 = named.iter().map(|part| part.length).sum();
        if length > bytes_max { Err(Refusal::SnapshotTooLarge { bytes_max }) } else { Ok(named) }
    }

    pub(super) fn publish(&mut self, path: &str, at: Millis, publish: &PublishSnapshot) -> Result<Done, Refusal> {
        let head = SnapshotHead { offset: publish.offset, digest: publish.digest };
        if let Some(known) = self.check_publish(path, at, publish.incarnation, head)? {
            return Ok((known, Vec::new()));
        }
        let (object, incarnation) = self.checked(path, at, publish.incarnation)?;
        let stream = self.streams.get(&object).ok_or(Refusal::StreamNotFound)?;
        let before = stream.held_bytes();
        if let SnapshotSource::Body { body, .. } = &publish.source
            && body.len() as u64 > self.options.snapshot_bytes_max
        {
            return Err(Refusal::SnapshotTooLarge { bytes_max: self.options.snapshot_bytes_max });
        }
        let (parts, mut effects, made) = match &publish.source {
            SnapshotSource::Parts(parts) => (self.named_parts(stream, incarnation, parts)?, Vec::new(), None),
            SnapshotSource::Body { part, body } => {
                let part = SnapshotPart { object: self.unused(*part).get(), length: body.len() as u64 };
                let effect = Effect::Part { object: part.object, length: part.length };
                (vec![part], vec![effect], Some(part.object))
            }
        };
        if !publish.digest_matches && !active(Bug::SkipSnapshotDigest) {
            return Err(Refusal::SnapshotDigestMismatch);
        }
        let stream = self.streams.get_mut(&object).ok_or(Refusal::StreamNotFound)?;
        let rare = stream.rare_mut();
        for part in &parts {
            rare.staged.remove(&part.object);
        }
        let content_type = publish.content_type.as_str().into();
        let former = rare.snapshot.replace(Snapshot { head, content_type, parts: parts.into() });
        let after = stream.held_bytes();
        self.usages.change(path, Some(before), Some(after));
        self.note_change(object);
        if let Some(part) = made {
            self.keep_part(part, object);
        }
        for SnapshotPart { object, .. } in former.iter().flat_map(|snapshot| snapshot.parts.iter()) {
            self.drop_part(*object);
            effects.push(Effect::PartRemoved { object: *object });
        }
        effects.push(Effect::Published { object, offset: head.offset });
        Ok((Outcome::Published { snapshot: head, incarnation }, effects))
    }

    pub(super) fn retain(
        &mut self,
        path: &str,
        at: Millis,
        asked: Option<Incarnation>,
        offset: Offset,
    ) -> Result<Done, Refusal> {
        let (object, incarnation) = self.checked(path, at, asked)?;
        let stream = self.streams.get_mut(&object).ok_or(Refusal::StreamNotFound)?;
        let before = stream.retained;
        if offset <= before {
            return Ok((Outcome::Retained { offset: before, incarnation }, Vec::new()));
        }
        let latest = stream.snapshot().map(|snapshot| snapshot.head);
        if latest.is_none_or(|latest| latest.offset < offset) {
            return Err(Refusal::SnapshotConflict { latest, incarnation });
        }
        stream.retained = offset;
        self.usages.change(path, Some(offset.since(before)), Some(0));
        self.note_change(object);
        Ok((Outcome::Retained { offset, incarnation }, vec![Effect::Retained { object, offset }]))
    }

    /// The latest snapshot, if it is the one at `offset`.
    /// # Errors
    /// `StreamNotFound`, `IncarnationMismatch`, `SnapshotNotFound`.
    pub fn check_snapshot(
        &self,
        path: &str,
        at: Millis,
        asked: Option<Incarnation>,
        offset: Offset,
    ) -> Result<SnapshotScope, Refusal> {
        let (object, incarnation) = self.checked(path, at, asked)?;
        let stream = self.streams.get(&object).ok_or(Refusal::StreamNotFound)?;
        let snapshot = stream.snapshot().filter(|snapshot| snapshot.head.offset == offset);
        let snapshot = snapshot.ok_or(Refusal::SnapshotNotFound { incarnation })?;
        Ok(SnapshotScope {
            incarnation,
            head: snapshot.head,
            content_type: snapshot.content_type.as_ref().to_owned(),
            length: snapshot.parts.iter().map(|part| part.length).sum(),
            parts: snapshot.parts.to_vec(),
        })
    }
}

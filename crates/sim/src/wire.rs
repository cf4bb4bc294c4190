//! From the node's answers to what a client makes of them: through header fields and the client's own reader, as over
//! HTTP. The fields are those of the stream contract's table of answers; the HTTP front end has its own tests.

use highwater_base::Offset;
use highwater_client::head::PROTOCOL;
use highwater_client::headers::Headers;
use highwater_client::{Answer, Head, HeadAnswer, Identity, Outcome, Piece, WriteKind, Written, classify};
use highwater_node::{ReadAnswer, Unavailable, WriteAnswer};
use highwater_stream::{ClosedEpoch, Outcome as Applied, Receipt, Refusal};

/// An answer on its way: a status, fields, and the code of an error's body.
#[derive(Debug, Default)]
struct Wire {
    status: u16,
    fields: Vec<(&'static str, String)>,
    code: &'static str,
}

impl Wire {
    fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    fn refusal(status: u16, code: &'static str) -> Self {
        Self { status, code, fields: Vec::new() }
    }

    fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.fields.push((name, value.to_string()));
        self
    }

    fn closed(self, closed: Option<ClosedEpoch>) -> Self {
        match closed {
            Some(closed) => {
                self.with("producer-closed-epoch", closed.epoch).with("producer-closed-seq", closed.last_seq)
            }
            None => self,
        }
    }

    fn read(self, kind: WriteKind) -> Answer<Written> {
        let body = if self.code.is_empty() {
            String::new()
        } else {
            format!(r#"{{"error":{{"code":"{}","message":""}}}}"#, self.code)
        };
        classify(kind, self.status, &Headers::new(self.fields), body.as_bytes())
    }
}

/// What a client makes of the answer to a write of this kind.
#[must_use]
pub fn written(kind: WriteKind, answer: &Result<WriteAnswer, Unavailable>) -> Answer<Written> {
    let wire = match answer {
        Ok(WriteAnswer { result: Ok(outcome), .. }) => done(outcome),
        Ok(WriteAnswer { result: Err(refusal), .. }) => refused(refusal),
        Err(unavailable) => unavailable_wire(unavailable),
    };
    wire.read(kind)
}

/// What a client makes of a layer's refusal of a body above `limit` bytes.
#[must_use]
pub fn too_large(kind: WriteKind, limit: u64) -> Answer<Written> {
    Wire::refusal(413, "REQUEST_TOO_LARGE").with("ursula-max-request-bytes", limit).read(kind)
}

/// What a client makes of the answer to a read.
#[must_use]
pub fn piece(answer: Result<Result<ReadAnswer, Refusal>, Unavailable>) -> Answer<Piece> {
    let wire = match answer {
        Ok(Ok(read)) => {
            let ReadAnswer { next, incarnation, content_type, up_to_date, closed, body, .. } = read;
            return succeeded(Piece { body, content_type, next, incarnation, up_to_date, closed });
        }
        Ok(Err(refusal)) => refused(&refusal),
        Err(unavailable) => unavailable_wire(&unavailable),
    };
    failed(wire)
}

/// What a client makes of the answer to a HEAD.
#[must_use]
pub fn head(
    cluster_id: &str,
    request_bytes_max: u64,
    answer: Result<Result<highwater_stream::Head, Refusal>, Unavailable>,
) -> HeadAnswer {
    let identity = Some(Identity { protocol: PROTOCOL, cluster_id: cluster_id.to_owned() });
    let answer = match answer {
        Ok(Ok(head)) => succeeded(Head {
            incarnation: head.incarnation,
            next: head.next,
            retained: head.retained,
            closed: head.closed,
            content_type: head.content_type,
            previous: head.previous,
            expiry: None,
            request_bytes_max: Some(request_bytes_max),
        }),
        Ok(Err(refusal)) => failed(refused(&refusal)),
        Err(unavailable) => failed(unavailable_wire(&unavailable)),
    };
    HeadAnswer { identity, answer }
}

fn succeeded<T>(done: T) -> Answer<T> {
    let (code, message) = (String::new(), String::new());
    Answer { outcome: Outcome::Done(done), status: 200, code, message, retry_after_ms: None }
}

/// A read's failure, which any kind of write would read alike.
fn failed<T>(wire: Wire) -> Answer<T> {
    let Answer { outcome, status, code, message, retry_after_ms } = wire.read(WriteKind::Delete);
    let outcome = match outcome {
        Outcome::Refused(refusal) => Outcome::Refused(refusal),
        Outcome::Redirected => Outcome::Redirected,
        Outcome::Done(_) | Outcome::Unknown => Outcome::Unknown,
    };
    Answer { outcome, status, code, message, retry_after_ms }
}

fn done(outcome: &Applied) -> Wire {
    match outcome {
        Applied::Created(stream) => Wire::new(201).with("stream-incarnation", stream.incarnation),
        Applied::Matched(stream) => Wire::new(200).with("stream-incarnation", stream.incarnation),
        Applied::Appended { next, incarnation, closed, .. } => {
            let wire = Wire::new(204).with("stream-next-offset", next).with("stream-incarnation", incarnation);
            if *closed { wire.with("stream-closed", "true") } else { wire }
        }
        Applied::Applied(receipt) => receipt_wire(if receipt.had_body { 200 } else { 204 }, receipt),
        Applied::Repeated(receipt) => receipt_wire(204, receipt),
        Applied::Evicted { epoch, seq, incarnation, closed } => Wire::new(204)
            .with("producer-epoch", epoch)
            .with("producer-seq", seq)
            .with("stream-incarnation", incarnation)
            .closed(*closed)
            .with("producer-outcome", "receipt-evicted"),
        Applied::PartStaged { part, incarnation } => {
            Wire::new(201).with("stream-snapshot-part", part).with("stream-incarnation", incarnation)
        }
        Applied::PartsDiscarded { incarnation } => Wire::new(204).with("stream-incarnation", incarnation),
        Applied::Published { snapshot, incarnation } => Wire::new(204)
            .with("stream-snapshot-offset", snapshot.offset)
            .with("stream-snapshot-digest", snapshot.digest)
            .with("stream-incarnation", incarnation),
        Applied::Retained { offset, incarnation } => {
            Wire::new(204).with("stream-retained-offset", offset).with("stream-incarnation", incarnation)
        }
        Applied::Deleted | Applied::Touched | Applied::Expired { .. } | Applied::HistoryBegun | Applied::Led => {
            Wire::new(204)
        }
    }
}

fn receipt_wire(status: u16, receipt: &Receipt) -> Wire {
    let wire = Wire::new(status)
        .with("producer-epoch", receipt.epoch)
        .with("producer-seq", receipt.seq)
        .with("stream-incarnation", receipt.incarnation)
        .closed(receipt.closed_epoch)
        .with("stream-offset", receipt.start)
        .with("stream-next-offset", receipt.next);
    if receipt.closed_stream { wire.with("stream-closed", "true") } else { wire }
}

fn refused(refusal: &Refusal) -> Wire {
    let fence = |code, epoch: u64, outcome: &'static str| {
        Wire::refusal(403, code).with("producer-epoch", epoch).with("producer-outcome", outcome)
    };
    let next = |status, code, next: &Offset| Wire::refusal(status, code).with("stream-next-offset", next);
    match refusal {
        Refusal::StreamNotFound => Wire::refusal(404, "STREAM_NOT_FOUND"),
        Refusal::IncarnationMismatch { current: None } => Wire::refusal(412, "INCARNATION_MISMATCH"),
        Refusal::IncarnationMismatch { current: Some(current) } => {
            Wire::refusal(412, "INCARNATION_MISMATCH").with("stream-incarnation", current)
        }
        Refusal::AlreadyExists => Wire::refusal(409, "STREAM_ALREADY_EXISTS_CONFLICT"),
        Refusal::EpochClosedByClaim { current, closed } => {
            fence("PRODUCER_EPOCH_CLOSED", *current, "epoch-closed;by=claim").closed(Some(*closed))
        }
        Refusal::EpochClosedByHistory { closed } => {
            fence("PRODUCER_EPOCH_CLOSED", closed.epoch, "epoch-closed;by=history").closed(Some(*closed))
        }
        Refusal::EpochStale { current } => fence("PRODUCER_EPOCH_STALE", *current, "stale-epoch"),
        Refusal::KeyConflict { current } => fence("PRODUCER_KEY_CONFLICT", *current, "key-conflict"),
        Refusal::ProducerExpired { floor } => fence("PRODUCER_EXPIRED", *floor, "producer-expired"),
        Refusal::EpochNotClaimed => Wire::refusal(400, "INVALID_PRODUCER").with("producer-expected-seq", 0),
        Refusal::SeqGap { expected, received } => Wire::refusal(409, "PRODUCER_SEQ_CONFLICT")
            .with("producer-expected-seq", expected)
            .with("producer-received-seq", received),
        Refusal::ProducerLimit => Wire::refusal(429, "PRODUCER_LIMIT"),
        Refusal::StreamClosed { next: end } => next(409, "STREAM_CLOSED", end).with("stream-closed", "true"),
        Refusal::DigestMismatch => Wire::refusal(400, "PRODUCER_DIGEST_MISMATCH"),
        Refusal::EmptyAppend | Refusal::EmptyArray => Wire::refusal(400, "EMPTY_APPEND"),
        Refusal::InvalidJson => Wire::refusal(400, "INVALID_JSON"),
        Refusal::NotJsonBoundary => Wire::refusal(400, "NOT_JSON_BOUNDARY"),
        Refusal::MissingContentType => Wire::refusal(400, "MISSING_CONTENT_TYPE"),
        Refusal::ContentTypeMismatch { next: end, .. } => next(409, "CONTENT_TYPE_MISMATCH", end),
        Refusal::StreamSeqConflict { last } => Wire::refusal(409, "STREAM_SEQ_CONFLICT").with("stream-last-seq", last),
        Refusal::OffsetOutOfRange { next: end, incarnation } => {
            next(416, "OFFSET_OUT_OF_RANGE", end).with("stream-incarnation", incarnation)
        }
        Refusal::Gone { retained, incarnation } => {
            next(410, "STREAM_GONE", retained).with("stream-incarnation", incarnation)
        }
        Refusal::SnapshotConflict { latest, incarnation } => {
            let wire = Wire::refusal(409, "SNAPSHOT_CONFLICT").with("stream-incarnation", incarnation);
            match latest {
                Some(latest) => {
                    wire.with("stream-snapshot-offset", latest.offset).with("stream-snapshot-digest", latest.digest)
                }
                None => wire,
            }
        }
        Refusal::SnapshotBeyondEnd { next: end, incarnation } => {
            next(409, "SNAPSHOT_CONFLICT", end).with("stream-incarnation", incarnation)
        }
        Refusal::SnapshotNotFound { incarnation } => {
            Wire::refusal(404, "SNAPSHOT_NOT_FOUND").with("stream-incarnation", incarnation)
        }
        Refusal::UnknownPart { incarnation } => {
            Wire::refusal(400, "UNKNOWN_PART").with("stream-incarnation", incarnation)
        }
        Refusal::SnapshotDigestMismatch => Wire::refusal(400, "SNAPSHOT_DIGEST_MISMATCH"),
        Refusal::SnapshotTooLarge { bytes_max } => {
            Wire::refusal(413, "SNAPSHOT_TOO_LARGE").with("ursula-max-snapshot-bytes", bytes_max)
        }
        Refusal::StagedPartsLimit { incarnation, .. } => {
            Wire::refusal(429, "STAGED_PARTS_LIMIT").with("stream-incarnation", incarnation)
        }
    }
}

fn unavailable_wire(unavailable: &Unavailable) -> Wire {
    let again = |code| Wire::refusal(503, code).with("retry-after", 1);
    match unavailable {
        Unavailable::NoLeader { .. } => again("NO_LEADER"),
        Unavailable::OutcomeUnknown { leadership_lost: true } => again("OUTCOME_UNKNOWN"),
        Unavailable::OutcomeUnknown { leadership_lost: false } => Wire::refusal(503, "OUTCOME_UNKNOWN"),
        Unavailable::WalDiskPressure => again("WAL_DISK_PRESSURE"),
        Unavailable::RaftLogPressure => again("RAFT_LOG_PRESSURE"),
        Unavailable::RaftUncommittedBackpressure => again("RAFT_UNCOMMITTED_BACKPRESSURE"),
        Unavailable::IngressBodyBytesLimit => again("INGRESS_BODY_BYTES_LIMIT_REACHED"),
        Unavailable::HistoryPending => again("HISTORY_PENDING"),
        Unavailable::GroupRestarting => again("GROUP_RESTARTING"),
        Unavailable::ApplyStopped => Wire::refusal(503, "APPLY_STOPPED"),
        Unavailable::ReadBytesExhausted => Wire::refusal(503, "LIVE_READ_BACKPRESSURE").with("retry-after", 1),
        Unavailable::ColdStoreUnreachable | Unavailable::ColdReadsExhausted => again("COLD_BACKPRESSURE"),
        Unavailable::LiveReadsExhausted => Wire::refusal(429, "LIVE_READS_EXHAUSTED").with("retry-after", 1),
        Unavailable::SnapshotCommitsBusy => again("SNAPSHOT_COMMITS_BUSY"),
        Unavailable::SnapshotCommitInProgress => again("SNAPSHOT_COMMIT_IN_PROGRESS"),
        Unavailable::LedElsewhere { url, .. } => Wire::refusal(307, "").with("location", url),
        Unavailable::StoredBytesDamaged(_) => Wire::refusal(500, "STORED_BYTES_DAMAGED"),
        Unavailable::Internal(_) => Wire::refusal(500, "INTERNAL"),
    }
}

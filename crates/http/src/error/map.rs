//! Every refusal of a machine and every fault of the node, as status, code and headers.

use super::{Code, Error};
use crate::names;
use axum::http::header;
use highwater_node::Unavailable;
use highwater_stream::{ClosedEpoch, Refusal, StagedLimit};

impl From<Refusal> for Error {
    /// Source: the stream contract, answers to a keyed append.
    fn from(refusal: Refusal) -> Self {
        let error = Self::new(code(&refusal), refusal.to_string());
        match refusal {
            Refusal::IncarnationMismatch { current: Some(current) } => error.with(names::STREAM_INCARNATION, current),
            Refusal::EpochClosedByClaim { current, closed } => {
                producer(error, current, "epoch-closed;by=claim", Some(closed))
            }
            Refusal::EpochClosedByHistory { closed } => {
                producer(error, closed.epoch, "epoch-closed;by=history", Some(closed))
            }
            Refusal::EpochStale { current } => producer(error, current, "stale-epoch", None),
            Refusal::KeyConflict { current } => producer(error, current, "key-conflict", None),
            Refusal::ProducerExpired { floor } => producer(error, floor, "producer-expired", None),
            Refusal::EpochNotClaimed => error.with(names::PRODUCER_EXPECTED_SEQ, 0),
            Refusal::SeqGap { expected, received } => {
                error.with(names::PRODUCER_EXPECTED_SEQ, expected).with(names::PRODUCER_RECEIVED_SEQ, received)
            }
            Refusal::StreamClosed { next } => {
                error.with(names::STREAM_CLOSED, "true").with(names::STREAM_NEXT_OFFSET, next)
            }
            Refusal::ContentTypeMismatch { next, .. } => error.with(names::STREAM_NEXT_OFFSET, next),
            Refusal::StreamSeqConflict { last } => error.with(names::STREAM_LAST_SEQ, last),
            Refusal::OffsetOutOfRange { next, incarnation } => {
                error.with(names::STREAM_NEXT_OFFSET, next).with(names::STREAM_INCARNATION, incarnation)
            }
            Refusal::Gone { retained, incarnation } => {
                error.with(names::STREAM_NEXT_OFFSET, retained).with(names::STREAM_INCARNATION, incarnation)
            }
            Refusal::SnapshotConflict { latest, incarnation } => {
                let error = error.with(names::STREAM_INCARNATION, incarnation);
                match latest {
                    Some(latest) => error
                        .with(names::STREAM_SNAPSHOT_OFFSET, latest.offset)
                        .with(names::STREAM_SNAPSHOT_DIGEST, latest.digest),
                    None => error,
                }
            }
            Refusal::SnapshotBeyondEnd { next, incarnation } => {
                error.with(names::STREAM_NEXT_OFFSET, next).with(names::STREAM_INCARNATION, incarnation)
            }
            Refusal::SnapshotNotFound { incarnation } | Refusal::UnknownPart { incarnation } => {
                error.with(names::STREAM_INCARNATION, incarnation)
            }
            Refusal::StagedPartsLimit { limit, incarnation } => {
                let error = error.with(names::STREAM_INCARNATION, incarnation);
                match limit {
                    StagedLimit::Parts(parts) => error.with(names::URSULA_MAX_STAGED_PARTS, parts),
                    StagedLimit::Bytes(bytes) => error.with(names::URSULA_MAX_STAGED_BYTES, bytes),
                }
            }
            Refusal::SnapshotTooLarge { bytes_max } => error.with(names::URSULA_MAX_SNAPSHOT_BYTES, bytes_max),
            Refusal::StreamNotFound
            | Refusal::SnapshotDigestMismatch
            | Refusal::InvalidJson
            | Refusal::EmptyArray
            | Refusal::NotJsonBoundary
            | Refusal::IncarnationMismatch { current: None }
            | Refusal::AlreadyExists
            | Refusal::ProducerLimit
            | Refusal::DigestMismatch
            | Refusal::EmptyAppend
            | Refusal::MissingContentType => error,
        }
    }
}

fn code(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::StreamNotFound => Code::StreamNotFound,
        Refusal::IncarnationMismatch { .. } => Code::IncarnationMismatch,
        Refusal::AlreadyExists => Code::StreamAlreadyExistsConflict,
        Refusal::EpochClosedByClaim { .. } | Refusal::EpochClosedByHistory { .. } => Code::ProducerEpochClosed,
        Refusal::EpochStale { .. } => Code::ProducerEpochStale,
        Refusal::KeyConflict { .. } => Code::ProducerKeyConflict,
        Refusal::ProducerExpired { .. } => Code::ProducerExpired,
        Refusal::EpochNotClaimed => Code::InvalidProducer,
        Refusal::SeqGap { .. } => Code::ProducerSeqConflict,
        Refusal::ProducerLimit => Code::ProducerLimit,
        Refusal::StreamClosed { .. } => Code::StreamClosed,
        Refusal::DigestMismatch => Code::ProducerDigestMismatch,
        Refusal::EmptyAppend | Refusal::EmptyArray => Code::EmptyAppend,
        Refusal::InvalidJson => Code::InvalidJson,
        Refusal::NotJsonBoundary => Code::NotJsonBoundary,
        Refusal::MissingContentType => Code::MissingContentType,
        Refusal::ContentTypeMismatch { .. } => Code::ContentTypeMismatch,
        Refusal::StreamSeqConflict { .. } => Code::StreamSeqConflict,
        Refusal::OffsetOutOfRange { .. } => Code::OffsetOutOfRange,
        Refusal::Gone { .. } => Code::StreamGone,
        Refusal::SnapshotConflict { .. } | Refusal::SnapshotBeyondEnd { .. } => Code::SnapshotConflict,
        Refusal::SnapshotNotFound { .. } => Code::SnapshotNotFound,
        Refusal::SnapshotDigestMismatch => Code::SnapshotDigestMismatch,
        Refusal::SnapshotTooLarge { .. } => Code::SnapshotTooLarge,
        Refusal::UnknownPart { .. } => Code::UnknownPart,
        Refusal::StagedPartsLimit { .. } => Code::StagedPartsLimit,
    }
}

/// Every 403 of the key table names the epoch and one outcome; a 403 without them is no fence.
fn producer(error: Error, epoch: u64, outcome: &'static str, closed: Option<ClosedEpoch>) -> Error {
    let error = error.with(names::PRODUCER_EPOCH, epoch).with(names::PRODUCER_OUTCOME, outcome);
    match closed {
        Some(closed) => {
            error.with(names::PRODUCER_CLOSED_EPOCH, closed.epoch).with(names::PRODUCER_CLOSED_SEQ, closed.last_seq)
        }
        None => error,
    }
}

impl From<Unavailable> for Error {
    /// `NO_LEADER` only where nothing was proposed; whatever may have been proposed is `OUTCOME_UNKNOWN` or `INTERNAL`.
    fn from(unavailable: Unavailable) -> Self {
        let message = unavailable.to_string();
        let code = match unavailable {
            Unavailable::NoLeader { group } => {
                return Self::new(Code::NoLeader, message).with(names::RAFT_GROUP, group);
            }
            Unavailable::LedElsewhere { group, leader, term, url } => {
                return Self::new(Code::NoLeader, message)
                    .redirect(url)
                    .with(names::RAFT_LEADER_ID, leader)
                    .with(names::RAFT_GROUP, group)
                    .with(names::RAFT_TERM, term);
            }
            Unavailable::OutcomeUnknown { leadership_lost: true } => {
                return Self::new(Code::OutcomeUnknown, message).with(header::RETRY_AFTER, 1);
            }
            Unavailable::OutcomeUnknown { leadership_lost: false } => Code::OutcomeUnknown,
            Unavailable::WalDiskPressure => Code::WalDiskPressure,
            Unavailable::RaftLogPressure => Code::RaftLogPressure,
            Unavailable::RaftUncommittedBackpressure => Code::RaftUncommittedBackpressure,
            Unavailable::IngressBodyBytesLimit => Code::IngressBodyBytesLimitReached,
            Unavailable::HistoryPending => Code::HistoryPending,
            Unavailable::GroupRestarting => Code::GroupRestarting,
            Unavailable::ApplyStopped => Code::ApplyStopped,
            Unavailable::ReadBytesExhausted => Code::LiveReadBackpressure,
            Unavailable::ColdStoreUnreachable | Unavailable::ColdReadsExhausted => Code::ColdBackpressure,
            Unavailable::LiveReadsExhausted => Code::LiveReadsExhausted,
            Unavailable::StoredBytesDamaged(_) => Code::StoredBytesDamaged,
            Unavailable::SnapshotCommitsBusy => Code::SnapshotCommitsBusy,
            Unavailable::SnapshotCommitInProgress => Code::SnapshotCommitInProgress,
            Unavailable::Internal(_) => Code::Internal,
        };
        Self::new(code, message)
    }
}

impl From<highwater_control::Refusal> for Error {
    fn from(refusal: highwater_control::Refusal) -> Self {
        use highwater_control::Refusal;
        let code = match &refusal {
            Refusal::Invalid(_) => Code::InvalidRequest,
            Refusal::KeyNotFound => Code::KeyNotFound,
            Refusal::KeyRevoked => Code::KeyRevoked,
            Refusal::AccountNotFound(_) => Code::AccountNotFound,
            Refusal::PlanNotFound(_) => Code::PlanNotFound,
            Refusal::Exists(_) => Code::AlreadyExists,
            Refusal::BucketTaken { .. } => Code::BucketTaken,
            Refusal::InUse { .. } => Code::InUse,
            Refusal::RequestReused => Code::RequestIdReused,
            Refusal::AdminKeyFirst => Code::AdminKeyFirst,
            Refusal::AdminKeyLast => Code::AdminKeyLast,
            Refusal::Full(_) => Code::LimitReached,
        };
        Self::new(code, refusal.to_string())
    }
}

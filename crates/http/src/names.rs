//! Names of the headers that the contract adds to HTTP's own, and the fixed texts of some values.

use axum::http::{HeaderName, HeaderValue};

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)+) => {
        $($(#[$doc])* pub(crate) const $name: HeaderName = HeaderName::from_static($text);)+
    };
}

names! {
    /// Who writes; request.
    PRODUCER_ID = "producer-id";
    /// The write's epoch, or in an answer the current one or the floor.
    PRODUCER_EPOCH = "producer-epoch";
    /// The write's number in its epoch, or in an answer the highest applied one.
    PRODUCER_SEQ = "producer-seq";
    /// BLAKE3-256 of the body; request.
    PRODUCER_DIGEST = "producer-digest";
    /// What became of a keyed write, where the status leaves it open.
    PRODUCER_OUTCOME = "producer-outcome";
    /// The epoch that a claim or a history event closed.
    PRODUCER_CLOSED_EPOCH = "producer-closed-epoch";
    /// The last number applied in that epoch.
    PRODUCER_CLOSED_SEQ = "producer-closed-seq";
    /// The number that would apply next.
    PRODUCER_EXPECTED_SEQ = "producer-expected-seq";
    /// The number that came instead.
    PRODUCER_RECEIVED_SEQ = "producer-received-seq";
    /// Compare-and-set of key-less writers; request.
    STREAM_SEQ = "stream-seq";
    /// The last accepted `Stream-Seq`.
    STREAM_LAST_SEQ = "stream-last-seq";
    /// The stream's token: a precondition, or what an answer was made from.
    STREAM_INCARNATION = "stream-incarnation";
    /// The token before the last history event.
    STREAM_PREVIOUS_INCARNATION = "stream-previous-incarnation";
    /// Below this offset the bytes under both tokens are the same.
    STREAM_INHERITED_OFFSET = "stream-inherited-offset";
    /// Where a receipt's bytes begin.
    STREAM_OFFSET = "stream-offset";
    /// Where the bytes that an answer speaks of end.
    STREAM_NEXT_OFFSET = "stream-next-offset";
    /// The first offset that can still be read.
    STREAM_RETAINED_OFFSET = "stream-retained-offset";
    /// The offset of the latest snapshot, or of the one that was published.
    STREAM_SNAPSHOT_OFFSET = "stream-snapshot-offset";
    /// Its digest.
    STREAM_SNAPSHOT_DIGEST = "stream-snapshot-digest";
    /// The id of a part that was staged.
    STREAM_SNAPSHOT_PART = "stream-snapshot-part";
    /// How many parts a snapshot is made of; request.
    STREAM_SNAPSHOT_PARTS = "stream-snapshot-parts";
    /// The bytes of this answer will never be others.
    STREAM_IMMUTABLE = "stream-immutable";
    /// Close it, or it is closed.
    STREAM_CLOSED = "stream-closed";
    /// The read reached the end of the stream.
    STREAM_UP_TO_DATE = "stream-up-to-date";
    /// Keeps shared caches from answering a live reader with what it has.
    STREAM_CURSOR = "stream-cursor";
    /// How the bytes stand in data events, where they are not text.
    STREAM_SSE_DATA_ENCODING = "stream-sse-data-encoding";
    /// Keeps nginx, and others after it, from collecting an answer before it is passed on.
    X_ACCEL_BUFFERING = "x-accel-buffering";
    /// How many seconds after it was last read or written the stream ends.
    STREAM_TTL = "stream-ttl";
    /// When the stream ends.
    STREAM_EXPIRES_AT = "stream-expires-at";
    /// Forks; request, not offered yet.
    STREAM_FORKED_FROM = "stream-forked-from";
    /// Forks; request, not offered yet.
    STREAM_FORK_OFFSET = "stream-fork-offset";
    /// Forks; request, not offered yet.
    STREAM_FORK_SUB_OFFSET = "stream-fork-sub-offset";
    /// The release line of the contract.
    URSULA_PROTOCOL = "ursula-protocol";
    /// Which deployment answers.
    URSULA_CLUSTER_ID = "ursula-cluster-id";
    /// The largest request body.
    URSULA_MAX_REQUEST_BYTES = "ursula-max-request-bytes";
    /// The largest snapshot.
    URSULA_MAX_SNAPSHOT_BYTES = "ursula-max-snapshot-bytes";
    /// Parts that may be staged for one stream and not used.
    URSULA_MAX_STAGED_PARTS = "ursula-max-staged-parts";
    /// Bytes of these parts.
    URSULA_MAX_STAGED_BYTES = "ursula-max-staged-bytes";
    /// The node that leads the group.
    RAFT_LEADER_ID = "x-ursula-raft-leader-id";
    /// The term in which it does.
    RAFT_TERM = "x-ursula-raft-term";
    /// The group that has no leader here.
    RAFT_GROUP = "x-ursula-raft-group";
    /// On how many copies a write is on disk, out of how many.
    HIGHWATER_DURABILITY = "highwater-durability";
    /// Which origins may embed an answer.
    CROSS_ORIGIN_RESOURCE_POLICY = "cross-origin-resource-policy";
    /// What a browser says about where a request comes from.
    SEC_FETCH_SITE = "sec-fetch-site";
}

/// The value of every flag.
pub(crate) const TRUE: HeaderValue = HeaderValue::from_static("true");

/// `Cache-Control` of everything that must be asked for again.
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

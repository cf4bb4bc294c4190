//! The table of error codes: one row each, from which the reference page is made.

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The code in the answer's body, the part that programs match.
    pub name: &'static str,
    /// The status it comes with.
    pub status: u16,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
    /// The headers it comes with, as the reference page shows them.
    pub headers: &'static str,
    /// When it is sent.
    pub when: &'static str,
    /// What the caller does about it.
    pub remedy: &'static str,
}

macro_rules! codes {
    ($($variant:ident $name:literal $status:literal $retry:expr, $headers:literal, $when:literal, $remedy:literal;)+) => {
        /// What refused a request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = concat!("`", $name, "`: ", $when)] $variant,)+
        }

        impl Code {
            /// Its row of the table.
            #[must_use]
            pub fn row(self) -> &'static Row {
                &TABLE[self as usize]
            }
        }

        /// Every code, in the order of [`Code`].
        pub static TABLE: &[Row] = &[$(Row {
            name: $name, status: $status, retry_after: $retry, headers: $headers, when: $when, remedy: $remedy,
        },)+];
    };
}

codes! {
    InvalidHeader "INVALID_HEADER" 400 None, "",
        "A header's value is malformed, or a header that may come once came twice.",
        "Correct the header that the message names.";
    InvalidProducer "INVALID_PRODUCER" 400 None, "`Producer-Expected-Seq: 0` where an epoch was never claimed",
        "The producer headers are incomplete or malformed, came with a PUT, or name a number above 0 of an epoch that nobody claimed.",
        "Send all three or none; begin an epoch with number 0.";
    InvalidQuery "INVALID_QUERY" 400 None, "",
        "A query parameter is malformed, repeated, or does not go with another.",
        "Correct the parameter that the message names.";
    InvalidOffset "INVALID_OFFSET" 400 None, "",
        "The offset in the query or in the path is empty, repeated, or not an offset.",
        "Send an offset that an answer gave; in a read's query also `-1` or `now`.";
    InvalidStreamId "INVALID_STREAM_ID" 400 None, "",
        "The path cannot name a stream: an empty, `.` or `..` segment, a control character, a reserved first segment or tail, or too many bytes.",
        "Choose another path.";
    Unsupported "UNSUPPORTED" 400 None, "an empty `Allow` where the status is 405",
        "The request needs a part of the protocol that this server does not offer. Nothing was done. On a bare `/snapshot` the status is 405.",
        "Do without it.";
    BodyUnreadable "BODY_UNREADABLE" 400 None, "",
        "The body broke off or was not framed as its head said. Nothing of it was kept.",
        "Send it again.";
    ProducerDigestMismatch "PRODUCER_DIGEST_MISMATCH" 400 None, "",
        "The body does not have the BLAKE3-256 digest that `Producer-Digest` states.",
        "Something altered the body on its way; find out what.";
    EmptyAppend "EMPTY_APPEND" 400 None, "",
        "An append without a body that does not close the stream, or of a JSON array without a message.",
        "Send bytes, or `Stream-Closed: true`.";
    InvalidJson "INVALID_JSON" 400 None, "",
        "The body is not JSON, and the stream is; the message says at which byte. Or it nests so deep that readers could not read it.",
        "Send one JSON text, or an array of messages.";
    InvalidResource "INVALID_RESOURCE" 400 None, "",
        "The token or the offset in an immutable path is not spelled as the server spells it.",
        "Use the token and the 20 digits that an answer gave.";
    QueryNotAccepted "QUERY_NOT_ACCEPTED" 400 None, "",
        "An immutable path came with a query; a cache would take each one for another resource.",
        "Leave the query out.";
    InvalidSnapshot "INVALID_SNAPSHOT" 400 None, "",
        "A part without a byte.",
        "Stage parts that hold something.";
    InvalidPartsCommit "INVALID_PARTS_COMMIT" 400 None, "",
        "A commit of parts whose headers or list are malformed: 1 to 4,096 distinct ids, each followed by one line feed, as many as `Stream-Snapshot-Parts` says, and `Stream-Snapshot-Digest`.",
        "Correct what the message names.";
    NotJsonBoundary "NOT_JSON_BOUNDARY" 400 None, "",
        "A read of a JSON stream begins inside a message.",
        "Go on from an offset that an answer gave.";
    UnknownPart "UNKNOWN_PART" 400 None, "`Stream-Incarnation`",
        "A snapshot names a part twice, or one that is not staged: it was never, was discarded or taken, or waited for more than a day.",
        "Stage it again.";
    SnapshotDigestMismatch "SNAPSHOT_DIGEST_MISMATCH" 400 None, "",
        "The snapshot's content type and bytes do not have the digest that `Stream-Snapshot-Digest` states.",
        "Something altered the bytes on their way; find out what.";
    MissingContentType "MISSING_CONTENT_TYPE" 400 None, "",
        "An append with a body and without a `Content-Type`.",
        "Send the stream's content type.";
    InvalidRequest "INVALID_REQUEST" 400 None, "",
        "The body of a request about keys, accounts or plans is not what is expected.",
        "Correct what the message names.";
    InvalidCredential "INVALID_CREDENTIAL" 401 None, "`WWW-Authenticate`",
        "The server wants a key, and the request has none, or one that is not known, or one that was revoked. Nothing was done.",
        "Send `Authorization: Bearer` and a key that is in force.";
    CredentialExpired "CREDENTIAL_EXPIRED" 401 None, "`WWW-Authenticate`",
        "The key's time is over. Nothing was done.",
        "Get a new key; an administrator may also give this one a later end.";
    PaymentRequired "PAYMENT_REQUIRED" 402 None, "",
        "The buckets of the account hold as many bytes as its plan allows. Nothing was kept.",
        "Delete something, or have the plan changed; the server goes on by itself.";
    Forbidden "FORBIDDEN" 403 None, "",
        "The key does not have the scope for this path, whether or not anything is there; or a web page of another site asked a server in open mode.",
        "Use a key that may do this. A page of another site needs its origin stated, or a server with keys.";
    AccountRevoked "ACCOUNT_REVOKED" 403 None, "",
        "The account of the key was revoked. Nothing was done.",
        "Ask whoever runs the server.";
    ProducerEpochClosed "PRODUCER_EPOCH_CLOSED" 403 None,
        "`Producer-Epoch`, `Producer-Outcome: epoch-closed;by=claim` or `;by=history`, `Producer-Closed-Epoch`, `Producer-Closed-Seq`",
        "A later claim, or a history event, closed the write's epoch: every number up to the closed one applied, none above it ever will.",
        "Another owner took over, or the stream was restored. Do not go on in this epoch.";
    ProducerEpochStale "PRODUCER_EPOCH_STALE" 403 None, "`Producer-Epoch`, `Producer-Outcome: stale-epoch`",
        "A later epoch is current.",
        "Another owner took over. Claim a higher epoch only if that is meant.";
    ProducerKeyConflict "PRODUCER_KEY_CONFLICT" 403 None, "`Producer-Epoch`, `Producer-Outcome: key-conflict`",
        "The write's key holds a write with other bytes.",
        "Two owners share one epoch. Claim a higher one only if that is meant.";
    ProducerExpired "PRODUCER_EXPIRED" 403 None, "`Producer-Epoch` (the floor), `Producer-Outcome: producer-expired`",
        "The server forgot the write's epoch, so it cannot tell a repeat from a new write.",
        "Claim an epoch above the floor.";
    StreamNotFound "STREAM_NOT_FOUND" 404 None, "",
        "There is no stream at this path.",
        "Create it, or correct the path.";
    KeyNotFound "KEY_NOT_FOUND" 404 None, "",
        "There is no key with this id.",
        "List the keys.";
    AccountNotFound "ACCOUNT_NOT_FOUND" 404 None, "",
        "There is no account of this name.",
        "Create it, or correct the name.";
    PlanNotFound "PLAN_NOT_FOUND" 404 None, "",
        "There is no plan of this name.",
        "Create it, or correct the name.";
    NotFound "NOT_FOUND" 404 None, "",
        "No route serves this path.",
        "Streams live below `/v1/stream/`.";
    SnapshotNotFound "SNAPSHOT_NOT_FOUND" 404 None, "`Stream-Incarnation`",
        "The latest snapshot, if there is one, is at another offset.",
        "Ask HEAD for the latest one.";
    MethodNotAllowed "METHOD_NOT_ALLOWED" 405 None, "`Allow`",
        "The route does not serve this method.",
        "Use one that `Allow` names.";
    BodyTooSlow "BODY_TOO_SLOW" 408 None, "`Connection: close`",
        "The body stopped arriving, or arrived below the floor. Nothing of it was kept.",
        "Send it again, in smaller pieces on a slow link.";
    StreamAlreadyExistsConflict "STREAM_ALREADY_EXISTS_CONFLICT" 409 None, "",
        "A stream with other settings is at this path.",
        "Use it as it is, or choose another path.";
    ProducerSeqConflict "PRODUCER_SEQ_CONFLICT" 409 None, "`Producer-Expected-Seq`, `Producer-Received-Seq`",
        "A write of this epoch before this one is missing.",
        "Send the missing one first.";
    StreamClosed "STREAM_CLOSED" 409 None, "`Stream-Closed: true`, `Stream-Next-Offset`",
        "The stream is closed.",
        "Nothing can be appended any more; its bytes stay readable.";
    ContentTypeMismatch "CONTENT_TYPE_MISMATCH" 409 None, "`Stream-Next-Offset`",
        "The append's content type is not the stream's.",
        "Send the content type that the message names.";
    StreamSeqConflict "STREAM_SEQ_CONFLICT" 409 None, "`Stream-Last-Seq`",
        "`Stream-Seq` is not greater, as bytes, than the last accepted one.",
        "Somebody else wrote; read what they wrote before writing again.";
    SnapshotConflict "SNAPSHOT_CONFLICT" 409 None,
        "`Stream-Snapshot-Offset` and `Stream-Snapshot-Digest` of the latest snapshot, or `Stream-Next-Offset` alone beyond the end",
        "Another snapshot is the latest one, or no snapshot reaches the offset up to which bytes should be given up.",
        "A later snapshot than one's own is as good; at the same offset, find out who else publishes.";
    KeyRevoked "KEY_REVOKED" 409 None, "",
        "The key was revoked, which is for good.",
        "Create another.";
    AlreadyExists "ALREADY_EXISTS" 409 None, "",
        "An account or a plan with other settings has this name, or an account of the AT Protocol ever had the handle.",
        "Change it with PATCH, or choose another name.";
    AccountState "ACCOUNT_STATE" 409 None, "",
        "An account of the AT Protocol stands where what was asked for cannot be done: it was erased, or is not active yet.",
        "List the accounts, and see where it stands.";
    BucketTaken "BUCKET_TAKEN" 409 None, "",
        "A bucket belongs to another account.",
        "Take it from that account first.";
    InUse "IN_USE" 409 None, "",
        "An account that has buckets or keys, or a plan that accounts have, was to be deleted. Nothing was changed.",
        "Do what the message says of those that use it, and delete it then.";
    RequestIdReused "REQUEST_ID_REUSED" 409 None, "",
        "A request with this `Request-Id` made a key with other settings.",
        "Draw a new id for each key.";
    AdminKeyFirst "ADMIN_KEY_FIRST" 409 None, "",
        "No key in force has the scope `admin`, and this one would not either: nobody could make or revoke keys.",
        "Create a key with the scope `admin` first.";
    AdminKeyLast "ADMIN_KEY_LAST" 409 None, "",
        "The key is the last one with the scope `admin` in force, or the last of all. Without it nobody could make or revoke keys; without any, a loopback listener is open again.",
        "Create another first, or repeat with `last=true` if that is meant.";
    LimitReached "LIMIT_REACHED" 409 None, "",
        "There are as many keys, accounts or plans as there may be.",
        "Revoke keys that are not used: revoked ones make room.";
    StreamGone "STREAM_GONE" 410 None, "`Stream-Next-Offset` (the first offset that can be read), `Stream-Incarnation`",
        "The bytes at this offset were given up by retention.",
        "Go on from the offset in the answer, or from a snapshot.";
    IncarnationMismatch "INCARNATION_MISMATCH" 412 None, "`Stream-Incarnation`, absent where there is no stream",
        "`Stream-Incarnation` is not the stream's token: it was deleted and created again, or has a new history.",
        "What is known of the stream belongs to an earlier one; begin anew with HEAD.";
    RequestTooLarge "REQUEST_TOO_LARGE" 413 None, "`Ursula-Max-Request-Bytes`",
        "The body is above the request limit. Judged from `Content-Length` before anything else.",
        "Send smaller pieces.";
    SnapshotTooLarge "SNAPSHOT_TOO_LARGE" 413 None, "`Ursula-Max-Snapshot-Bytes`",
        "The snapshot is larger than one may be.",
        "Publish a smaller one.";
    RangeNotSatisfiable "RANGE_NOT_SATISFIABLE" 416 None, "`Content-Range` (the length), `Stream-Incarnation`",
        "The range lies beyond the end of the snapshot.",
        "Ask for bytes that it has.";
    OffsetOutOfRange "OFFSET_OUT_OF_RANGE" 416 None, "`Stream-Next-Offset` (the end), `Stream-Incarnation`",
        "The offset lies beyond the end of the stream.",
        "Go on from an offset that an answer gave.";
    MisdirectedRequest "MISDIRECTED_REQUEST" 421 None, "",
        "A server in open mode answers this machine only: `Host` is not a loopback name or address, or a proxy forwarded the request.",
        "Use `http://127.0.0.1:PORT` or `http://localhost:PORT`, without a proxy.";
    RateLimited "RATE_LIMITED" 429 None, "`Retry-After`, 1 to 3,600 seconds",
        "The keys of the account have used up the requests, or the bytes, that its plan allows for now. Nothing was done.",
        "Send it again after `Retry-After`.";
    ProducerLimit "PRODUCER_LIMIT" 429 None, "",
        "The stream has 4,096 producers that wrote within the hour.",
        "Reuse producer ids, or wait.";
    StagedPartsLimit "STAGED_PARTS_LIMIT" 429 None, "`Ursula-Max-Staged-Parts` or `Ursula-Max-Staged-Bytes`, `Stream-Incarnation`",
        "As many parts, or bytes of parts, wait for a snapshot as may.",
        "Publish or discard them.";
    RequestHeadersTooLarge "REQUEST_HEADERS_TOO_LARGE" 431 None, "",
        "The request's head has more than 100 headers or 64 KiB. Nothing was done. Over HTTP/1.1 the answer has no body, and the connection ends; over HTTP/2 a head of more than twice that may end it, too.",
        "Send fewer or shorter headers.";
    LiveReadsExhausted "LIVE_READS_EXHAUSTED" 429 Some(1), "",
        "As many live reads wait as may.",
        "Ask again later, or read without `live`.";
    BackupsLimit "BACKUPS_LIMIT" 429 Some(1), "",
        "Four backups are being taken already.",
        "Wait for one of them, or end it; one from which nothing is read for five minutes ends by itself.";
    Internal "INTERNAL" 500 None, "",
        "The server failed. A write may have applied.",
        "Repeat a keyed write; look into the server's log.";
    StoredBytesDamaged "STORED_BYTES_DAMAGED" 500 None, "",
        "Bytes that the request needs are damaged on the server's disk. Nothing wrong was sent, and nothing was changed; other bytes, streams and accounts are served.",
        "Restore the stream from a backup or another copy; `/v1/admin/status` names the file and the streams concerned. Of an account the message and the log say what is damaged: restore the directory of the accounts.";
    AuthenticationUnavailable "AUTHENTICATION_UNAVAILABLE" 503 Some(1), "",
        "The group of keys and accounts does not serve, so that no key can be judged. Nothing was done.",
        "Send it again; if it stays, the status and the log say why.";
    NoLeader "NO_LEADER" 503 Some(1), "`x-ursula-raft-group`",
        "The stream's group has no leader that could take the request. Nothing was proposed.",
        "Send it again.";
    WalDiskPressure "WAL_DISK_PRESSURE" 503 Some(1), "",
        "The disk of the log has no room. Nothing was written.",
        "Make room; the server goes on by itself.";
    RaftLogPressure "RAFT_LOG_PRESSURE" 503 Some(1), "",
        "The group's log waits for a checkpoint. Nothing was proposed.",
        "Send it again.";
    IngressBodyBytesLimitReached "INGRESS_BODY_BYTES_LIMIT_REACHED" 503 Some(1), "",
        "The bodies of requests in flight hold all the memory they may. This one was not read.",
        "Send it again.";
    RaftUncommittedBackpressure "RAFT_UNCOMMITTED_BACKPRESSURE" 503 Some(1), "",
        "The group has as many uncommitted bytes as it may. Nothing was proposed.",
        "Send it again.";
    HistoryPending "HISTORY_PENDING" 503 Some(1), "",
        "The group has not applied its history yet. Nothing was proposed.",
        "Send it again.";
    GroupRestarting "GROUP_RESTARTING" 503 Some(1), "",
        "The group is not open on this node. Nothing was proposed.",
        "Send it again.";
    ApplyStopped "APPLY_STOPPED" 503 None, "",
        "The group stopped: its disk failed, or its files are damaged. Nothing was proposed.",
        "The server's log says what happened and what to do.";
    LiveReadBackpressure "LIVE_READ_BACKPRESSURE" 503 Some(1), "",
        "The answers that wait for slow readers hold all the memory they may.",
        "Ask again later.";
    ColdBackpressure "COLD_BACKPRESSURE" 503 Some(1), "",
        "Bytes that are needed lie in the object store, which does not answer or has too many reads waiting. They are kept there; nothing was proposed, and bytes on the server's disk are served.",
        "Ask again later; if it lasts, the status of the server says why.";
    JsonBoundaryUnverified "JSON_BOUNDARY_UNVERIFIED" 503 Some(1), "",
        "Whether the offset lies between two JSON messages could not be told. Nothing was proposed.",
        "Send it again.";
    SnapshotCommitsBusy "SNAPSHOT_COMMITS_BUSY" 503 Some(1), "",
        "As many snapshots are being committed as may be. Nothing was proposed.",
        "Send it again.";
    SnapshotCommitInProgress "SNAPSHOT_COMMIT_IN_PROGRESS" 503 Some(1), "",
        "A commit of this stream's parts is under way. It may be an earlier attempt of this one.",
        "Repeat it until it is answered otherwise.";
    PdsBusy "PDS_BUSY" 503 Some(1), "",
        "The accounts of the AT Protocol have more to write than their server takes at once, or a change before this one was refused, on which this one was built. Nothing was done.",
        "Send it again.";
    PdsUnavailable "PDS_UNAVAILABLE" 503 None, "",
        "The accounts of the AT Protocol are not served: their directory could not be opened, or their log failed. Streams are served. Below `/xrpc` the error is `PdsUnavailable`.",
        "The message, the status and the log say what happened, what is safe, and what to do.";
    OutcomeUnknown "OUTCOME_UNKNOWN" 503 None, "`Retry-After: 1` where leadership was lost",
        "The write was proposed and its answer was lost: it may have applied, or may still.",
        "Repeat the same keyed write; its receipt tells.";
}

//! What one answer says about the write it answers.

use crate::error_body::ErrorBody;
use crate::headers::Headers;
use crate::producer::{self, ProducerRefusal, Receipt};
use crate::retry_after::retry_after_ms;
use highwater_base::{Digest, Incarnation, Offset};

/// What was written, which decides the typed answer that its success carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// An append, claim or close with a producer's key.
    Keyed,
    /// An append or close without one.
    Keyless,
    /// A stream's creation.
    Create,
    /// A snapshot, whole or as a commit of parts.
    SnapshotPublish,
    /// One part of a snapshot.
    PartStage,
    /// The removal of staged parts.
    PartsDiscard,
    /// An advance of retention.
    Retention,
    /// A stream's removal.
    Delete,
    /// A bucket's creation.
    BucketCreate,
}

/// What a write's success says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// Keyed: its receipt.
    Receipt(Receipt),
    /// Keyless: the stream's end after it, and whether it is closed.
    Appended {
        /// The end of the stream.
        next: Offset,
        /// Whether the stream is closed.
        closed: bool,
    },
    /// Created, or staged parts discarded: the history's token.
    Incarnation(Incarnation),
    /// It holds; nothing else that is of use to a caller.
    Holds,
}

/// A definite refusal of one request. It speaks for that request only, never for an earlier attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The producer answer's code, else the body's, else `INVALID_REQUEST`.
    pub code: String,
    /// What it says about the key.
    pub producer: Option<ProducerRefusal>,
    /// The current token, where the refusal names one.
    pub incarnation: Option<Incarnation>,
    /// `Stream-Next-Offset`, where the refusal names one: the tail, or at 410 the first retained byte.
    pub next: Option<Offset>,
    /// The limit that was applied at 413, in bytes.
    pub request_bytes_max: Option<u64>,
}

/// What one answer, or its absence, proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The request succeeded, with the typed answer of its kind.
    Done(T),
    /// Nothing of this request applied, and nothing of it ever will.
    Refused(Refusal),
    /// This target applied nothing and names another.
    Redirected,
    /// The request may have applied, or may still apply.
    Unknown,
}

/// An answer, or its absence, with what a person or a timer needs to know besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<T> {
    /// What it proves.
    pub outcome: Outcome<T>,
    /// The HTTP status; 0 if no answer arrived.
    pub status: u16,
    /// The body's code; empty if it names none.
    pub code: String,
    /// What the body or the failure says, for people.
    pub message: String,
    /// The wait that the answer asks for, in milliseconds, uncapped.
    pub retry_after_ms: Option<u64>,
}

impl<T> Answer<T> {
    /// The absence of an answer.
    #[must_use]
    pub fn none(message: String) -> Self {
        Self { outcome: Outcome::Unknown, status: 0, code: String::new(), message, retry_after_ms: None }
    }

    /// The same answer with another outcome's type.
    pub fn map<U>(self, each: impl FnOnce(T) -> U) -> Answer<U> {
        let outcome = match self.outcome {
            Outcome::Done(done) => Outcome::Done(each(done)),
            Outcome::Refused(refusal) => Outcome::Refused(refusal),
            Outcome::Redirected => Outcome::Redirected,
            Outcome::Unknown => Outcome::Unknown,
        };
        let Self { status, code, message, retry_after_ms, .. } = self;
        Answer { outcome, status, code, message, retry_after_ms }
    }

    /// One line for people: what came back instead of success.
    #[must_use]
    pub fn describe(&self) -> String {
        // A refusal of HEAD has no body; the code that stands in for a missing one would mislead a reader.
        let code = match &self.outcome {
            Outcome::Refused(refusal) if refusal.producer.is_some() || !self.code.is_empty() => &refusal.code,
            _ => &self.code,
        };
        match (self.status, code.is_empty(), self.message.is_empty()) {
            (0, _, _) => self.message.clone(),
            (status, true, true) => match reason(status) {
                Some(reason) => format!("HTTP {status} {reason}"),
                None => format!("HTTP {status}"),
            },
            (status, true, false) => format!("HTTP {status}: {}", self.message),
            (status, false, true) => format!("HTTP {status} {code}"),
            (status, false, false) => format!("HTTP {status} {code}: {}", self.message),
        }
    }
}

/// What the statuses mean that a refusal without a body may have.
fn reason(status: u16) -> Option<&'static str> {
    Some(match status {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        409 => "Conflict",
        410 => "Gone",
        412 => "Precondition Failed",
        429 => "Too Many Requests",
        _ => return None,
    })
}

/// Reads the answer to a write of `kind`.
///
/// A success holds only with the typed answer of its kind; 307 and 308 redirect; a 4xx refuses, 408 excepted; 408 and
/// 5xx refuse only where the code proves it at that very status. Everything else is unknown.
#[must_use]
pub fn classify(kind: WriteKind, status: u16, headers: &Headers, body: &[u8]) -> Answer<Written> {
    read(status, headers, body, |status| written(kind, status, headers))
}

/// As [`classify`], for an answer whose success `done` reads.
pub(crate) fn read<T>(status: u16, headers: &Headers, body: &[u8], done: impl FnOnce(u16) -> Option<T>) -> Answer<T> {
    let success = (200..300).contains(&status);
    let said = if success { None } else { ErrorBody::parse(body) };
    let code = said.as_ref().map_or("", |said| said.code.as_str());
    let outcome = match status {
        _ if success => done(status).map_or(Outcome::Unknown, Outcome::Done),
        307 | 308 => Outcome::Redirected,
        408 | 500..=599 if proves_refusal(status, code) => Outcome::Refused(refusal(status, headers, code)),
        400..=499 if status != 408 => Outcome::Refused(refusal(status, headers, code)),
        _ => Outcome::Unknown,
    };
    let (code, message) = said.map_or_else(Default::default, |said| (said.code, said.message));
    Answer { outcome, status, code, message, retry_after_ms: retry_after_ms(headers) }
}

fn refusal(status: u16, headers: &Headers, code: &str) -> Refusal {
    let producer = producer::refusal(status, headers).ok().flatten();
    let code = match producer {
        Some(producer) => producer.code(),
        // Without its headers the code of a fence comes from something that is not the stream.
        None if code.is_empty() || (status == 403 && producer::is_fence_code(code)) => "INVALID_REQUEST",
        None => code,
    };
    Refusal {
        status,
        code: code.to_owned(),
        producer,
        incarnation: headers.incarnation("stream-incarnation").ok().flatten(),
        next: headers.offset("stream-next-offset").ok().flatten(),
        request_bytes_max: headers.parsed("ursula-max-request-bytes", crate::headers::canonical_decimal).ok().flatten(),
    }
}

/// Whether `code` at `status`, one of 408 and 5xx, proves that nothing applied.
///
/// A 503 is sent before a write is proposed and after it, so only its code tells which; at another status the same code
/// proves nothing, because something between has answered.
#[must_use]
pub fn proves_refusal(status: u16, code: &str) -> bool {
    const UNAVAILABLE: [&str; 15] = [
        "NO_LEADER",
        "WAL_DISK_PRESSURE",
        "RAFT_LOG_PRESSURE",
        "INGRESS_BODY_BYTES_LIMIT_REACHED",
        "COLD_BACKPRESSURE",
        "RAFT_UNCOMMITTED_BACKPRESSURE",
        "HISTORY_PENDING",
        "GROUP_RESTARTING",
        "APPLY_STOPPED",
        "JSON_BOUNDARY_UNVERIFIED",
        "SNAPSHOT_COMMITS_BUSY",
        "NO_UPSTREAM",
        "UPSTREAM_UNREACHABLE",
        "UPLOAD_BUDGET_EXHAUSTED",
        "AUTHENTICATION_UNAVAILABLE",
    ];
    match status {
        408 => code == "BODY_TOO_SLOW",
        501 => code == "NO_COLD_STORE",
        503 => UNAVAILABLE.contains(&code) || code == "AUTHORIZATION_UNAVAILABLE",
        _ => false,
    }
}

/// The typed answer of a success, or nothing: a success without it was sent by something that is not the stream.
fn written(kind: WriteKind, status: u16, headers: &Headers) -> Option<Written> {
    let next = || headers.offset("stream-next-offset").ok().flatten();
    let incarnation = || headers.incarnation("stream-incarnation").ok().flatten();
    match kind {
        WriteKind::Keyed => producer::receipt(status, headers).ok().map(Written::Receipt),
        WriteKind::Keyless => {
            // The end alone is the typed answer; a flag that cannot be read does not make the write unknown.
            let closed = headers.flag("stream-closed").unwrap_or(false);
            next().map(|next| Written::Appended { next, closed })
        }
        WriteKind::Create | WriteKind::PartsDiscard => incarnation().map(Written::Incarnation),
        WriteKind::SnapshotPublish => {
            // A 200 is how a read of the same snapshot answers, with the same headers.
            (status == 204).then_some(())?;
            headers.offset("stream-snapshot-offset").ok().flatten()?;
            headers.parsed("stream-snapshot-digest", Digest::parse).ok().flatten()?;
            incarnation().map(|_| Written::Holds)
        }
        WriteKind::PartStage => {
            let part = headers.text("stream-snapshot-part").ok().flatten()?;
            let fits = (1..=64).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_graphic());
            fits.then_some(Written::Holds)
        }
        WriteKind::Retention => {
            headers.offset("stream-retained-offset").ok().flatten()?;
            incarnation().map(|_| Written::Holds)
        }
        WriteKind::Delete | WriteKind::BucketCreate => Some(Written::Holds),
    }
}

#[cfg(test)]
mod tests;

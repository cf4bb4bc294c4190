//! What answers have in common, and how the host's refusals become errors.

use crate::error::{Error, Name, Result};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use highwater_host::{self as host, ReadError, Unserved, Unsettled, Withdrawn, WriteRefused};
use highwater_pds::blob::ReferenceError;
use highwater_pds::{Refused, Status};
use highwater_repo::write::WriteError;
use serde::Serialize;

/// Seconds after which whoever was refused for a full disk or a busy server may come again.
const RETRY_S: u64 = 10;

/// The media type of archives.
pub const CAR: HeaderValue = HeaderValue::from_static("application/vnd.ipld.car");

/// An answer of JSON.
/// # Errors
/// `InternalServerError` if it cannot be written, which no value of ours is.
pub fn json<T: Serialize>(value: &T) -> Result {
    let body = serde_json::to_vec(value).map_err(|error| Error::new(Name::InternalServerError, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// An answer of JSON with a secret in it, which nobody on the way keeps.
/// # Errors
/// As [`json`].
pub fn secret<T: Serialize>(value: &T) -> Result {
    let mut response = json(value)?;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// An answer that is an archive.
pub fn archive(bytes: impl Into<axum::body::Body>) -> Response {
    ([(header::CONTENT_TYPE, CAR)], bytes.into()).into_response()
}

/// The refusal of a server that has too much to do, or whose disk is full.
pub fn busy(message: String) -> Error {
    Error::new(Name::NotEnoughResources, message).with(header::RETRY_AFTER, HeaderValue::from(RETRY_S))
}

/// What is told of a failure inside; the log has the rest.
pub fn internal(error: &dyn std::fmt::Display) -> Error {
    tracing::error!(event = "request_failed", %error, "a request failed inside the server");
    Error::new(Name::InternalServerError, "the server failed; its log says why")
}

/// What is told where stored bytes are not what was written; the log says which.
pub fn damaged(error: &dyn std::fmt::Display) -> Error {
    tracing::error!(event = "stored_bytes_damaged", %error, "a request needs stored bytes that are damaged; restore them from a copy");
    Error::new(
        Name::InternalServerError,
        "what the server has stored of this is damaged on its disk, and nothing was changed; its log says where",
    )
}

impl From<Withdrawn> for Error {
    fn from(withdrawn: Withdrawn) -> Self {
        let name = match withdrawn {
            Withdrawn::Ended | Withdrawn::Erased => Name::ExpiredToken,
            Withdrawn::Password => Name::AuthenticationRequired,
            Withdrawn::TakenDown | Withdrawn::Locked => Name::AccountTakedown,
            Withdrawn::Decommissioned | Withdrawn::NotActivated | Withdrawn::Deactivated => Name::AccountDeactivated,
        };
        Self::new(name, withdrawn.to_string())
    }
}

impl From<Unserved> for Error {
    fn from(unserved: Unserved) -> Self {
        match unserved {
            Unserved::NotFound | Unserved::Inactive(Status::Deleted) => {
                Self::new(Name::RepoNotFound, "there is no such repository here")
            }
            Unserved::Inactive(Status::TakenDown) => Self::new(Name::RepoTakendown, "the account is taken down"),
            Unserved::Inactive(Status::Suspended) => Self::new(Name::RepoSuspended, "the account is suspended"),
            Unserved::Inactive(Status::Deactivated) => Self::new(Name::RepoDeactivated, "the account is deactivated"),
        }
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Account(unserved) => unserved.into(),
            ReadError::NoBlock(cid) => {
                Self::new(Name::BlockNotFound, format!("block {cid} is not part of the repository"))
            }
            ReadError::Busy => busy(error.to_string()),
            ReadError::Damaged(_) | ReadError::Tree(_) => damaged(&error),
        }
    }
}

impl From<Unsettled> for Error {
    fn from(unsettled: Unsettled) -> Self {
        match unsettled {
            Unsettled::Full | Unsettled::Overtaken | Unsettled::Busy => busy(unsettled.to_string()),
            Unsettled::Stopped(_) | Unsettled::Numbers => Self::new(Name::InternalServerError, unsettled.to_string()),
        }
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotActivated | Refused::Erased => Unserved::NotFound.into(),
            Refused::Inactive(status) => Unserved::Inactive(status).into(),
            Refused::Decommissioned => Self::new(Name::RepoDeactivated, refused.to_string()),
            Refused::Stale(_) => busy(refused.to_string()),
            Refused::HeadBlock(_) => damaged(&refused),
            Refused::FrameTooLarge(_) => Self::new(Name::PayloadTooLarge, refused.to_string()),
        }
    }
}

impl From<host::Refused> for Error {
    fn from(refused: host::Refused) -> Self {
        match refused {
            host::Refused::NoAccount => Unserved::NotFound.into(),
            host::Refused::Invalid(_) => Self::invalid(refused.to_string()),
            host::Refused::Turn(refused) => refused.into(),
            host::Refused::Withdrawn(withdrawn) => withdrawn.into(),
            host::Refused::Read(error) => error.into(),
            host::Refused::Undrawn(_) => {
                tracing::error!(event = "nothing_drawn", %refused, "an account could not be made");
                Self::new(Name::InternalServerError, refused.to_string())
            }
            host::Refused::Taken(_) => Self::new(Name::HandleNotAvailable, refused.to_string()),
            host::Refused::Unsettled(unsettled) => unsettled.into(),
        }
    }
}

impl From<WriteRefused> for Error {
    fn from(refused: WriteRefused) -> Self {
        match refused {
            WriteRefused::Account(unserved) => unserved.into(),
            WriteRefused::Withdrawn(withdrawn) => withdrawn.into(),
            WriteRefused::SwapCommit { .. } | WriteRefused::SwapRecord { .. } => {
                Self::new(Name::InvalidSwap, refused.to_string())
            }
            WriteRefused::Write(WriteError::RecordTooLarge { .. }) => {
                Self::new(Name::RecordTooLarge, refused.to_string())
            }
            WriteRefused::Write(WriteError::CommitTooLarge { .. }) => {
                Self::new(Name::PayloadTooLarge, refused.to_string())
            }
            WriteRefused::Write(WriteError::Tree(error)) => damaged(&error),
            WriteRefused::Turn(refused) => refused.into(),
            // The lexicons name it so in the methods that read blobs; whoever writes gets it for a blob that is not there.
            WriteRefused::Blob(ReferenceError::Absent { .. }) => Self::new(Name::BlobNotFound, refused.to_string()),
            WriteRefused::Write(_) | WriteRefused::Invalid(_) | WriteRefused::Blob(_) => {
                Self::invalid(refused.to_string())
            }
            WriteRefused::Read(error) => error.into(),
            WriteRefused::Unsettled(unsettled) => unsettled.into(),
        }
    }
}

//! The table of error names, and what a refusal looks like.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::borrow::Cow;

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The name in the answer's body, the part that programs match.
    pub name: &'static str,
    /// The status it comes with.
    pub status: u16,
    /// When it is sent.
    pub when: &'static str,
}

macro_rules! names {
    ($($variant:ident $status:literal $when:literal;)+) => {
        /// What refused a request: its name is what the answer's body carries.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Name {
            $(#[doc = $when] $variant,)+
        }

        impl Name {
            /// Its row of the table.
            #[must_use]
            pub fn row(self) -> &'static Row {
                &TABLE[self as usize]
            }
        }

        /// Every name, in the order of [`Name`].
        pub static TABLE: &[Row] = &[$(Row { name: stringify!($variant), status: $status, when: $when },)+];
    };
}

names! {
    InvalidRequest 400 "The request is malformed: a parameter, the body, or a record that breaks the data model's rules.";
    InvalidSwap 400 "`swapCommit` or `swapRecord` is not what is there now. Nothing was written.";
    RecordNotFound 400 "There is no such record.";
    RepoNotFound 400 "There is no such account here, it is not active yet, or it was erased.";
    RepoTakendown 400 "The account is taken down.";
    RepoSuspended 400 "The account is locked by the operator.";
    RepoDeactivated 400 "The account is deactivated, or went to another host.";
    HeadNotFound 400 "As `RepoNotFound`, in the deprecated `getHead`.";
    BlockNotFound 400 "A block is not part of the repository.";
    BlobNotFound 400 "There is no such blob.";
    BadExpiration 400 "The token that was asked for would be good for longer than 60 seconds, or not at all.";
    InvalidHandle 400 "This is no handle.";
    UnsupportedDomain 400 "The handle does not lie in this server's zone.";
    HandleNotAvailable 400 "An account has this handle, or had it.";
    InvalidPassword 400 "A password has 8 to 512 bytes.";
    IncompatibleDidDoc 400 "This server gives its accounts their DIDs; none can be brought.";
    HandleNotFound 400 "Nobody here has this handle.";
    InvalidToken 400 "The token is not one of this server, or not of the kind that the method takes, or its session may not do this.";
    ExpiredToken 400 "The token's time is over, or its session has ended: refresh the session, or log in again.";
    AuthMissing 401 "The method needs a session, and the request has none.";
    AuthenticationRequired 401 "The name or the password is wrong.";
    AccountTakedown 401 "The account is locked or taken down: no session is opened, and open ones may nothing.";
    AccountDeactivated 401 "The account is deactivated, not active yet, or went to another host.";
    Forbidden 403 "The session may not do this.";
    NotFound 404 "There is no such page.";
    MethodNotAllowed 405 "The method is called with another verb.";
    RequestTimeout 408 "The body did not come in time.";
    PayloadTooLarge 413 "The body has more bytes than the method reads, or the commit would have more than an event may carry.";
    RecordTooLarge 413 "The record has more than 1,000,000 bytes.";
    BlobTooLarge 413 "The blob has more bytes than this server takes.";
    UnsupportedMediaType 415 "The body is not of the type that the method reads.";
    UpgradeRequired 426 "The method is a stream: connect with a WebSocket.";
    RateLimitExceeded 429 "The address or the account asked too often; `RateLimit-Reset` says from when on it may again.";
    InternalServerError 500 "The server failed. Whether something was written is not known.";
    MethodNotImplemented 501 "There is no such method here.";
    NotEnoughResources 503 "The server has too much to do, or stops, or its disk is full. Nothing was written; try again later.";
}

/// A refusal.
#[derive(Debug)]
pub struct Error {
    name: Name,
    message: Cow<'static, str>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// What a method ends with.
pub type Result<T = Response> = std::result::Result<T, Error>;

impl Error {
    /// A refusal with a message for people.
    pub fn new(name: Name, message: impl Into<Cow<'static, str>>) -> Self {
        Self { name, message: message.into(), headers: Vec::new() }
    }

    /// `InvalidRequest`.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Name::InvalidRequest, message)
    }

    /// With one more header.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Which it is.
    #[must_use]
    pub fn name(&self) -> Name {
        self.name
    }

    /// What it says to people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let row = self.name.row();
        let status = StatusCode::from_u16(row.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = Json(json!({ "error": row.name, "message": self.message }));
        let mut response = (status, [(header::CACHE_CONTROL, "no-store")], body).into_response();
        response.headers_mut().extend(self.headers);
        response.extensions_mut().insert(self.name);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_their_rows_are_whole() {
        assert_eq!(TABLE.iter().map(|row| row.name).collect::<BTreeSet<_>>().len(), TABLE.len());
        for row in TABLE {
            assert!((400..600).contains(&row.status) && row.when.ends_with('.'), "{}", row.name);
            assert!(!row.when.contains('|'), "{}", row.name);
        }
    }
}

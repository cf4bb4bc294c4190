//! Errors become HTTP here, once.

mod map;
mod table;
#[cfg(test)]
mod tests;

pub use table::{Code, Row, TABLE};

use crate::names;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use std::borrow::Cow;
use std::fmt::Display;

/// A request that was not done, with everything its answer says.
#[derive(Debug, Clone)]
pub struct Error {
    code: Code,
    status: u16,
    message: Cow<'static, str>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Where another server answers; the answer is a redirect to it then, and says nothing else.
    elsewhere: Option<String>,
}

impl Error {
    /// `code`, with its status, its `Retry-After` and a sentence for the person who reads it.
    #[must_use]
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, status: code.row().status, message: message.into(), headers: Vec::new(), elsewhere: None }
    }

    /// Adds a header. A value that HTTP cannot carry is left out: nothing rendered here holds one.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: impl Display) -> Self {
        if let Ok(value) = HeaderValue::try_from(value.to_string()) {
            self.headers.push((name, value));
        }
        self
    }

    /// The same error under another status than its code's usual one.
    #[must_use]
    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// The same error in other words.
    #[must_use]
    pub(crate) fn saying(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = message.into();
        self
    }

    /// `METHOD_NOT_ALLOWED`, naming the methods that are.
    pub(crate) fn method_not_allowed(allow: &'static str) -> Self {
        Self::new(Code::MethodNotAllowed, format!("this path answers {allow}")).with(header::ALLOW, allow)
    }

    /// `UNSUPPORTED`: a part of the protocol that this server does not offer.
    pub(crate) fn unsupported(what: &str) -> Self {
        Self::new(Code::Unsupported, format!("this server does not offer {what}; nothing was done"))
    }

    /// The same request is answered at another server, of which this is the URL.
    pub(crate) fn redirect(mut self, url: String) -> Self {
        self.elsewhere = Some(url);
        self
    }

    /// Names the request's target, which a redirect repeats.
    pub(crate) fn towards(self, target: &Uri) -> Self {
        let Some(url) = &self.elsewhere else { return self };
        let location = format!("{url}{}", target.path_and_query().map_or("", |target| target.as_str()));
        self.with(header::LOCATION, location).with_status(307)
    }

    /// The sentence for the person who reads it.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// What refused the request.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }
}

impl IntoResponse for Error {
    /// The body of every error: `{"error":{"code","message"}}`.
    ///
    /// Source: the stream contract, error body; DESIGN decision 15.
    fn into_response(self) -> Response {
        if self.elsewhere.is_some() {
            let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
            response.headers_mut().insert(header::CACHE_CONTROL, names::NO_STORE);
            response.headers_mut().extend(self.headers);
            return response;
        }
        let row = self.code.row();
        let body = serde_json::json!({ "error": { "code": row.name, "message": self.message } }).to_string();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, names::NO_STORE);
        if let Some(seconds) = row.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        response.extensions_mut().insert(self.code);
        response
    }
}

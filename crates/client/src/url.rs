//! The address of a stream.

use std::fmt;
use thiserror::Error;

/// Why a text is not the address of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UrlError {
    /// It starts with neither `http://` nor `https://`.
    #[error("{0:?} is not the address of a stream: it must start with http:// or https://")]
    Scheme(String),
    /// It names no host.
    #[error("{0:?} is not the address of a stream: it names no host")]
    Host(String),
    /// It has no path below `/v1/stream/`.
    #[error("{0:?} is not the address of a stream: its path must be /v1/stream/ and the stream's name")]
    Path(String),
    /// It carries a user, a query or a fragment, or a character that an address cannot have.
    #[error("{0:?} is not the address of a stream: give it without user, query or fragment, in plain characters")]
    Extra(String),
}

/// The address of a stream, as a person gave it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamUrl(String);

impl StreamUrl {
    /// Checks an address: `http(s)://host[:port]/…/name`, nothing behind the path.
    ///
    /// Any path with a segment is taken, not only `/v1/stream/…`: other servers of the same contract choose their own.
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let given = || text.to_owned();
        let rest = text
            .strip_prefix("http://")
            .or_else(|| text.strip_prefix("https://"))
            .ok_or_else(|| UrlError::Scheme(given()))?;
        if rest.contains(['?', '#']) || !rest.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(UrlError::Extra(given()));
        }
        let (authority, path) = rest.split_once('/').ok_or_else(|| UrlError::Path(given()))?;
        if authority.contains('@') {
            return Err(UrlError::Extra(given()));
        }
        if authority.is_empty() || authority.starts_with(':') {
            return Err(UrlError::Host(given()));
        }
        let segments = path.split('/');
        if segments.clone().any(|segment| matches!(segment, "" | "." | "..")) {
            return Err(UrlError::Path(given()));
        }
        Ok(Self(given()))
    }

    /// The address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_streams_are_taken() {
        for good in ["http://127.0.0.1:4437/v1/stream/app", "https://db.example/v1/stream/a/b%20c", "http://[::1]:1/x"]
        {
            assert!(StreamUrl::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "ftp://h/x",
            "http://",
            "http:///x",
            "http://h",
            "http://h/",
            "http://h/a/",
            "http://h//a",
            "http://h/../a",
            "http://u@h/a",
            "http://h/a?b",
            "http://h/a#b",
            "http://h/a b",
            "http://:1/a",
        ] {
            assert!(StreamUrl::parse(bad).is_err(), "{bad:?}");
        }
    }
}

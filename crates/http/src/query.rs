//! The query of a read.
//!
//! Values are percent-decoded and never trimmed; parameters that the contract does not name are ignored.

use crate::error::{Code, Error};
use crate::path::decode;
use highwater_base::Offset;
use highwater_base::limits::{LONG_POLL_MS_DEFAULT, LONG_POLL_MS_MAX, READ_BYTES_MAX};
use highwater_stream::ReadFrom;

/// What a read asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadQuery {
    /// Where it begins.
    pub from: ReadFrom,
    /// The most bytes that its answer may have.
    pub bytes_max: u64,
    /// The leader must confirm that it still leads.
    pub leader: bool,
    /// Whether it stays for what is to come, and how.
    pub live: Live,
    /// The cursor that a live reader got from its last answer.
    pub cursor: Option<u64>,
}

/// What a read does at the end of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Live {
    /// It says so.
    No,
    /// It waits for so many milliseconds.
    LongPoll {
        /// At the most.
        wait_ms: u64,
    },
    /// It goes on as a stream of events.
    Sse,
}

/// Reads a query.
///
/// # Errors
/// `INVALID_OFFSET` and `INVALID_QUERY` as the contract has them.
pub(crate) fn parse(query: &str) -> Result<ReadQuery, Error> {
    let parameters = Parameters::parse(query);
    let offset = parameters.one("offset", Code::InvalidOffset)?;
    let from = offset.as_deref().map_or(Ok(ReadFrom::Start), from)?;
    let bytes_max = match parameters.number("max_bytes")? {
        None => READ_BYTES_MAX,
        Some(0) => return Err(invalid("max_bytes must be at least 1")),
        Some(bytes) => bytes.min(READ_BYTES_MAX),
    };
    let leader = match parameters.one("consistency", Code::InvalidQuery)?.as_deref() {
        None | Some("local") => false,
        Some("leader") => true,
        Some(_) => return Err(invalid("consistency must be local or leader")),
    };
    let timeout_ms = parameters.number("timeout_ms")?;
    let live = match parameters.one("live", Code::InvalidQuery)?.as_deref() {
        None => Live::No,
        Some("long-poll") => {
            Live::LongPoll { wait_ms: timeout_ms.unwrap_or(LONG_POLL_MS_DEFAULT).clamp(1, LONG_POLL_MS_MAX) }
        }
        Some("sse") => Live::Sse,
        Some(_) => return Err(invalid("live must be long-poll or sse")),
    };
    if live != Live::No && offset.is_none() {
        return Err(invalid("a live read needs an offset"));
    }
    if live != Live::No && leader {
        return Err(invalid("consistency=leader goes with catch-up reads only"));
    }
    Ok(ReadQuery { from, bytes_max, leader, live, cursor: parameters.cursor() })
}

fn invalid(message: &'static str) -> Error {
    Error::new(Code::InvalidQuery, message)
}

fn from(text: &str) -> Result<ReadFrom, Error> {
    match text {
        "-1" => Ok(ReadFrom::Start),
        "now" => Ok(ReadFrom::Now),
        digits => Offset::parse_decimal(digits)
            .map(ReadFrom::At)
            .ok_or_else(|| Error::new(Code::InvalidOffset, "offset must be -1, now, or at most 20 decimal digits")),
    }
}

/// The parameters of a query, values still encoded.
struct Parameters<'a>(Vec<(String, &'a str)>);

impl<'a> Parameters<'a> {
    fn parse(query: &'a str) -> Self {
        let pairs = query.split('&').filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, value))
        });
        Self(pairs.collect())
    }

    /// The one value of a parameter, decoded.
    fn one(&self, name: &'static str, code: Code) -> Result<Option<String>, Error> {
        let mut values = self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value);
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Error::new(code, format!("{name} may come only once")));
        }
        decode(value).map(Some).ok_or_else(|| Error::new(code, format!("{name} is not percent-encoded UTF-8")))
    }

    /// A parameter that is a canonical decimal number; larger ones than 64 bits hold count as the largest.
    fn number(&self, name: &'static str) -> Result<Option<u64>, Error> {
        let Some(text) = self.one(name, Code::InvalidQuery)? else { return Ok(None) };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits || (text.len() > 1 && text.starts_with('0')) {
            return Err(Error::new(Code::InvalidQuery, format!("{name} must be a decimal number")));
        }
        Ok(Some(text.parse().unwrap_or(u64::MAX)))
    }

    /// A cursor is only ever sent back, so one that we did not mint counts as none.
    fn cursor(&self) -> Option<u64> {
        let text = self.one("cursor", Code::InvalidQuery).ok()??;
        text.parse().ok().filter(|cursor| *cursor < 1 << 53)
    }
}

#[cfg(test)]
mod tests;

//! Which stream, or which part of one, a request's path names.
//!
//! A stream's path is any number of segments below `/v1/stream/`. The tails of the contract's sub-resources are
//! reserved whatever stands in them, so that a path never changes its meaning when a part of them is added.

use crate::error::{Code, Error};
use highwater_base::limits::PATH_BYTES_MAX;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A stream, by its decoded path.
    Stream(String),
    /// A part of the stream at a path.
    Part(String, Part),
}

impl Target {
    /// The path of the stream that it is, or is a part of.
    pub(crate) fn stream(&self) -> &str {
        match self {
            Self::Stream(path) | Self::Part(path, _) => path,
        }
    }
}

/// A sub-resource of a stream. What stands for an offset or a token is text that nobody judged yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// `…/snapshot`, which no method serves.
    BareSnapshot,
    /// `…/snapshot/<offset>`.
    Snapshot(String),
    /// `…/snapshot/<offset>/parts`.
    StageParts(String),
    /// `…/snapshot/parts`.
    DiscardParts,
    /// `…/retention/<offset>`.
    Retention(String),
    /// `…/incarnation/<token>/` and what follows.
    Immutable(String, Vec<String>),
}

/// Reads the part of a path behind `/v1/stream/`, still percent-encoded.
///
/// # Errors
/// `INVALID_STREAM_ID` if it names no stream and never can.
pub(crate) fn parse(encoded: &str) -> Result<Target, Error> {
    if is_plain(encoded) {
        return Ok(Target::Stream(encoded.to_owned()));
    }
    parse_segments(encoded)
}

fn parse_segments(encoded: &str) -> Result<Target, Error> {
    let segments = encoded.split('/').map(segment).collect::<Result<Vec<_>, _>>()?;
    if matches!(segments[0].as_str(), "__ds" | "__ursula") {
        return Err(invalid(format!("paths below {} are reserved", segments[0])));
    }
    let (stream, part) = match part(&segments) {
        Some((at, part)) => (&segments[..at], Some(part)),
        None => (&segments[..], None),
    };
    let path = stream.join("/");
    if path.len() > PATH_BYTES_MAX {
        return Err(invalid(format!("a stream's path has at most {PATH_BYTES_MAX} bytes, this one {}", path.len())));
    }
    Ok(match part {
        Some(part) => Target::Part(path, part),
        None => Target::Stream(path),
    })
}

/// Whether a path is a stream's as it stands. Most are, and need no string for each of their segments.
fn is_plain(encoded: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
    let named = |segment: &str| matches!(segment, "" | "." | ".." | "snapshot" | "retention" | "parts" | "incarnation");
    encoded.len() <= PATH_BYTES_MAX
        && encoded.bytes().all(plain)
        && !encoded.starts_with("__")
        && !encoded.split('/').any(named)
}

/// Decodes and judges one segment.
fn segment(encoded: &str) -> Result<String, Error> {
    let decoded = decode(encoded).ok_or_else(|| invalid("a path must be UTF-8, percent-encoded".to_owned()))?;
    let problem = match decoded.as_str() {
        "" => "an empty segment",
        "." | ".." => "a segment that is . or ..",
        text if text.contains('/') => "an encoded slash",
        text if text.chars().any(char::is_control) => "a control character",
        _ => return Ok(decoded),
    };
    Err(invalid(format!("a stream's path must not have {problem}")))
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidStreamId, message)
}

/// The sub-resource that the tail of a path names, and where that tail begins; in front of it stands at least one
/// segment, the stream.
fn part(segments: &[String]) -> Option<(usize, Part)> {
    let tail: Vec<&str> = segments.iter().skip(1).map(String::as_str).collect();
    let behind = |count: usize| segments.len() - count;
    if let Some(immutable) = immutable(segments) {
        return Some(immutable);
    }
    match tail.as_slice() {
        [.., "snapshot", offset, "parts"] => Some((behind(3), Part::StageParts((*offset).to_owned()))),
        [.., "snapshot", "parts"] => Some((behind(2), Part::DiscardParts)),
        [.., "snapshot", offset] => Some((behind(2), Part::Snapshot((*offset).to_owned()))),
        [.., "snapshot"] => Some((behind(1), Part::BareSnapshot)),
        [.., "retention", offset] => Some((behind(2), Part::Retention((*offset).to_owned()))),
        _ => None,
    }
}

/// `incarnation/<token>` and what is behind it.
fn immutable(segments: &[String]) -> Option<(usize, Part)> {
    let at = segments.iter().skip(1).position(|segment| segment == "incarnation")? + 1;
    let (token, rest) = segments.get(at + 1..)?.split_first()?;
    Some((at, Part::Immutable(token.clone(), rest.to_vec())))
}

/// Percent-decodes; `None` for a broken escape or bytes that are not UTF-8.
pub(crate) fn decode(encoded: &str) -> Option<String> {
    if !encoded.contains('%') {
        return Some(encoded.to_owned());
    }
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let (pair, behind) = tail.split_at_checked(2)?;
            bytes.push(nibble(pair[0])? << 4 | nibble(pair[1])?);
            rest = behind;
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests;

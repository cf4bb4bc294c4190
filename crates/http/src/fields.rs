//! The syntax of request headers: strict, as the stream contract has it.
//!
//! A header that may come once and comes twice is an error, outer whitespace is not part of a value, and whatever is
//! not the value's syntax is refused before anything is read or done.

use crate::error::{Code, Error};
use crate::names;
use axum::http::{HeaderMap, HeaderName, header};
use highwater_base::limits::{CONTENT_TYPE_BYTES_MAX, PRODUCER_ID_BYTES_MAX, PRODUCER_NUMBER_MAX, SNAPSHOT_PARTS_MAX};
use highwater_base::{Digest, Incarnation};
use highwater_stream::ProducerKey;

/// The one value of a header, trimmed, or `None` if the request does not carry it.
///
/// # Errors
/// `code` if it comes more than once, or is not ASCII text.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName, code: Code) -> Result<Option<&'a str>, Error> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Error::new(code, format!("{name} may come only once")));
    }
    let text = value.to_str().map_err(|_| Error::new(code, format!("{name} must be visible ASCII")))?;
    Ok(Some(text.trim_matches([' ', '\t'])))
}

fn malformed(name: &HeaderName, expected: &str) -> Error {
    Error::new(Code::InvalidHeader, format!("{name} must be {expected}"))
}

/// The token that the request makes its precondition.
pub(crate) fn incarnation(headers: &HeaderMap) -> Result<Option<Incarnation>, Error> {
    let name = names::STREAM_INCARNATION;
    single(headers, &name, Code::InvalidHeader)?
        .map(|text| {
            Incarnation::parse(text).ok_or_else(|| malformed(&name, "a decimal number from 1 to 2^53 - 1, as issued"))
        })
        .transpose()
}

/// Whether the request closes the stream: `true` in any letter case; every other value is as if absent.
pub(crate) fn closes(headers: &HeaderMap) -> Result<bool, Error> {
    if headers.get_all(names::STREAM_CLOSED).iter().count() > 1 {
        return Err(Error::new(Code::InvalidHeader, "stream-closed may come only once"));
    }
    let value = headers.get(names::STREAM_CLOSED).map_or(&b""[..], |value| value.as_bytes());
    Ok(value.trim_ascii().eq_ignore_ascii_case(b"true"))
}

/// The content type, normalised: each `;`-separated part trimmed and in lower case, empty ones dropped, joined with
/// `; `. One that is empty counts as absent.
pub(crate) fn content_type(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let name = header::CONTENT_TYPE;
    let text = single(headers, &name, Code::InvalidHeader)?.unwrap_or_default();
    let normalised = normalise(text);
    if normalised.len() > CONTENT_TYPE_BYTES_MAX {
        return Err(malformed(&name, &format!("at most {CONTENT_TYPE_BYTES_MAX} bytes")));
    }
    Ok(Some(normalised).filter(|normalised| !normalised.is_empty()))
}

fn normalise(text: &str) -> String {
    // Most have one part and are in order.
    if text.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'/' | b'-' | b'.' | b'+' | b'0'..=b'9')) {
        return text.to_owned();
    }
    let parts = text.split(';').map(|part| part.trim_matches([' ', '\t']).to_ascii_lowercase());
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

/// The `Stream-Seq` of a key-less writer.
pub(crate) fn stream_seq(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let name = names::STREAM_SEQ;
    let Some(text) = single(headers, &name, Code::InvalidHeader)? else { return Ok(None) };
    if !is_label(text) {
        return Err(malformed(&name, "1 to 256 bytes of visible ASCII"));
    }
    Ok(Some(text.to_owned()))
}

/// The key of a producer's write: all three headers or none, a digest only with them.
pub(crate) fn producer(headers: &HeaderMap) -> Result<Option<ProducerKey>, Error> {
    let field = |name: &HeaderName| single(headers, name, Code::InvalidProducer);
    let id = field(&names::PRODUCER_ID)?;
    let epoch = field(&names::PRODUCER_EPOCH)?;
    let seq = field(&names::PRODUCER_SEQ)?;
    let digest = digest(headers)?;
    let invalid = |message: &'static str| Error::new(Code::InvalidProducer, message);
    match (id, epoch, seq) {
        (None, None, None) if digest.is_none() => Ok(None),
        (Some(id), Some(epoch), Some(seq)) => {
            if !is_label(id) {
                return Err(invalid("producer-id must be 1 to 256 bytes of visible ASCII"));
            }
            let epoch = producer_number(epoch).ok_or_else(|| invalid("producer-epoch must be digits, below 2^53"))?;
            let seq = producer_number(seq).ok_or_else(|| invalid("producer-seq must be digits, below 2^53"))?;
            Ok(Some(ProducerKey { id: id.to_owned(), epoch, seq, digest }))
        }
        (None, None, None) => Err(invalid("producer-digest comes only with producer-id, -epoch and -seq")),
        _ => Err(invalid("producer-id, producer-epoch and producer-seq come together or not at all")),
    }
}

/// Whether the request carries any header of a producer's write.
pub(crate) fn names_producer(headers: &HeaderMap) -> bool {
    [names::PRODUCER_ID, names::PRODUCER_EPOCH, names::PRODUCER_SEQ, names::PRODUCER_DIGEST]
        .iter()
        .any(|name| headers.contains_key(name))
}

fn digest(headers: &HeaderMap) -> Result<Option<Digest>, Error> {
    digest_in(headers, &names::PRODUCER_DIGEST)
}

/// The digest that a header states.
fn digest_in(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Digest>, Error> {
    single(headers, name, Code::InvalidHeader)?
        .map(|text| Digest::parse(text).ok_or_else(|| malformed(name, "64 lowercase hexadecimal digits")))
        .transpose()
}

/// The digest of the whole snapshot.
pub(crate) fn snapshot_digest(headers: &HeaderMap) -> Result<Option<Digest>, Error> {
    digest_in(headers, &names::STREAM_SNAPSHOT_DIGEST)
}

/// How many parts the body names, if it is a list of parts and not the snapshot itself.
pub(crate) fn snapshot_parts(headers: &HeaderMap) -> Result<Option<usize>, Error> {
    let name = names::STREAM_SNAPSHOT_PARTS;
    let Some(text) = single(headers, &name, Code::InvalidPartsCommit)? else { return Ok(None) };
    let digits = !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    let count = text.parse().ok().filter(|count| digits && (1..=SNAPSHOT_PARTS_MAX).contains(count));
    let expected = || format!("{name} must be a number from 1 to {SNAPSHOT_PARTS_MAX}, without leading zeros");
    count.map(Some).ok_or_else(|| Error::new(Code::InvalidPartsCommit, expected()))
}

/// 1 to 256 bytes of visible ASCII, inner spaces and tabs allowed; the caller trimmed it.
fn is_label(text: &str) -> bool {
    let visible = |byte: u8| (0x21..=0x7e).contains(&byte);
    let bytes = text.as_bytes();
    (1..=PRODUCER_ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(|&b| visible(b) || b == b' ' || b == b'\t')
}

/// Digits without a sign, leading zeros tolerated, at most 2^53 - 1.
fn producer_number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let significant = text.trim_start_matches('0');
    // Beyond 16 significant digits no number is below 2^53, and leading zeros are of no consequence.
    if !digits || significant.len() > 16 {
        return None;
    }
    let number = if significant.is_empty() { 0 } else { significant.parse().ok()? };
    (number <= PRODUCER_NUMBER_MAX).then_some(number)
}

/// Whether one of the entity tags in `If-None-Match` is `tag`, compared weakly, or the field is `*`.
pub(crate) fn none_match(headers: &HeaderMap, tag: &str) -> bool {
    headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).any(|field| {
        field.trim() == "*"
            || field.split(',').any(|candidate| {
                let candidate = candidate.trim();
                candidate.strip_prefix("W/").unwrap_or(candidate) == tag
            })
    })
}

/// Whether the client waits for `100 Continue` before it sends the body.
pub(crate) fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(header::EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

#[cfg(test)]
mod tests;

//! The typed answers to a keyed write: receipts and the refusals that speak of its key.

use crate::headers::{HeaderFault, Headers, producer_number};
use highwater_base::{Incarnation, Offset};

/// The epoch that a claim closed, and the last sequence number applied in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedEpoch {
    /// The closed epoch.
    pub epoch: u64,
    /// Every number up to this one applied, none above ever will.
    pub seq: u64,
}

/// What a keyed write's success says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The producer's current epoch.
    pub epoch: u64,
    /// The highest sequence number applied in that epoch.
    pub seq: u64,
    /// What a claim closed, if it closed something.
    pub closed: Option<ClosedEpoch>,
    /// First byte and end of this write; `None` if the server no longer knows it (`receipt-evicted`).
    pub range: Option<(Offset, Offset)>,
    /// The stream's history.
    pub incarnation: Incarnation,
    /// Whether an earlier request of the same key had applied it.
    pub repeat: bool,
    /// Whether the write closed the stream.
    pub closes_stream: bool,
}

/// What closed an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedBy {
    /// A claim of a later epoch.
    Claim,
    /// A restore, or an accepted loss, of the stream's history.
    History,
}

/// A refusal that speaks of the write's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProducerRefusal {
    /// The epoch is closed.
    EpochClosed {
        /// By what.
        by: ClosedBy,
        /// The producer's current epoch.
        epoch: u64,
        /// The epoch that is closed, and how far it got.
        closed: ClosedEpoch,
    },
    /// The epoch is below the current one.
    StaleEpoch {
        /// The current epoch.
        epoch: u64,
    },
    /// The key holds other bytes.
    KeyConflict {
        /// The current epoch.
        epoch: u64,
    },
    /// The server has no memory of the epoch.
    Expired {
        /// The stream's epoch floor: a claim must be above it.
        epoch: u64,
    },
    /// The sequence number skips ahead.
    SeqGap {
        /// The number that would apply.
        expected: u64,
        /// The number that was sent.
        received: u64,
    },
    /// A number above 0 of an epoch that nobody claimed.
    EpochNotClaimed,
}

impl ProducerRefusal {
    /// The code of the error body that goes with it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::EpochClosed { .. } => "PRODUCER_EPOCH_CLOSED",
            Self::StaleEpoch { .. } => "PRODUCER_EPOCH_STALE",
            Self::KeyConflict { .. } => "PRODUCER_KEY_CONFLICT",
            Self::Expired { .. } => "PRODUCER_EXPIRED",
            Self::SeqGap { .. } => "PRODUCER_SEQ_CONFLICT",
            Self::EpochNotClaimed => "INVALID_PRODUCER",
        }
    }
}

/// Whether a body's code speaks of a key at status 403, where only the producer headers may.
#[must_use]
pub fn is_fence_code(code: &str) -> bool {
    matches!(code, "PRODUCER_EPOCH_CLOSED" | "PRODUCER_EPOCH_STALE" | "PRODUCER_KEY_CONFLICT" | "PRODUCER_EXPIRED")
}

/// The receipt in the headers of a success to a keyed write.
/// # Errors
/// What is missing or malformed; the outcome of the write is then unknown.
pub fn receipt(status: u16, headers: &Headers) -> Result<Receipt, HeaderFault> {
    let evicted = match headers.parsed("producer-outcome", outcome)? {
        None => false,
        Some(Outcome::ReceiptEvicted) if status == 204 => true,
        Some(_) => return Err(HeaderFault::Stray("producer-outcome")),
    };
    if !matches!(status, 200 | 204) {
        return Err(HeaderFault::Missing("producer-epoch"));
    }
    let epoch = headers.required("producer-epoch", producer_number)?;
    let closed = closed_epoch(headers)?;
    if closed.is_some_and(|closed| closed.epoch >= epoch) {
        return Err(HeaderFault::Malformed("producer-closed-epoch"));
    }
    let range = if evicted {
        None
    } else {
        let start = headers.required("stream-offset", Offset::parse_padded)?;
        let end = headers.required("stream-next-offset", Offset::parse_padded)?;
        if end < start {
            return Err(HeaderFault::Malformed("stream-next-offset"));
        }
        Some((start, end))
    };
    Ok(Receipt {
        epoch,
        seq: headers.required("producer-seq", producer_number)?,
        closed,
        range,
        incarnation: headers.required("stream-incarnation", Incarnation::parse)?,
        repeat: status == 204,
        closes_stream: headers.flag("stream-closed")?,
    })
}

/// The refusal in the headers of a 4xx to a keyed write; `None` if they speak of no key.
/// # Errors
/// What is missing or malformed; the answer is then no producer's.
pub fn refusal(status: u16, headers: &Headers) -> Result<Option<ProducerRefusal>, HeaderFault> {
    match status {
        400 => match headers.parsed("producer-expected-seq", producer_number)? {
            None => Ok(None),
            Some(0) => Ok(Some(ProducerRefusal::EpochNotClaimed)),
            Some(_) => Err(HeaderFault::Malformed("producer-expected-seq")),
        },
        409 => match headers.parsed("producer-expected-seq", producer_number)? {
            None if headers.has("producer-received-seq") => Err(HeaderFault::Missing("producer-expected-seq")),
            None => Ok(None),
            Some(expected) => {
                let received = headers.required("producer-received-seq", producer_number)?;
                Ok(Some(ProducerRefusal::SeqGap { expected, received }))
            }
        },
        403 => forbidden(headers),
        _ => Ok(None),
    }
}

/// A producer's 403 carries the current epoch and one outcome; a closed pair only with `epoch-closed`, nothing else.
fn forbidden(headers: &Headers) -> Result<Option<ProducerRefusal>, HeaderFault> {
    const PRODUCER: [&str; 4] = ["producer-epoch", "producer-outcome", "producer-closed-epoch", "producer-closed-seq"];
    const FOREIGN: [&str; 3] = ["producer-seq", "producer-expected-seq", "producer-received-seq"];
    if !PRODUCER.iter().chain(&FOREIGN).any(|name| headers.has(name)) {
        return Ok(None);
    }
    if let Some(stray) = FOREIGN.into_iter().find(|name| headers.has(name)) {
        return Err(HeaderFault::Stray(stray));
    }
    let epoch = headers.required("producer-epoch", producer_number)?;
    let closed = closed_epoch(headers)?;
    let stray = |answer| match closed {
        None => Ok(Some(answer)),
        Some(_) => Err(HeaderFault::Stray("producer-closed-epoch")),
    };
    match headers.required("producer-outcome", outcome)? {
        Outcome::ReceiptEvicted => Err(HeaderFault::Stray("producer-outcome")),
        Outcome::StaleEpoch => stray(ProducerRefusal::StaleEpoch { epoch }),
        Outcome::KeyConflict => stray(ProducerRefusal::KeyConflict { epoch }),
        Outcome::ProducerExpired => stray(ProducerRefusal::Expired { epoch }),
        Outcome::EpochClosed(by) => {
            let closed = closed.ok_or(HeaderFault::Missing("producer-closed-epoch"))?;
            // A claim closes an earlier epoch; a history event closes the current one.
            let fits = match by {
                ClosedBy::Claim => closed.epoch < epoch,
                ClosedBy::History => closed.epoch == epoch,
            };
            if !fits {
                return Err(HeaderFault::Malformed("producer-closed-epoch"));
            }
            Ok(Some(ProducerRefusal::EpochClosed { by, epoch, closed }))
        }
    }
}

fn closed_epoch(headers: &Headers) -> Result<Option<ClosedEpoch>, HeaderFault> {
    let epoch = headers.parsed("producer-closed-epoch", producer_number)?;
    let seq = headers.parsed("producer-closed-seq", producer_number)?;
    match (epoch, seq) {
        (Some(epoch), Some(seq)) => Ok(Some(ClosedEpoch { epoch, seq })),
        (None, None) => Ok(None),
        (None, _) => Err(HeaderFault::Missing("producer-closed-epoch")),
        (_, None) => Err(HeaderFault::Missing("producer-closed-seq")),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    ReceiptEvicted,
    EpochClosed(ClosedBy),
    KeyConflict,
    ProducerExpired,
    StaleEpoch,
}

/// Reads `Producer-Outcome`: an item whose bare value is a token, with parameters of which only `by` counts.
///
/// Source: RFC 9651 section 3.3; a repeated parameter keeps its last value.
fn outcome(text: &str) -> Option<Outcome> {
    let mut parts = split_parameters(text)?.into_iter();
    let token = parts.next()?;
    let mut by = None;
    for parameter in parts {
        let parameter = parameter.trim_start_matches(' ');
        let (key, value) = match parameter.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (parameter, None),
        };
        if !is_key(key) || !value.is_none_or(is_bare_item) {
            return None;
        }
        if key == "by" {
            by = Some(match value? {
                "claim" => ClosedBy::Claim,
                "history" => ClosedBy::History,
                _ => return None,
            });
        }
    }
    match (token, by) {
        ("receipt-evicted", None) => Some(Outcome::ReceiptEvicted),
        ("epoch-closed", Some(by)) => Some(Outcome::EpochClosed(by)),
        ("key-conflict", None) => Some(Outcome::KeyConflict),
        ("producer-expired", None) => Some(Outcome::ProducerExpired),
        ("stale-epoch", None) => Some(Outcome::StaleEpoch),
        _ => None,
    }
}

/// Splits at the semicolons that are not inside a quoted string; `None` if a string does not end.
fn split_parameters(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b';' if !quoted => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (!quoted).then_some(parts)
}

fn is_key(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase() || c == '*')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(&b))
}

fn is_bare_item(text: &str) -> bool {
    is_token(text) || is_number(text) || is_string(text) || is_byte_sequence(text) || text == "?0" || text == "?1"
}

fn is_token(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '*')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&b))
}

/// Up to 15 digits, or up to 12 and, behind a dot, up to 3.
fn is_number(text: &str) -> bool {
    let digits = |part: &str, most: usize| (1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    match text.split_once('.') {
        None => digits(text, 15),
        Some((whole, fraction)) => digits(whole, 12) && digits(fraction, 3),
    }
}

/// Visible ASCII and blanks in quotes; a backslash stands only before a quote or another one.
fn is_string(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return false };
    let mut bytes = inner.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if matches!(bytes.next(), Some(b'"' | b'\\')) => {}
            b'"' | b'\\' => return false,
            0x20..=0x7e => {}
            _ => return false,
        }
    }
    true
}

fn is_byte_sequence(text: &str) -> bool {
    text.len() >= 2
        && text
            .strip_prefix(':')
            .and_then(|rest| rest.strip_suffix(':'))
            .is_some_and(|inner| inner.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_outcome_is_a_token_with_parameters() {
        assert_eq!(outcome("epoch-closed;by=claim"), Some(Outcome::EpochClosed(ClosedBy::Claim)));
        assert_eq!(outcome("epoch-closed; by=history"), Some(Outcome::EpochClosed(ClosedBy::History)));
        assert_eq!(outcome(r#"stale-epoch;why="a;b\"";n=-1.5;b=:aGk=:;t"#), Some(Outcome::StaleEpoch));
        for bad in [
            "",
            "epoch-closed",
            "stale-epoch;by=claim",
            "epoch-closed;by=me",
            "epoch-closed;by",
            "stale-epoch ;a=1",
            "stale-epoch;A=1",
            "stale-epoch;a=\"",
            "stale-epoch;a=:",
            "stale-epoch;",
            "STALE-EPOCH",
        ] {
            assert_eq!(outcome(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_403_with_a_stray_header_speaks_of_no_key() {
        let base = [("Producer-Epoch", "7"), ("Producer-Outcome", "stale-epoch")];
        assert_eq!(refusal(403, &Headers::new(base)), Ok(Some(ProducerRefusal::StaleEpoch { epoch: 7 })));
        for stray in [("Producer-Seq", "1"), ("Producer-Closed-Epoch", "6"), ("Producer-Epoch", "7")] {
            assert!(refusal(403, &Headers::new(base.into_iter().chain([stray]))).is_err(), "{stray:?}");
        }
        assert_eq!(refusal(403, &Headers::new([("x", "y")])), Ok(None));
    }

    proptest! {
        #[test]
        fn any_outcome_text_is_read_without_panic(text in "\\PC{0,60}") {
            let _ = outcome(&text);
        }

        #[test]
        fn unknown_parameters_change_nothing(key in "[a-z*][a-z0-9_.*-]{0,8}", value in "[a-zA-Z*][a-zA-Z0-9:/.-]{0,8}") {
            prop_assume!(key != "by");
            let text = format!("key-conflict;{key}={value}");
            prop_assert_eq!(outcome(&text), Some(Outcome::KeyConflict));
        }
    }
}

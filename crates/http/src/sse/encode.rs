//! Bytes of a stream as events.
//!
//! Source: PROTOCOL.md section 5.8; the event stream format of the HTML standard (9.2.6).

use crate::json;
use highwater_base::Offset;
use highwater_node::ReadAnswer;
use highwater_node::json::is_json;

/// Bytes of a control event, and of what stands around data.
pub(crate) const AROUND_BYTES: usize = 256;

/// How the bytes of a stream stand in its data events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// As text, a `data` line for each of its lines.
    Text,
    /// As one complete JSON array.
    Json,
    /// As base64, because an event stream carries nothing but text.
    Base64,
}

impl Form {
    /// The form that a normalised content type asks for.
    pub(crate) fn of(content_type: &str) -> Self {
        if is_json(content_type) {
            Self::Json
        } else if content_type.starts_with("text/") {
            Self::Text
        } else {
            Self::Base64
        }
    }
}

/// Bytes that the longest UTF-8 character still lacks when all of it but one byte has come.
const HELD_BYTES_MAX: usize = 3;

/// Makes data events of consecutive pieces of a stream.
///
/// Between two pieces of text it remembers what neither could show alone: the first bytes of a character, and that a
/// line ended in a carriage return, whose line feed would otherwise count as a second end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Encoder {
    form: Form,
    /// The beginning of a character whose end is in the next piece.
    held: Vec<u8>,
    after_return: bool,
}

impl Encoder {
    pub(crate) fn new(form: Form) -> Self {
        Self { form, held: Vec::new(), after_return: false }
    }

    /// Bytes of the pieces so far that no event showed yet.
    pub(crate) fn held(&self) -> u64 {
        self.held.len() as u64
    }

    /// Appends the data event of a piece to `out`, unless nothing of it can be shown. `last`: no byte will follow, so
    /// what is not a character now never will be.
    pub(crate) fn data(&mut self, piece: &[u8], last: bool, out: &mut Vec<u8>) {
        match self.form {
            Form::Text => self.text(piece, last, out),
            Form::Json if piece.is_empty() => {}
            Form::Json => event(out, &json::array(piece)),
            Form::Base64 if piece.is_empty() => {}
            Form::Base64 => {
                out.extend_from_slice(b"event: data\ndata:");
                base64(piece, out);
                out.extend_from_slice(b"\n\n");
            }
        }
    }

    fn text(&mut self, piece: &[u8], last: bool, out: &mut Vec<u8>) {
        let joined;
        let mut text = piece;
        if !self.held.is_empty() {
            joined = [self.held.as_slice(), piece].concat();
            text = &joined;
        }
        let complete = if last { text.len() } else { complete_bytes(text) };
        let (mut shown, held) = text.split_at(complete);
        // What is held ends `text`, so it is replaced as a whole.
        let held = held.to_vec();
        if self.after_return && !shown.is_empty() {
            shown = shown.strip_prefix(b"\n").unwrap_or(shown);
            self.after_return = false;
        }
        if !shown.is_empty() {
            self.after_return = shown.ends_with(b"\r");
            out.extend_from_slice(b"event: data\n");
            lines(shown, out);
            out.push(b'\n');
        }
        self.held = held;
    }
}

/// The events of an answer, and how many of their bytes are the data event; none if there is nothing to tell. `first`:
/// even that is told once.
pub(crate) fn encode(encoder: &mut Encoder, answer: &ReadAnswer, cursor: u64, first: bool) -> Option<(Vec<u8>, usize)> {
    let mut events = Vec::with_capacity(answer.body.len() + AROUND_BYTES);
    encoder.data(&answer.body, answer.closed, &mut events);
    // A wait that ended with nothing is not told; neither is half a character.
    if events.is_empty() && !first && !answer.closed {
        return None;
    }
    let data = events.len();
    let shown = Offset(answer.next.0.saturating_sub(encoder.held()));
    control(shown, (!answer.closed).then_some(cursor), answer.up_to_date, answer.closed, &mut events);
    Some((events, data))
}

/// Appends a control event to `out`.
pub(crate) fn control(next: Offset, cursor: Option<u64>, up_to_date: bool, closed: bool, out: &mut Vec<u8>) {
    // Offsets are digits, so nothing here needs an escape.
    let mut text = format!("event: control\ndata:{{\"streamNextOffset\":\"{next}\"");
    if let Some(cursor) = cursor {
        text.push_str(&format!(",\"streamCursor\":\"{cursor}\""));
    }
    if up_to_date {
        text.push_str(",\"upToDate\":true");
    }
    if closed {
        text.push_str(",\"streamClosed\":true");
    }
    text.push_str("}\n\n");
    out.extend_from_slice(text.as_bytes());
}

/// A data event of one line.
fn event(out: &mut Vec<u8>, line: &[u8]) {
    out.extend_from_slice(b"event: data\ndata:");
    out.extend_from_slice(line);
    out.extend_from_slice(b"\n\n");
}

/// The lines of a text, each behind `data:`. A line ends with LF, CR or both. A reader takes one space away from behind
/// the colon, so a line that begins with one gets another.
fn lines(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    loop {
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len());
        let (line, behind) = rest.split_at(end);
        out.extend_from_slice(if line.starts_with(b" ") { b"data: " } else { b"data:" });
        out.extend_from_slice(line);
        out.push(b'\n');
        rest = match behind {
            [] => return,
            [b'\r', b'\n', rest @ ..] | [_, rest @ ..] => rest,
        };
    }
}

/// Bytes of `text` without the beginning of a character at its end. Bytes that begin no character count as complete:
/// nothing that follows makes them one.
fn complete_bytes(text: &[u8]) -> usize {
    let tail = text.len().saturating_sub(HELD_BYTES_MAX);
    let Some(lead) = (tail..text.len()).rev().find(|&at| text[at] & 0xc0 != 0x80) else { return text.len() };
    match std::str::from_utf8(&text[lead..]) {
        Err(error) if error.error_len().is_none() => lead + error.valid_up_to(),
        _ => text.len(),
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the standard base64 of `bytes`, with padding (RFC 4648 section 4).
fn base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len().div_ceil(3) * 4);
    let digit = |group: u32, shift: u32| DIGITS[(group >> shift & 63) as usize];
    let (triples, rest) = bytes.as_chunks::<3>();
    for [a, b, c] in triples {
        let group = u32::from(*a) << 16 | u32::from(*b) << 8 | u32::from(*c);
        out.extend_from_slice(&[digit(group, 18), digit(group, 12), digit(group, 6), digit(group, 0)]);
    }
    match rest {
        [a] => {
            let group = u32::from(*a) << 16;
            out.extend_from_slice(&[digit(group, 18), digit(group, 12), b'=', b'=']);
        }
        [a, b] => {
            let group = u32::from(*a) << 16 | u32::from(*b) << 8;
            out.extend_from_slice(&[digit(group, 18), digit(group, 12), digit(group, 6), b'=']);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;

//! Messages of a WebSocket, byte for byte, as a server that only sends needs them.
//!
//! What is sent is shared among all who read the stream, so it is never copied into a socket's own buffer; what clients send
//! is passed over without being kept.
//!
//! Source: RFC 6455, sections 5 and 7.

use bytes::Bytes;
use thiserror::Error;

/// Bytes of a control message at the most.
const CONTROL_BYTES_MAX: u64 = 125;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    Binary = 0x2,
    /// The last one.
    Close = 0x8,
    /// Asks for a pong.
    Ping = 0x9,
    /// Answers a ping.
    Pong = 0xa,
}

/// What stands before a message's bytes.
#[must_use]
pub fn header(kind: Kind, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(10);
    out.push(0x80 | kind as u8);
    match bytes {
        0..=125 => out.push(bytes as u8),
        126..=0xffff => {
            out.push(126);
            out.extend((bytes as u16).to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend((bytes as u64).to_be_bytes());
        }
    }
    out
}

/// A whole message of few bytes.
#[must_use]
pub fn short(kind: Kind, payload: &[u8]) -> Bytes {
    let mut out = header(kind, payload.len());
    out.extend_from_slice(payload);
    out.into()
}

/// The last message: why the socket closes.
#[must_use]
pub fn close(code: u16, reason: &str) -> Bytes {
    let mut payload = code.to_be_bytes().to_vec();
    payload.extend(reason.bytes().take(CONTROL_BYTES_MAX as usize - 2));
    short(Kind::Close, &payload)
}

/// What a client sent that has to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// A ping, whose bytes come back.
    Ping(Vec<u8>),
    /// The end, and its code if it has one.
    Close(Option<u16>),
}

/// A client that does not speak as clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the client breaks the protocol of WebSockets: {0}")]
pub struct Violation(pub &'static str);

/// What clients send, of which only what asks for an answer is kept.
#[derive(Debug, Default)]
pub struct Incoming {
    /// Bytes of a header that is not complete.
    head: Vec<u8>,
    /// What is being passed over or collected.
    body: Option<Body>,
    /// Whether a message goes on in the next frame.
    fragmented: bool,
}

#[derive(Debug)]
struct Body {
    /// Bytes still to come.
    left: u64,
    mask: [u8; 4],
    /// Which byte of the mask comes next.
    turn: usize,
    /// The control message that is collected.
    control: Option<(u8, Vec<u8>)>,
}

impl Incoming {
    /// Takes bytes in; adds what has to be answered.
    /// # Errors
    /// [`Violation`]; nothing more is to be read then.
    pub fn take(&mut self, mut bytes: &[u8], asked: &mut Vec<Asked>) -> Result<(), Violation> {
        loop {
            if let Some(body) = &mut self.body {
                let now = usize::try_from(body.left).unwrap_or(usize::MAX).min(bytes.len());
                let (part, rest) = bytes.split_at(now);
                if let Some((_, collected)) = &mut body.control {
                    for byte in part {
                        collected.push(byte ^ body.mask[body.turn % 4]);
                        body.turn += 1;
                    }
                }
                (bytes, body.left) = (rest, body.left - now as u64);
                if body.left > 0 {
                    return Ok(());
                }
                if let Some(Body { control: Some((kind, collected)), .. }) = self.body.take() {
                    asked.extend(control(kind, collected)?);
                }
            }
            while self.head.len() < head_bytes(&self.head) {
                let Some((first, rest)) = bytes.split_first() else { return Ok(()) };
                self.head.push(*first);
                bytes = rest;
                // Before more is waited for: without a mask the head is shorter.
                if self.head.len() == 2 && self.head[1] & 0x80 == 0 {
                    return Err(Violation("a frame is not masked"));
                }
            }
            self.begin()?;
        }
    }

    /// Begins a frame whose head is complete.
    fn begin(&mut self) -> Result<(), Violation> {
        let head = std::mem::take(&mut self.head);
        let (first, second) = (head[0], head[1]);
        let (last, kind) = (first & 0x80 != 0, first & 0x0f);
        if first & 0x70 != 0 {
            return Err(Violation("a reserved bit is set"));
        }
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let (length, mask) = match second & 0x7f {
            126 => (number(&head[2..4]), &head[4..]),
            127 => (number(&head[2..10]), &head[10..]),
            short => (u64::from(short), &head[2..]),
        };
        let control = match kind {
            0x0 if !self.fragmented => return Err(Violation("a message goes on that did not begin")),
            0x1 | 0x2 if self.fragmented => return Err(Violation("a message begins within another")),
            0x0..=0x2 => {
                self.fragmented = !last;
                None
            }
            0x8..=0xa if last && length <= CONTROL_BYTES_MAX => Some((kind, Vec::with_capacity(length as usize))),
            0x8..=0xa => return Err(Violation("a control message is long or in parts")),
            _ => return Err(Violation("a frame is of an unknown kind")),
        };
        let mask = [mask[0], mask[1], mask[2], mask[3]];
        self.body = Some(Body { left: length, mask, turn: 0, control });
        Ok(())
    }
}

/// Bytes of the head that begins so, as far as it can be told.
fn head_bytes(head: &[u8]) -> usize {
    match head.get(1).map(|second| second & 0x7f) {
        None => 2,
        Some(126) => 8,
        Some(127) => 14,
        Some(_) => 6,
    }
}

/// What a control message asks for; a pong, nothing.
fn control(kind: u8, payload: Vec<u8>) -> Result<Option<Asked>, Violation> {
    Ok(match kind {
        0x9 => Some(Asked::Ping(payload)),
        0x8 => match payload.as_slice() {
            [] => Some(Asked::Close(None)),
            [high, low, ..] => Some(Asked::Close(Some(u16::from_be_bytes([*high, *low])))),
            [_] => return Err(Violation("a close without a whole code")),
        },
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame as a client sends it.
    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![first];
        match payload.len() {
            length @ 0..=125 => out.push(0x80 | length as u8),
            length @ 126..=0xffff => {
                out.push(0x80 | 126);
                out.extend((length as u16).to_be_bytes());
            }
            length => {
                out.push(0x80 | 127);
                out.extend((length as u64).to_be_bytes());
            }
        }
        let mask = [1, 2, 3, 4];
        out.extend(mask);
        out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        out
    }

    fn asked(bytes: &[u8], piece: usize) -> Result<Vec<Asked>, Violation> {
        let (mut incoming, mut asked) = (Incoming::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            incoming.take(piece, &mut asked)?;
        }
        Ok(asked)
    }

    #[test]
    fn pings_and_the_end_are_found_among_whatever_else_comes_and_however_it_is_cut() {
        let sent = [
            masked(0x82, b"data"),
            masked(0x01, &[7; 300]),
            masked(0x89, b"are you there?"),
            masked(0x80, &[7; 70_000]),
            masked(0x8a, b"pong"),
            masked(0x89, b""),
            masked(0x88, &[0x03, 0xe8, b'x']),
        ]
        .concat();
        let expected = [Asked::Ping(b"are you there?".to_vec()), Asked::Ping(Vec::new()), Asked::Close(Some(1000))];
        for piece in [1, 2, 3, 7, 100, 4_096, sent.len()] {
            assert_eq!(asked(&sent, piece).expect("fine"), expected, "pieces of {piece}");
        }
        assert_eq!(asked(&masked(0x88, b""), 1), Ok(vec![Asked::Close(None)]));
    }

    #[test]
    fn whoever_breaks_the_protocol_is_not_read_any_further() {
        let mut unmasked = masked(0x82, b"x");
        unmasked[1] &= 0x7f;
        let bad = [
            unmasked,
            masked(0xc2, b"reserved"),
            masked(0x83, b"unknown"),
            masked(0x80, b"goes on"),
            [masked(0x02, b"begins"), masked(0x82, b"again")].concat(),
            masked(0x09, b"a ping in parts"),
            masked(0x89, &[0; 126]),
            masked(0x88, b"x"),
        ];
        for (number, bytes) in bad.iter().enumerate() {
            assert!(asked(bytes, bytes.len()).is_err(), "case {number}");
        }
    }

    #[test]
    fn a_length_is_written_in_its_shortest_form() {
        assert_eq!(header(Kind::Binary, 125), [0x82, 125]);
        assert_eq!(header(Kind::Binary, 126), [0x82, 126, 0, 126]);
        assert_eq!(header(Kind::Binary, 65_535), [0x82, 126, 0xff, 0xff]);
        assert_eq!(header(Kind::Binary, 65_536), [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(short(Kind::Pong, b"a"), [0x8a, 1, b'a'][..]);
        assert_eq!(close(1001, "bye"), [0x88, 5, 0x03, 0xe9, b'b', b'y', b'e'][..]);
        assert_eq!(close(1001, &"x".repeat(500)).len(), 127);
    }
}

//! JSON mode: the messages of a body as they are stored, and stored messages as the array that a read answers with.
//!
//! A message is stored as its own text without insignificant white space, followed by a line feed. No such text holds a
//! line feed (inside strings JSON has them escaped), so the line feeds are the boundaries. Nothing else of a text is
//! touched: numbers keep their digits, strings their escapes, objects their order and their repeated names.
//!
//! Source: PROTOCOL.md section 9.1; RFC 8259.

use bytes::Bytes;
use highwater_node::json::BOUNDARY;
use highwater_stream::BodyFault;
use thiserror::Error;

/// How deep the array that a read answers with may nest, itself counted.
///
/// Parsers in wide use stop at 128; a deeper message would make every read of its stream useless to them.
const DEPTH_MAX: u32 = 127;

/// Bodies larger than this are taken apart on a thread where blocking is fine: a quarter of a mebibyte takes about half
/// a millisecond, which other requests of the same thread can wait.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// Why a body holds no messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Fault {
    /// It is no JSON text.
    #[error("the body is no JSON: {what}, at byte {at}")]
    Invalid {
        /// Where, from 0.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// It is an empty array.
    #[error("the body is an empty array")]
    Empty,
}

impl Fault {
    /// What the stream is told of it.
    pub(crate) fn kind(self) -> BodyFault {
        match self {
            Self::Invalid { .. } => BodyFault::InvalidJson,
            Self::Empty => BodyFault::EmptyArray,
        }
    }
}

/// The messages of a body: those of its array, or the body's one value. They are stored one behind the other.
///
/// # Errors
/// Why there are none.
pub(crate) async fn messages(body: Bytes) -> Result<Bytes, Fault> {
    if body.len() <= INLINE_BYTES_MAX {
        return split(&body).map(Bytes::from);
    }
    let split = tokio::task::spawn_blocking(move || split(&body).map(Bytes::from)).await;
    // The scanner does not panic; if it did, nothing is known to be valid.
    split.unwrap_or(Err(Fault::Invalid { at: 0, what: "it could not be read" }))
}

/// As [`messages`], on this thread.
pub(crate) fn split(body: &[u8]) -> Result<Vec<u8>, Fault> {
    if let Err(error) = std::str::from_utf8(body) {
        return Err(Fault::Invalid { at: error.valid_up_to(), what: "bytes that are not UTF-8" });
    }
    // Every message of an array brings a comma or a bracket, which makes room for its line feed; a bare value does not.
    let mut scanner = Scanner { text: body, at: 0, out: Vec::with_capacity(body.len() + 1), depth: 1, arrays: 0 };
    scanner.body()?;
    Ok(scanner.out)
}

/// The array that answers a read of these messages. They end where one of them ends.
pub(crate) fn array(messages: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(messages.len() + 2);
    out.push(b'[');
    let inner = messages.strip_suffix(&[BOUNDARY]).unwrap_or(messages);
    out.extend(inner.iter().map(|&byte| if byte == BOUNDARY { b',' } else { byte }));
    out.push(b']');
    out
}

/// Walks over a text once, without recursion, and copies what is significant.
struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    out: Vec<u8>,
    /// Containers that are open, that of the answer included.
    depth: u32,
    /// Which of them are arrays: one bit each, the innermost lowest.
    arrays: u128,
}

/// What may come next inside a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    ValueOrEnd,
    Name,
    NameOrEnd,
}

impl Scanner<'_> {
    fn body(&mut self) -> Result<(), Fault> {
        self.space();
        if self.peek() != Some(b'[') {
            self.message()?;
            return self.end();
        }
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            self.end()?;
            return Err(Fault::Empty);
        }
        loop {
            self.message()?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return self.end();
                }
                _ => return Err(self.fault("neither , nor ] behind an element")),
            }
        }
    }

    /// One value, however deep, with its line feed.
    fn message(&mut self) -> Result<(), Fault> {
        let floor = self.depth;
        let mut expect = Expect::Value;
        loop {
            self.space();
            let closes = match expect {
                Expect::ValueOrEnd => self.peek() == Some(b']'),
                Expect::NameOrEnd => self.peek() == Some(b'}'),
                Expect::Value | Expect::Name => false,
            };
            if closes {
                self.close();
            } else if matches!(expect, Expect::Name | Expect::NameOrEnd) {
                self.name()?;
                expect = Expect::Value;
                continue;
            } else if let Some(inside) = self.value()? {
                expect = inside;
                continue;
            }
            match self.behind_value(floor)? {
                Some(next) => expect = next,
                None => {
                    self.out.push(BOUNDARY);
                    return Ok(());
                }
            }
        }
    }

    /// A scalar, or the opening of a container, and then what it begins with.
    fn value(&mut self) -> Result<Option<Expect>, Fault> {
        match self.peek() {
            Some(b'[') => self.open(true).map(|()| Some(Expect::ValueOrEnd)),
            Some(b'{') => self.open(false).map(|()| Some(Expect::NameOrEnd)),
            Some(b'"') => self.string().map(|()| None),
            Some(b'-' | b'0'..=b'9') => self.number().map(|()| None),
            Some(b't') => self.literal(b"true").map(|()| None),
            Some(b'f') => self.literal(b"false").map(|()| None),
            Some(b'n') => self.literal(b"null").map(|()| None),
            Some(_) => Err(self.fault("no value begins with this")),
            None => Err(self.fault("the text ends where a value belongs")),
        }
    }

    /// Closes what ends behind a value; says what the innermost open container goes on with, or that the message ends.
    fn behind_value(&mut self, floor: u32) -> Result<Option<Expect>, Fault> {
        while self.depth > floor {
            self.space();
            let in_array = self.arrays & 1 == 1;
            match self.peek() {
                Some(b',') => {
                    self.take(1);
                    return Ok(Some(if in_array { Expect::Value } else { Expect::Name }));
                }
                Some(b']') if in_array => self.close(),
                Some(b'}') if !in_array => self.close(),
                _ if in_array => return Err(self.fault("neither , nor ] behind an element")),
                _ => return Err(self.fault("neither , nor } behind a member")),
            }
        }
        Ok(None)
    }

    fn open(&mut self, array: bool) -> Result<(), Fault> {
        if self.depth == DEPTH_MAX {
            return Err(self.fault("it nests too deep"));
        }
        self.depth += 1;
        self.arrays = self.arrays << 1 | u128::from(array);
        self.take(1);
        Ok(())
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.arrays >>= 1;
        self.take(1);
    }

    fn name(&mut self) -> Result<(), Fault> {
        if self.peek() != Some(b'"') {
            return Err(self.fault("a member without a name in quotes"));
        }
        self.string()?;
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.fault("no : behind a member's name"));
        }
        self.take(1);
        Ok(())
    }

    fn string(&mut self) -> Result<(), Fault> {
        let mut end = self.at + 1;
        loop {
            match self.text.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end = self.escape(end)?,
                Some(0..0x20) => return Err(Fault::Invalid { at: end, what: "a control character in a string" }),
                Some(_) => end += 1,
                None => return Err(Fault::Invalid { at: end, what: "a string without an end" }),
            }
        }
        self.take(end + 1 - self.at);
        Ok(())
    }

    /// Where an escape that begins at `at` ends.
    fn escape(&self, at: usize) -> Result<usize, Fault> {
        let invalid = Err(Fault::Invalid { at, what: "no escape that JSON has" });
        match self.text.get(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
            Some(b'u') => match self.text.get(at + 2..at + 6) {
                Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => Ok(at + 6),
                _ => invalid,
            },
            _ => invalid,
        }
    }

    fn number(&mut self) -> Result<(), Fault> {
        let mut end = self.at + usize::from(self.peek() == Some(b'-'));
        let whole = self.digits(end)?;
        if self.text[end] == b'0' && whole > end + 1 {
            return Err(Fault::Invalid { at: end, what: "a number with a leading zero" });
        }
        end = whole;
        if self.text.get(end) == Some(&b'.') {
            end = self.digits(end + 1)?;
        }
        if matches!(self.text.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.text.get(end + 1), Some(b'+' | b'-')));
            end = self.digits(end + 1 + sign)?;
        }
        self.take(end - self.at);
        Ok(())
    }

    /// Where the digits that begin at `at` end; there is at least one.
    fn digits(&self, at: usize) -> Result<usize, Fault> {
        let count = self.text[at.min(self.text.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 { Err(Fault::Invalid { at, what: "a number without a digit" }) } else { Ok(at + count) }
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), Fault> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.fault("no value begins with this"));
        }
        self.take(word.len());
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(self.fault("something behind the value")) }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, count: usize) {
        self.out.extend_from_slice(&self.text[self.at..self.at + count]);
        self.at += count;
    }

    fn fault(&self, what: &'static str) -> Fault {
        Fault::Invalid { at: self.at, what }
    }
}

#[cfg(test)]
mod tests;

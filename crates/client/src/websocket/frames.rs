//! Frames, as they lie in the connection.
//!
//! Source: RFC 6455, section 5.2.

use super::WebSocketError;
use bytes::{Buf, Bytes, BytesMut};

/// Bytes before a frame's payload at the most.
pub(super) const HEADER_BYTES_MAX: usize = 14;
/// Bytes of the payload of pings, pongs and closes at the most.
const CONTROL_BYTES_MAX: usize = 125;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    const ALL: [Self; 6] = [Self::Continuation, Self::Text, Self::Binary, Self::Close, Self::Ping, Self::Pong];

    fn is_control(self) -> bool {
        self as u8 >= 8
    }
}

/// Bytes that came, frame by frame.
#[derive(Debug, Default)]
pub(super) struct Frames(BytesMut);

impl Frames {
    pub fn beginning_with(bytes: &[u8]) -> Self {
        Self(BytesMut::from(bytes))
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next frame, if it is whole: whether its message ends with it, what it is, and its payload.
    pub fn next(&mut self, bytes_max: usize) -> Result<Option<(bool, Opcode, Bytes)>, WebSocketError> {
        let [first, second, ..] = self.0[..] else { return Ok(None) };
        let opcode = Opcode::ALL.into_iter().find(|opcode| *opcode as u8 == first & 0x0f);
        let opcode = opcode.ok_or(WebSocketError::Protocol("an opcode that there is not"))?;
        let last = first & 0x80 != 0;
        if first & 0x70 != 0 {
            return Err(WebSocketError::Protocol("reserved bits"));
        }
        if second & 0x80 != 0 {
            return Err(WebSocketError::Protocol("a server's frame is masked"));
        }
        let width = match second {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some(long) = self.0.get(2..2 + width) else { return Ok(None) };
        let length = long.iter().fold(0u64, |length, byte| length << 8 | u64::from(*byte));
        let length = if width == 0 { u64::from(second) } else { length };
        if opcode.is_control() && (!last || length > CONTROL_BYTES_MAX as u64) {
            return Err(WebSocketError::Protocol("a ping, pong or close in parts, or with a long payload"));
        }
        if length > bytes_max as u64 {
            return Err(WebSocketError::TooLarge(bytes_max));
        }
        let (header, length) = (2 + width, length as usize);
        if self.0.len() < header + length {
            self.0.reserve(header + length - self.0.len());
            return Ok(None);
        }
        self.0.advance(header);
        Ok(Some((last, opcode, self.0.split_to(length).freeze())))
    }
}

/// A client's frame, which is masked and ends its message. Its payload is a control frame's.
pub(super) fn encode(opcode: Opcode, payload: &[u8], mask: [u8; 4], out: &mut Vec<u8>) {
    let payload = &payload[..payload.len().min(CONTROL_BYTES_MAX)];
    out.extend([0x80 | opcode as u8, 0x80 | payload.len() as u8]);
    out.extend(mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

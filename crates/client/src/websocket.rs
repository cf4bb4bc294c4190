//! A WebSocket, read without waiting longer than asked: for streams that a server sends and nobody answers.
//!
//! Source: RFC 6455. Pings are answered while reading; nothing else is sent but pings and the end. There are no extensions.

mod connect;
mod frames;

pub use connect::{ConnectError, WebSocketOptions};

use bytes::Bytes;
use frames::{Frames, HEADER_BYTES_MAX, Opcode};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Bytes that are read from the socket at a time.
const READ_BYTES: usize = 64 << 10;

/// What came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A message of bytes.
    Binary(Bytes),
    /// A message of text, which the streams here do not have.
    Text(Bytes),
    /// The answer to a ping.
    Pong,
    /// The server closed, with a code and a reason; nothing follows.
    Close {
        /// 1005 if it gave none.
        code: u16,
        /// For people.
        reason: String,
    },
}

/// Why nothing more can be read.
#[derive(Debug, Error)]
pub enum WebSocketError {
    /// The connection broke, or ended without a close.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// The server broke the protocol.
    #[error("the server broke the WebSocket protocol: {0}")]
    Protocol(&'static str),
    /// A message beyond what is taken.
    #[error("a message has more than {0} bytes")]
    TooLarge(usize),
}

/// The connection, plain or encrypted.
pub(crate) enum Io {
    Plain(TcpStream),
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, TcpStream>>),
}

impl Io {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &tls.sock,
        }
    }
}

impl Read for Io {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Io {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

/// A WebSocket that is open.
pub struct WebSocket {
    io: Io,
    frames: Frames,
    message_bytes_max: usize,
    /// A message whose first frames came.
    partial: Option<(Opcode, Vec<u8>)>,
    over: bool,
}

impl fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebSocket to {:?}", self.io.tcp().peer_addr())
    }
}

impl WebSocket {
    /// Connects to `http(s)://host[:port]/path[?query]`, or the same with `ws(s)`.
    /// # Errors
    /// Why there is no WebSocket; a server's refusal with its status and what it said.
    pub fn connect(url: &str, options: &WebSocketOptions) -> Result<Self, ConnectError> {
        let (io, early) = connect::connect(url, options)?;
        let frames = Frames::beginning_with(&early);
        Ok(Self { io, frames, message_bytes_max: options.message_bytes_max, partial: None, over: false })
    }

    /// The next message; `None` if none came whole within `wait`. What came of one is kept.
    /// # Errors
    /// Why nothing more can be read, also behind a close.
    pub fn read(&mut self, wait: Duration) -> Result<Option<Message>, WebSocketError> {
        let until = Instant::now() + wait;
        loop {
            if self.over {
                return Err(io::Error::from(io::ErrorKind::NotConnected).into());
            }
            while let Some((last, opcode, payload)) = self.frames.next(self.message_bytes_max)? {
                if let Some(message) = self.take(last, opcode, payload)? {
                    return Ok(Some(message));
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.fill(left)? {
                return Ok(None);
            }
        }
    }

    /// Asks the server for a sign of life, which comes as [`Message::Pong`].
    /// # Errors
    /// If the connection broke.
    pub fn ping(&mut self) -> Result<(), WebSocketError> {
        self.send(Opcode::Ping, b"")
    }

    /// Closes, without waiting for the server.
    pub fn close(mut self) {
        if !self.over {
            // Whoever is gone need not be told.
            self.send(Opcode::Close, &1000u16.to_be_bytes()).ok();
        }
    }

    /// Reads what there is; `false` if nothing came in time.
    fn fill(&mut self, wait: Duration) -> Result<bool, WebSocketError> {
        self.io.tcp().set_read_timeout(Some(wait))?;
        let mut buffer = [0; READ_BYTES];
        match self.io.read(&mut buffer) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(bytes) => {
                self.frames.push(&buffer[..bytes]);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self, last: bool, opcode: Opcode, payload: Bytes) -> Result<Option<Message>, WebSocketError> {
        match (opcode, self.partial.take()) {
            (Opcode::Ping, partial) => {
                self.partial = partial;
                self.send(Opcode::Pong, &payload)?;
                Ok(None)
            }
            (Opcode::Pong, partial) => {
                self.partial = partial;
                Ok(Some(Message::Pong))
            }
            (Opcode::Close, _) => {
                self.send(Opcode::Close, payload.get(..2).unwrap_or_default()).ok();
                self.over = true;
                let code = payload.get(..2).map_or(1005, |code| u16::from_be_bytes([code[0], code[1]]));
                let reason = String::from_utf8_lossy(payload.get(2..).unwrap_or_default()).into_owned();
                Ok(Some(Message::Close { code, reason }))
            }
            (Opcode::Continuation, Some((kind, mut bytes))) => {
                if bytes.len() + payload.len() > self.message_bytes_max {
                    return Err(WebSocketError::TooLarge(self.message_bytes_max));
                }
                bytes.extend_from_slice(&payload);
                if !last {
                    self.partial = Some((kind, bytes));
                    return Ok(None);
                }
                Ok(Some(whole(kind, bytes.into())))
            }
            (Opcode::Continuation, None) => Err(WebSocketError::Protocol("a message goes on that did not begin")),
            (_, Some(_)) => Err(WebSocketError::Protocol("a message begins within another")),
            (kind, None) if last => Ok(Some(whole(kind, payload))),
            (kind, None) => {
                self.partial = Some((kind, payload.to_vec()));
                Ok(None)
            }
        }
    }

    /// Sends a frame. What a client sends is masked, so that nobody between takes it for something else.
    fn send(&mut self, opcode: Opcode, payload: &[u8]) -> Result<(), WebSocketError> {
        let mut frame = Vec::with_capacity(HEADER_BYTES_MAX + payload.len());
        frames::encode(opcode, payload, connect::random_bytes(), &mut frame);
        self.io.write_all(&frame)?;
        self.io.flush()?;
        Ok(())
    }
}

fn whole(kind: Opcode, bytes: Bytes) -> Message {
    if kind == Opcode::Text { Message::Text(bytes) } else { Message::Binary(bytes) }
}

#[cfg(test)]
mod tests;

//! HTTP/1.1 as a load generator speaks it: requests as bytes, answers parsed only as far as they are needed.

use anyhow::{Context as _, Result, bail, ensure};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Bytes that are received at once; a mebibyte of a catch-up read takes sixteen of them.
const BUFFER_BYTES: usize = 64 << 10;

/// What the head of an answer says.
#[derive(Debug, Clone, Copy, Default)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// `Stream-Next-Offset`, as the server writes it.
    pub next_offset: Option<Next>,
    /// Whether the read reached the stream's end.
    pub up_to_date: bool,
    length: Option<usize>,
    chunked: bool,
}

/// An offset, which is a server's own text.
#[derive(Debug, Clone, Copy)]
pub struct Next {
    text: [u8; 64],
    length: usize,
}

impl Next {
    fn of(value: &[u8]) -> Option<Self> {
        let mut text = [0; 64];
        text.get_mut(..value.len())?.copy_from_slice(value);
        Some(Self { text, length: value.len() })
    }

    /// Its text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.text[..self.length]).unwrap_or_default()
    }

    /// Its number, where it is one.
    pub fn number(&self) -> Option<u64> {
        self.text().parse().ok()
    }
}

/// One connection.
pub struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Wire {
    /// Connects without delay of small writes.
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0 })
    }

    /// A connection whose memory is small, for very many of them.
    pub async fn connect_small(address: SocketAddr) -> Result<Self> {
        let wire = Self::connect(address).await?;
        Ok(Self { buffer: vec![0; 2048], ..wire })
    }

    /// Sends a request.
    pub async fn send(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await?;
        Ok(())
    }

    /// Receives an answer; `sink` gets its body piece by piece.
    pub async fn receive(&mut self, mut sink: impl FnMut(&[u8])) -> Result<Head> {
        let head = self.head().await?;
        if head.chunked {
            loop {
                let size = self.chunk_size().await?;
                self.take(size, &mut sink).await?;
                self.take(2, &mut |_| ()).await?;
                if size == 0 {
                    break;
                }
            }
        } else if !matches!(head.status, 204 | 304) {
            self.take(head.length.unwrap_or(0), &mut sink).await?;
        }
        Ok(head)
    }

    /// Sends a request and receives its answer, which must be a success.
    pub async fn ask(&mut self, request: &[u8]) -> Result<Head> {
        self.send(request).await?;
        let mut body = Vec::new();
        let head = self.receive(|piece| body.extend_from_slice(&piece[..piece.len().min(300)])).await?;
        ensure!((200..300).contains(&head.status), "{}: {}", head.status, String::from_utf8_lossy(&body));
        Ok(head)
    }

    /// Receives the head of an answer whose body does not end.
    pub async fn head(&mut self) -> Result<Head> {
        loop {
            let received = &self.buffer[self.start..self.end];
            if let Some(length) = received.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = parse(&received[..length])?;
                self.start += length + 4;
                return Ok(head);
            }
            self.fill().await?;
        }
    }

    /// Receives whatever comes of a body that does not end.
    pub async fn some(&mut self) -> Result<&[u8]> {
        if self.start == self.end {
            self.fill().await?;
        }
        let piece = self.start..self.end;
        self.start = self.end;
        Ok(&self.buffer[piece])
    }

    async fn take(&mut self, mut length: usize, sink: &mut impl FnMut(&[u8])) -> Result<()> {
        while length > 0 {
            if self.start == self.end {
                self.fill().await?;
            }
            let piece = &self.buffer[self.start..self.end.min(self.start + length)];
            sink(piece);
            length -= piece.len();
            self.start += piece.len();
        }
        Ok(())
    }

    async fn chunk_size(&mut self) -> Result<usize> {
        loop {
            let received = &self.buffer[self.start..self.end];
            if let Some(length) = received.windows(2).position(|window| window == b"\r\n") {
                let digits = std::str::from_utf8(&received[..length])?.split(';').next().unwrap_or_default();
                let size = usize::from_str_radix(digits.trim(), 16).context("a chunk's size")?;
                self.start += length + 2;
                return Ok(size);
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let read = self.stream.read(&mut self.buffer[self.end..]).await?;
        if read == 0 {
            bail!("the server closed the connection");
        }
        self.end += read;
        Ok(())
    }
}

fn parse(head: &[u8]) -> Result<Head> {
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let status = lines.next().and_then(|line| line.get(9..12)).context("a status line")?;
    let mut parsed = Head { status: std::str::from_utf8(status)?.parse()?, ..Head::default() };
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let number = || std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
        if name.eq_ignore_ascii_case(b"content-length") {
            parsed.length = number();
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            parsed.chunked = value.eq_ignore_ascii_case(b"chunked");
        } else if name.eq_ignore_ascii_case(b"stream-next-offset") {
            parsed.next_offset = Next::of(value);
        } else if name.eq_ignore_ascii_case(b"stream-up-to-date") {
            parsed.up_to_date = true;
        }
    }
    Ok(parsed)
}

//! A subscriber's socket, from the first frame to its end.

use super::message::{Asked, Incoming};
use super::outgoing::Outgoing;
use crate::options::StreamOptions;
use bytes::Bytes;
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout_at};

/// Bytes that are read from a subscriber at once. It has nothing to say but pongs.
const READ_BYTES: usize = 1_024;

/// Codes with which a socket closes (RFC 6455, section 7.4.1).
const PROTOCOL: u16 = 1002;
const NORMAL: u16 = 1000;
/// The error frame before it says why.
pub const POLICY: u16 = 1008;

/// What comes next for a subscriber.
#[derive(Debug)]
pub enum Next {
    /// Frames, in order.
    Frames(Vec<Bytes>),
    /// Nothing more: a frame that says why, a code and a reason.
    End(Option<Bytes>, u16, &'static str),
    /// Nothing more from here, through no fault of the subscriber: it should dial again, and is not told that this was all.
    Break(&'static str),
}

/// Where a subscriber's frames come from.
pub trait Frames: Send + 'static {
    /// Waits for what comes next. Nothing is lost if the wait is given up.
    fn next(&mut self) -> impl Future<Output = Next> + Send;
}

/// Why a socket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The subscriber went, or its connection broke.
    Gone,
    /// It took nothing for too long.
    Stalled,
    /// It broke the protocol.
    Violation(&'static str),
    /// We closed it.
    Closed(&'static str),
}

/// Serves a subscriber to the end. `stop` resolves when the server stops, with the reason.
///
/// Then, and at [`Next::Break`], the connection breaks without a goodbye, since that is what brings every consumer back. `WebSocketKeepAlive` of npm's
/// `@atproto/ws-client` and `xrpc-server` dials again after an abnormal end alone, and takes a closing handshake for the end of the
/// stream, whatever its code. PyPI's `atproto` ends for good at 1000 and 1001, which its library takes for orderly ends, and raises
/// at an error frame. The relay (`HandleRepoStream` of indigo) dials again after each of them. Only 1012 would be left, and npm's
/// would not come back from it.
pub async fn serve<T, F>(
    io: T,
    mut frames: F,
    options: &StreamOptions,
    stop: impl Future<Output = &'static str>,
) -> Ended
where
    T: AsyncRead + AsyncWrite + Unpin,
    F: Frames,
{
    let (mut reader, mut writer) = tokio::io::split(io);
    let (mut incoming, mut outgoing) = (Incoming::default(), Outgoing::default());
    let mut asked = Vec::new();
    let mut buffer = [0; READ_BYTES];
    let ping = Duration::from_millis(options.ping_ms);
    let mut pings = interval_at(Instant::now() + ping, ping);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let patience = Duration::from_millis(options.write_idle_ms_max);
    // While there is something to take: since when the subscriber took none of it.
    let mut waiting: Option<Instant> = None;
    let mut unflushed = false;
    tokio::pin!(stop);
    let (last, code, reason) = loop {
        let waits = !outgoing.is_empty() || unflushed;
        waiting = waits.then(|| waiting.unwrap_or_else(Instant::now));
        let since = waiting.unwrap_or_else(Instant::now);
        tokio::select! {
            reason = &mut stop => return Ended::Closed(reason),
            read = reader.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return Ended::Gone,
                Ok(bytes) => {
                    if let Err(violation) = incoming.take(&buffer[..bytes], &mut asked) {
                        let last = (None, PROTOCOL, violation.0);
                        let _closed = end(&mut reader, &mut writer, (None, &mut outgoing), last, options).await;
                        return Ended::Violation(violation.0);
                    }
                    for asked in asked.drain(..) {
                        match asked {
                            Asked::Ping(payload) => outgoing.pong(&payload),
                            Asked::Close(_) => {
                                let last = (None, NORMAL, "");
                                let _closed = end(&mut reader, &mut writer, (None, &mut outgoing), last, options).await;
                                return Ended::Gone;
                            }
                        }
                    }
                }
            },
            wrote = write(&mut writer, &mut outgoing, &mut unflushed), if waits => match wrote {
                Ok(()) => waiting = None,
                Err(_) => return Ended::Gone,
            },
            next = frames.next(), if outgoing.wants_messages() => match next {
                Next::Frames(frames) => outgoing.messages(frames),
                Next::End(last, code, reason) => break (last, code, reason),
                Next::Break(reason) => return Ended::Closed(reason),
            },
            _ = pings.tick() => outgoing.ping(),
            () = sleep_until(since + patience), if waits => return Ended::Stalled,
        }
    };
    let last = (last, code, reason);
    let _closed = end(&mut reader, &mut writer, (Some(&mut incoming), &mut outgoing), last, options).await;
    Ended::Closed(reason)
}

/// Writes a piece, or what TLS holds back behind the last one. Nothing is lost if it is given up.
async fn write<T: AsyncWrite + Unpin>(writer: &mut T, outgoing: &mut Outgoing, unflushed: &mut bool) -> io::Result<()> {
    match outgoing.next() {
        Some(next) => {
            let bytes = writer.write(next).await?;
            if bytes == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            outgoing.wrote(bytes);
            *unflushed = true;
        }
        None => {
            writer.flush().await?;
            *unflushed = false;
        }
    }
    Ok(())
}

/// Sends the last messages, and waits until the client has closed as well, so that they are not lost with the connection. Who has
/// said goodbye already, or cannot, is not waited for: `incoming` is none then.
async fn end<R, W>(
    reader: &mut R,
    writer: &mut W,
    (mut incoming, outgoing): (Option<&mut Incoming>, &mut Outgoing),
    (last, code, reason): (Option<Bytes>, u16, &str),
    options: &StreamOptions,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    outgoing.close(last, code, reason);
    let closing = async {
        let (mut buffer, mut asked) = ([0; READ_BYTES], Vec::new());
        let mut unflushed = true;
        loop {
            let waits = !outgoing.is_empty() || unflushed;
            if !waits && incoming.is_none() {
                return writer.shutdown().await;
            }
            tokio::select! {
                wrote = write(writer, outgoing, &mut unflushed), if waits => wrote?,
                read = reader.read(&mut buffer) => {
                    let bytes = read?;
                    if bytes == 0 {
                        return Ok(());
                    }
                    let sound = incoming.as_mut().is_none_or(|incoming| incoming.take(&buffer[..bytes], &mut asked).is_ok());
                    if !sound || asked.drain(..).any(|asked| matches!(asked, Asked::Close(_))) {
                        incoming = None;
                    }
                }
            }
        }
    };
    let patience = Duration::from_millis(options.close_ms_max);
    timeout_at(Instant::now() + patience, closing).await?
}

//! A connection that ends when its peer stalls.
//!
//! Two stalls are beyond the reach of HTTP's own timeouts: a peer that opens a connection and never says whether it
//! speaks HTTP/1.1 or HTTP/2, and a reader who does not take its answer.

use crate::options::HttpOptions;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// How every HTTP/2 connection begins; until a connection departs from it, or completed it, the version is open.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection with bounds on its stalls.
pub(crate) struct Timed<T> {
    io: T,
    /// Bytes of the preface that came so far; `None` once the version is known.
    preface: Option<usize>,
    opening: Pin<Box<Sleep>>,
    pace: Pace,
    /// Runs while a write waits for the peer.
    writing: Option<Waiting>,
    held: Held,
}

/// What a connection holds until its last byte, whatever it became in between, and whether it became a socket.
#[derive(Clone)]
pub(crate) struct Held(Arc<HeldBy>);

struct HeldBy {
    socket: AtomicBool,
    _what: Box<dyn Send + Sync>,
}

impl Held {
    pub(crate) fn new(what: impl Send + Sync + 'static) -> Self {
        Self(Arc::new(HeldBy { socket: AtomicBool::new(false), _what: Box::new(what) }))
    }

    /// From now on messages go both ways, and the time of sockets holds.
    pub(crate) fn become_socket(&self) {
        self.0.socket.store(true, Ordering::Relaxed);
    }

    fn is_socket(&self) -> bool {
        self.0.socket.load(Ordering::Relaxed)
    }
}

/// A write that waits for the peer.
struct Waiting {
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

/// How slowly a reader may take what it asked for.
///
/// A reader may let us wait for `patience` in all, and earns some of it back with every byte that it takes. So one that
/// takes a byte now and then is cut like one that takes nothing, and one that takes them at the floor never is, however
/// long its answer. Time in which there is nothing to send does not count.
struct Pace {
    /// Without a single byte.
    idle: Duration,
    /// Without a single byte of a socket, whose reader owes nothing but that.
    socket_idle: Duration,
    patience: Duration,
    bytes_per_second_min: u64,
    /// What was waited and not earned back.
    waited: Duration,
}

impl Pace {
    fn new(options: &HttpOptions) -> Self {
        let idle = Duration::from_millis(options.write_idle_ms_max);
        let bytes_per_second_min = options.answer_bytes_per_second_min.max(1);
        let socket_idle = Duration::from_millis(options.socket_idle_ms_max);
        Self { idle, socket_idle, patience: idle, bytes_per_second_min, waited: Duration::ZERO }
    }

    /// How long the next write may wait.
    fn left(&self) -> Duration {
        self.idle.min(self.patience.saturating_sub(self.waited))
    }

    /// The peer took `bytes` after we had waited for `waited`.
    fn took(&mut self, bytes: usize, waited: Duration) {
        let earned_us = (bytes as u64).saturating_mul(1_000_000) / self.bytes_per_second_min;
        self.waited = (self.waited + waited).saturating_sub(Duration::from_micros(earned_us));
    }
}

impl<T> Timed<T> {
    /// Bounds `io`.
    pub(crate) fn new(io: T, options: &HttpOptions, held: Held) -> Self {
        Self {
            io,
            held,
            preface: Some(0),
            opening: Box::pin(tokio::time::sleep(Duration::from_millis(options.head_ms_max))),
            pace: Pace::new(options),
            writing: None,
        }
    }

    /// Follows the first bytes until they tell the version.
    fn observe(&mut self, bytes: &[u8]) {
        let Some(seen) = self.preface else { return };
        let expected = PREFACE.get(seen..).unwrap_or_default();
        let length = bytes.len().min(expected.len());
        let undecided = bytes[..length] == expected[..length] && length < expected.len();
        self.preface = undecided.then_some(seen + length);
    }

    /// Bounds a write: a peer that takes nothing, or too little, for too long is gone.
    fn bound<R>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<R>>,
        bytes: impl Fn(&R) -> usize,
    ) -> Poll<io::Result<R>> {
        if let Poll::Ready(result) = &written {
            let waited = self.writing.take().map_or(Duration::ZERO, |waiting| waiting.since.elapsed());
            if let (Ok(taken), true) = (result, !waited.is_zero() || !self.pace.waited.is_zero()) {
                self.pace.took(bytes(taken), waited);
            }
            return written;
        }
        let left = if self.held.is_socket() { self.pace.socket_idle } else { self.pace.left() };
        let waiting = self.writing.get_or_insert_with(|| {
            let since = Instant::now();
            Waiting { since, timer: Box::pin(tokio::time::sleep_until(since + left)) }
        });
        match waiting.timer.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Timed<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.io).poll_read(cx, buffer);
        if this.preface.is_some() {
            if read.is_ready() {
                this.observe(&buffer.filled()[before..]);
            } else if this.opening.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Timed<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(cx, bytes);
        this.bound(cx, written, |taken| *taken)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Below TLS a flush writes what an earlier write only encrypted.
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.io).poll_flush(cx);
        this.bound(cx, flushed, |()| 0)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.io).poll_shutdown(cx);
        this.bound(cx, shut, |()| 0)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write_vectored(cx, slices);
        this.bound(cx, written, |taken| *taken)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn timed<T>(io: T, head_ms_max: u64, write_idle_ms_max: u64) -> Timed<T> {
        let options = HttpOptions { head_ms_max, write_idle_ms_max, socket_idle_ms_max: 500, ..HttpOptions::default() };
        Timed::new(io, &options, Held::new(()))
    }

    /// A relay stops reading for a minute when it has more than it may take, and goes on where it stood.
    #[tokio::test]
    async fn a_socket_may_wait_longer_for_its_reader_and_not_for_ever() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let mut timed = timed(ours, 1_000, 20);
        timed.held.become_socket();
        let longer = tokio::time::timeout(Duration::from_millis(100), timed.write_all(&[0; 64])).await;
        assert!(longer.is_err(), "it waits as long as a socket may");
        let error = timed.write_all(&[0; 64]).await.expect_err("the peer takes nothing");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_version_is_known_when_the_first_bytes_depart_from_the_preface_or_complete_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let _inside = runtime.enter();
        for (pieces, open) in [
            (&[&b"G"[..]][..], false),
            (&[b"P"], true),
            (&[b"PO"], false),
            (&[b"P", b"RI * HTTP/2.0\r\n\r\n"], true),
            (&[b"PRI * HTTP/2.0\r\n\r\nSM", b"\r\n\r\n"], false),
            (&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore"], false),
        ] {
            let mut timed = timed((), 1, 1);
            pieces.iter().for_each(|piece| timed.observe(piece));
            assert_eq!(timed.preface.is_some(), open, "{pieces:?}");
        }
    }

    #[tokio::test]
    async fn a_reader_who_takes_nothing_is_cut() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let mut timed = timed(ours, 1_000, 20);
        let error = timed.write_all(&[0; 64]).await.expect_err("the peer takes nothing");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    /// One byte now and then used to keep a connection, and the answer behind it, for as long as its reader liked.
    #[test]
    fn a_reader_who_takes_a_byte_now_and_then_is_cut_and_one_at_the_floor_never() {
        let options =
            HttpOptions { write_idle_ms_max: 10_000, answer_bytes_per_second_min: 1_000, ..HttpOptions::default() };
        let mut trickle = Pace::new(&options);
        let cut = (1..100).find(|_| {
            trickle.took(1, Duration::from_secs(1));
            trickle.left() < Duration::from_secs(1)
        });
        assert_eq!(cut, Some(10), "after ten seconds of waiting in all");
        let mut floor = Pace::new(&options);
        for _ in 0..100_000 {
            floor.took(2_000, Duration::from_secs(2));
            assert_eq!(floor.left(), Duration::from_secs(10));
        }
    }

    #[tokio::test]
    async fn a_peer_that_never_says_what_it_speaks_is_cut() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        theirs.write_all(b"PRI").await.expect("there is room");
        let mut timed = timed(ours, 20, 1_000);
        let error = timed.read_exact(&mut [0; 4]).await.expect_err("the peer is silent");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

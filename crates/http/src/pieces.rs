//! The body of a long answer to a catch-up read: sent in pieces, the next one read while one is sent.
//!
//! Its head is written when the first piece is there, and says how long all of it is. What goes wrong behind that (the
//! stream is deleted, its bytes are damaged, there is no room) breaks the connection off in front of the stated length, and
//! the reader who comes again hears why. So an answer takes the memory of two pieces, however long it is.

use crate::router::App;
use crate::service::Service;
use bytes::Bytes;
use highwater_base::Offset;
use highwater_node::rooms::Asker;
use highwater_node::{ReadAnswer, ReadRequest, Unavailable};
use highwater_stream::ReadFrom;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use thiserror::Error;

/// Bytes of a piece: enough that handing its read to another thread and back is a small part of it, and few enough that
/// they are sent while they are in a processor's cache.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;

/// Times that a piece waits for room before its answer is cut. Whoever waits holds one piece at the most, and those who
/// take nothing are cut long before.
const ROOM_WAITS_MAX: u32 = 6;

/// Why an answer ended before its last byte.
#[derive(Debug, Error)]
pub(crate) enum Cut {
    #[error("the stream ended or was made again while it was read")]
    Gone,
    #[error("too many answers wait for their readers")]
    Room,
    #[error("the rest could not be read")]
    Unreadable,
}

type Piece = Result<Bytes, Cut>;

/// The pieces of an answer that are still to be sent.
pub(crate) struct Pieces<S> {
    app: App<S>,
    /// Reads what follows what was read.
    request: ReadRequest,
    /// Whose room the pieces take.
    asker: Asker,
    /// Where what was not asked for yet begins, and where the answer ends.
    at: Offset,
    end: Offset,
    /// Bytes that were not sent yet.
    left: u64,
    ready: Option<Bytes>,
    next: Option<Pin<Box<dyn Future<Output = Piece> + Send>>>,
}

impl<S: Service> Pieces<S> {
    /// What of an answer to `request` its body does not hold; none if it holds all.
    pub(crate) fn behind(app: &App<S>, request: ReadRequest, asker: Asker, answer: &ReadAnswer) -> Option<Self> {
        let (at, end) = (Offset(answer.start.0 + answer.body.len() as u64), answer.next);
        let json = highwater_node::json::is_json(&answer.content_type);
        if json || at >= end {
            return None;
        }
        let request = ReadRequest { incarnation: Some(answer.incarnation), leader: false, wait_ms: None, ..request };
        Some(Self { app: app.clone(), request, asker, at, end, left: end.since(at), ready: None, next: None })
    }

    /// The same behind the first piece.
    pub(crate) fn led_by(self, first: Bytes) -> Self {
        Self { left: self.left + first.len() as u64, ready: Some(first), ..self }
    }

    /// Reads the next piece.
    fn ask(&self) -> Pin<Box<dyn Future<Output = Piece> + Send>> {
        let length_max = self.end.since(self.at);
        let request = ReadRequest { from: ReadFrom::At(self.at), length_max, ..self.request.clone() };
        Box::pin(piece(self.app.clone(), request, self.asker))
    }

    /// Polls the read of the next piece, and begins it if there is one to read.
    fn read_on(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        if self.next.is_none() {
            if self.at >= self.end {
                return Poll::Ready(None);
            }
            self.next = Some(self.ask());
        }
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let piece = std::task::ready!(next.as_mut().poll(cx));
        self.next = None;
        if let Ok(bytes) = &piece {
            self.at.0 += bytes.len() as u64;
        }
        Poll::Ready(Some(piece))
    }
}

/// Reads a piece, with the room that it takes.
async fn piece<S: Service>(app: App<S>, request: ReadRequest, asker: Asker) -> Piece {
    let mut waits = 0;
    let answer = loop {
        match app.service.read_begun(request.clone(), PIECE_BYTES, asker).await {
            Err(Unavailable::ReadBytesExhausted) if waits < ROOM_WAITS_MAX => waits += 1,
            Err(Unavailable::ReadBytesExhausted) => return Err(Cut::Room),
            Err(why) => {
                tracing::warn!(path = request.path, %why, "an answer was cut");
                return Err(Cut::Unreadable);
            }
            Ok(Err(_)) => return Err(Cut::Gone),
            Ok(Ok(answer)) => break answer,
        }
    };
    if answer.body.is_empty() {
        return Err(Cut::Gone);
    }
    let bytes = if S::READS_HOLD_ROOM { 0 } else { answer.body.len() as u64 };
    let room = app.answers.wait(bytes, asker).await.ok_or(Cut::Room)?;
    Ok(room.around(answer.body))
}

// What it polls is boxed, and nothing else of it is ever pinned.
impl<S> Unpin for Pieces<S> {}

impl<S: Service> HttpBody for Pieces<S> {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let this = &mut *self;
        let piece = match this.ready.take() {
            Some(ready) => ready,
            None => match std::task::ready!(this.read_on(cx)) {
                None => return Poll::Ready(None),
                Some(Ok(piece)) => piece,
                Some(Err(cut)) => {
                    this.at = this.end;
                    return Poll::Ready(Some(Err(cut)));
                }
            },
        };
        // While this one is sent; what goes wrong with it is told in its turn.
        if let Poll::Ready(Some(next)) = this.read_on(cx) {
            match next {
                Ok(bytes) => this.ready = Some(bytes),
                Err(cut) => this.next = Some(Box::pin(std::future::ready(Err(cut)))),
            }
        }
        this.left = this.left.saturating_sub(piece.len() as u64);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

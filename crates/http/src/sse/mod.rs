//! GET with `live=sse`: one answer that goes on for about a minute.
//!
//! What is there is read by each reader on its own, one piece after the other as its connection takes them. At the end of
//! the stream it takes a seat at the stream's relay, and from then on sends what that encoded once for everybody. A slow
//! reader holds what its connection did not take, loses its place, and gets what it missed by reads of its own, in larger
//! pieces; a writer never waits for it. A reader costs no thread and no task of its own: its connection's task polls the
//! answer's body. When the connection goes, the body is dropped, and with it its seat.
//!
//! Source: PROTOCOL.md section 5.8; the stream contract, fan-out.

mod encode;
mod line;
mod relay;

pub(crate) use relay::Relays;

use crate::cursor;
use crate::error::Error;
use crate::names;
use crate::query::ReadQuery;
use crate::router::App;
use crate::service::Service;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use encode::{AROUND_BYTES, Encoder, Form, encode};
use highwater_base::Offset;
use highwater_node::rooms::{Asker, Room};
use highwater_node::{ReadAnswer, ReadRequest, Unavailable};
use highwater_stream::{ReadFrom, Refusal};
use hyper::body::{Body as HttpBody, Frame};
use line::Event;
use relay::{Heard, Reader, Seat};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Bytes of a stream in one data event, unless one JSON message is larger.
///
/// A piece of this size moves a long catch-up at full speed; a thousand readers that take nothing hold a gibibyte of
/// them at the worst, and less by the budget of answers.
const EVENT_BYTES_MAX: u64 = 1 << 20;

/// Milliseconds for which an answer goes on. Then its reader comes again, so that caches can collapse readers, and it
/// is authorised anew. Below the minute after which proxies give up a connection on which nothing moves.
const LIFE_MS: u64 = 54_000;

/// Milliseconds by which lives differ, so that readers who came together do not all come again together.
const LIFE_SPREAD_MS: u64 = 5_000;

/// `None`: the server stops, and the wait ends with it.
type Read = Option<Result<Result<ReadAnswer, Refusal>, Unavailable>>;

/// Answers a read with events. `request` asks for no wait.
///
/// # Errors
/// Those of the first read; what goes wrong later ends the answer, and its reader asks again and hears why.
pub(crate) async fn read<S: Service>(
    app: &App<S>,
    mut request: ReadRequest,
    query: &ReadQuery,
    asker: Asker,
) -> Result<Response, Error> {
    request.length_max = request.length_max.min(EVENT_BYTES_MAX);
    let reader = app.relays.enter(app.options.event_readers_max).ok_or(Unavailable::LiveReadsExhausted)?;
    let first = app.service.read_begun(request.clone(), u64::MAX, asker).await??;
    let form = Form::of(&first.content_type);
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // A proxy that collected events before it passed them on would turn a live read into a slow one.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(names::X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    crate::answer::set(&mut headers, names::STREAM_INCARNATION, first.incarnation);
    if form == Form::Base64 {
        headers.insert(names::STREAM_SSE_DATA_ENCODING, HeaderValue::from_static("base64"));
    }
    let (now_s, entropy) = (cursor::now_s(), cursor::entropy());
    let feed = Feed {
        app: app.clone(),
        _reader: reader,
        asker,
        encoder: Encoder::new(form),
        cursor: cursor::next(now_s, query.cursor, entropy),
        next: first.start,
        end: Instant::now() + Duration::from_millis(LIFE_MS + entropy % LIFE_SPREAD_MS),
        life: None,
        first: true,
        seat: None,
        step: Step::Encode(first),
        request,
    };
    Ok((headers, Body::new(feed)).into_response())
}

/// Bytes of room for the events of an answer.
fn room_bytes(answer: &ReadAnswer) -> u64 {
    // Base64 takes a third more; a text of many short lines takes more than this for a moment.
    answer.body.len() as u64 * 4 / 3 + AROUND_BYTES as u64
}

/// The body of one answer.
struct Feed<S> {
    app: App<S>,
    _reader: Reader,
    /// Whose room it takes.
    asker: Asker,
    request: ReadRequest,
    encoder: Encoder,
    /// The cursor of the last control event; it never goes back.
    cursor: u64,
    /// Where what was not sent yet begins.
    next: Offset,
    end: Instant,
    /// Wakes this answer at its end while it waits for others to wake it.
    life: Option<Pin<Box<Sleep>>>,
    /// No event was sent yet: even nothing at all is told once.
    first: bool,
    /// Where it waits at the end of its stream; kept while it reads on its own.
    seat: Option<Seat>,
    step: Step,
}

/// What the body does next.
enum Step {
    /// Make events of this.
    Encode(ReadAnswer),
    /// Wait for room for them: made before, they would be in memory already.
    Room(ReadAnswer, Pin<Box<dyn Future<Output = Option<Room>> + Send>>),
    /// Take what is encoded for everybody, or wait for it.
    Share,
    /// Send this behind what was sent, and go on.
    Follow(Bytes),
    /// Wait for a read of its own.
    Read(Pin<Box<dyn Future<Output = Read> + Send>>),
    /// Nothing more.
    End,
}

impl<S: Service> Feed<S> {
    /// Asks for room for the events of an answer.
    fn room(&self, answer: ReadAnswer) -> Step {
        let (answers, bytes) = (self.app.answers.clone(), room_bytes(&answer));
        let asker = self.asker;
        Step::Room(answer, Box::pin(async move { answers.wait(bytes, asker).await }))
    }

    /// The events of an answer, if there is something to tell.
    fn encode(&mut self, answer: &ReadAnswer) -> Option<Vec<u8>> {
        self.cursor = self.cursor.max(cursor::next(cursor::now_s(), None, 0));
        let (events, _) = encode(&mut self.encoder, answer, self.cursor, self.first)?;
        self.first = false;
        Some(events)
    }

    /// What was encoded for everybody, as this reader is told it, if there is something to tell.
    fn take(&mut self, event: &Event) -> Option<Bytes> {
        let Some(room) = self.app.shared.take_now(event.bytes.len() as u64, self.asker) else {
            // Whoever left so much untaken gets no more of what others need too: it reads on its own, and waits for room.
            self.seat = None;
            self.step = self.ask();
            return None;
        };
        self.next = event.next;
        self.encoder = event.after.clone();
        self.step = if event.closed { Step::End } else { Step::Share };
        if event.bytes.is_empty() {
            return None;
        }
        if self.cursor <= event.cursor || event.closed {
            self.cursor = self.cursor.max(event.cursor);
            return Some(room.around(event.bytes.clone()));
        }
        // It came with a cursor of the future, and must not get one of the present.
        let control = event.control(self.cursor);
        if event.data == 0 {
            return Some(control);
        }
        self.step = Step::Follow(control);
        Some(room.around(event.bytes.slice(..event.data)))
    }

    /// Goes on behind what was read: at the end with everybody, below it and with pieces of another size alone.
    fn on(&self, answer: &ReadAnswer) -> Step {
        match answer.closed {
            true => Step::End,
            false if answer.up_to_date && self.request.length_max == EVENT_BYTES_MAX => Step::Share,
            false => self.ask(),
        }
    }

    /// A read of its own: at the tail it waits for as long as this answer goes on.
    fn ask(&self) -> Step {
        let left = self.end.saturating_duration_since(Instant::now());
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        if left_ms == 0 {
            return Step::End;
        }
        let request = ReadRequest { from: ReadFrom::At(self.next), wait_ms: Some(left_ms), ..self.request.clone() };
        let (service, closing, asker) = (self.app.service.clone(), self.app.closing.clone(), self.asker);
        Step::Read(Box::pin(async move {
            tokio::select! {
                read = service.read_begun(request, u64::MAX, asker) => Some(read),
                () = closing.wait() => None,
            }
        }))
    }

    /// Waits for what comes to everybody.
    fn share(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arc<Event>>> {
        // Also where something is always there to be taken.
        if Instant::now() >= self.end {
            self.step = Step::End;
            return Poll::Ready(None);
        }
        if self.seat.is_none() {
            self.seat = Relays::sit(&self.app, &self.request, self.next, &self.encoder);
        }
        let heard =
            self.seat.as_mut().map_or(Poll::Ready(Heard::Ended), |seat| seat.poll(self.next, &self.encoder, cx));
        self.step = match heard {
            Poll::Ready(Heard::Event(event)) => return Poll::Ready(Some(event)),
            Poll::Ready(Heard::Apart) => self.ask(),
            // The reader comes again and hears why.
            Poll::Ready(Heard::Ended) => Step::End,
            Poll::Pending => {
                let end = self.end;
                let life = self.life.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
                if life.as_mut().poll(cx).is_pending() {
                    self.step = Step::Share;
                    return Poll::Pending;
                }
                Step::End
            }
        };
        Poll::Ready(None)
    }
}

// What it polls is boxed, and nothing else of it is ever pinned.
impl<S> Unpin for Feed<S> {}

impl<S: Service> HttpBody for Feed<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        loop {
            this.step = match std::mem::replace(&mut this.step, Step::End) {
                Step::Encode(answer) => this.room(answer),
                Step::Room(answer, mut room) => match room.as_mut().poll(cx) {
                    Poll::Pending => {
                        this.step = Step::Room(answer, room);
                        return Poll::Pending;
                    }
                    // As many bytes wait for slow readers as may: this one comes again, as after its minute.
                    Poll::Ready(None) => Step::End,
                    Poll::Ready(Some(held)) => {
                        // What follows goes on where this answer ended, in the same history.
                        this.next = answer.next;
                        this.request.incarnation = Some(answer.incarnation);
                        this.step = this.on(&answer);
                        match this.encode(&answer) {
                            Some(events) => {
                                return Poll::Ready(Some(Ok(Frame::data(held.around(events.into())))));
                            }
                            None => continue,
                        }
                    }
                },
                Step::Share => match this.share(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(event) => match event.and_then(|event| this.take(&event)) {
                        Some(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                        None => continue,
                    },
                },
                Step::Follow(bytes) => {
                    this.step = Step::Share;
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Step::Read(mut read) => match read.as_mut().poll(cx) {
                    Poll::Pending => {
                        this.step = Step::Read(read);
                        return Poll::Pending;
                    }
                    Poll::Ready(Some(Ok(Ok(answer)))) => Step::Encode(answer),
                    // The reader comes again and hears why.
                    Poll::Ready(_) => Step::End,
                },
                Step::End => return Poll::Ready(None),
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.step, Step::End)
    }
}

impl<S> std::fmt::Debug for Feed<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("request", &self.request).finish_non_exhaustive()
    }
}

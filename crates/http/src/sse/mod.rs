//! GET with `live=sse`: one answer that goes on for about a minute, fed by one read after the other.
//!
//! A reader costs no thread, no task of its own and no timer: its connection's task polls the answer's body, which asks
//! the node for the next piece only when the connection took the last one. So a slow reader holds one piece, and what it
//! missed it gets later by catch-up reads; a writer never waits for it. When the connection goes, the body is dropped,
//! and with it the read that waits at the node.
//!
//! Source: PROTOCOL.md section 5.8.

mod encode;

pub(crate) use encode::{Encoder, Form, control};

use crate::body::{Held, Roomed};
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
use highwater_node::{ReadAnswer, ReadRequest, Unavailable};
use highwater_stream::{ReadFrom, Refusal};
use hyper::body::{Body as HttpBody, Frame};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Bytes of a stream in one data event, unless one JSON message is larger.
///
/// A piece of this size moves a long catch-up at full speed; a thousand readers that take nothing hold a gibibyte of
/// them at the worst, and less by the budget of answers.
const EVENT_BYTES_MAX: u64 = 1 << 20;

/// Bytes of a control event, and of what stands around data.
const CONTROL_BYTES: u64 = 256;

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
) -> Result<Response, Error> {
    request.length_max = request.length_max.min(EVENT_BYTES_MAX);
    let first = app.service.read(request.clone()).await??;
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
        encoder: Encoder::new(form),
        cursor: cursor::next(now_s, query.cursor, entropy),
        end: Instant::now() + Duration::from_millis(LIFE_MS + entropy % LIFE_SPREAD_MS),
        first: true,
        step: Step::Encode(first),
        request,
    };
    Ok((headers, Body::new(feed)).into_response())
}

/// The body of one answer.
struct Feed<S> {
    app: App<S>,
    request: ReadRequest,
    encoder: Encoder,
    /// The cursor of the last control event; it never goes back.
    cursor: u64,
    end: Instant,
    /// No event was sent yet: even nothing at all is told once.
    first: bool,
    step: Step,
}

/// What the body does next.
enum Step {
    /// Make events of this.
    Encode(ReadAnswer),
    /// Wait for room for them: made before, they would be in memory already.
    Room(ReadAnswer, Pin<Box<dyn Future<Output = Option<Held>> + Send>>),
    /// Ask for more.
    Ask,
    /// Wait for it.
    Read(Pin<Box<dyn Future<Output = Read> + Send>>),
    /// Nothing more.
    End,
}

impl<S: Service> Feed<S> {
    /// Asks for room for the events of an answer.
    fn room(&self, answer: ReadAnswer) -> Step {
        // Base64 takes a third more; a text of many short lines takes more than this for a moment.
        let bytes = answer.body.len() as u64 * 4 / 3 + CONTROL_BYTES;
        let (answers, wait_ms) = (self.app.answers.clone(), self.app.options.answer_room_wait_ms_max);
        Step::Room(answer, Box::pin(async move { answers.wait(bytes, wait_ms).await }))
    }

    /// The events of an answer, if there is something to tell.
    fn encode(&mut self, answer: &ReadAnswer) -> Option<Vec<u8>> {
        let mut events = Vec::new();
        self.encoder.data(&answer.body, answer.closed, &mut events);
        // A wait that ended with nothing is not told; neither is half a character.
        if events.is_empty() && !self.first && !answer.closed {
            return None;
        }
        self.first = false;
        self.cursor = self.cursor.max(cursor::next(cursor::now_s(), None, 0));
        let shown = highwater_base::Offset(answer.next.0.saturating_sub(self.encoder.held()));
        control(shown, (!answer.closed).then_some(self.cursor), answer.up_to_date, answer.closed, &mut events);
        Some(events)
    }

    /// The next read: at the tail it waits for as long as this answer goes on.
    fn ask(&mut self) -> Step {
        let left = self.end.saturating_duration_since(Instant::now());
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        if left_ms == 0 {
            return Step::End;
        }
        let request = ReadRequest { wait_ms: Some(left_ms), ..self.request.clone() };
        let (service, closing) = (self.app.service.clone(), self.app.closing.clone());
        Step::Read(Box::pin(async move {
            tokio::select! {
                read = service.read(request) => Some(read),
                () = closing.wait() => None,
            }
        }))
    }

    /// What follows goes on where this answer ended, in the same history.
    fn note(&mut self, answer: &ReadAnswer) {
        self.request.from = ReadFrom::At(answer.next);
        self.request.incarnation = Some(answer.incarnation);
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
                Step::Encode(answer) => {
                    this.note(&answer);
                    this.room(answer)
                }
                Step::Room(answer, mut room) => match room.as_mut().poll(cx) {
                    Poll::Pending => {
                        this.step = Step::Room(answer, room);
                        return Poll::Pending;
                    }
                    // As many bytes wait for slow readers as may: this one comes again, as after its minute.
                    Poll::Ready(None) => Step::End,
                    Poll::Ready(Some(held)) => {
                        this.step = if answer.closed { Step::End } else { Step::Ask };
                        match this.encode(&answer) {
                            Some(events) => {
                                return Poll::Ready(Some(Ok(Frame::data(Roomed::bytes(events.into(), held)))));
                            }
                            None => continue,
                        }
                    }
                },
                Step::Ask => this.ask(),
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

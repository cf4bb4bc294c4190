//! What happens to a body that nobody read.
//!
//! A client that sends its whole body before it reads the answer would see a reset if the connection closed with
//! bytes of it unread, and a reset reads as an unknown outcome. So what is left of a refused request's body is read
//! away after its answer was handed over: within bounds, and then the connection closes, or over HTTP/2 the stream is
//! reset. There a reset without an error is allowed behind the whole answer, and clients lose the answer by it all the
//! same; one behind a body that has come to its end is never sent.
//!
//! Source: the stream contract, order of evaluation.

use crate::fields;
use crate::options::HttpOptions;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Where a request's body goes when its handler drops it unread.
type Slot = Arc<Mutex<Option<Body>>>;

/// Wraps a request so that its body survives the handler, and gives the place where it will then be.
pub(crate) fn watch(request: Request) -> (Request, Option<Leftover>) {
    if request.body().is_end_stream() {
        return (request, None);
    }
    let slot = Slot::default();
    let expected = request.version() <= Version::HTTP_11 && fields::expects_continue(request.headers());
    let leftover = Leftover { slot: slot.clone(), expected };
    let (head, body) = request.into_parts();
    (Request::from_parts(head, Body::new(Watched { body: Some(body), slot })), Some(leftover))
}

/// The body of a request, if its handler left it.
pub(crate) struct Leftover {
    slot: Slot,
    /// The client of HTTP/1.1 waits for `100 Continue`, and now may never send the body.
    expected: bool,
}

impl Leftover {
    /// Lets what is left of the body be read away once `response` is sent.
    pub(crate) fn follow(self, response: Response, options: &HttpOptions) -> Response {
        let left = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(left) = left.filter(|body| !body.is_end_stream()) else { return response };
        let drain = Drain {
            // A body a little over the limit is the usual case of a 413, and must not end in a reset either.
            bytes_max: options.request_bytes_max.saturating_mul(2),
            total: Duration::from_millis(options.drain_ms_max),
            idle: Duration::from_millis(options.drain_idle_ms_max),
        };
        let (mut head, body) = response.into_parts();
        if self.expected {
            // Whether the body still comes is the client's choice, so the next bytes could be either: start afresh.
            head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        Response::from_parts(head, Body::new(Followed { body, left: Some((left, drain)) }))
    }
}

/// A request's body that, dropped before its end, moves to its slot.
struct Watched {
    body: Option<Body>,
    slot: Slot,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        if let Poll::Ready(None | Some(Err(_))) = frame {
            // Nothing is left to drain, whatever the decoder thinks of its state.
            self.body = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = self.body.take();
    }
}

/// Bounds of one drain.
#[derive(Debug, Clone, Copy)]
struct Drain {
    bytes_max: u64,
    total: Duration,
    idle: Duration,
}

impl Drain {
    /// Reads `body` away; dropping it early closes the connection, or resets the stream.
    async fn run(self, mut body: Body) {
        let end = Instant::now() + self.total;
        let mut bytes = 0;
        while let Ok(Some(Ok(frame))) = timeout_at(end.min(Instant::now() + self.idle), body.frame()).await {
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            if bytes > self.bytes_max {
                break;
            }
        }
    }
}

/// An answer's body; when it is dropped, its head and all of it are with the connection, and draining begins.
struct Followed {
    body: Body,
    left: Option<(Body, Drain)>,
}

impl HttpBody for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        if let (Some((left, drain)), Ok(runtime)) = (self.left.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(drain.run(left));
        }
    }
}

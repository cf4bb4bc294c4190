//! Long answers end when their key does.
//!
//! A read that waits, an answer that goes on as events, and a long body that its reader takes slowly outlast the moment in
//! which their key was judged. They end within a second of the acknowledgement of a revocation, because that wakes them,
//! and of the moment at which a key expires by the server's wall clock. Events end between two of them; a body of a stated
//! length breaks off, so that nobody takes what came for the whole.
//!
//! Source: report S15 of the stream contract.

use super::Authority;
use crate::error::Error;
use crate::router::App;
use crate::service::Service;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Does a live read for as long as its authority lasts.
/// # Errors
/// Its own, or why it is refused from now on.
pub(crate) async fn guarded<S: Service>(
    app: &App<S>,
    authority: &Authority,
    read: impl Future<Output = Result<Response, Error>>,
) -> Result<Response, Error> {
    let response = tokio::select! {
        response = read => response?,
        refused = ended(app.clone(), authority.clone()) => return Err(refused),
    };
    Ok(until(app, authority, response))
}

/// Bytes of a body that are given to the connection at once: what it has, no revocation takes back.
const SLICE_BYTES: usize = 256 << 10;

/// Lets an answer go on for as long as its authority lasts. A short one is over before anybody could revoke it.
pub(crate) fn until<S: Service>(app: &App<S>, authority: &Authority, response: Response) -> Response {
    let body = response.body();
    if body.is_end_stream() || body.size_hint().exact().is_some_and(|bytes| bytes <= SLICE_BYTES as u64) {
        return response;
    }
    let ended = Box::pin(ended(app.clone(), authority.clone()));
    response.map(|body| Body::new(Until { body, slices: Bytes::new(), ended }))
}

/// Waits until an authority is one no more.
async fn ended<S: Service>(app: App<S>, authority: Authority) -> Error {
    let mut view = app.service.control_view();
    loop {
        let at = app.service.wall();
        let current = view.borrow_and_update().clone();
        let Some(current) = current else { return std::future::pending().await };
        if let Err(refused) = authority.recheck(&current, at) {
            return refused;
        }
        let key = authority.key_id().and_then(|id| current.key(id));
        let expiry = async {
            match key.and_then(|key| key.expires) {
                // At most a minute at a time, because the wall clock may be set meanwhile.
                Some(expires) => tokio::time::sleep(Duration::from_millis(expires.since(at).clamp(1, 60_000))).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = expiry => {}
            changed = view.changed() => if changed.is_err() {
                // The node is gone, and ends its readers itself.
                return std::future::pending().await;
            },
        }
    }
}

/// An answer's body that ends with the authority behind it.
pub(crate) struct Until {
    body: Body,
    /// What is left of its last frame.
    slices: Bytes,
    ended: Pin<Box<dyn Future<Output = Error> + Send>>,
}

/// Why a body of a stated length broke off.
#[derive(Debug, thiserror::Error)]
#[error("the key of this answer was revoked or has expired")]
struct Over;

impl HttpBody for Until {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ended.as_mut().poll(cx).is_ready() {
            let stated = self.size_hint().exact();
            // Nothing more is asked of either.
            self.body = Body::empty();
            self.slices = Bytes::new();
            self.ended = Box::pin(std::future::pending());
            return Poll::Ready(stated.filter(|left| *left > 0).map(|_| Err(axum::Error::new(Over))));
        }
        if self.slices.is_empty() {
            let frame = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                other => return other,
            };
            match frame.into_data() {
                Ok(data) => self.slices = data,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
        let length = self.slices.len().min(SLICE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.slices.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.slices.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, more) = (self.body.size_hint(), self.slices.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + more);
        }
        hint.set_lower(hint.lower() + more);
        hint
    }
}

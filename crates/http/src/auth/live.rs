//! Live reads end when their key does.
//!
//! A read that waits, and an answer that goes on as events, outlast the moment in which their key was judged. They end
//! within a second of the acknowledgement of a revocation, because that wakes them, and of the moment at which a key
//! expires by the server's wall clock.
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
    if response.body().is_end_stream() || response.body().size_hint().exact().is_some() {
        return Ok(response);
    }
    let ended = Box::pin(ended(app.clone(), authority.clone()));
    Ok(response.map(|body| Body::new(Until { body, ended })))
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
    ended: Pin<Box<dyn Future<Output = Error> + Send>>,
}

impl HttpBody for Until {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ended.as_mut().poll(cx).is_ready() {
            // Nothing more is asked of either.
            self.body = Body::empty();
            self.ended = Box::pin(std::future::pending());
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

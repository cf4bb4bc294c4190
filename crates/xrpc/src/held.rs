//! Large answers, which take room from others until their readers have them.

use crate::call::Call;
use crate::error::Result;
use crate::shares::Share;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Bytes of an answer that nobody counts, and of a piece in which a larger one is handed over: what was handed over waits in the
/// buffers of a connection, which are bounded.
const PIECE_BYTES: usize = 64 << 10;

/// An answer of these bytes, which are in memory. A large one is part of what whoever asks may hold until it is taken.
/// # Errors
/// `RateLimitExceeded`, `NotEnoughResources`.
pub(crate) fn answer(call: &Call, media_type: HeaderValue, bytes: impl Into<Bytes>) -> Result {
    let rest: Bytes = bytes.into();
    let body = if rest.len() <= PIECE_BYTES {
        Body::from(rest)
    } else {
        let share = call.context.answers.take(call.party(), rest.len().div_ceil(1 << 10))?;
        Body::new(Held { rest, _share: share })
    };
    let response: Response = ([(header::CONTENT_TYPE, media_type)], body).into_response();
    Ok(response)
}

/// What of an answer was not handed over yet.
struct Held {
    rest: Bytes,
    _share: Share,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let end = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(end)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

//! Answers that are read from the disk while they are sent.

use crate::call;
use axum::body::Body;
use bytes::Bytes;
use hyper::body::Frame;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Pieces that wait for their reader.
const AHEAD: usize = 1;

/// What is read piece by piece, on a thread that may wait for the disk.
pub(crate) trait Source: Send + 'static {
    /// Why it breaks off.
    type Error: Error + Send + Sync + 'static;

    /// The next piece; none at its end.
    fn piece(&mut self) -> Result<Option<Bytes>, Self::Error>;
}

/// A body that is read one piece ahead of whoever takes it. What goes wrong breaks it off, so that nobody takes a part for the
/// whole.
pub(crate) fn body<S: Source>(mut source: S, what: &'static str) -> Body {
    let (send, pieces) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        loop {
            // Room first, so that nothing is read for a reader who has gone.
            let Ok(room) = send.reserve().await else { return };
            let read = call::blocking(move || {
                let piece = source.piece();
                (source, piece)
            });
            let Ok((rest, piece)) = read.await else { return room.send(None) };
            source = rest;
            match piece {
                Ok(Some(piece)) => room.send(Some(Ok(piece))),
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(event = "answer_broke_off", what, %error, "an answer could not be read to its end");
                    return room.send(Some(Err(error)));
                }
            }
        }
    });
    Body::new(Pieces::<S::Error>(pieces))
}

/// Pieces as they come; none of them is nothing, after a thread failed.
struct Pieces<E>(mpsc::Receiver<Option<Result<Bytes, E>>>);

/// Why a body breaks off.
#[derive(Debug, thiserror::Error)]
enum Broken<E> {
    #[error(transparent)]
    Source(E),
    #[error("a thread failed")]
    Thread,
}

impl<E: Error + Send + Sync + 'static> hyper::body::Body for Pieces<E> {
    type Data = Bytes;
    type Error = Broken<E>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|piece| piece.ok_or(Broken::Thread)?.map(Frame::data).map_err(Broken::Source)))
    }
}

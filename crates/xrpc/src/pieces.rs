//! Answers that are read from the disk while they are sent.

use crate::call;
use axum::body::Body;
use bytes::Bytes;
use hyper::body::Frame;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Pieces that wait for their reader.
const AHEAD: usize = 1;
/// How long a reader may leave the next piece, of 256 KiB at the most, lying: it is as slow as a connection may be.
const PIECE_LONGEST: Duration = Duration::from_secs(30);

/// What is read piece by piece, on a thread that may wait for the disk.
pub(crate) trait Source: Send + 'static {
    /// Why it breaks off.
    type Error: Error + Send + Sync + Unpin + 'static;

    /// The next piece; none at its end.
    fn piece(&mut self) -> Result<Option<Bytes>, Self::Error>;
}

/// A body that is read one piece ahead of whoever takes it. What goes wrong breaks it off, so that nobody takes a part for the
/// whole; so does a reader who does not take a piece for too long, because what is read for it holds a place that others wait for.
pub(crate) fn body<S: Source>(source: S, what: &'static str) -> Body {
    let (send, pieces) = mpsc::channel(AHEAD);
    tokio::spawn(read(source, what, send));
    Body::new(Pieces::<S::Error> { pieces, ended: false })
}

async fn read<S: Source>(mut source: S, what: &'static str, send: mpsc::Sender<Piece<S::Error>>) {
    loop {
        // Room first, so that nothing is read for a reader who has gone.
        let Ok(room) = timeout(PIECE_LONGEST, send.reserve()).await else {
            tracing::warn!(
                event = "answer_cut",
                what,
                "an answer was broken off: its reader took nothing for too long"
            );
            return;
        };
        let Ok(room) = room else { return };
        let read = call::blocking(move || {
            let piece = source.piece();
            (source, piece)
        });
        let Ok((rest, piece)) = read.await else { return };
        source = rest;
        match piece {
            Ok(Some(piece)) => room.send(Piece::Bytes(piece)),
            Ok(None) => return room.send(Piece::End),
            Err(error) => {
                tracing::error!(event = "answer_broke_off", what, %error, "an answer could not be read to its end");
                return room.send(Piece::Broken(error));
            }
        }
    }
}

enum Piece<E> {
    Bytes(Bytes),
    Broken(E),
    End,
}

/// Pieces as they come.
struct Pieces<E> {
    pieces: mpsc::Receiver<Piece<E>>,
    ended: bool,
}

/// Why a body breaks off.
#[derive(Debug, thiserror::Error)]
enum Broken<E> {
    #[error(transparent)]
    Source(E),
    #[error("it was given up before its end")]
    GivenUp,
}

impl<E: Error + Send + Sync + Unpin + 'static> hyper::body::Body for Pieces<E> {
    type Data = Bytes;
    type Error = Broken<E>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let piece = ready!(self.pieces.poll_recv(context));
        self.ended = !matches!(piece, Some(Piece::Bytes(_)));
        Poll::Ready(match piece {
            Some(Piece::Bytes(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Piece::Broken(error)) => Some(Err(Broken::Source(error))),
            Some(Piece::End) => None,
            None => Some(Err(Broken::GivenUp)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::convert::Infallible;

    /// So many pieces, which says when it is dropped.
    struct Counted(usize, Option<tokio::sync::oneshot::Sender<()>>);

    impl Source for Counted {
        type Error = Infallible;

        fn piece(&mut self) -> Result<Option<Bytes>, Infallible> {
            let left = self.0.checked_sub(1);
            self.0 = left.unwrap_or_default();
            Ok(left.map(|_| Bytes::from_static(b"piece")))
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            let _told = self.1.take().map(|told| told.send(()));
        }
    }

    /// Over HTTP/2 a reader can ask for a repository and let no byte of it come, for ever.
    #[tokio::test(start_paused = true)]
    async fn a_reader_who_takes_nothing_gives_its_place_back_and_does_not_take_a_part_for_the_whole() {
        let (told, gone) = tokio::sync::oneshot::channel();
        let begun = tokio::time::Instant::now();
        let mut body = body(Counted(5, Some(told)), "a test");
        gone.await.expect("it is dropped although nobody reads");
        assert_eq!(begun.elapsed(), PIECE_LONGEST);
        let first = body.frame().await.expect("what was at hand").expect("a piece");
        assert_eq!(first.into_data().expect("bytes"), Bytes::from_static(b"piece"));
        body.frame().await.expect("more than an end").expect_err("it is not whole");
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn whoever_reads_on_has_all_of_it() {
        let whole = body(Counted(5, None), "a test").collect().await.expect("whole").to_bytes();
        assert_eq!(whole, b"piece".repeat(5));
    }
}

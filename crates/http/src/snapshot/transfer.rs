//! The body of a snapshot's answer: read in pieces, as fast as its reader takes them.

use crate::router::App;
use crate::service::Service;
use bytes::Bytes;
use highwater_node::rooms::Asker;
use highwater_stream::{SnapshotPart, SnapshotScope};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};
use thiserror::Error;

/// Bytes of one piece. Large enough for the disk's full speed; a slow reader holds one.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// Why an answer ended before its last byte. Its reader sees the connection break, and asks again.
#[derive(Debug, Error)]
pub(crate) enum Cut {
    #[error("another snapshot took the place of this one")]
    Replaced,
    #[error("too many answers wait for their readers")]
    Room,
    #[error("the snapshot could not be read")]
    Unreadable,
}

type Piece = Result<Bytes, Cut>;

/// Bytes of a snapshot on their way.
pub(crate) struct Transfer<S> {
    app: App<S>,
    /// Whose room the pieces take.
    asker: Asker,
    path: String,
    /// The parts that hold what is still to be sent, the last one first, each with the bytes that are.
    parts: Vec<(u64, Range<u64>)>,
    left: u64,
    next: Option<Pin<Box<dyn Future<Output = Piece> + Send>>>,
}

/// The bytes `range` of a snapshot, as parts of it and the bytes of each.
fn parts_of(parts: &[SnapshotPart], range: &Range<u64>) -> Vec<(u64, Range<u64>)> {
    let mut start = 0;
    let mut found = Vec::new();
    for part in parts {
        let end = start + part.length;
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            found.push((part.object, from - start..to - start));
        }
        start = end;
    }
    found.reverse();
    found
}

impl<S: Service> Transfer<S> {
    /// Sends the bytes `range` of a snapshot.
    pub(crate) fn new(app: &App<S>, asker: Asker, path: String, scope: &SnapshotScope, range: &Range<u64>) -> Self {
        let parts = parts_of(&scope.parts, range);
        Self { app: app.clone(), asker, path, parts, left: range.end - range.start, next: None }
    }

    /// The next piece's future.
    fn ask(&self, object: u64, range: Range<u64>) -> Pin<Box<dyn Future<Output = Piece> + Send>> {
        let (app, path, asker) = (self.app.clone(), self.path.clone(), self.asker);
        Box::pin(async move {
            let bytes = range.end - range.start;
            let room = app.answers.wait(bytes, asker).await.ok_or(Cut::Room)?;
            match app.service.read_part(&path, object, range).await {
                Ok(Some(bytes)) if !bytes.is_empty() => Ok(room.around(bytes)),
                Ok(_) => Err(Cut::Replaced),
                Err(why) => {
                    tracing::warn!(path, %why, "a snapshot's answer was cut");
                    Err(Cut::Unreadable)
                }
            }
        })
    }

    fn took(&mut self, bytes: u64) {
        self.left -= bytes;
        if let Some((_, range)) = self.parts.last_mut() {
            range.start += bytes;
            if range.is_empty() {
                self.parts.pop();
            }
        }
    }
}

// What it polls is boxed, and nothing else of it is ever pinned.
impl<S> Unpin for Transfer<S> {}

impl<S: Service> HttpBody for Transfer<S> {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let this = &mut *self;
        let mut next = match (this.next.take(), this.parts.last()) {
            (Some(next), _) => next,
            (None, None) => return Poll::Ready(None),
            (None, Some((object, range))) => {
                let piece = range.start..range.end.min(range.start + PIECE_BYTES_MAX);
                this.ask(*object, piece)
            }
        };
        match next.as_mut().poll(cx) {
            Poll::Pending => {
                this.next = Some(next);
                Poll::Pending
            }
            Poll::Ready(Ok(bytes)) => {
                this.took(bytes.len() as u64);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Poll::Ready(Err(cut)) => {
                this.parts.clear();
                Poll::Ready(Some(Err(cut)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none() && self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_along_the_parts() {
        let parts = [(1, 10), (2, 0), (3, 5)].map(|(object, length)| SnapshotPart { object, length });
        for (range, expected) in [
            (0..15, vec![(3, 0..5), (1, 0..10)]),
            (0..10, vec![(1, 0..10)]),
            (9..11, vec![(3, 0..1), (1, 9..10)]),
            (10..15, vec![(3, 0..5)]),
            (14..15, vec![(3, 4..5)]),
            (3..3, vec![]),
        ] {
            assert_eq!(parts_of(&parts, &range), expected, "{range:?}");
        }
    }
}

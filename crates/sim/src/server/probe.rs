//! The oracle's own questions, asked without the network and answered at once.

use super::Server;
use bytes::Bytes;
use highwater_base::{Incarnation, Offset};
use highwater_node::shard::{Answer, Input, SnapshotAnswer, SnapshotQuestion};
use highwater_node::{ReadAnswer, ReadRequest};
use highwater_store::ReadError;
use highwater_stream::{Head, ReadFrom, Refusal};

/// The token of these questions.
const PROBE: u64 = u64::MAX;

/// Times that bytes are fetched anew: a fault of the disk that was meant for somebody else is over with the first.
const ATTEMPTS_MAX: u32 = 4;

impl Server {
    /// What the server says of a stream now, without the network; nothing if it cannot tell.
    pub fn probe_head(&mut self, path: &str, now_ms: u64) -> Option<Result<Head, Refusal>> {
        let at = self.wall(now_ms);
        match self.probe(Input::Head { token: PROBE, path: path.to_owned(), at })? {
            Answer::Head(Ok(answer)) => Some(answer),
            _ => None,
        }
    }

    /// The bytes of a stream from an offset on, without the network; nothing if it cannot tell.
    pub fn probe_read(
        &mut self,
        path: &str,
        incarnation: Incarnation,
        from: Offset,
    ) -> Option<Result<ReadAnswer, ReadError>> {
        let request = ReadRequest {
            path: path.to_owned(),
            incarnation: Some(incarnation),
            from: ReadFrom::At(from),
            length_max: u64::MAX,
            leader: false,
            wait_ms: None,
        };
        let mut attempts = 0;
        loop {
            let located = match self.probe(Input::Read { token: PROBE, request: request.clone() })? {
                Answer::Read(Ok(Ok(located))) => located,
                _ => return None,
            };
            let fetched = self.node.as_ref()?.fetch(located);
            attempts += 1;
            if !passes(&fetched) || attempts == ATTEMPTS_MAX {
                return Some(fetched);
            }
        }
    }

    /// What the server says to a question about a snapshot, without the network; nothing if it cannot tell.
    pub fn probe_snapshot(&mut self, question: SnapshotQuestion) -> Option<Result<SnapshotAnswer, Refusal>> {
        match self.probe(Input::Snapshot { token: PROBE, question })? {
            Answer::Snapshot(Ok(answer)) => Some(answer),
            _ => None,
        }
    }

    /// The `length` bytes of a part of a snapshot, without the network; nothing if the server cannot tell, no bytes if
    /// the part is gone.
    pub fn probe_object(&mut self, path: &str, object: u64, length: u64) -> Option<Result<Option<Bytes>, ReadError>> {
        let mut attempts = 0;
        loop {
            let input = Input::Locate { token: PROBE, path: path.to_owned(), object, range: 0..length };
            let Answer::Located(Ok(located)) = self.probe(input)? else { return None };
            if located.plan.is_empty() {
                return Some(Ok(None));
            }
            let fetched = self.node.as_ref()?.fetch_object(&located);
            attempts += 1;
            if !passes(&fetched) || attempts == ATTEMPTS_MAX {
                return Some(fetched.map(Some));
            }
        }
    }

    /// Asks a question that is answered in its own turn. Answers to others that come with it are kept.
    fn probe(&mut self, input: Input<u64>) -> Option<Answer> {
        let node = self.node.as_mut()?;
        self.kept.extend(node.answers());
        node.turn([input]);
        let (found, others): (Vec<_>, Vec<_>) = node.answers().into_iter().partition(|(token, _)| *token == PROBE);
        self.kept.extend(others);
        found.into_iter().next().map(|(_, answer)| answer)
    }
}

/// Whether a failure to fetch may be over at the next attempt.
fn passes<T>(fetched: &Result<T, ReadError>) -> bool {
    matches!(fetched, Err(ReadError::Io { .. } | ReadError::Log(_) | ReadError::LogDamaged(_) | ReadError::Moved))
}

//! Carrying out one request: from the log's bytes to the wire.

use super::machine::{LogView, Reply, Request, Sealed};
use crate::batch::{CONTENT_TYPE, PRODUCER_ID, encode_claim, encode_data_header};
use crate::engine::{Engine, LogPosition, Seal};
use highwater_base::{Digest, Incarnation, Offset};
use highwater_client::{Append, From, Key, Read, Stream, TokenId};
use std::io;

/// Bytes asked for to see whose stream it is: a claim has fewer.
const OPENING_BYTES: u64 = 4 << 10;

impl LogView for Engine {
    fn confirmed_end(&self) -> LogPosition {
        Engine::confirmed_end(self)
    }

    fn record_start(&self, position: LogPosition) -> Option<LogPosition> {
        Engine::record_start(self, position)
    }

    fn lsn_below(&self, position: LogPosition) -> Option<u64> {
        Engine::lsn_below(self, position)
    }
}

/// The bytes of a sealed batch: its header and a slice of the log. The same seal gives the same bytes every time.
/// # Errors
/// Those of `read`; `InvalidData` if the log no longer holds the range, or if its bytes are not those that were sealed.
pub fn batch_bytes(
    sealed: &Sealed,
    log: &dyn LogView,
    read: impl FnOnce(LogPosition, usize, &mut Vec<u8>) -> io::Result<()>,
) -> io::Result<(Vec<u8>, Digest)> {
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "the log no longer holds the commits to be sent");
    let start = log.record_start(sealed.from).ok_or_else(missing)?;
    let lsn = log.lsn_below(sealed.from).ok_or_else(missing)? + 1;
    let length = usize::try_from(sealed.to.since(sealed.from)).map_err(|_| missing())?;
    let mut payload = Vec::with_capacity(length);
    read(sealed.from, length, &mut payload)?;
    if payload.len() != length || payload.is_empty() {
        return Err(missing());
    }
    let header = encode_data_header(sealed.epoch, lsn, sealed.from.since(start), &payload);
    payload.splice(..0, header);
    let digest = Digest::of(&payload);
    match sealed.digest {
        Some(sealed) if sealed != digest => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the log's bytes are not those that were sealed"))
        }
        _ => Ok((payload, digest)),
    }
}

/// A write's body and its digest; nothing for a read.
pub(super) type Body = Option<(Vec<u8>, Digest)>;

/// Sends requests for one database.
pub(super) struct Performer {
    pub(super) stream: Stream,
    pub(super) incarnation: Incarnation,
}

impl Performer {
    /// What a request's body is, and everything that must be in the files before it is sent.
    /// # Errors
    /// Those of the files; nothing may be sent then.
    pub(super) fn prepare(&self, request: &Request, engine: &Engine) -> io::Result<Body> {
        match request {
            Request::Claim(claim) => {
                let body = encode_claim(claim);
                let digest = Digest::of(&body);
                Ok(Some((body, digest)))
            }
            Request::Append(sealed) => {
                let read = |from, length, into: &mut Vec<u8>| engine.read_log(from, length, into);
                let batch = batch_bytes(sealed, engine, read)?;
                self.write_down(sealed, batch, engine).map(Some)
            }
            _ => Ok(None),
        }
    }

    pub(super) fn perform(&self, request: &Request, body: Body, now_ms: &dyn Fn() -> u64) -> (TokenId, Reply) {
        let (epoch, seq) = match request {
            Request::Head => {
                let (token, answer) = self.stream.head();
                return (token, Reply::Head(answer));
            }
            Request::Opening => return self.read(Offset(0), OPENING_BYTES),
            Request::Tail { at, bytes_max } => return self.read(*at, *bytes_max),
            Request::Claim(claim) => (claim.epoch, 0),
            Request::Append(sealed) => (sealed.epoch, sealed.seq),
        };
        match body {
            Some((body, digest)) => self.append(&body, digest, epoch, seq, now_ms),
            None => (TokenId::default(), Reply::Local("a write without a body".to_owned())),
        }
    }

    /// Before the first byte of a new batch leaves, its seal is durable, and so are the log's bytes in it.
    fn write_down(
        &self,
        sealed: &Sealed,
        (body, digest): (Vec<u8>, Digest),
        engine: &Engine,
    ) -> io::Result<(Vec<u8>, Digest)> {
        if sealed.digest.is_none() {
            let Sealed { epoch, seq, from, to, stream_offset, .. } = *sealed;
            engine.save_seal(Seal { incarnation: self.incarnation, epoch, seq, from, to, digest, stream_offset })?;
        }
        Ok((body, digest))
    }

    fn append(&self, body: &[u8], digest: Digest, epoch: u64, seq: u64, now_ms: &dyn Fn() -> u64) -> (TokenId, Reply) {
        let started = now_ms();
        let key = Some(Key { id: PRODUCER_ID.to_owned(), epoch, seq });
        let incarnation = Some(self.incarnation);
        let (token, answer) =
            self.stream.append(&Append { body, content_type: CONTENT_TYPE, incarnation, key, close: false });
        let took_ms = now_ms().saturating_sub(started);
        (token, Reply::Written { answer, body_bytes: body.len() as u64, digest, took_ms })
    }

    fn read(&self, at: Offset, bytes_max: u64) -> (TokenId, Reply) {
        let (token, answer) = self.stream.read(&Read {
            from: From::At(at),
            bytes_max: Some(bytes_max),
            leader: true,
            incarnation: Some(self.incarnation),
            wait_ms: None,
        });
        (token, Reply::Read(answer))
    }
}

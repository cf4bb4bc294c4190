//! From a stream's bytes to record bytes, with every rule of the format checked on the way.

use super::codec::{Batch, Body, Claim, Fault, Header};
use super::splitter::Splitter;
use crate::record::{Decoder, Event, RecordError};
use bytes::Bytes;
use highwater_base::Offset;
use std::io;
use thiserror::Error;

/// Where record bytes go.
pub trait Sink {
    /// The next bytes of the log.
    /// # Errors
    /// The sink's own.
    fn record_bytes(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// The bytes since the last whole record are void: they come again.
    fn void(&mut self);
    /// A record became whole; its bytes were given before.
    /// # Errors
    /// The sink's own.
    fn committed(&mut self, lsn: u64) -> io::Result<()>;
}

/// What is wrong with a stream.
#[derive(Debug, Error)]
pub enum StreamFault {
    /// It is another maker's: nothing of ours opens it.
    #[error("the stream does not start with a claim of this format ({0})")]
    Foreign(Fault),
    /// A batch is damaged.
    #[error("{0}")]
    Batch(Fault),
    /// A record is damaged.
    #[error("{0}")]
    Record(RecordError),
    /// A rule of the format is broken.
    #[error("{0}")]
    Rule(String),
    /// The sink's own error.
    #[error("{0}")]
    Sink(#[from] io::Error),
}

/// Reads a stream from its start; holds one batch, and one chunk of a record.
pub struct StreamReader {
    splitter: Splitter,
    decoder: Decoder,
    epoch: u64,
    lsn: u64,
}

impl Default for StreamReader {
    fn default() -> Self {
        Self::new()
    }
}

impl StreamReader {
    /// A reader for a stream's bytes from offset 0 on.
    #[must_use]
    pub fn new() -> Self {
        Self { splitter: Splitter::at(0), decoder: Decoder::checking(), epoch: 0, lsn: 0 }
    }

    /// The offset of the batch that is not whole yet.
    #[must_use]
    pub fn offset(&self) -> Offset {
        Offset(self.splitter.offset())
    }

    /// The offset of the next byte to push.
    #[must_use]
    pub fn next(&self) -> Offset {
        Offset(self.splitter.offset() + self.splitter.held_bytes() as u64)
    }

    /// The last whole commit; 0 before the first.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// The owner epoch of the last claim; 0 before the first.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Takes the next bytes of the stream.
    /// # Errors
    /// What is wrong at [`StreamReader::offset`]; the reader is of no more use.
    pub fn push(&mut self, mut bytes: &[u8], sink: &mut dyn Sink) -> Result<(), StreamFault> {
        loop {
            let first = self.splitter.offset() == 0;
            match self.splitter.next(&mut bytes) {
                Ok(None) => return Ok(()),
                Ok(Some(Batch { body: Body::Claim(claim), .. })) => self.claim(&claim, sink)?,
                Ok(Some(_)) if first => return Err(StreamFault::Foreign(Fault::Magic)),
                Ok(Some(Batch { header, body: Body::Data(payload) })) => self.data(&header, &payload, sink)?,
                Err(fault) if first => return Err(StreamFault::Foreign(fault)),
                Err(fault) => return Err(StreamFault::Batch(fault)),
            }
        }
    }

    fn claim(&mut self, claim: &Claim, sink: &mut dyn Sink) -> Result<(), StreamFault> {
        if claim.epoch <= self.epoch {
            return Err(StreamFault::Rule(format!("a claim of epoch {} follows epoch {}", claim.epoch, self.epoch)));
        }
        if claim.base_lsn > self.lsn {
            let text = format!("a claim knows of commit {}, the stream holds {} before it", claim.base_lsn, self.lsn);
            return Err(StreamFault::Rule(text));
        }
        self.epoch = claim.epoch;
        if self.decoder.partial_bytes() > 0 {
            self.decoder.reset();
            sink.void();
        }
        Ok(())
    }

    fn data(&mut self, header: &Header, payload: &Bytes, sink: &mut dyn Sink) -> Result<(), StreamFault> {
        if header.epoch != self.epoch {
            let text = format!("commits of epoch {} follow a claim of epoch {}", header.epoch, self.epoch);
            return Err(StreamFault::Rule(text));
        }
        let at = (self.lsn + 1, self.decoder.partial_bytes());
        if (header.lsn, header.offset) != at {
            return Err(StreamFault::Rule(format!(
                "commit {} goes on at byte {} of its record, the stream is at byte {} of commit {}",
                header.lsn, header.offset, at.1, at.0
            )));
        }
        let mut rest = payload.as_ref();
        let mut given = 0;
        loop {
            let event = self.decoder.next(&mut rest).map_err(StreamFault::Record)?;
            let lsn = match event {
                Some(Event::Begin(header)) if header.lsn != self.lsn + 1 => {
                    let text = format!("commit {} follows commit {}", header.lsn, self.lsn);
                    return Err(StreamFault::Rule(text));
                }
                Some(Event::Begin(_) | Event::Pages { .. }) => continue,
                Some(Event::Commit { header, .. }) => Some(header.lsn),
                None => None,
            };
            let taken = payload.len() - rest.len();
            if taken > given {
                sink.record_bytes(&payload[given..taken])?;
            }
            given = taken;
            match lsn {
                Some(lsn) => {
                    self.lsn = lsn;
                    sink.committed(lsn)?;
                }
                None => return Ok(()),
            }
        }
    }
}

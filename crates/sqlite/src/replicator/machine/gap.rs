//! What lies behind our acknowledged end: our own work of before, or somebody else's.

use super::types::Sealed;
use crate::batch::{Batch, Body, Splitter, encode_data_header};
use crate::engine::StopCode;
use highwater_base::{Digest, Offset};

/// Reads the stream from our acknowledged end on, and accepts only what we wrote: the batch in flight, if it was
/// applied, and claims of our lineage.
#[derive(Debug)]
pub(super) struct Gap {
    splitter: Splitter,
    start: Offset,
    lineage: [u8; 16],
    in_flight: Option<Sealed>,
    /// Whether the batch in flight lies there.
    applied: bool,
    /// The highest epoch claimed there.
    epoch: u64,
}

/// Something that is not ours lies there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Foreign {
    pub(super) code: StopCode,
    pub(super) offset: u64,
    pub(super) what: String,
}

impl Gap {
    pub(super) fn new(start: Offset, lineage: [u8; 16], in_flight: Option<Sealed>) -> Self {
        Self { splitter: Splitter::at(start.0), start, lineage, in_flight, applied: false, epoch: 0 }
    }

    /// The offset of the next byte to read.
    pub(super) fn next(&self) -> Offset {
        Offset(self.splitter.offset() + self.splitter.held_bytes() as u64)
    }

    /// Whether the batch in flight was found.
    pub(super) fn applied(&self) -> bool {
        self.applied
    }

    /// The highest epoch of a claim that was found; 0 for none.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Takes the bytes from [`Gap::next`] on.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), Foreign> {
        loop {
            let offset = self.splitter.offset();
            match self.splitter.next(&mut bytes) {
                Ok(None) => return Ok(()),
                Ok(Some(batch)) => self.accept(offset, &batch)?,
                Err(fault) => {
                    let what = format!("bytes that are not a batch of ours ({fault})");
                    return Err(Foreign { code: StopCode::ForeignWrite, offset, what });
                }
            }
        }
    }

    /// Whether everything up to `end` was read and is ours.
    pub(super) fn complete(&self, end: Offset) -> bool {
        self.splitter.offset() == end.0
    }

    fn accept(&mut self, offset: u64, batch: &Batch) -> Result<(), Foreign> {
        match &batch.body {
            Body::Claim(claim) if claim.lineage == self.lineage => {
                self.epoch = self.epoch.max(claim.epoch);
                Ok(())
            }
            Body::Claim(claim) => Err(Foreign {
                code: StopCode::Fenced,
                offset,
                what: format!("the claim of another owner, under epoch {}", claim.epoch),
            }),
            Body::Data(payload) => {
                // The batch in flight can only be the first thing there: whatever came after it closed its epoch.
                let ours = offset == self.start.0
                    && self.in_flight.is_some_and(|sealed| {
                        let header = &batch.header;
                        let head = encode_data_header(header.epoch, header.lsn, header.offset, payload);
                        sealed.digest == Some(Digest::of(&[&head, payload.as_ref()].concat()))
                    });
                if !ours {
                    let code = if self.epoch > 0 { StopCode::Fenced } else { StopCode::ForeignWrite };
                    let what = format!("commits of another owner, under epoch {}", batch.header.epoch);
                    return Err(Foreign { code, offset, what });
                }
                self.applied = true;
                Ok(())
            }
        }
    }
}

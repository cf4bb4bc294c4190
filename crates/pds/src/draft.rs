//! What a turn hands over, before its frames have numbers.

use crate::account::{AccountId, Head};
use crate::frame::{Unnumbered, stored};
use crate::record::{self, Fact};
use crate::sequence::{Exhausted, Sequence};
use crate::time::Micros;
use bytes::Bytes;
use highwater_base::codec::Writer;
use std::ops::Range;

/// Bytes in front of a record's parts: version and time.
const RECORD_HEAD_BYTES: usize = 10;

/// A part of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// A fact.
    Fact(Fact),
    /// A frame.
    Frame(AccountId, Unnumbered),
    /// A head whose blocks are the part `stored` of the archive in the frame before it.
    Sent {
        /// Whose.
        account: AccountId,
        /// The head.
        head: Head,
        /// Which part of the frame's archive the server keeps.
        stored: Range<usize>,
    },
    /// A head that no frame tells of, with its blocks as sections of an archive.
    Alone {
        /// Whose.
        account: AccountId,
        /// The head.
        head: Head,
        /// The blocks.
        sections: Bytes,
    },
    /// Blocks that are written together once more.
    Copied {
        /// Whose.
        account: AccountId,
        /// The blocks, as sections of an archive.
        sections: Bytes,
        /// With the last of them: what lies below is not needed any more.
        front: Option<u64>,
    },
}

/// One turn: it becomes one record, which applies as a whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Draft {
    /// When it was made.
    pub at: Micros,
    /// Its parts, in order.
    pub parts: Vec<Part>,
}

impl Draft {
    /// A turn without parts.
    #[must_use]
    pub fn new(at: Micros) -> Self {
        Self { at, parts: Vec::new() }
    }

    /// Adds a fact.
    #[must_use]
    pub fn fact(mut self, fact: Fact) -> Self {
        self.parts.push(Part::Fact(fact));
        self
    }

    /// Adds a frame.
    #[must_use]
    pub fn frame(mut self, account: AccountId, frame: Unnumbered) -> Self {
        self.parts.push(Part::Frame(account, frame));
        self
    }

    /// Adds a part.
    #[must_use]
    pub fn part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Whether it would put a frame on the wire.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Frame(..)))
    }

    /// Bytes of its record, at the most but for long facts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let part = |part: &Part| match part {
            Part::Frame(_, frame) => frame.bytes_max() + 40,
            Part::Alone { sections, .. } | Part::Copied { sections, .. } => sections.len() + 200,
            Part::Fact(_) | Part::Sent { .. } => 200,
        };
        self.parts.iter().map(part).sum()
    }

    /// The record's bytes, with numbers for its frames, in the order in which turns come.
    /// # Errors
    /// [`Exhausted`]; some numbers may have been handed out then, and are skipped.
    ///
    /// # Panics
    /// If a sent head has no frame before it.
    pub fn number(&self, sequence: &mut Sequence) -> Result<Bytes, Exhausted> {
        // Frames stay in memory for a while with what was reserved for them.
        let mut out = Writer::with_capacity(self.bytes() + RECORD_HEAD_BYTES);
        record::encode_start(self.at, &mut out);
        let (mut frame, mut archive) = (Vec::new(), None);
        for part in &self.parts {
            match part {
                Part::Fact(fact) => {
                    // Frames behind it, in this turn or in one of the same batch, are numbered above it.
                    if let Fact::Floor(floor) = fact {
                        sequence.pass(*floor);
                    }
                    record::encode_fact(fact, &mut out);
                }
                Part::Frame(account, unnumbered) => {
                    let seq = sequence.take()?;
                    frame.clear();
                    let inside = unnumbered.write(seq, &mut frame);
                    let start = record::encode_event((seq, self.at, *account), (unnumbered.kind, &frame), &mut out);
                    archive = Some(start + inside);
                }
                Part::Sent { account, head, stored: part } => {
                    let archive = archive.expect("a sent head has its frame before it");
                    record::encode_sent(*account, head, &stored(archive, part), &mut out);
                }
                Part::Alone { account, head, sections } => record::encode_alone(*account, head, sections, &mut out),
                Part::Copied { account, sections, front } => {
                    record::encode_copied(*account, *front, sections, &mut out);
                }
            }
        }
        Ok(out.into_vec().into())
    }
}

//! A database's stream: claims, and what the owners committed.

use crate::database::model::{Image, Model, Page};
use crate::invariants::{Checked, Invariant, hold, violated};
use bytes::Bytes;
use highwater_sqlite::batch::{Batch, Body, Claim, Fault, HEADER_BYTES, Header};
use highwater_sqlite::record::{Decoder, Event};
use std::collections::BTreeMap;
use std::fmt;

/// Names a local log.
pub type Lineage = [u8; 16];

/// The histories of all local logs, as their processes made them.
pub type Databases = BTreeMap<Lineage, Model>;

/// A claim in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimed {
    /// Where it lies.
    pub offset: u64,
    /// The epoch.
    pub epoch: u64,
    /// Whose it is.
    pub lineage: Lineage,
}

/// The part of a record that has arrived.
#[derive(Debug, Clone, Default)]
struct Partial {
    /// As it came, so that a copy of this can go on from it.
    raw: Vec<u8>,
    pages: Vec<(u32, Page)>,
}

/// Everything that a database's stream said so far.
#[derive(Default)]
pub struct Batches {
    claims: Vec<Claimed>,
    decoder: Option<Decoder>,
    partial: Partial,
    image: Image,
    lsn: u64,
    /// For each commit, who owned the stream, and where its record ends.
    commits: Vec<(Lineage, u64)>,
}

impl Clone for Batches {
    fn clone(&self) -> Self {
        let mut decoder = self.decoder.as_ref().and_then(|_| Decoder::new().ok());
        let mut rest = &self.partial.raw[..];
        while let Some(decoder) = decoder.as_mut().filter(|_| !rest.is_empty()) {
            // It was decoded before, and what it says is known.
            if decoder.next(&mut rest).is_err() {
                break;
            }
        }
        Self {
            claims: self.claims.clone(),
            decoder,
            partial: self.partial.clone(),
            image: self.image.clone(),
            lsn: self.lsn,
            commits: self.commits.clone(),
        }
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").field("lsn", &self.lsn).field("claims", &self.claims).finish_non_exhaustive()
    }
}

impl Batches {
    /// The length of the batch at the start of `bytes`; nothing while its header is not whole.
    /// # Errors
    /// What is wrong with the header.
    pub fn length(bytes: &[u8]) -> Result<Option<usize>, Fault> {
        bytes.first_chunk::<HEADER_BYTES>().map(|header| Header::decode(header).map(|h| h.batch_bytes())).transpose()
    }

    /// The last whole commit.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// The database after the last whole commit.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The claims, in order.
    #[must_use]
    pub fn claims(&self) -> &[Claimed] {
        &self.claims
    }

    /// Who owned the stream when a commit became whole.
    #[must_use]
    pub fn owner_of(&self, lsn: u64) -> Option<Lineage> {
        let index = usize::try_from(lsn.checked_sub(1)?).ok()?;
        self.commits.get(index).map(|(lineage, _)| *lineage)
    }

    /// Takes one whole batch.
    /// # Errors
    /// `StreamIsLogPrefix` and `EpochsInOrder`.
    pub fn push(&mut self, offset: u64, bytes: &[u8], databases: &Databases) -> Checked {
        let (head, payload) = bytes.split_at(HEADER_BYTES);
        let batch = head.first_chunk().map(Header::decode).transpose().ok().flatten();
        let batch = batch.and_then(|header| header.with_payload(Bytes::copy_from_slice(payload)).ok());
        match batch {
            Some(Batch { body: Body::Claim(claim), .. }) => self.claim(offset, &claim),
            Some(Batch { body: Body::Data(payload), header }) => self.data(offset, &header, &payload, databases),
            None => violated(Invariant::StreamIsLogPrefix, format!("the bytes at {offset} are no batch")),
        }
    }

    fn claim(&mut self, offset: u64, claim: &Claim) -> Checked {
        let before = self.claims.last().map_or(0, |claimed| claimed.epoch);
        hold(Invariant::EpochsInOrder, claim.epoch > before, || {
            format!("the claim at {offset} has epoch {}, after {before}", claim.epoch)
        })?;
        hold(Invariant::StreamIsLogPrefix, claim.base_lsn <= self.lsn, || {
            format!("the claim at {offset} knows commit {}, and the stream ends at {}", claim.base_lsn, self.lsn)
        })?;
        self.claims.push(Claimed { offset, epoch: claim.epoch, lineage: claim.lineage });
        self.partial = Partial::default();
        self.decoder = None;
        Ok(())
    }

    fn data(&mut self, offset: u64, header: &Header, payload: &[u8], databases: &Databases) -> Checked {
        let owner = self.claims.last().copied();
        let Some(owner) = owner.filter(|owner| owner.epoch == header.epoch) else {
            let seen = format!("the batch at {offset} has epoch {}, the owner's is {owner:?}", header.epoch);
            return violated(Invariant::EpochsInOrder, seen);
        };
        let expected = (self.lsn + 1, self.partial.raw.len() as u64);
        hold(Invariant::StreamIsLogPrefix, (header.lsn, header.offset) == expected, || {
            let found = (header.lsn, header.offset);
            format!("the batch at {offset} starts at (commit, byte) {found:?}, due is {expected:?}")
        })?;
        let mut rest = payload;
        while !rest.is_empty() {
            self.record(offset, &mut rest, owner.lineage, databases)?;
        }
        Ok(())
    }

    /// Takes the next piece of a record.
    fn record(&mut self, offset: u64, rest: &mut &[u8], owner: Lineage, databases: &Databases) -> Checked {
        let expected = self.lsn + 1;
        let broken = |what: String| violated(Invariant::StreamIsLogPrefix, format!("in the batch at {offset}: {what}"));
        let mut decoder = match self.decoder.take() {
            Some(decoder) => decoder,
            None => match Decoder::new() {
                Ok(decoder) => decoder,
                Err(error) => return broken(error.to_string()),
            },
        };
        let before = *rest;
        let event = match decoder.next(rest) {
            Ok(event) => event,
            Err(error) => return broken(format!("commit {expected}: {error}")),
        };
        self.partial.raw.extend_from_slice(&before[..before.len() - rest.len()]);
        match event {
            None => {}
            Some(Event::Begin(header)) if header.lsn != expected => {
                return broken(format!("commit {} instead of {expected}", header.lsn));
            }
            Some(Event::Begin(_)) => {}
            Some(Event::Pages { numbers, images }) => {
                let size = images.len() / numbers.len().max(1);
                let pages = images.chunks(size.max(1)).map(Page::from);
                self.partial.pages.extend(numbers.iter().copied().zip(pages));
            }
            Some(Event::Commit { header, .. }) => {
                let pages_after = header.pages_after;
                let mut image = self.image.as_ref().clone();
                let blank: Page = vec![0; header.page_size as usize].into();
                image.resize(pages_after as usize, blank);
                for (number, page) in std::mem::take(&mut self.partial).pages {
                    image[number as usize - 1] = page;
                }
                self.committed(offset, Image::new(image), owner, databases)?;
            }
        }
        self.decoder = Some(decoder);
        Ok(())
    }

    /// A commit is whole: it must be its owner's.
    fn committed(&mut self, offset: u64, image: Image, owner: Lineage, databases: &Databases) -> Checked {
        let lsn = self.lsn + 1;
        let differs = databases.get(&owner).map_or_else(|| Some("nobody's log".to_owned()), |m| m.differs(lsn, &image));
        if let Some(differs) = differs {
            let seen = format!("in the batch at {offset}: commit {lsn} is not its owner's: {differs}");
            return violated(Invariant::StreamIsLogPrefix, seen);
        }
        self.image = image;
        self.lsn = lsn;
        self.commits.push((owner, offset));
        Ok(())
    }
}

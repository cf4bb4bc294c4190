//! Commits: what an account signs about its records.
//!
//! Source: atproto repository specification, "Commit Objects", version 3.

use crate::car;
use crate::cid::{Cid, Codec};
use crate::data::{DataError, Decoder, Encoder};
use crate::key::{PublicKey, SIGNATURE_BYTES, SignatureError, SigningKey};
use crate::syntax::Did;
use crate::tid::Tid;
use bytes::Bytes;
use std::ops::Range;
use thiserror::Error;

const VERSION: u64 = 3;

/// A signed commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The account.
    pub did: Did,
    /// Its revision, larger with every commit.
    pub rev: Tid,
    /// The root of the tree of its records.
    pub data: Cid,
    /// The commit before. Only repositories of older versions name one.
    pub previous: Option<Cid>,
    /// Over SHA-256 of the commit without it.
    pub signature: Bytes,
}

/// Why a block is no commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CommitError {
    /// It is no commit at all.
    #[error("this is no commit: {0}")]
    Data(#[from] DataError),
    /// It is of another version.
    #[error("version {0} of commits is not known")]
    Version(u64),
    /// Its account, revision or signature is none.
    #[error("the commit's {0} is none")]
    Field(&'static str),
}

impl Commit {
    /// Signs a commit.
    #[must_use]
    pub fn sign(did: Did, rev: Tid, data: Cid, key: &SigningKey) -> Self {
        let mut commit = Self { did, rev, data, previous: None, signature: Bytes::new() };
        commit.signature = Bytes::copy_from_slice(&key.sign(&commit.encode(false)));
        commit
    }

    /// Whether the account's key signed it.
    /// # Errors
    /// [`SignatureError`].
    pub fn verify(&self, key: &PublicKey) -> Result<(), SignatureError> {
        key.verify(&self.encode(false), &self.signature)
    }

    /// Its block, with the block's name.
    #[must_use]
    pub fn block(&self) -> (Cid, Bytes) {
        let block = self.encode(true);
        (Cid::of(Codec::DagCbor, &block), block.into())
    }

    fn encode(&self, signed: bool) -> Vec<u8> {
        let mut out = Encoder::with_capacity(256);
        out.map(if signed { 6 } else { 5 });
        out.text("did").text(self.did.as_str()).text("rev").text(&self.rev.to_string());
        if signed {
            out.text("sig").bytes(&self.signature);
        }
        out.text("data").link(&self.data).text("prev").optional_link(self.previous.as_ref());
        out.text("version").integer(VERSION as i64);
        out.into_vec()
    }

    /// Reads a commit's block.
    /// # Errors
    /// What is wrong with it.
    pub fn decode(block: Bytes) -> Result<Self, CommitError> {
        let mut data = Decoder::new(block);
        if data.map()? != 6 {
            return Err(DataError::Expected("a signed commit").into());
        }
        data.key("did")?;
        let did = data.text()?.parse().map_err(|_| CommitError::Field("account"))?;
        data.key("rev")?;
        let rev = data.text()?.parse().map_err(|_| CommitError::Field("revision"))?;
        data.key("sig")?;
        let signature = data.bytes()?;
        data.key("data")?;
        let root = data.link()?;
        data.key("prev")?;
        let previous = data.optional_link()?;
        data.key("version")?;
        match data.unsigned()? {
            VERSION => {}
            version => return Err(CommitError::Version(version)),
        }
        data.finish()?;
        if signature.len() != SIGNATURE_BYTES {
            return Err(CommitError::Field("signature"));
        }
        Ok(Self { did, rev, data: root, previous, signature })
    }
}

/// A commit over a tree that did not change, with what readers are told of it.
#[derive(Debug, Clone)]
pub struct Fresh {
    /// The commit.
    pub commit: Commit,
    /// Its block's name.
    pub cid: Cid,
    /// Its block.
    pub block: Bytes,
    /// The archive of a `#sync`: the commit alone.
    pub archive: Bytes,
    /// Bytes of `archive` in which the commit's section stands, as in [`crate::write::Prepared`].
    pub stored: Range<usize>,
}

/// Signs a commit over a tree that is already there: what a restore or a lift says, so that readers leave what they had.
#[must_use]
pub fn fresh(did: Did, rev: Tid, data: Cid, key: &SigningKey) -> Fresh {
    let commit = Commit::sign(did, rev, data, key);
    let (cid, block) = commit.block();
    let archive = sync_archive(&cid, &block);
    let stored = archive.len() - car::section_bytes(block.len())..archive.len();
    Fresh { commit, cid, block, archive, stored }
}

/// The archive of a `#sync`: the commit's block alone, which is its root.
#[must_use]
pub fn sync_archive(cid: &Cid, block: &Bytes) -> Bytes {
    car::archive(cid, [(cid, block)]).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Curve;

    fn key(curve: Curve) -> SigningKey {
        SigningKey::from_secret(curve, &[7; 32]).expect("a secret")
    }

    #[test]
    fn a_commit_reads_back_and_stands_under_its_key_alone() {
        for curve in [Curve::K256, Curve::P256] {
            let did: Did = "did:web:bot.example".parse().expect("a DID");
            let data = Cid::of(Codec::DagCbor, b"root");
            let commit = Commit::sign(did, Tid::new(1_700_000_000_000_000, 3), data, &key(curve));
            let (_, block) = commit.block();
            let mut back = Commit::decode(block.clone()).expect("a commit");
            assert_eq!(back, commit);
            assert_eq!(back.verify(&key(curve).public()), Ok(()));
            let other = SigningKey::from_secret(curve, &[8; 32]).expect("a secret");
            assert_eq!(back.verify(&other.public()), Err(SignatureError));
            back.rev = Tid::new(1_700_000_000_000_001, 3);
            assert_eq!(back.verify(&key(curve).public()), Err(SignatureError));
            for cut in 0..block.len() {
                assert!(Commit::decode(block.slice(..cut)).is_err(), "whole at {cut}");
            }
        }
    }

    #[test]
    fn a_fresh_commit_stands_alone_in_its_archive() {
        let did: Did = "did:web:bot.example".parse().expect("a DID");
        let key = key(Curve::K256);
        let fresh = fresh(did, Tid::new(5, 0), Cid::of(Codec::DagCbor, b"root"), &key);
        assert_eq!(fresh.commit.verify(&key.public()), Ok(()));
        let sections = &fresh.archive[fresh.stored.clone()];
        let found: Vec<_> = car::Sections::new(sections).map(|section| section.expect("sound")).collect();
        assert_eq!(found.len(), 1);
        let (cid, range) = found[0].clone();
        assert_eq!((cid, &sections[range]), (fresh.cid, &fresh.block[..]));
        let mut reader = car::Reader::new();
        reader.push(&fresh.archive);
        assert_eq!(reader.block(), Ok(Some((fresh.cid, fresh.block))));
        assert_eq!(reader.finish(), Ok(vec![fresh.cid]));
    }

    #[test]
    fn a_commit_of_another_version_is_refused() {
        let did: Did = "did:web:bot.example".parse().expect("a DID");
        let (_, block) = Commit::sign(did, Tid::MIN, Cid::of(Codec::DagCbor, b""), &key(Curve::K256)).block();
        let mut bytes = block.to_vec();
        *bytes.last_mut().expect("not empty") = 4;
        assert_eq!(Commit::decode(bytes.into()), Err(CommitError::Version(4)));
    }
}

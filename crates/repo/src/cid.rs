//! Content identifiers: the names of blocks.

use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Bytes of an identifier.
pub const CID_BYTES: usize = 36;

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// The multibase prefix of base32 in lower case.
const PREFIX: char = 'b';
const VERSION: u8 = 1;
const SHA2_256: u8 = 0x12;
const DIGEST_BYTES: u8 = 32;

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Codec {
    /// Any bytes: a blob.
    Raw = 0x55,
    /// A value of the data model: a record, a node of the tree, a commit.
    DagCbor = 0x71,
}

/// The name of a block: version 1, one of two codecs, SHA-256 of its bytes. No other kind exists here.
///
/// Source: atproto data model specification, "Link and CID Formats".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cid {
    codec: Codec,
    digest: [u8; 32],
}

/// Why bytes or text are no identifier that this protocol uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CidError {
    /// Not 36 bytes, or not their text.
    #[error("a CID has {CID_BYTES} bytes")]
    Length,
    /// Another version, codec or hash.
    #[error("a CID must be of version 1, dag-cbor or raw, with SHA-256")]
    Kind,
    /// Not base32 in lower case with its prefix.
    #[error("a CID is written in base32, in lower case, after the letter b")]
    Text,
}

impl Cid {
    /// The name of a block with these bytes.
    #[must_use]
    pub fn of(codec: Codec, block: &[u8]) -> Self {
        Self { codec, digest: Sha256::digest(block).into() }
    }

    /// What the block holds.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// The identifier's bytes, as links and CAR sections hold them.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; CID_BYTES] {
        let mut bytes = [0; CID_BYTES];
        bytes[..4].copy_from_slice(&[VERSION, self.codec as u8, SHA2_256, DIGEST_BYTES]);
        bytes[4..].copy_from_slice(&self.digest);
        bytes
    }

    /// Reads an identifier's bytes.
    /// # Errors
    /// `Length` or `Kind`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CidError> {
        let bytes: &[u8; CID_BYTES] = bytes.try_into().map_err(|_| CidError::Length)?;
        let codec = match bytes[..4] {
            [VERSION, 0x55, SHA2_256, DIGEST_BYTES] => Codec::Raw,
            [VERSION, 0x71, SHA2_256, DIGEST_BYTES] => Codec::DagCbor,
            _ => return Err(CidError::Kind),
        };
        let mut digest = [0; 32];
        digest.copy_from_slice(&bytes[4..]);
        Ok(Self { codec, digest })
    }

    /// Whether a block with these bytes has this name.
    #[must_use]
    pub fn names(&self, block: &[u8]) -> bool {
        Self::of(self.codec, block) == *self
    }
}

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(1 + (CID_BYTES * 8).div_ceil(5));
        text.push(PREFIX);
        let (mut pending, mut bits) = (0u32, 0);
        for byte in self.to_bytes() {
            (pending, bits) = (pending << 8 | u32::from(byte), bits + 8);
            while bits >= 5 {
                bits -= 5;
                text.push(char::from(ALPHABET[(pending >> bits & 31) as usize]));
            }
        }
        if bits > 0 {
            text.push(char::from(ALPHABET[(pending << (5 - bits) & 31) as usize]));
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Cid {
    type Err = CidError;

    fn from_str(text: &str) -> Result<Self, CidError> {
        let digits = text.strip_prefix(PREFIX).ok_or(CidError::Text)?.as_bytes();
        let mut bytes = Vec::with_capacity(CID_BYTES);
        let (mut pending, mut bits) = (0u32, 0);
        for digit in digits {
            let value = match digit {
                b'a'..=b'z' => digit - b'a',
                b'2'..=b'7' => digit - b'2' + 26,
                _ => return Err(CidError::Text),
            };
            (pending, bits) = (pending << 5 | u32::from(value), bits + 5);
            if bits >= 8 {
                bits -= 8;
                bytes.push((pending >> bits) as u8);
                pending &= (1 << bits) - 1;
            }
        }
        // Bits that are left over must be zero: one identifier has one text.
        if bits >= 5 || pending != 0 {
            return Err(CidError::Text);
        }
        Self::from_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a";

    #[test]
    fn a_name_reads_back_from_its_text_and_from_its_bytes() {
        let cid: Cid = TEXT.parse().expect("a CID");
        assert_eq!(cid.codec(), Codec::DagCbor);
        assert_eq!(cid.to_string(), TEXT);
        assert_eq!(Cid::from_bytes(&cid.to_bytes()), Ok(cid));
        let raw = Cid::of(Codec::Raw, b"bytes");
        assert_eq!(raw.to_string().parse(), Ok(raw));
        assert!(raw.names(b"bytes") && !raw.names(b"other"));
    }

    #[test]
    fn another_kind_of_identifier_is_refused() {
        let parse = |text: &str| text.parse::<Cid>();
        assert_eq!(parse("QmbWqxBEKC3P8tqsKc98xmWNzrzDtRLMiMPL8wBuTGsMnR"), Err(CidError::Text));
        assert_eq!(parse(&TEXT.to_uppercase()), Err(CidError::Text));
        assert_eq!(parse(&TEXT[..58]), Err(CidError::Text));
        assert_eq!(parse("ba"), Err(CidError::Text));
        assert_eq!(parse("b"), Err(CidError::Length));
        // The last digit carries two bits that must be zero.
        assert_eq!(parse(&format!("{}b", &TEXT[..58])), Err(CidError::Text));
        let mut bytes = TEXT.parse::<Cid>().expect("a CID").to_bytes();
        bytes[1] = 0x70;
        assert_eq!(Cid::from_bytes(&bytes), Err(CidError::Kind));
    }
}

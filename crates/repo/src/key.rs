//! Signing keys of accounts: k256 and p256.
//!
//! Source: atproto cryptography specification. Signatures are 64 bytes, r then s, with a low s; the signed digest is SHA-256.

use k1::signature::{Signer as _, Verifier as _};
use k256::ecdsa as k1;
use p256::ecdsa as r1;
use std::fmt;
use thiserror::Error;

/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// Multicodec prefixes of the public keys.
const K256_PREFIX: [u8; 2] = [0xe7, 0x01];
const P256_PREFIX: [u8; 2] = [0x80, 0x24];
/// The multibase prefix of base58btc.
const BASE58: char = 'z';
/// Digits of a key's text at the most: its prefix and its point are 35 bytes, which take 48.
const BASE58_DIGITS_MAX: usize = 48;

/// A curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Curve {
    /// secp256k1, the usual one.
    K256,
    /// NIST P-256.
    P256,
}

/// Why bytes or text are no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// Not in the form of a key.
    #[error("this is not a key: base58 after the letter z, with the prefix of k256 or p256")]
    Form,
    /// Not a point of the curve, or a number beyond its order.
    #[error("this is no key of the curve")]
    Value,
}

/// A signature that does not stand: another message or key, or not 64 bytes with a low s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the signature does not fit the key and the bytes")]
pub struct SignatureError;

/// A secret key. It signs the same bytes always the same (RFC 6979), so that nothing random is needed.
#[derive(Clone)]
pub enum SigningKey {
    /// Of secp256k1.
    K256(k1::SigningKey),
    /// Of P-256.
    P256(r1::SigningKey),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey of {}", self.public().multibase())
    }
}

impl SigningKey {
    /// The key with this secret, 32 bytes.
    /// # Errors
    /// `Value` if it is zero or beyond the curve's order: draw another one.
    pub fn from_secret(curve: Curve, secret: &[u8; 32]) -> Result<Self, KeyError> {
        match curve {
            Curve::K256 => k1::SigningKey::from_slice(secret).map(Self::K256),
            Curve::P256 => r1::SigningKey::from_slice(secret).map(Self::P256),
        }
        .map_err(|_| KeyError::Value)
    }

    /// The secret, to be kept.
    #[must_use]
    pub fn secret(&self) -> [u8; 32] {
        match self {
            Self::K256(key) => key.to_bytes().into(),
            Self::P256(key) => key.to_bytes().into(),
        }
    }

    /// The key's public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        match self {
            Self::K256(key) => PublicKey::K256(*key.verifying_key()),
            Self::P256(key) => PublicKey::P256(*key.verifying_key()),
        }
    }

    /// Signs bytes.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        match self {
            Self::K256(key) => {
                let signature: k1::Signature = key.sign(message);
                signature.normalize_s().to_bytes().into()
            }
            Self::P256(key) => {
                let signature: r1::Signature = key.sign(message);
                signature.normalize_s().to_bytes().into()
            }
        }
    }
}

/// A public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublicKey {
    /// Of secp256k1.
    K256(k1::VerifyingKey),
    /// Of P-256.
    P256(r1::VerifyingKey),
}

impl PublicKey {
    /// The key as DID documents hold it (`publicKeyMultibase` of a Multikey): its curve's prefix and its point, compressed.
    #[must_use]
    pub fn multibase(&self) -> String {
        let (prefix, point) = match self {
            Self::K256(key) => (K256_PREFIX, key.to_sec1_point(true).as_bytes().to_vec()),
            Self::P256(key) => (P256_PREFIX, key.to_sec1_point(true).as_bytes().to_vec()),
        };
        format!("{BASE58}{}", bs58::encode([prefix.as_slice(), &point].concat()).into_string())
    }

    /// The key as `did:key:…`.
    #[must_use]
    pub fn did_key(&self) -> String {
        format!("did:key:{}", self.multibase())
    }

    /// Reads a Multikey, or a `did:key:` of one.
    /// # Errors
    /// `Form` or `Value`.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.strip_prefix("did:key:").unwrap_or(text).strip_prefix(BASE58).ok_or(KeyError::Form)?;
        // To decode takes the square of the length: a document of a megabyte would take minutes.
        if text.len() > BASE58_DIGITS_MAX {
            return Err(KeyError::Form);
        }
        let bytes = bs58::decode(text).into_vec().map_err(|_| KeyError::Form)?;
        let (prefix, point) = bytes.split_first_chunk().ok_or(KeyError::Form)?;
        // The point is compressed: other forms would give a key a second text.
        match *prefix {
            _ if point.len() != 33 => Err(KeyError::Form),
            K256_PREFIX => k1::VerifyingKey::from_sec1_bytes(point).map(Self::K256).map_err(|_| KeyError::Value),
            P256_PREFIX => r1::VerifyingKey::from_sec1_bytes(point).map(Self::P256).map_err(|_| KeyError::Value),
            _ => Err(KeyError::Form),
        }
    }

    /// Whether the key signed these bytes.
    /// # Errors
    /// [`SignatureError`], also for a signature with a high s, which anybody could make from one with a low s.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        let sound = match self {
            Self::K256(key) => k1::Signature::from_slice(signature)
                .is_ok_and(|signature| signature.normalize_s() == signature && key.verify(message, &signature).is_ok()),
            Self::P256(key) => r1::Signature::from_slice(signature)
                .is_ok_and(|signature| signature.normalize_s() == signature && key.verify(message, &signature).is_ok()),
        };
        if sound { Ok(()) } else { Err(SignatureError) }
    }
}

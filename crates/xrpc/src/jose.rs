//! Signed tokens, as little of JOSE as the protocol needs.
//!
//! Two kinds, and neither lets a token say how it is to be judged. *Session tokens* are this server's own: HMAC-SHA256 over a
//! header that is one of two constant texts, so that a header names no algorithm. *Service tokens* are signed by an account's key,
//! and the key, not the token, decides the algorithm. Time is handed in.
//!
//! Source: RFC 7515 (compact serialization), RFC 7519; atproto specification "XRPC", service auth.

mod service;
mod session;
#[cfg(test)]
mod tests;

pub use service::{
    SERVICE_SECONDS_MAX, SERVICE_SKEW_SECONDS, ServiceClaims, ServiceError, ServiceExpected, mint_service,
    parse_service,
};
pub use session::{ACCESS_SECONDS, SessionClaims, SessionKey, TokenError, TokenScope};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;

/// Bytes of a token: two DIDs of 2,048 bytes and the rest, in base64.
pub const TOKEN_BYTES_MAX: usize = 8_192;

/// The three parts of a token in compact form.
#[derive(Debug, Clone, Copy)]
struct Parts<'a> {
    header: &'a str,
    payload: &'a str,
    signature: &'a str,
    /// Header, dot and payload: what is signed.
    signed: &'a str,
}

/// Takes a token apart; nothing of it is decoded.
fn split(token: &str) -> Option<Parts<'_>> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, payload) = signed.split_once('.')?;
    let plain =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    (plain(header) && plain(payload) && plain(signature)).then_some(Parts { header, payload, signature, signed })
}

/// Decodes base64url without padding, and only its one spelling.
fn decode(part: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(part).ok()
}

fn decode_json<T: DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&decode(part)?).ok()
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a token as every kind there is, for fuzzers. Whether it was one of either.
#[must_use]
pub fn token_anything(bytes: &[u8]) -> bool {
    let Ok(token) = std::str::from_utf8(bytes) else { return false };
    let key = SessionKey::new([7; 32]);
    key.verify(token, "did:web:pds.example", 0).is_ok() || parse_service(token).is_ok()
}

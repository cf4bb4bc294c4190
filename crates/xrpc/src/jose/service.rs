//! Tokens that an account shows to another service: signed with the key that its DID document names.

use super::{decode, decode_json, encode, split};
use highwater_repo::key::{Curve, PublicKey, SIGNATURE_BYTES, SigningKey};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Seconds for which a token is good at the most. Nobody can call one back, not even a lock, so that is how long one outlives it.
pub const SERVICE_SECONDS_MAX: u64 = 60;

/// Seconds by which another server's clock may be ahead.
pub const SERVICE_SKEW_SECONDS: u64 = 5;

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceClaims {
    /// When it was issued, in seconds since 1970.
    pub iat: u64,
    /// Who shows it: a DID.
    pub iss: String,
    /// To whom: a DID, with or without the fragment that names one of its services.
    pub aud: String,
    /// When it ends, in seconds since 1970: it is good before that.
    pub exp: u64,
    /// The method that it is for; any if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lxm: Option<String>,
    /// A number that no other token has.
    pub jti: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    typ: Option<String>,
    alg: String,
    /// What must be understood, of which there is nothing.
    #[serde(default, skip_serializing)]
    crit: Option<serde_json::Value>,
}

/// Why a token is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ServiceError {
    /// It is not in the form of one.
    #[error("this is no token of service auth")]
    Form,
    /// It is signed with another kind of key than the account's.
    #[error("the token is not signed with the kind of key that the account has")]
    Algorithm,
    /// Somebody else signed it, or it was changed.
    #[error("the token is not signed by its issuer")]
    Signature,
    /// It is for somebody else.
    #[error("the token is for another service")]
    Audience,
    /// It is for another method, or for none in particular.
    #[error("the token is for another method")]
    Method,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// It would be good for longer than a minute, or was issued in the time to come.
    #[error("the token is good for longer than {SERVICE_SECONDS_MAX} seconds")]
    Lifetime,
}

fn algorithm(curve: Curve) -> &'static str {
    match curve {
        Curve::K256 => "ES256K",
        Curve::P256 => "ES256",
    }
}

fn curve_of(key: &PublicKey) -> Curve {
    match key {
        PublicKey::K256(_) => Curve::K256,
        PublicKey::P256(_) => Curve::P256,
    }
}

/// The token that says this. Whoever mints bounds its lifetime.
#[must_use]
pub fn mint_service(key: &SigningKey, claims: &ServiceClaims) -> String {
    let header = Header { typ: Some("JWT".into()), alg: algorithm(curve_of(&key.public())).into(), crit: None };
    let part = |json: serde_json::Result<Vec<u8>>| encode(&json.expect("text and numbers are JSON"));
    let signed = format!("{}.{}", part(serde_json::to_vec(&header)), part(serde_json::to_vec(claims)));
    let signature = encode(&key.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// A token that was taken apart and not judged yet: who issued it is what it claims.
#[derive(Debug, Clone)]
pub struct Unjudged {
    claims: ServiceClaims,
    curve: Curve,
    signed: String,
    signature: [u8; SIGNATURE_BYTES],
}

/// What a token must say.
#[derive(Debug, Clone, Copy)]
pub struct ServiceExpected<'a> {
    /// The DID of the service that was called; a fragment behind it may name any of its services.
    pub audience: &'a str,
    /// The method that was called.
    pub method: &'a str,
    /// Seconds since 1970.
    pub now: u64,
}

/// Takes a token apart, so that its issuer's key can be looked up.
/// # Errors
/// `Form` or `Algorithm`.
pub fn parse_service(token: &str) -> Result<Unjudged, ServiceError> {
    let parts = split(token).ok_or(ServiceError::Form)?;
    let header: Header = decode_json(parts.header).ok_or(ServiceError::Form)?;
    // The types of other tokens, which must not be taken for this one.
    let foreign = header.typ.as_deref().is_some_and(|typ| !typ.eq_ignore_ascii_case("JWT"));
    if foreign || header.crit.is_some() {
        return Err(ServiceError::Form);
    }
    let curve = match header.alg.as_str() {
        "ES256K" => Curve::K256,
        "ES256" => Curve::P256,
        _ => return Err(ServiceError::Algorithm),
    };
    let claims = decode_json(parts.payload).ok_or(ServiceError::Form)?;
    let signature = decode(parts.signature).and_then(|bytes| bytes.try_into().ok()).ok_or(ServiceError::Form)?;
    Ok(Unjudged { claims, curve, signed: parts.signed.to_owned(), signature })
}

impl Unjudged {
    /// The DID that it claims to come from.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.claims.iss
    }

    /// Judges it by its issuer's key. A signature with a high s is refused, so that a token has one form.
    /// # Errors
    /// [`ServiceError`].
    pub fn judge(self, key: &PublicKey, expected: &ServiceExpected) -> Result<ServiceClaims, ServiceError> {
        if self.curve != curve_of(key) {
            return Err(ServiceError::Algorithm);
        }
        key.verify(self.signed.as_bytes(), &self.signature).map_err(|_| ServiceError::Signature)?;
        let claims = self.claims;
        let audience = claims.aud.split_once('#').map_or(claims.aud.as_str(), |(did, _)| did);
        if audience != expected.audience {
            return Err(ServiceError::Audience);
        }
        if claims.lxm.as_deref() != Some(expected.method) {
            return Err(ServiceError::Method);
        }
        if expected.now >= claims.exp {
            return Err(ServiceError::Expired);
        }
        let latest = expected.now + SERVICE_SKEW_SECONDS;
        if claims.iat > latest || claims.exp > latest + SERVICE_SECONDS_MAX {
            return Err(ServiceError::Lifetime);
        }
        Ok(claims)
    }
}

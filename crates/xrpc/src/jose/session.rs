//! Tokens of sessions: signed by this server for itself.

use super::{decode, decode_json, encode, split};
use highwater_pds::credentials::{Grant, REFRESH_SECONDS, SessionId};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::fmt;
use thiserror::Error;

/// Seconds for which an access token is good. A lock does not wait for that: the account's row is looked at each time.
pub const ACCESS_SECONDS: u64 = 120 * 60;

/// Headers, written in one way only: a token with another spelling is none of ours.
const ACCESS_HEADER: &str = r#"{"typ":"at+jwt","alg":"HS256"}"#;
const REFRESH_HEADER: &str = r#"{"typ":"refresh+jwt","alg":"HS256"}"#;

/// What a token may do, as it says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenScope {
    /// Everything.
    #[serde(rename = "com.atproto.access")]
    Access,
    /// What a program may do.
    #[serde(rename = "com.atproto.appPass")]
    AppPass,
    /// What a privileged program may do.
    #[serde(rename = "com.atproto.appPassPrivileged")]
    AppPassPrivileged,
    /// To be exchanged for the next pair of tokens, and nothing else.
    #[serde(rename = "com.atproto.refresh")]
    Refresh,
}

impl TokenScope {
    /// That of access tokens of a session.
    #[must_use]
    pub fn of(grant: &Grant) -> Self {
        match grant {
            Grant::Full => Self::Access,
            Grant::AppPassword { privileged: false, .. } => Self::AppPass,
            Grant::AppPassword { privileged: true, .. } => Self::AppPassPrivileged,
        }
    }
}

/// What a token of a session says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionClaims {
    /// What it may do.
    pub scope: TokenScope,
    /// Whose it is: a DID.
    pub subject: String,
    /// Which session it belongs to.
    pub session: SessionId,
    /// Of which generation of the session it is.
    pub generation: u32,
    /// When it was issued, in seconds since 1970.
    pub issued: u64,
}

impl SessionClaims {
    /// When it ends, in seconds since 1970: it is good before that.
    #[must_use]
    pub fn expires(&self) -> u64 {
        let lifetime = if self.scope == TokenScope::Refresh { REFRESH_SECONDS } else { ACCESS_SECONDS };
        self.issued.saturating_add(lifetime)
    }
}

/// Why a token is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TokenError {
    /// It is not in the form of one.
    #[error("this is no token of a session")]
    Form,
    /// It was signed with another key, or changed.
    #[error("the token was not issued by this server, or was changed")]
    Signature,
    /// It is for another server.
    #[error("the token is for another server")]
    Audience,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
}

/// What session tokens are signed with.
#[derive(Clone)]
pub struct SessionKey([u8; 32]);

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey")
    }
}

/// The payload of a token.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    scope: TokenScope,
    aud: String,
    sub: String,
    iat: u64,
    exp: u64,
    jti: String,
}

impl SessionKey {
    /// The key with this secret.
    #[must_use]
    pub fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    fn mac(&self, signed: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(signed.as_bytes());
        mac
    }

    /// The token that says this, for one server. The same claims give the same token.
    #[must_use]
    pub fn mint(&self, claims: &SessionClaims, audience: &str) -> String {
        let header = if claims.scope == TokenScope::Refresh { REFRESH_HEADER } else { ACCESS_HEADER };
        let payload = Payload {
            scope: claims.scope,
            aud: audience.to_owned(),
            sub: claims.subject.clone(),
            iat: claims.issued,
            exp: claims.expires(),
            jti: format!("{}.{}", claims.session, claims.generation),
        };
        let payload = serde_json::to_vec(&payload).expect("text and numbers are JSON");
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(&payload));
        let signature = encode(&self.mac(&signed).finalize().into_bytes());
        format!("{signed}.{signature}")
    }

    /// What a token says, if this server issued it for itself and its time, in seconds since 1970, is not over.
    ///
    /// The header must be one of two texts, so that no token chooses how it is judged; the comparison takes the same time for all
    /// signatures; and nothing is parsed before it held.
    /// # Errors
    /// [`TokenError`].
    pub fn verify(&self, token: &str, audience: &str, now: u64) -> Result<SessionClaims, TokenError> {
        let parts = split(token).ok_or(TokenError::Form)?;
        let refresh = match () {
            () if parts.header == encode(ACCESS_HEADER.as_bytes()) => false,
            () if parts.header == encode(REFRESH_HEADER.as_bytes()) => true,
            () => return Err(TokenError::Form),
        };
        let signature = decode(parts.signature).ok_or(TokenError::Form)?;
        self.mac(parts.signed).verify_slice(&signature).map_err(|_| TokenError::Signature)?;
        let payload: Payload = decode_json(parts.payload).ok_or(TokenError::Form)?;
        let (session, generation) = payload.jti.split_once('.').ok_or(TokenError::Form)?;
        let session = SessionId::parse(session).ok_or(TokenError::Form)?;
        let generation = generation.parse().map_err(|_| TokenError::Form)?;
        if refresh != (payload.scope == TokenScope::Refresh) {
            return Err(TokenError::Form);
        }
        if payload.aud != audience {
            return Err(TokenError::Audience);
        }
        if now >= payload.exp {
            return Err(TokenError::Expired);
        }
        Ok(SessionClaims { scope: payload.scope, subject: payload.sub, session, generation, issued: payload.iat })
    }
}

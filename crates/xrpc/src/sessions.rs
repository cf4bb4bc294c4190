//! Who opens sessions, and what their tokens are worth.
//!
//! A token says whose it is, and the account's row decides: whether the account may have sessions now, whether this one is open, and
//! what it was opened with. So a lock, a logout and a revoked password bite at once, whatever time a token has left.
//!
//! A session is opened, rotated and closed in the log, synced before it is answered, like everything else: a rotation that a crash
//! forgot would make the token that a client holds by then a stranger.

use crate::auth::{Access, Gatekeeper, Scope};
use crate::call::{self, Call};
use crate::context::Context;
use crate::error::{Error, Name, Result};
use crate::jose::{SessionClaims, SessionKey, TokenError, TokenScope};
use crate::passwords::{Cost, Passwords};
use axum::http::header;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use highwater_host::{Host, Unsettled};
use highwater_pds::credentials::{Change, Grant, Issued, SessionId};
use highwater_pds::{Account, Asker, Authority, Fact, Withdrawn, lifecycle};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fmt;
use thiserror::Error as Errors;

/// Who the administrator is.
const ADMIN: &str = "admin";

/// What sessions need from the settings.
#[derive(Clone, Default)]
pub struct AuthOptions {
    /// The password of `com.atproto.admin` methods; without one nobody may call them.
    pub admin_password: Option<String>,
    /// What new hashes of passwords cost.
    pub cost: Cost,
}

impl fmt::Debug for AuthOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let admin = self.admin_password.is_some();
        f.debug_struct("AuthOptions").field("admin_password", &admin).field("cost", &self.cost).finish()
    }
}

/// Why nobody can log in.
#[derive(Debug, Errors)]
pub enum AuthError {
    /// The secret that tokens are signed with does not open.
    #[error(
        "the secret of sessions does not open under the key file in use; it is not the one that the directory was made with"
    )]
    Secret,
    /// It could not be written.
    #[error("the secret of sessions could not be written: {0}")]
    Unsettled(#[from] Unsettled),
}

/// Judges sessions and the administrator.
pub struct Auth {
    key: SessionKey,
    pub(crate) passwords: Passwords,
    /// This server's DID: whom tokens are for.
    audience: String,
    /// A keyed digest of the administrator's password, so that comparing takes the same time for all.
    admin: Option<[u8; 32]>,
    admin_key: [u8; 32],
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth")
            .field("audience", &self.audience)
            .field("admin", &self.admin.is_some())
            .finish_non_exhaustive()
    }
}

/// 32 random bytes, good for secrets.
fn draw(host: &Host) -> [u8; 32] {
    let mut drawn = [0; 32];
    drawn.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&host.random_u64().to_le_bytes()));
    drawn
}

fn digest(key: &[u8; 32], password: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(password);
    mac
}

/// A pair of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub access: String,
    pub refresh: String,
}

fn authorization<'a>(head: &'a Parts, scheme: &str) -> Result<&'a str> {
    let missing = || Error::new(Name::AuthMissing, format!("the method needs `Authorization: {scheme} …`"));
    let value = head.headers.get(header::AUTHORIZATION).ok_or_else(missing)?;
    let (found, rest) = value.to_str().ok().and_then(|value| value.split_once(' ')).ok_or_else(missing)?;
    if found.eq_ignore_ascii_case(scheme) { Ok(rest.trim()) } else { Err(missing()) }
}

/// The token of a request.
/// # Errors
/// `AuthMissing`.
pub(crate) fn bearer(head: &Parts) -> Result<&str> {
    authorization(head, "Bearer")
}

impl From<TokenError> for Error {
    fn from(error: TokenError) -> Self {
        let name = if error == TokenError::Expired { Name::ExpiredToken } else { Name::InvalidToken };
        Self::new(name, error.to_string())
    }
}

fn ended() -> Error {
    Withdrawn::Ended.into()
}

impl Auth {
    /// Reads the secret that tokens are signed with, or draws one and waits until it is durable.
    /// # Errors
    /// [`AuthError`].
    pub fn open(host: &Host, options: AuthOptions) -> std::result::Result<Self, AuthError> {
        let kept = host.state(|state| state.session_secret.clone());
        let secret = match kept {
            Some((sealed, secret)) => host.unseal(sealed, &secret).and_then(|secret| secret.try_into().ok()),
            None => {
                let drawn = draw(host);
                let (sealed, secret) = host.seal(&drawn);
                host.note(Fact::SessionSecret { sealed, secret }).wait()?;
                Some(drawn)
            }
        };
        let admin_key = draw(host);
        let admin = options
            .admin_password
            .map(|password| digest(&admin_key, password.as_bytes()).finalize().into_bytes().into());
        Ok(Self {
            key: SessionKey::new(secret.ok_or(AuthError::Secret)?),
            passwords: Passwords::new(options.cost),
            audience: crate::names::server_did(host.zone()),
            admin,
            admin_key,
        })
    }

    /// Hashes of passwords that were computed so far.
    #[must_use]
    pub fn hashes_computed(&self) -> u64 {
        self.passwords.computed()
    }

    /// This server's DID.
    pub(crate) fn audience(&self) -> &str {
        &self.audience
    }

    /// What a request's token says, of whichever kind it is.
    fn claims(&self, context: &Context, head: &Parts) -> Result<SessionClaims> {
        Ok(self.key.verify(bearer(head)?, &self.audience, context.clock.wall().0 / 1_000)?)
    }

    /// What the refresh token of a request says.
    /// # Errors
    /// `AuthMissing`, `InvalidToken`, `ExpiredToken`.
    pub(crate) fn refresh_claims(&self, context: &Context, head: &Parts) -> Result<SessionClaims> {
        let claims = self.claims(context, head)?;
        if claims.scope != TokenScope::Refresh {
            return Err(Error::new(Name::InvalidToken, "this is an access token; the method takes a refresh token"));
        }
        Ok(claims)
    }

    /// The tokens of a generation of a session. The refresh token is the same each time; the access token begins now.
    pub(crate) fn tokens(&self, context: &Context, account: &Account, id: SessionId, issued: Issued) -> Result<Tokens> {
        let session = account.credentials.sessions.get(&id).ok_or_else(ended)?;
        let mint = |scope, at| {
            let subject = account.did.to_string();
            let claims = SessionClaims { scope, subject, session: id, generation: issued.generation, issued: at };
            self.key.mint(&claims, &self.audience)
        };
        let now = context.clock.wall().0 / 1_000;
        Ok(Tokens {
            access: mint(TokenScope::of(&session.grant), now),
            refresh: mint(TokenScope::Refresh, issued.at.0 / 1_000_000),
        })
    }

    /// Whether a request comes from the administrator. Wrong passwords of an address are counted, so that nobody tries them all.
    /// # Errors
    /// `AuthMissing`, `AuthenticationRequired`, `RateLimitExceeded`; `Forbidden` if the server has no administrator.
    pub(crate) fn admin(&self, call: &Call) -> Result<()> {
        let given = authorization(&call.head, "Basic")?;
        let Some(kept) = self.admin else {
            return Err(Error::new(Name::Forbidden, "this server has no administrator: set `pds.admin_password_file`"));
        };
        let (limits, now) = (&call.context.limits, call.context.clock.wall());
        limits.admin_may(call.peer, now)?;
        let decoded = STANDARD.decode(given).unwrap_or_default();
        let colon = decoded.iter().position(|byte| *byte == b':').unwrap_or(decoded.len());
        let (user, password) = decoded.split_at(colon);
        let fits = digest(&self.admin_key, password.get(1..).unwrap_or_default()).verify_slice(&kept).is_ok();
        if !fits || user != ADMIN.as_bytes() {
            limits.admin_failed(call.peer, now);
            return Err(Error::new(Name::AuthenticationRequired, "the administrator's name or password is wrong"));
        }
        Ok(())
    }
}

impl Gatekeeper for Auth {
    fn access(&self, context: &Context, head: &Parts) -> Result<Access> {
        let claims = self.claims(context, head)?;
        let scope = match claims.scope {
            TokenScope::Access => Scope::Full,
            TokenScope::AppPass => Scope::AppPassword,
            TokenScope::AppPassPrivileged => Scope::AppPasswordPrivileged,
            TokenScope::Refresh => {
                return Err(Error::new(
                    Name::InvalidToken,
                    "this is a refresh token; the method takes an access token",
                ));
            }
        };
        context.host.state(|state| {
            let account = state.by_did(&claims.subject).ok_or_else(ended)?;
            let authority = Authority::Session(claims.session);
            authority.judge(account)?;
            let session = account.credentials.sessions.get(&claims.session).ok_or_else(ended)?;
            if TokenScope::of(&session.grant) != claims.scope {
                return Err(Error::new(Name::InvalidToken, "the session was not opened with what the token says"));
            }
            Ok(Access { account: account.id, scope, authority })
        })
    }

    fn auth(&self) -> Option<&Auth> {
        Some(self)
    }
}

impl Call {
    /// Who opens sessions.
    /// # Errors
    /// `AuthMissing` if nobody does.
    pub(crate) fn auth(&self) -> Result<&Auth> {
        self.context.auth()
    }

    /// Whose request it is, if the session was opened with the account's own password: only that manages the account.
    /// # Errors
    /// As [`Call::access`]; `InvalidToken` for a session of an app password.
    pub(crate) fn owner(&self) -> Result<Access> {
        let access = self.access()?;
        if access.scope == Scope::Full {
            return Ok(access);
        }
        Err(Error::new(
            Name::InvalidToken,
            "an app password does not manage the account: log in with the account's own",
        ))
    }

    /// That the request comes from the administrator.
    /// # Errors
    /// `AuthMissing`, `AuthenticationRequired`, `RateLimitExceeded`, `Forbidden`.
    pub(crate) fn admin(&self) -> Result<()> {
        self.auth()?.admin(self)?;
        self.is_operators();
        Ok(())
    }

    /// Whether the request shows a name and a password, as the administrator does.
    pub(crate) fn shows_password(&self) -> bool {
        authorization(&self.head, "Basic").is_ok()
    }

    /// The row of an account that is there.
    /// # Errors
    /// `ExpiredToken` if it is not.
    pub(crate) fn row(&self, access: &Access) -> Result<Account> {
        let row = self.context.host.state(|state| state.accounts.get(&access.account).cloned());
        row.ok_or_else(ended)
    }
}

impl Context {
    /// Has changes of an account's credentials become durable. Their turn is built where it may wait for another one; without any, it
    /// only judges who asks.
    pub(crate) async fn keep(&self, asker: impl Into<Asker>, changes: impl IntoIterator<Item = Change>) -> Result<()> {
        let (host, asker) = (self.host.clone(), asker.into());
        let id = asker.account;
        let facts = changes.into_iter().map(|change| Fact::Credentials(id, change)).collect();
        call::blocking(move || host.facts(asker, facts)).await?.await?;
        Ok(())
    }

    /// Changes where an account stands. The turn signs, and may read the disk.
    pub(crate) async fn change(&self, asker: impl Into<Asker>, change: lifecycle::Change) -> Result<()> {
        let (host, asker) = (self.host.clone(), asker.into());
        call::blocking(move || host.change(asker, change)).await?.await?;
        Ok(())
    }

    /// Who opens sessions.
    /// # Errors
    /// `AuthMissing` if nobody does.
    pub(crate) fn auth(&self) -> Result<&Auth> {
        self.gatekeeper.auth().ok_or_else(|| Error::new(Name::AuthMissing, "this server opens no sessions"))
    }

    /// 16 random bytes, good for secrets.
    pub(crate) fn draw_16(&self) -> [u8; 16] {
        let drawn = u128::from(self.draw()) << 64 | u128::from(self.draw());
        drawn.to_be_bytes()
    }

    /// Opens a session of an account. Returns its row, which has the session, and its tokens. `authority` let the client in: to check
    /// a password takes time, in which it may be changed.
    pub(crate) async fn open_session(
        &self,
        did: &str,
        grant: Grant,
        authority: Authority,
    ) -> Result<(Account, Tokens)> {
        let host = &self.host;
        let row = || host.state(|state| state.by_did(did).cloned()).ok_or_else(ended);
        let (account, id) = (row()?.id, SessionId(self.draw_16()));
        let change = Change::SessionOpened { id, grant, at: host.now() };
        self.keep(Asker { account, authority }, [change]).await?;
        let row = row()?;
        let issued = row.credentials.sessions.get(&id).ok_or_else(ended)?.newest();
        let tokens = self.auth()?.tokens(self, &row, id, issued)?;
        Ok((row, tokens))
    }
}

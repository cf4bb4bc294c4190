//! What an account logs in with, and where it is logged in.
//!
//! A login opens a *session*: a row of refresh tokens of which each gives the next one, its generations. Tokens themselves are
//! not kept: a session's number, a generation and when that was issued are all that is in one, so that the same token is made
//! again when it is asked for again.
//!
//! Source: atproto `com.atproto.server.*Session` lexicons; what is kept of a rotation is decided in
//! `docs/explanation/pds-sessions.md`.

mod session;
#[cfg(test)]
mod tests;

pub use session::{
    GENERATIONS_KEPT_MAX, GraceOver, Grant, Issued, REFRESH_GRACE_SECONDS, REFRESH_SECONDS, Refresh, Session, SessionId,
};

use crate::time::Micros;
use highwater_base::codec::{DecodeError, Reader, Writer};
use std::collections::BTreeMap;

/// Sessions of an account at once; one more ends the one that was refreshed longest ago.
///
/// A program that logs in every minute and never out opens 120 in the two hours that an access token lasts; a longer one beside
/// it, which refreshes when its access token expires, must not be the one that ends. A session takes about 60 bytes of a row.
pub const SESSIONS_MAX: usize = 200;

/// App passwords of an account at once: far more than programs that one bot needs, and a bound of what a login compares.
pub const APP_PASSWORDS_MAX: usize = 64;

/// Bytes of an app password's name.
pub const APP_PASSWORD_NAME_BYTES_MAX: usize = 64;

/// An account's credentials.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// The password's hash, in the PHC string format.
    pub password: Option<String>,
    /// Passwords of single programs, by their names.
    pub app_passwords: BTreeMap<String, AppPassword>,
    /// Where the account is logged in.
    pub sessions: BTreeMap<SessionId, Session>,
}

/// A password that was made for a program: shown once, kept as a digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppPassword {
    /// The key of the digest.
    pub salt: [u8; 16],
    /// The password's digest under it.
    pub digest: [u8; 32],
    /// Whether it may do what only privileged ones may.
    pub privileged: bool,
    /// When it was made.
    pub created: Micros,
}

/// A change of an account's credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Another password, by its hash. It ends all sessions.
    Password(String),
    /// A program got a password. Nothing happens if one has its name, or there are as many as there may be.
    AppPasswordCreated(String, AppPassword),
    /// A program's password is good no more. It ends the sessions that were opened with it.
    AppPasswordRevoked(String),
    /// A login.
    SessionOpened {
        /// The session's number.
        id: SessionId,
        /// With what.
        grant: Grant,
        /// When.
        at: Micros,
    },
    /// A refresh token gave the next one. Nothing happens if it had done so before.
    SessionRotated {
        /// The session's number.
        id: SessionId,
        /// The generation that gives the next one.
        from: u32,
        /// When.
        at: Micros,
    },
    /// A logout.
    SessionClosed(SessionId),
}

impl Credentials {
    /// Does a change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Password(hash) => {
                self.password = Some(hash.clone());
                self.sessions.clear();
            }
            Change::AppPasswordCreated(name, password) => {
                if self.app_passwords.len() < APP_PASSWORDS_MAX {
                    self.app_passwords.entry(name.clone()).or_insert_with(|| password.clone());
                }
            }
            Change::AppPasswordRevoked(name) => {
                self.app_passwords.remove(name);
                self.sessions.retain(|_, session| session.grant.app_password() != Some(name));
            }
            Change::SessionOpened { id, grant, at } => {
                self.purge(*at);
                if self.sessions.len() >= SESSIONS_MAX {
                    self.drop_stalest();
                }
                self.sessions.insert(*id, Session::opened(grant.clone(), *at));
            }
            Change::SessionRotated { id, from, at } => {
                self.purge(*at);
                if let Some(session) = self.sessions.get_mut(id) {
                    session.rotate(*from, *at);
                }
            }
            Change::SessionClosed(id) => {
                self.sessions.remove(id);
            }
        }
    }

    /// Forgets sessions whose newest refresh token has expired.
    fn purge(&mut self, now: Micros) {
        self.sessions.retain(|_, session| !session.expired(now));
    }

    fn drop_stalest(&mut self) {
        let stalest = self.sessions.iter().min_by_key(|(_, session)| session.newest().at).map(|(id, _)| *id);
        if let Some(id) = stalest {
            self.sessions.remove(&id);
        }
    }

    /// What a refresh token is good for.
    /// # Errors
    /// [`GraceOver`] if it is good no more: the session ended, or the token gave the next one too long ago.
    pub fn refresh(&self, id: SessionId, generation: u32, now: Micros) -> Result<Refresh, GraceOver> {
        self.sessions.get(&id).ok_or(GraceOver)?.refresh(generation, now)
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.option(self.password.as_ref(), |out, hash| {
            out.bytes(hash.as_bytes());
        });
        out.u32(self.app_passwords.len() as u32);
        for (name, password) in &self.app_passwords {
            password.encode(out.bytes(name.as_bytes()));
        }
        out.u32(self.sessions.len() as u32);
        for (id, session) in &self.sessions {
            session.encode(out.raw(&id.0));
        }
    }

    pub(crate) fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let mut credentials = Self { password: input.option(Reader::string)?, ..Self::default() };
        for _ in 0..input.u32()? {
            if credentials.app_passwords.insert(input.string()?, AppPassword::decode(input)?).is_some() {
                return Err(DecodeError::Invalid("app password"));
            }
        }
        for _ in 0..input.u32()? {
            if credentials.sessions.insert(SessionId(input.array()?), Session::decode(input)?).is_some() {
                return Err(DecodeError::Invalid("session"));
            }
        }
        Ok(credentials)
    }
}

impl AppPassword {
    fn encode(&self, out: &mut Writer) {
        out.raw(&self.salt).raw(&self.digest).bool(self.privileged).u64(self.created.0);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let (salt, digest) = (input.array()?, input.array()?);
        Ok(Self { salt, digest, privileged: input.bool()?, created: Micros(input.u64()?) })
    }
}

impl Change {
    pub(crate) fn encode(&self, out: &mut Writer) {
        match self {
            Self::Password(hash) => {
                out.u8(1).bytes(hash.as_bytes());
            }
            Self::AppPasswordCreated(name, password) => password.encode(out.u8(2).bytes(name.as_bytes())),
            Self::AppPasswordRevoked(name) => {
                out.u8(3).bytes(name.as_bytes());
            }
            Self::SessionOpened { id, grant, at } => {
                grant.encode(out.u8(4).raw(&id.0));
                out.u64(at.0);
            }
            Self::SessionRotated { id, from, at } => {
                out.u8(5).raw(&id.0).u32(*from).u64(at.0);
            }
            Self::SessionClosed(id) => {
                out.u8(6).raw(&id.0);
            }
        }
    }

    pub(crate) fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match input.u8()? {
            1 => Self::Password(input.string()?),
            2 => Self::AppPasswordCreated(input.string()?, AppPassword::decode(input)?),
            3 => Self::AppPasswordRevoked(input.string()?),
            4 => {
                let (id, grant) = (SessionId(input.array()?), Grant::decode(input)?);
                Self::SessionOpened { id, grant, at: Micros(input.u64()?) }
            }
            5 => Self::SessionRotated { id: SessionId(input.array()?), from: input.u32()?, at: Micros(input.u64()?) },
            6 => Self::SessionClosed(SessionId(input.array()?)),
            _ => return Err(DecodeError::Invalid("change of credentials")),
        })
    }
}

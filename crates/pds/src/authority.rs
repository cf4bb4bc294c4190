//! In whose name a turn is asked for, and whether that still stands when the turn comes.
//!
//! A request is judged by what is durable when it begins; its body comes, and then the account's turn. Meanwhile the session may have
//! been closed, the password changed, the account locked. So what let the request in goes with it to its turn, which judges it by the
//! row that the turn builds on: whatever was handed over before the turn counts, whatever comes later comes later.
//!
//! Source: docs/reference/pds-accounts.md (writes, tokens); every check of a token also reads the account's row.

use crate::account::{Account, AccountId};
use crate::blob;
use crate::credentials::{AppPassword, Change, SessionId};
use crate::record::Fact;
use thiserror::Error;

/// What lets a request in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// The operator, or the server by itself: nothing of the account's can be withdrawn from them.
    Server,
    /// A session, by a token of it.
    Session(SessionId),
    /// A token that the account's own key signed. It stands as long as the account may have sessions.
    Key,
    /// The account's password, by the hash that it was held against.
    Password(String),
    /// A program's password, by its name and as it was when it was held against.
    AppPassword(String, AppPassword),
}

/// Who asks for a turn of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// The account.
    pub account: AccountId,
    /// In whose name.
    pub authority: Authority,
}

impl From<AccountId> for Asker {
    /// The operator, or the server by itself.
    fn from(account: AccountId) -> Self {
        Self { account, authority: Authority::Server }
    }
}

/// Why something is not done in the name of an account, or not any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Withdrawn {
    /// A logout, another password, or a newer session ended it.
    #[error("the session has ended: log in again")]
    Ended,
    /// The password that was given is none of the account's any more.
    #[error("the password was changed or revoked meanwhile")]
    Password,
    /// Nothing is left that anybody could log in to.
    #[error("the account was erased")]
    Erased,
    /// By the admin API.
    #[error("the account has been taken down")]
    TakenDown,
    /// The operator's lock.
    #[error("the account is locked by the operator")]
    Locked,
    /// It went to another host, or is retired.
    #[error("the account went to another host, or is retired")]
    Decommissioned,
    /// It has yet to begin.
    #[error("the account is not active yet: the operator activates it")]
    NotActivated,
    /// By its owner, who may undo it and nothing else.
    #[error("the account is deactivated: activate it first")]
    Deactivated,
}

impl Account {
    /// Whether it may have sessions now.
    /// # Errors
    /// Why not.
    pub fn may_have_sessions(&self) -> Result<(), Withdrawn> {
        let standing = self.standing;
        Err(if standing.erased {
            Withdrawn::Erased
        } else if standing.taken_down {
            Withdrawn::TakenDown
        } else if standing.suspended {
            Withdrawn::Locked
        } else if standing.decommissioned {
            Withdrawn::Decommissioned
        } else if !standing.activated {
            Withdrawn::NotActivated
        } else {
            return Ok(());
        })
    }

    /// Whether it may change anything but where it stands.
    /// # Errors
    /// Why not: as [`Self::may_have_sessions`], or it is deactivated.
    pub fn may_act(&self) -> Result<(), Withdrawn> {
        self.may_have_sessions()?;
        if self.standing.deactivated { Err(Withdrawn::Deactivated) } else { Ok(()) }
    }
}

impl Authority {
    /// Whether it stands, by the account's row.
    /// # Errors
    /// Why it was withdrawn.
    pub fn judge(&self, account: &Account) -> Result<(), Withdrawn> {
        if *self != Self::Server {
            account.may_have_sessions()?;
        }
        let credentials = &account.credentials;
        match self {
            Self::Server | Self::Key => Ok(()),
            Self::Session(id) if credentials.sessions.contains_key(id) => Ok(()),
            Self::Session(_) => Err(Withdrawn::Ended),
            Self::Password(hash) if credentials.password.as_ref() == Some(hash) => Ok(()),
            Self::AppPassword(name, kept) if credentials.app_passwords.get(name) == Some(kept) => Ok(()),
            Self::Password(_) | Self::AppPassword(..) => Err(Withdrawn::Password),
        }
    }
}

impl Fact {
    /// Whether an account's row takes it now, whoever asks: sessions begin where there may be some, and what an account does it does
    /// while it is active. What the operator changes, and what ends, is taken wherever the account stands.
    /// # Errors
    /// Why not.
    pub fn judge(&self, account: &Account) -> Result<(), Withdrawn> {
        match self {
            Self::Credentials(_, Change::SessionOpened { .. } | Change::SessionRotated { .. }) => {
                account.may_have_sessions()
            }
            Self::Credentials(_, Change::AppPasswordCreated(..)) | Self::Blob(_, blob::Change::Uploaded { .. }) => {
                account.may_act()
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;

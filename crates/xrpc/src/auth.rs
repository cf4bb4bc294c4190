//! Whose request it is, and what it may do.

use crate::context::Context;
use crate::error::{Error, Name};
use crate::sessions::Auth;
use axum::http::request::Parts;
use highwater_pds::{AccountId, Asker, Authority};
use std::fmt;

/// What a session may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everything that the account may.
    Full,
    /// Everything but managing the account.
    AppPassword,
    /// As [`Self::AppPassword`], and private messages.
    AppPasswordPrivileged,
}

/// Whose request it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The account.
    pub account: AccountId,
    /// What the session may do.
    pub scope: Scope,
    /// What let the request in: it goes with whatever the request has done, and is judged again when that is.
    pub authority: Authority,
}

impl Access {
    /// Who asks the host.
    #[must_use]
    pub fn asker(&self) -> Asker {
        Asker { account: self.account, authority: self.authority.clone() }
    }
}

/// Who judges what requests carry.
pub trait Gatekeeper: Send + Sync + fmt::Debug + 'static {
    /// Whose request this is. The account's row is looked at each time, so that a lock bites at once.
    /// # Errors
    /// `AuthMissing`, `InvalidToken`, `ExpiredToken`, or what stops the account.
    fn access(&self, context: &Context, head: &Parts) -> Result<Access, Error>;

    /// Who opens sessions; nobody if accounts cannot log in.
    fn auth(&self) -> Option<&Auth> {
        None
    }
}

/// Lets nobody in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Gatekeeper for Nobody {
    fn access(&self, _: &Context, _: &Parts) -> Result<Access, Error> {
        Err(Error::new(Name::AuthMissing, "this server opens no sessions"))
    }
}

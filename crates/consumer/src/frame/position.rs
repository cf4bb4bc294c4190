//! Where an account stands.

use highwater_repo::syntax::SyntaxError;
use std::fmt;
use std::str::FromStr;

/// Why an account is not served as it is, in the words of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// Taken down by whoever runs the server.
    Takendown,
    /// Suspended for a time.
    Suspended,
    /// Deleted with its records.
    Deleted,
    /// Deactivated by its owner.
    Deactivated,
    /// The server lost track of its repository.
    Desynchronized,
    /// Served with delay.
    Throttled,
}

impl Status {
    /// All that there are.
    pub const ALL: [Self; 6] =
        [Self::Takendown, Self::Suspended, Self::Deleted, Self::Deactivated, Self::Desynchronized, Self::Throttled];

    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Takendown => "takendown",
            Self::Suspended => "suspended",
            Self::Deleted => "deleted",
            Self::Deactivated => "deactivated",
            Self::Desynchronized => "desynchronized",
            Self::Throttled => "throttled",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Status {
    type Err = SyntaxError;

    fn from_str(text: &str) -> Result<Self, SyntaxError> {
        let found = Self::ALL.into_iter().find(|status| status.as_str() == text);
        found.ok_or(SyntaxError("status of an account"))
    }
}

/// What an `#account` says, and what `getRepoStatus` must answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    active: bool,
    status: Option<Status>,
}

impl Position {
    /// Served, without more to say.
    pub const ACTIVE: Self = Self { active: true, status: None };

    /// Of the two fields.
    /// # Errors
    /// The rule that they break together.
    /// Source: lexicon `com.atproto.sync.subscribeRepos#account`, the known values of `status`.
    pub fn new(active: bool, status: Option<Status>) -> Result<Self, &'static str> {
        match (active, status) {
            (true, None | Some(Status::Desynchronized | Status::Throttled)) | (false, Some(_)) => {
                Ok(Self { active, status })
            }
            (true, Some(_)) => Err("an active account does not have this status"),
            (false, None) => Err("an account that is not active says why"),
        }
    }

    /// Not served, for this reason.
    #[must_use]
    pub fn inactive(status: Status) -> Self {
        Self { active: false, status: Some(status) }
    }

    /// Whether the account's records are handed on.
    #[must_use]
    pub fn is_active(self) -> bool {
        self.active
    }

    /// What else is said.
    #[must_use]
    pub fn status(self) -> Option<Status> {
        self.status
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.active, self.status) {
            (true, None) => f.write_str("active"),
            (true, Some(status)) => write!(f, "active, {status}"),
            (false, Some(status)) => write!(f, "{status}"),
            (false, None) => f.write_str("inactive"),
        }
    }
}

//! What the control plane answers.

use crate::record::{Account, Key, Plan};
use std::sync::Arc;
use thiserror::Error;

/// What a change did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A key was made, or changed.
    Key(Arc<Key>),
    /// The request had made this key before. Its secret was told then.
    KeyRepeated(Arc<Key>),
    /// An account as it is now.
    Account {
        /// The account.
        account: Arc<Account>,
        /// Whether this made it.
        created: bool,
    },
    /// A plan as it is now.
    Plan {
        /// The plan.
        plan: Arc<Plan>,
        /// Whether this made it.
        created: bool,
    },
    /// An account as it was before it was removed.
    AccountDeleted(Arc<Account>),
    /// A plan as it was before it was removed.
    PlanDeleted(Arc<Plan>),
}

/// Why nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// A field cannot be what it is.
    #[error("{0}")]
    Invalid(&'static str),
    /// No key has this id.
    #[error("there is no such key")]
    KeyNotFound,
    /// The key was revoked, which is for good.
    #[error("the key was revoked")]
    KeyRevoked,
    /// No account has this name.
    #[error("there is no account {0}")]
    AccountNotFound(String),
    /// No plan has this name.
    #[error("there is no plan {0}")]
    PlanNotFound(String),
    /// An account or a plan with other settings has this name.
    #[error("{0} is there already, with other settings")]
    Exists(String),
    /// Another account has this bucket.
    #[error("the bucket {bucket} belongs to the account {account}")]
    BucketTaken {
        /// The bucket.
        bucket: String,
        /// Whose it is.
        account: String,
    },
    /// Something still needs what was to be removed.
    #[error("{what} is still used: {by}")]
    InUse {
        /// What was to be removed.
        what: String,
        /// What needs it, and what to do about that.
        by: String,
    },
    /// The request's id made a key with other settings.
    #[error("the request's id made a key with other settings before")]
    RequestReused,
    /// Without an administrator's key nobody could make another, or revoke one.
    #[error("the first key must have the scope admin: without one nobody could make or revoke keys")]
    AdminKeyFirst,
    /// Nobody could make or revoke keys afterwards, or the server would be open.
    #[error("no other key in force has the scope admin: nobody could make or revoke keys afterwards")]
    AdminKeyLast,
    /// There are as many as there may be.
    #[error("there are as many {0} as there may be")]
    Full(&'static str),
}

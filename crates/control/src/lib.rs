//! The control plane: keys, accounts and plans, and who may do what.
//!
//! # Purpose
//! The pure machine of the cluster's one control group. A command goes in, the state moves, an outcome comes out; what
//! front ends ask about a request, they ask an immutable [`View`] of the state.
//!
//! # Modules
//! - [`command`]: what can be asked, one enum, with its codec
//! - [`record`]: keys, accounts and plans, and the bytes in which they are stored
//! - [`credential`]: the spelling of a key, `hw_<id>_<secret>`
//! - [`scope`]: what a key may do
//! - [`limits`]: how many of what there may be, and the syntax of names
//! - [`machine`]: what each command does to the state
//! - [`outcome`]: what can be answered, refusals included
//! - [`view`]: the state as it is published, and its verdicts
//!
//! # Invariants
//! Equal states given equal commands end equal. A refusal changes nothing. No secret is in a command, in the state or
//! in an answer: only its hash. A server that ever had a key is open again only once each of its keys was revoked;
//! that time passes opens nothing.
//!
//! # Must not depend on
//! Anything that reads a clock, draws entropy or does I/O; the time and every random number are in the command.

pub mod command;
pub mod credential;
pub mod limits;
pub mod machine;
pub mod outcome;
pub mod record;
pub mod scope;
pub mod view;

pub use command::{Change, Command, CreateAccount, CreateKey, Operation, PatchAccount, PlanChanges};
pub use credential::{Credential, KeyId};
pub use machine::{Applied, Machine};
pub use outcome::{Outcome, Refusal};
pub use record::{Account, Key, Plan, PlanLimits};
pub use scope::{Scope, Scopes};
pub use view::{Denied, View};

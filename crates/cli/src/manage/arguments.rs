//! The command line of keys, accounts and plans.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Which server, and by what right.
#[derive(Debug, Args)]
pub struct Target {
    /// The server
    #[arg(long, env = "HIGHWATER_URL", default_value = "http://127.0.0.1:4437")]
    pub url: String,
    /// A key with the scope admin; HIGHWATER_TOKEN_FILE or HIGHWATER_TOKEN without it. Other users of the machine can
    /// see what stands on a command line
    #[arg(long)]
    pub key: Option<String>,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// What can be done with keys.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make a key and print it; it is shown this once
    Create {
        /// What it may do: read, append, create, snapshot, delete, metrics, admin
        #[arg(long, value_delimiter = ',', required = true)]
        scopes: Vec<String>,
        /// Only at or below this path, such as app or app/db; may be given several times
        #[arg(long)]
        prefix: Vec<String>,
        /// Only in this account's buckets, and on its plan
        #[arg(long)]
        account: Option<String>,
        /// Refuse it after so long, such as 90d, 12h, 30m, 45s
        #[arg(long)]
        expires_in: Option<String>,
        /// A word for people
        #[arg(long, default_value = "")]
        note: String,
        /// Make it in this data directory while no server has it open, in place of asking one
        #[arg(long, conflicts_with = "key")]
        data: Option<PathBuf>,
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
    /// List the keys, without their secrets
    List {
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
    /// Refuse a key from now on, for good
    Revoke {
        /// The key's id: the 12 characters behind hw_
        id: String,
        /// Even the last key with the scope admin, or the last of all, after which a server on loopback is open again
        #[arg(long)]
        last: bool,
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
    /// Give a key an end, or take it away
    Expire {
        /// The key's id: the 12 characters behind hw_
        id: String,
        /// After so long, such as 90d, 12h, 30m, 45s
        #[arg(long = "in", required_unless_present = "never", conflicts_with = "never")]
        expires_in: Option<String>,
        /// Not at all
        #[arg(long)]
        never: bool,
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
}

/// What can be done with accounts.
#[derive(Debug, Subcommand)]
pub enum AccountCommand {
    /// Make an account
    Create {
        /// Its name
        name: String,
        /// Its plan
        #[arg(long)]
        plan: String,
        /// A bucket that is its own; may be given several times
        #[arg(long)]
        bucket: Vec<String>,
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
    /// List the accounts, with what they hold
    List {
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
    /// Change an account
    Set {
        /// Its name
        name: String,
        /// Its plan
        #[arg(long)]
        plan: Option<String>,
        /// Its buckets, in place of those it has; may be given several times
        #[arg(long)]
        bucket: Vec<String>,
        /// No buckets any more: their streams stay, and count for nobody
        #[arg(long, conflicts_with = "bucket")]
        no_buckets: bool,
        /// Refuse its keys
        #[arg(long, conflicts_with = "active")]
        revoked: bool,
        /// Take its keys again
        #[arg(long)]
        active: bool,
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
    /// Delete an account that has neither buckets nor keys in force
    Delete {
        /// Its name
        name: String,
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
}

/// Limits, each a number or `none`.
#[derive(Debug, Args)]
pub struct Limits {
    /// Bytes that an account's buckets may hold together
    #[arg(long, value_name = "BYTES")]
    pub storage_bytes_max: Option<String>,
    /// Requests a second, on average
    #[arg(long, value_name = "REQUESTS")]
    pub requests_per_second: Option<String>,
    /// Requests at once after a pause
    #[arg(long, value_name = "REQUESTS")]
    pub requests_burst: Option<String>,
    /// Bytes a second that may be appended, on average
    #[arg(long, value_name = "BYTES")]
    pub append_bytes_per_second: Option<String>,
}

/// What can be done with plans.
#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Make a plan; a limit that is not given is none
    Create {
        /// Its name
        name: String,
        /// What it grants.
        #[command(flatten)]
        limits: Limits,
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
    /// List the plans
    List {
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
    /// Change limits of a plan, at once for every account that has it
    Set {
        /// Its name
        name: String,
        /// The new limits; `none` takes one away.
        #[command(flatten)]
        limits: Limits,
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
    /// Delete a plan that no account has
    Delete {
        /// Its name
        name: String,
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
}

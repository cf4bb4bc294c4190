//! The command line of the accounts of the AT Protocol.

use crate::manage::arguments::Target;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What can be done with a server of accounts.
#[derive(Debug, Subcommand)]
pub enum PdsCommand {
    /// Make, list, lock and erase accounts
    #[command(subcommand)]
    Account(PdsAccountCommand),
    /// Show the stream's numbers, its subscribers, and what relays have yet to hear
    Status {
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
    /// Have the relays of pds.relays read this server: after a restore, after an outage, or for the first time
    ///
    /// A relay that reads it already takes no notice. Each is asked at most once in 20 minutes. It ends with 0 if every relay was
    /// asked, now or a moment ago; with 5 if one did not answer; with 1 if one refused, so that trying again will not help. Without a
    /// relay nobody is asked: that is 2 for a server that others reach, and 0 for one that this machine alone reaches.
    Announce {
        /// Tell of every active account once more, for relays that are new: two frames for each. How many that are is said
        /// first, because relays limit how many they take
        #[arg(long)]
        resync: bool,
        /// Ask relays that were asked within the last 20 minutes, too
        #[arg(long)]
        force: bool,
        /// Do not ask before --resync
        #[arg(long)]
        yes: bool,
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
    /// Say that a stopped server's accounts were put back from an older copy
    ///
    /// At the next start the stream's numbers go on above all that the lost run gave out, and relays are told of each account
    /// anew, so that whoever follows the protocol ends with what this directory holds. Streams stay as they are: if the whole
    /// data directory was put back, use `highwater mark-restored`, which does this too.
    MarkRestored {
        /// The data directory
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The newest revision that the lost run is known to have made; what is sent has newer ones, whatever the clock says
        #[arg(long, value_name = "TID")]
        min_rev: Option<String>,
        /// The highest number of the stream that anybody is known to have got of the lost run, such as the `seq` that a relay's
        /// getHostStatus says of this host: the numbers go on above it. What the files of pds.witness_path and `pds.known` in the data
        /// directory remember counts without it
        #[arg(long, value_name = "NUMBER")]
        min_seq: Option<u64>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Give up the accounts that were in a stopped server's data directory and are lost for good, so that it begins without any
    ///
    /// A server that remembers accounts does not begin without them by itself. The numbers of its stream go on above those that are
    /// remembered. The names of the lost accounts are known to nobody any more: do not give them again.
    Forget {
        /// The data directory; `pds` in it is absent or empty
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The highest number of the stream that anybody is known to have got
        #[arg(long, value_name = "NUMBER")]
        min_seq: Option<u64>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Copy the accounts of a running server into a new folder on the server's machine
    Backup {
        /// The folder; made, or empty
        to: PathBuf,
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
    /// Put a backup of the accounts into a stopped server's data directory that has none, and mark it as restored
    ///
    /// The whole backup is read and checked first; one that is damaged is refused, and nothing is changed.
    Restore {
        /// The backup's folder
        backup: PathBuf,
        /// The data directory
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The newest revision that the lost run is known to have made
        #[arg(long, value_name = "TID")]
        min_rev: Option<String>,
        /// The highest number of the stream that anybody is known to have got of the lost run
        #[arg(long, value_name = "NUMBER")]
        min_seq: Option<u64>,
        /// The file with the key under which secrets are stored, if they are: they are checked, too
        #[arg(long, value_name = "FILE", env = "HIGHWATER_PDS_ENCRYPTION_FILE")]
        encryption_file: Option<PathBuf>,
        /// Print what was restored as JSON
        #[arg(long)]
        json: bool,
    },
    /// Read a backup of the accounts, or a stopped server's, from its first byte to its last, and check all of it
    ///
    /// Nothing of it is changed: it may lie on a disk that takes no writes. Keys and secrets that are encrypted are checked only with the file
    /// of their key.
    Verify {
        /// The backup's folder, or a data directory
        directory: PathBuf,
        /// The file with the key under which secrets are stored, if they are
        #[arg(long, value_name = "FILE", env = "HIGHWATER_PDS_ENCRYPTION_FILE")]
        encryption_file: Option<PathBuf>,
        /// Print what was found as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a file with a new key, under which a new server stores its accounts' keys and secrets
    NewKey {
        /// The file; it must not be there
        file: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Follow a server's stream by the protocol's rules, verify all of it, and print each event
    ///
    /// It ends with 0 only if every event that came was verified: with 4 if the server broke a rule, with 6 if a key or a
    /// repository was not to be had, so that events could not be verified, and with 5 if the server could not be reached.
    Follow(FollowArguments),
}

/// What is followed, and how.
#[derive(Debug, Args)]
pub struct FollowArguments {
    /// The server of accounts; another than Highwater's, too
    #[arg(env = "HIGHWATER_URL", default_value = "http://127.0.0.1:4437")]
    pub url: String,
    /// Begin behind this number; 0 is everything that is kept. Without it, what comes from now on
    #[arg(long)]
    pub cursor: Option<u64>,
    /// End when the event with this number, or one behind it, has come
    #[arg(long, value_name = "NUMBER")]
    pub until: Option<u64>,
    /// Seconds for which the server may be out of reach before following ends; 0 tries until it is stopped
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout_s: u64,
    /// Print a JSON object an event, and one at the end
    #[arg(long)]
    pub json: bool,
}

/// What can be done with accounts.
#[derive(Debug, Subcommand)]
pub enum PdsAccountCommand {
    /// Make an account, and print its names and its password; the password is shown this once
    Create {
        /// Its handle: one word of letters, digits and hyphens, or the whole handle; drawn without it
        #[arg(long)]
        handle: Option<String>,
        /// Read its password from standard input; drawn without it
        #[arg(long)]
        password_stdin: bool,
        /// Do not activate it: nobody logs in to it, and relays do not hear of it, until `activate`
        #[arg(long)]
        inactive: bool,
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
    /// List the accounts: where each stands, and what relays were told last
    List {
        /// Which server.
        #[command(flatten)]
        target: Target,
    },
    /// Show one account: where it stands, what relays were told last, and its newest commit
    Show(One),
    /// Let a new account begin, and relays hear of it
    Activate(One),
    /// Stop an account at once: it neither writes nor is read, also with tokens that are not over yet
    Lock(One),
    /// End a lock
    Lift(One),
    /// Stop an account as a moderator does
    Takedown(One),
    /// End a takedown
    Untakedown(One),
    /// Retire an account, or hand it to another host: it is not served any more, and nothing undoes it
    Decommission {
        /// Which account.
        #[command(flatten)]
        one: One,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Erase an account for good: its records, blobs and key; its names are never given again
    Erase {
        /// Which account.
        #[command(flatten)]
        one: One,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// One account.
#[derive(Debug, Args)]
pub struct One {
    /// Its DID, its handle, or the first word of its handle
    pub account: String,
    /// Which server.
    #[command(flatten)]
    pub target: Target,
}

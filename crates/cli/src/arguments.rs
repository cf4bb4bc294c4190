//! The command line.

use crate::config;
use crate::manage::arguments::{AccountCommand, KeyCommand, PlanCommand};
use crate::pds::arguments::PdsCommand;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Highwater keeps what it acknowledged.
#[derive(Debug, Parser)]
#[command(name = "highwater", version, propagate_version = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub tool: Tool,
}

/// The tools.
#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Run the server
    Serve(ServeArguments),
    /// Check the server's settings without starting it
    ///
    /// What another program holds now, a port or the data directory, is noted and not refused: it may be the server that
    /// is to be started again with these settings. Whether the directory's data is sound is not looked at.
    CheckConfig {
        /// The settings, as `serve` takes them.
        #[command(flatten)]
        settings: ServeArguments,
        /// Print what was found as JSON
        #[arg(long)]
        json: bool,
    },
    /// Ask a server whether it serves
    Health {
        /// A listener of it
        #[arg(env = "HIGHWATER_URL", default_value = "http://127.0.0.1:4437")]
        url: String,
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Write and read a stream
    #[command(subcommand)]
    Stream(StreamCommand),
    /// Bind, watch, restore and check an SQLite database
    #[command(subcommand)]
    Db(DbCommand),
    /// Make, list and revoke keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Make, list and change accounts
    #[command(subcommand)]
    Account(AccountCommand),
    /// Make, list and change plans
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Run accounts of the AT Protocol: make and stop them, tell relays, back up and restore
    #[command(subcommand)]
    Pds(PdsCommand),
    /// Take a backup of a server, running or stopped, or check one
    #[command(args_conflicts_with_subcommands = true)]
    Backup(BackupArguments),
    /// Put a backup into an empty data directory
    ///
    /// The directory is marked as restored: when a server starts on it, every stream gets a new history, so that whoever
    /// had written more than the backup holds learns of it.
    Restore {
        /// The backup's folder
        backup: PathBuf,
        /// The data directory; empty, or made
        #[arg(long)]
        data: PathBuf,
        /// Also from a backup that leaves damaged groups out: a server on it refuses their streams. Ends with status 6 then
        #[arg(long)]
        except_damaged: bool,
        /// Print what was restored as JSON
        #[arg(long)]
        json: bool,
    },
    /// Say that a stopped server's data directory was put back from an older copy
    ///
    /// Every stream begins a new history at the next start, so that whoever wrote more than the copy holds learns of it
    /// instead of going on; and relays are told of every account anew. Run it once for each restore, before the server
    /// starts.
    MarkRestored(MarkRestoredArguments),
}

/// What a backup is taken of, and where it goes.
#[derive(Debug, Args)]
pub struct BackupArguments {
    /// Something else than taking one.
    #[command(subcommand)]
    pub command: Option<BackupCommand>,
    /// The running server's URL (not with --data), and the folder that becomes the backup
    #[arg(value_names = ["URL", "TO"], num_args = 1..=2, required = true)]
    pub places: Vec<String>,
    /// The data directory of a stopped server
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// With --data, where the server has its object store, if it has one: what lies there is copied into the backup too
    #[arg(long, value_name = "PLACE", env = "HIGHWATER_OBJECT_STORE")]
    pub object_store: Option<String>,
    /// An earlier backup: files that it has too are not copied but named a second time, where the file system can
    #[arg(long, value_name = "BACKUP")]
    pub since: Option<PathBuf>,
    /// Leave damaged groups out and name them, instead of taking no backup; the status is 6 then
    #[arg(long)]
    pub except_damaged: bool,
    /// Print what was copied as JSON
    #[arg(long)]
    pub json: bool,
}

/// What else can be done with a backup.
#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Read a whole backup and check every file, index and block of it
    Verify {
        /// The backup's folder
        backup: PathBuf,
        /// Print what was found as JSON
        #[arg(long)]
        json: bool,
    },
}

/// The flags of `mark-restored`.
#[derive(Debug, Args)]
pub struct MarkRestoredArguments {
    /// The data directory
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// The directory was moved or copied as a whole and is not older than what the server acknowledged: only note where
    /// it is now
    #[arg(long)]
    pub moved: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The flags of `serve`, made from the table of settings.
#[derive(Debug, Default)]
pub struct ServeArguments {
    /// A TOML file with settings.
    pub config: Option<PathBuf>,
    /// Print the settings with their origins and end.
    pub print_config: bool,
    /// Settings given as flags, by name.
    pub flags: BTreeMap<String, String>,
}

impl Args for ServeArguments {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("config").long("config").value_name("FILE").help("TOML file with settings");
        let print = Arg::new("print_config")
            .long("print-config")
            .action(clap::ArgAction::SetTrue)
            .help("Print every setting with its origin, and end");
        config::keys().fold(command.arg(file).arg(print), |command, key| {
            let default = if key.default.is_empty() { "none" } else { key.default };
            let help = format!("{} [default: {default}] [env: {}]", key.help, key.variable());
            command.arg(
                Arg::new(key.name).long(key.flag()).value_name(key.flag().replace('-', "_").to_uppercase()).help(help),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flag = |name: &str| matches.get_one::<String>(name).map(|value| (name.to_owned(), value.clone()));
        Ok(Self {
            config: matches.get_one::<String>("config").map(PathBuf::from),
            print_config: matches.get_flag("print_config"),
            flags: config::keys().filter_map(|key| flag(key.name)).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What can be done with a stream.
#[derive(Debug, Subcommand)]
pub enum StreamCommand {
    /// Make a stream
    Create {
        /// The stream's URL
        url: String,
        /// The stream's content type, fixed for its life
        #[arg(long, default_value = "application/octet-stream")]
        content_type: String,
        /// Let it end so many seconds after it was last read or written
        #[arg(long, value_name = "SECONDS", conflicts_with = "expires_at")]
        ttl: Option<u64>,
        /// Let it end at this time, such as 2027-01-31T18:30:00Z
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
        /// Create it closed
        #[arg(long)]
        closed: bool,
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Append standard input, or a file, to a stream; to a JSON stream the texts that it holds
    Append {
        /// The stream's URL
        url: String,
        /// The file to append; standard input without it
        file: Option<PathBuf>,
        /// The content type of the bytes; the stream's own without it
        #[arg(long)]
        content_type: Option<String>,
        /// Close the stream with this append
        #[arg(long)]
        close: bool,
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a stream's bytes up to its end; of a JSON stream a line for each message
    Read {
        /// The stream's URL
        url: String,
        /// Where to begin; at the first byte that is still there without it
        #[arg(long)]
        offset: Option<u64>,
        /// Have the leader confirm that it still leads before it answers
        #[arg(long)]
        leader: bool,
        /// Print a JSON object a part: its offsets, and its bytes in hexadecimal, or its messages
        #[arg(long)]
        json: bool,
    },
    /// Print a stream's bytes as they come, until it is closed; of a JSON stream a line for each message
    Tail {
        /// The stream's URL
        url: String,
        /// Where to begin; at the end without it
        #[arg(long)]
        offset: Option<u64>,
        /// Print a JSON object a part: its offsets, and its bytes in hexadecimal, or its messages
        #[arg(long)]
        json: bool,
    },
    /// Show a stream's token, end and settings
    Head {
        /// The stream's URL
        url: String,
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Close a stream: it can be read and not appended to
    Close {
        /// The stream's URL
        url: String,
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete a stream with all its bytes
    Delete {
        /// The stream's URL
        url: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// What can be done with a database.
#[derive(Debug, Subcommand)]
pub enum DbCommand {
    /// Bind a new or an existing database file to a stream
    Bind {
        /// The database's file; made if it is not there
        file: PathBuf,
        /// The stream's URL; the stream is made if it is not there
        url: String,
        /// Page size of a new file in bytes
        #[arg(long)]
        page_size: Option<u32>,
        /// Auto-vacuum mode of a new file
        #[arg(long, value_parser = ["none", "full", "incremental"])]
        auto_vacuum: Option<String>,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show how far a database is replicated
    Status {
        /// The database's file
        file: PathBuf,
        /// Print the status as JSON
        #[arg(long)]
        json: bool,
    },
    /// Send what a database's last process left pending
    Push {
        /// The database's file
        file: PathBuf,
        /// Seconds to wait for the stream; for ever without it
        #[arg(long)]
        timeout_s: Option<u64>,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Rebuild a database from its stream
    Restore {
        /// The stream's URL
        url: String,
        /// Where the database goes; nothing may be there
        file: PathBuf,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Compare a database with its stream, page by page
    Verify {
        /// The database's file, not in use
        file: PathBuf,
        /// The stream's URL
        url: String,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
}

//! How the program ends.

use std::fmt;
use std::process::ExitCode;

/// What a caller can tell apart by the exit status alone. Clap ends with 2, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The operation failed.
    Failed = 1,
    /// The command line or the settings are wrong; nothing was done.
    Wrong = 2,
    /// What was asked for is not there.
    NotFound = 3,
    /// The data differs from what it was compared with.
    Differs = 4,
    /// It was not done, and may be tried again later: the network, another process, a time limit.
    Later = 5,
    /// It was done for a part of what there is, as was asked for; the message names the rest.
    Partly = 6,
}

/// An error with its own exit status.
#[derive(Debug)]
pub struct WithStatus {
    status: Status,
    message: String,
}

impl fmt::Display for WithStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for WithStatus {}

/// An error that ends the program with `status`.
pub fn with(status: Status, message: impl Into<String>) -> anyhow::Error {
    WithStatus { status, message: message.into() }.into()
}

/// The same error as one of the command line or the settings, unless it has a status of its own.
pub fn wrong(error: anyhow::Error) -> anyhow::Error {
    if error.downcast_ref::<WithStatus>().is_some() { error } else { with(Status::Wrong, format!("{error:#}")) }
}

/// Whether an error ends the program with `status`.
pub fn is(error: &anyhow::Error, status: Status) -> bool {
    error.downcast_ref::<WithStatus>().is_some_and(|error| error.status == status)
}

/// Gives an error of the extension's library the exit status that its code stands for.
pub fn of<E: std::error::Error + Send + Sync + 'static>(code: fn(&E) -> &str) -> impl Fn(E) -> anyhow::Error {
    move |error| {
        let status = match code(&error) {
            "not_bound" | "not_found" | "database_missing" | "empty" | "empty_stream" => Status::NotFound,
            "busy" | "in_use" | "unreachable" | "unavailable" | "synced_timeout" => Status::Later,
            _ => Status::Failed,
        };
        with(status, error.to_string())
    }
}

/// Prints the error and its causes on standard error and gives the exit status.
pub fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("highwater: {error:#}");
    let status = error.downcast_ref::<WithStatus>().map_or(Status::Failed, |error| error.status);
    ExitCode::from(status as u8)
}

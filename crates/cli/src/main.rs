//! The `highwater` binary: the server, and the tools around it.

mod arguments;
mod backup;
mod check_config;
mod config;
mod db;
mod exit;
mod health;
mod manage;
mod mark_restored;
mod object_store;
mod output;
mod pds;
mod serve;
mod stream;

use arguments::{Arguments, Tool};
use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.tool {
        Tool::Serve(settings) => serve::run(&settings),
        Tool::Health { url, json } => health::run(&url, json),
        Tool::CheckConfig { settings, json } => check_config::run(&settings, json),
        Tool::Stream(command) => stream::run(command),
        Tool::Db(command) => db::run(command),
        Tool::Backup(arguments) => backup::run(arguments),
        Tool::Restore { backup, data, except_damaged, json } => backup::restore(&backup, &data, except_damaged, json),
        Tool::Key(command) => manage::key(command),
        Tool::Account(command) => manage::account(command),
        Tool::Plan(command) => manage::plan(command),
        Tool::Pds(command) => pds::run(command),
        Tool::MarkRestored(arguments) => mark_restored::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}

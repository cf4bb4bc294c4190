//! `highwater pds …`: what an operator does with the accounts of the AT Protocol.

mod account;
pub mod arguments;
mod follow;
mod restored;
mod stored;

use crate::exit::{self, Status};
use crate::manage::arguments::Target;
use crate::manage::{Server, columns, text};
use crate::output;
use anyhow::Result;
use arguments::PdsCommand;
use highwater_client::Verb;
use highwater_disk::{OsDisk, SystemRandom};
use highwater_host::Sealer as _;
use highwater_host::seal::{KeyFile, KeyFileError};
use serde_json::{Value, json};
use std::path::Path;

pub use restored::mark as mark_restored;

/// Runs one command.
pub fn run(command: PdsCommand) -> Result<()> {
    match command {
        PdsCommand::Account(command) => account::run(command),
        PdsCommand::Status { target } => status(&target),
        PdsCommand::Announce { resync, force, yes, target } => announce(resync, force, yes, &target),
        PdsCommand::MarkRestored { data, min_rev, json } => restored::run(&data, min_rev.as_deref(), json),
        PdsCommand::Backup { to, target } => stored::backup(&to, &target),
        PdsCommand::Restore { backup, data, min_rev, json } => {
            stored::restore(&backup, &data, min_rev.as_deref(), json)
        }
        PdsCommand::Verify { directory, encryption_file, json } => {
            stored::verify(&directory, encryption_file.as_deref(), json)
        }
        PdsCommand::NewKey { file, json } => new_key(&file, json),
        PdsCommand::Follow(arguments) => follow::run(&arguments),
    }
}

/// Waits for `word` on standard input.
fn confirm(word: &str, nothing: &str) -> Result<()> {
    eprintln!("Type {word} to go on:");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    if line.trim() == word { Ok(()) } else { Err(exit::with(Status::Failed, nothing)) }
}

fn new_key(file: &Path, json: bool) -> Result<()> {
    let made = KeyFile::create(&OsDisk::private(), file, &mut SystemRandom).map_err(|error| {
        let status = if matches!(error, KeyFileError::Exists(_)) { Status::Wrong } else { Status::Failed };
        exit::with(status, error.to_string())
    })?;
    let id = format!("{:016x}", made.id());
    if json {
        return output::json(&json!({ "file": file, "id": id }));
    }
    println!("{}: key {id}", file.display());
    eprintln!(
        "highwater: whoever loses this file has lost the keys of all accounts under it: keep a copy where no backup of the volume is"
    );
    Ok(())
}

fn status(target: &Target) -> Result<()> {
    let status = Server::new(target)?.get("/v1/pds/status")?;
    if target.json {
        return output::json(&status);
    }
    let (stream, accounts) = (&status["stream"], &status["accounts"]);
    let gaps: Vec<String> =
        stream["gaps"].as_array().into_iter().flatten().map(|gap| format!("{}..{}", gap[0], gap[1])).collect();
    output::table(&[
        ("zone", text(&status["zone"])),
        ("reached at", text(&status["public_url"])),
        ("accounts", format!("{}, active {}", accounts["count"], accounts["active"])),
        ("relays have yet to hear of", text(&accounts["unannounced"])),
        ("oldest event", text(&stream["oldest"])),
        ("newest event", text(&stream["newest"])),
        ("ceiling", text(&stream["ceiling"])),
        ("gaps", if gaps.is_empty() { "none".to_owned() } else { gaps.join(", ") }),
        ("events kept", format!("{} in {}", stream["events"], output::bytes(stream["bytes"].as_u64().unwrap_or(0)))),
        ("log", output::bytes(status["log"]["bytes"].as_u64().unwrap_or(0))),
        ("store", output::bytes(status["store"]["bytes"].as_u64().unwrap_or(0))),
        ("restore", restore_of(&status["restore"])),
        (
            "relays to be asked",
            if status["poke_pending"] == true { "yes: highwater pds announce".to_owned() } else { "no".to_owned() },
        ),
    ])?;
    if let Some(failure) = status["failed"].as_str() {
        eprintln!("highwater: nothing is written any more: {failure}");
    }
    let subscribers = status["subscribers"].as_array();
    if let Some(list) = subscribers.filter(|list| !list.is_empty()) {
        println!();
        let row =
            |one: &Value| vec![text(&one["address"]), text(&one["at"]), text(&one["behind"]), text(&one["state"])];
        columns(&["SUBSCRIBER", "AT", "BEHIND", "STATE"], &list.iter().map(row).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn restore_of(restore: &Value) -> String {
    if restore.is_null() {
        return "never".to_owned();
    }
    let done = if restore["done"] == true { "done" } else { "under way" };
    format!("{} {done}, {} accounts, report {}", text(&restore["id"]), restore["accounts"], text(&restore["report"]))
}

fn announce(resync: bool, force: bool, yes: bool, target: &Target) -> Result<()> {
    let server = Server::new(target)?;
    if resync && !yes {
        let status = server.get("/v1/pds/status")?;
        let active = status["accounts"]["active"].as_u64().unwrap_or(0);
        eprintln!(
            "{active} active accounts are {} frames; a relay with the usual limits takes 2,500 from a host in an hour.",
            active.saturating_mul(2)
        );
        confirm("announce", "nothing was sent")?;
    }
    let told = server.change(Verb::Post, "/v1/pds/announce", &json!({ "resync": resync, "force": force }))?;
    if target.json {
        return output::json(&told);
    }
    if resync {
        println!("{} frames were sent", told["frames"]);
    }
    let relays = told["relays"].as_array().map(Vec::as_slice).unwrap_or_default();
    if relays.is_empty() {
        eprintln!("highwater: no relay is set (pds.relays), so nobody was asked to read this server");
        return Ok(());
    }
    let row = |relay: &Value| vec![text(&relay["url"]), text(&relay["outcome"]), text(&relay["message"])];
    columns(&["RELAY", "OUTCOME", ""], &relays.iter().map(row).collect::<Vec<_>>())?;
    let failed = relays.iter().any(|relay| relay["outcome"] == "failed");
    if failed {
        Err(exit::with(Status::Later, "a relay did not answer as it should: announce again later"))
    } else {
        Ok(())
    }
}

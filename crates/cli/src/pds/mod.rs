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

pub use restored::{Lost, mark as mark_restored};

/// Runs one command.
pub fn run(command: PdsCommand) -> Result<()> {
    match command {
        PdsCommand::Account(command) => account::run(command),
        PdsCommand::Status { target } => status(&target),
        PdsCommand::Announce { resync, force, yes, target } => announce(resync, force, yes, &target),
        PdsCommand::MarkRestored { data, min_rev, min_seq, json } => {
            restored::run(&data, &restored::lost(min_rev.as_deref(), min_seq)?, json)
        }
        PdsCommand::Forget { data, min_seq, yes, json } => {
            restored::forget(&data, restored::lost(None, min_seq)?.min_seq, yes, json)
        }
        PdsCommand::Backup { to, target } => stored::backup(&to, &target),
        PdsCommand::Restore { backup, data, min_rev, min_seq, encryption_file, json } => {
            let lost = restored::lost(min_rev.as_deref(), min_seq)?;
            stored::restore(&backup, &data, &lost, encryption_file.as_deref(), json)
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
    let count = |value: &Value| output::bytes(value.as_u64().unwrap_or(0));
    let positions = accounts["by_position"].as_object().into_iter().flatten();
    let positions: Vec<String> =
        positions.filter(|(_, count)| **count != 0).map(|(word, count)| format!("{word} {count}")).collect();
    let store = &status["store"];
    let gaps: Vec<String> =
        stream["gaps"].as_array().into_iter().flatten().map(|gap| format!("{}..{}", gap[0], gap[1])).collect();
    output::table(&[
        ("zone", text(&status["zone"])),
        ("reached at", text(&status["public_url"])),
        ("accounts", format!("{}; relays take {} of a host", accounts["count"], accounts["limit"])),
        ("their positions", if positions.is_empty() { "none".to_owned() } else { positions.join(", ") }),
        ("relays have yet to hear of", text(&accounts["unannounced"])),
        ("oldest event", text(&stream["oldest"])),
        ("newest event", text(&stream["newest"])),
        ("ceiling", text(&stream["ceiling"])),
        ("gaps", if gaps.is_empty() { "none".to_owned() } else { gaps.join(", ") }),
        ("events kept", format!("{} in {}", stream["events"], count(&stream["bytes"]))),
        ("log", count(&status["log"]["bytes"])),
        ("store", format!("{}, {} of it dead", count(&store["bytes"]), count(&store["dead_bytes"]))),
        (
            "checkpoints",
            store["checkpoint_error"].as_str().map_or(text(&store["checkpoints"]), |why| format!("failing: {why}")),
        ),
        ("memory of accounts", count(&status["memory_bytes"])),
        ("restore", restore_of(&status["restore"])),
        ("witness", witness_of(&status["witness"])),
        ("relays to be asked", to_be_asked(&status).to_owned()),
    ])?;
    if let Some(failure) = status["failed"].as_str() {
        eprintln!("highwater: nothing is written any more: {failure}");
    }
    lists(&status)
}

/// Whether relays have to be asked to read the server, and how.
fn to_be_asked(status: &Value) -> &'static str {
    match (status["poke_pending"] == true, status["relays"].as_array().is_none_or(Vec::is_empty)) {
        (false, _) => "no",
        (true, false) => "yes: highwater pds announce",
        (true, true) => "yes, and pds.relays names none: set it, start again, then highwater pds announce",
    }
}

/// What is listed below the table: relays, accounts of which they have yet to hear, subscribers.
fn lists(status: &Value) -> Result<()> {
    let list = |value: &Value, heads: &[&str], row: &dyn Fn(&Value) -> Vec<String>| -> Result<()> {
        let Some(values) = value.as_array().filter(|values| !values.is_empty()) else { return Ok(()) };
        println!();
        columns(heads, &values.iter().map(row).collect::<Vec<_>>())
    };
    list(&status["relays"], &["RELAY", "SAYS", "ACCOUNTS", "LAST ASKED", ""], &|relay| {
        let at = relay["asked_ms"].as_u64().map_or_else(|| "-".to_owned(), output::time);
        vec![text(&relay["url"]), text(&relay["status"]), text(&relay["accounts"]), at, text(&relay["message"])]
    })?;
    list(
        &status["accounts"]["unannounced_listed"],
        &["RELAYS HAVE YET TO HEAR OF", "POSITION", "ANNOUNCED"],
        &|one| vec![text(&one["handle"]), account::position(&one["position"]), account::position(&one["announced"])],
    )?;
    list(&status["subscribers"], &["SUBSCRIBER", "AT", "BEHIND", "STATE"], &|one| {
        vec![text(&one["address"]), text(&one["at"]), text(&one["behind"]), text(&one["state"])]
    })
}

fn restore_of(restore: &Value) -> String {
    if restore.is_null() {
        return "never".to_owned();
    }
    let done = if restore["done"] == true { "done" } else { "under way" };
    format!("{} {done}, {} accounts, report {}", text(&restore["id"]), restore["accounts"], text(&restore["report"]))
}

/// What a restore would know of the run, if the volume went back.
fn witness_of(witness: &Value) -> String {
    match (witness["error"].as_str(), witness["path"].as_str()) {
        (Some(error), _) => format!("NOT WRITTEN, and a restore may not know which numbers were given out: {error}"),
        (None, Some(path)) => path.to_owned(),
        (None, None) => "none outside the volume: set pds.witness_path".to_owned(),
    }
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
    let relays = told["relays"].as_array().map(Vec::as_slice).unwrap_or_default();
    if target.json {
        output::json(&told)?;
    } else if resync {
        println!("{} frames were sent", told["frames"]);
        for failed in told["failed_listed"].as_array().into_iter().flatten() {
            eprintln!("highwater: {} was not told of: {}", text(&failed["did"]), text(&failed["message"]));
        }
    }
    let untold = told["failed"].as_u64().unwrap_or(0);
    if relays.is_empty() {
        const NOBODY: &str = "no relay is set (pds.relays), so nobody was asked to read this server";
        let status = server.get("/v1/pds/status")?;
        // Nobody else could read one whose names are this machine's alone.
        if text(&status["zone"]).starts_with("localhost") {
            eprintln!("highwater: {NOBODY}");
            return all_told(untold);
        }
        return Err(exit::with(Status::Wrong, NOBODY));
    }
    if !target.json {
        let row = |relay: &Value| vec![text(&relay["url"]), text(&relay["outcome"]), text(&relay["message"])];
        columns(&["RELAY", "OUTCOME", ""], &relays.iter().map(row).collect::<Vec<_>>())?;
    }
    let is = |outcome: &str| relays.iter().any(|relay| relay["outcome"] == outcome);
    if is("refused") {
        return Err(exit::with(Status::Failed, "a relay refused to read this server: its message says why"));
    }
    if is("failed") {
        return Err(exit::with(Status::Later, "a relay did not answer as it should: announce again later"));
    }
    all_told(untold)
}

/// Frames that could not be sent are no success, even if all others were.
fn all_told(untold: u64) -> Result<()> {
    if untold == 0 {
        return Ok(());
    }
    Err(exit::with(Status::Partly, format!("{untold} accounts were not told of; the server's log says why of each")))
}

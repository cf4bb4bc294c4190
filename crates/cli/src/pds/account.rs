//! `highwater pds account …`.

use super::arguments::{One, PdsAccountCommand};
use crate::exit::{self, Status};
use crate::manage::arguments::Target;
use crate::manage::{Server, columns, segment, text};
use crate::output;
use anyhow::{Context as _, Result};
use highwater_client::Verb;
use serde_json::{Value, json};
use std::io::Read as _;

/// Runs one command.
pub fn run(command: PdsAccountCommand) -> Result<()> {
    match command {
        PdsAccountCommand::Create { handle, password_stdin, inactive, target } => {
            let password = password_stdin.then(read_password).transpose()?;
            create(handle, password, !inactive, &target)
        }
        PdsAccountCommand::List { target } => list(&target),
        PdsAccountCommand::Show(one) => show(&one),
        PdsAccountCommand::Activate(one) => change(&one, "activate"),
        PdsAccountCommand::Lock(one) => change(&one, "lock"),
        PdsAccountCommand::Lift(one) => change(&one, "lift"),
        PdsAccountCommand::Takedown(one) => change(&one, "takedown"),
        PdsAccountCommand::Untakedown(one) => change(&one, "untakedown"),
        PdsAccountCommand::Decommission { one, yes } => decommission(&one, yes),
        PdsAccountCommand::Erase { one, yes } => erase(&one, yes),
    }
}

/// The first line of standard input.
fn read_password() -> Result<String> {
    let mut input = String::new();
    std::io::stdin().take(64 << 10).read_to_string(&mut input).context("standard input is no text")?;
    let password = input.lines().next().unwrap_or_default();
    if password.is_empty() {
        return Err(exit::with(Status::Wrong, "standard input has no password"));
    }
    Ok(password.to_owned())
}

fn create(handle: Option<String>, password: Option<String>, activate: bool, target: &Target) -> Result<()> {
    let body = json!({ "handle": handle, "password": password, "activate": activate });
    let made = Server::new(target)?.change(Verb::Post, "/v1/pds/accounts", &body)?;
    if target.json {
        return output::json(&made);
    }
    output::table(&[
        ("did", text(&made["did"])),
        ("handle", text(&made["handle"])),
        ("password", text(&made["password"])),
    ])?;
    // Where clients find it, which need not be where its operator asks.
    let service = text(&made["service"]);
    eprintln!("highwater: the password is shown this once; whoever has it can log in at {service}");
    Ok(())
}

/// A position, as people read it.
pub fn position(value: &Value) -> String {
    match (value["active"].as_bool(), value["status"].as_str()) {
        (Some(true), _) => "active".to_owned(),
        (Some(false), Some(status)) => status.to_owned(),
        _ => "-".to_owned(),
    }
}

fn list(target: &Target) -> Result<()> {
    let answer = Server::new(target)?.get("/v1/pds/accounts")?;
    if target.json {
        return output::json(&answer);
    }
    let row = |account: &Value| {
        let (now, told) = (position(&account["position"]), told(account));
        vec![text(&account["handle"]), text(&account["did"]), text(&account["state"]), now, told, text(&account["rev"])]
    };
    let rows: Vec<_> = answer["accounts"].as_array().into_iter().flatten().map(row).collect();
    columns(&["HANDLE", "DID", "STATE", "POSITION", "ANNOUNCED", "REV"], &rows)
}

fn show(one: &One) -> Result<()> {
    let account = Server::new(&one.target)?.get(&place(&one.account))?;
    if one.target.json {
        return output::json(&account);
    }
    output::table(&[
        ("handle", text(&account["handle"])),
        ("did", text(&account["did"])),
        ("state", text(&account["state"])),
        ("position", position(&account["position"])),
        ("announced", told(&account)),
        ("head", text(&account["head"])),
        ("rev", text(&account["rev"])),
        ("made", output::time(account["created_ms"].as_u64().unwrap_or(0))),
    ])
}

/// What relays were told of an account last, beside where it stands.
fn told(account: &Value) -> String {
    let (now, told) = (position(&account["position"]), position(&account["announced"]));
    if now == told { told } else { format!("{told} (relays have yet to hear)") }
}

/// The path of an account.
fn place(account: &str) -> String {
    format!("/v1/pds/accounts/{}", segment(account.strip_prefix('@').unwrap_or(account)))
}

/// The path of what is done to an account.
fn path(account: &str, what: &str) -> String {
    format!("{}/{what}", place(account))
}

fn change(one: &One, what: &str) -> Result<()> {
    let account = Server::new(&one.target)?.change(Verb::Post, &path(&one.account, what), &json!({}))?;
    tell(&account, &one.target)
}

fn tell(account: &Value, target: &Target) -> Result<()> {
    if target.json {
        return output::json(account);
    }
    let (handle, did, state) = (text(&account["handle"]), text(&account["did"]), text(&account["state"]));
    println!("{handle} ({did}) is {state}");
    if account["changed"] == false {
        eprintln!("highwater: nothing was changed: that is where it stood already");
    }
    if account["position"] != account["announced"] {
        eprintln!(
            "highwater: relays have yet to hear of it: the frame found no room; it goes out with the next change or start"
        );
    }
    Ok(())
}

fn decommission(one: &One, yes: bool) -> Result<()> {
    let server = Server::new(&one.target)?;
    let account = server.get(&place(&one.account))?;
    let (handle, did) = (text(&account["handle"]), text(&account["did"]));
    if !yes {
        eprintln!("{handle} ({did}) is not served any more, and nothing brings it back here.");
        super::confirm(&handle, "nothing was changed")?;
    }
    let retired = server.change(Verb::Post, &path(&did, "decommission"), &json!({}))?;
    tell(&retired, &one.target)
}

fn erase(one: &One, yes: bool) -> Result<()> {
    let server = Server::new(&one.target)?;
    let account = server.get(&place(&one.account))?;
    let (handle, did) = (text(&account["handle"]), text(&account["did"]));
    if !yes {
        eprintln!("{handle} ({did}) loses its records, its blobs and its key, for good.");
        super::confirm(&handle, "nothing was erased")?;
    }
    let erased = server.change(Verb::Post, &path(&did, "erase"), &json!({}))?;
    tell(&erased, &one.target)
}

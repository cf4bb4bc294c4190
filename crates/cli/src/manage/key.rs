//! `highwater key …`.

use super::arguments::{KeyCommand, Target};
use super::{Server, columns, joined, segment, text};
use crate::arguments::ServeArguments;
use crate::exit::{self, Status};
use crate::output;
use crate::serve;
use anyhow::{Context as _, Result, bail};
use highwater_base::Random as _;
use highwater_client::Verb;
use highwater_control::{CreateKey, Credential, KeyId, Operation, Outcome, Scope, Scopes};
use highwater_disk::SystemRandom;
use serde_json::{Value, json};
use std::path::Path;

/// Runs one command.
pub fn run(command: KeyCommand) -> Result<()> {
    match command {
        KeyCommand::Create { scopes, prefix, account, expires_in, note, data, target } => {
            let expires_in_s = expires_in.as_deref().map(seconds).transpose().map_err(exit::wrong)?;
            let scopes = known(scopes)?;
            let new = New { scopes, prefixes: prefix, account, expires_in_s, note };
            match data {
                Some(data) => show(&new.make_in(&data)?, target.json),
                None => create(&new, &target),
            }
        }
        KeyCommand::List { target } => list(&target),
        KeyCommand::Revoke { id, last, target } => {
            let query = if last { "?last=true" } else { "" };
            let server = Server::new(&target)?;
            let key = server.ask(Verb::Delete, &format!("/v1/keys/{}{query}", segment(id_of(&id))), None, None)?;
            tell(&key, "is revoked", target.json)
        }
        KeyCommand::Expire { id, expires_in, never, target } => {
            let body = match expires_in {
                Some(text) if !never => json!({ "expires_in_s": seconds(&text).map_err(exit::wrong)? }),
                _ => json!({ "expires_ms": null }),
            };
            let path = format!("/v1/keys/{}", segment(id_of(&id)));
            let key = Server::new(&target)?.change(Verb::Patch, &path, &body)?;
            tell(&key, if never { "does not expire" } else { "has a new end" }, target.json)
        }
    }
}

/// The id of a key, also of one that is given whole: its secret goes into no URL, and so into no log and no message.
fn id_of(text: &str) -> &str {
    text.strip_prefix("hw_").map_or(text, |rest| rest.split('_').next().unwrap_or(rest))
}

/// Scopes as they were named, if there are such.
fn known(scopes: Vec<String>) -> Result<Vec<String>> {
    if let Some(unknown) = scopes.iter().find(|scope| Scopes::parse(scope).is_none()) {
        let all: Vec<&str> = Scope::ALL.iter().map(|scope| scope.name()).collect();
        let words = format!("--scopes: {unknown:?} is no scope; the scopes are {}", all.join(", "));
        return Err(exit::with(Status::Wrong, words));
    }
    Ok(scopes)
}

/// A key to be made.
struct New {
    scopes: Vec<String>,
    prefixes: Vec<String>,
    account: Option<String>,
    expires_in_s: Option<u64>,
    note: String,
}

impl New {
    fn body(&self) -> Value {
        json!({
            "scopes": self.scopes,
            "prefixes": self.prefixes,
            "account": self.account,
            "expires_in_s": self.expires_in_s,
            "note": self.note,
        })
    }

    /// Makes it in a data directory that no server has open, so that a server may start where others reach it.
    fn make_in(&self, data: &Path) -> Result<Value> {
        let flags = [("data".to_owned(), data.display().to_string())].into();
        let config = serve::config(&serve::settings(&ServeArguments { flags, ..ServeArguments::default() })?)?;
        let names = self.scopes.join(",");
        let scopes =
            Scopes::parse(&names).with_context(|| format!("--scopes {names} names a scope that there is not"))?;
        let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
        runtime.block_on(async {
            let node = serve::open(config, data).await?;
            let handle = node.handle();
            let mut random = SystemRandom;
            let drawn = std::array::from_fn(|_| random.next_u64());
            let credential = Credential::new(KeyId::new(random.next_u64()), drawn);
            let operation = Operation::CreateKey(CreateKey {
                id: credential.id,
                secret: credential.hash(),
                scopes,
                prefixes: self.prefixes.clone(),
                account: self.account.clone(),
                expires: self.expires_in_s.map(|seconds| handle.wall().plus(seconds.saturating_mul(1_000))),
                note: self.note.clone(),
                request: None,
            });
            let answer = handle.control(operation).await;
            serve::stop(node).await?;
            let Outcome::Key(key) = answer.context("the key was not made")?.result? else {
                bail!("the key was answered as something else");
            };
            let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.name()).collect();
            let spelled = credential.with_id(key.id).reveal();
            Ok(json!({
                "id": key.id.to_string(), "key": spelled, "scopes": scopes, "prefixes": key.prefixes,
                "account": key.account, "note": key.note, "state": "active", "created_ms": key.created.0,
                "expires_ms": key.expires.map(|at| at.0), "revoked_ms": null,
            }))
        })
    }
}

fn create(new: &New, target: &Target) -> Result<()> {
    let mut random = SystemRandom;
    let request_id = format!("cli-{:016x}{:016x}", random.next_u64(), random.next_u64());
    let server = Server::new(target)?;
    let made = server.ask(Verb::Post, "/v1/keys", Some(&request_id), Some(&new.body()))?;
    show(&made, target.json)
}

/// Prints a new key alone on standard output, so that a script can keep it.
fn show(made: &Value, json: bool) -> Result<()> {
    if json {
        return output::json(made);
    }
    println!("{}", text(&made["key"]));
    eprintln!(
        "highwater: the key {} may {} {}; it is shown this once",
        text(&made["id"]),
        joined(&made["scopes"], "nothing"),
        reach(made)
    );
    Ok(())
}

/// Where a key may do what it may.
fn reach(key: &Value) -> String {
    let prefixes = joined(&key["prefixes"], "");
    let below = if prefixes.is_empty() { "everywhere".to_owned() } else { format!("at and below {prefixes}") };
    match key["account"].as_str() {
        Some(account) if prefixes.is_empty() => format!("in the buckets of the account {account}"),
        Some(account) => format!("{below}, as far as the account {account} has the bucket"),
        None => below,
    }
}

fn list(target: &Target) -> Result<()> {
    let answer = Server::new(target)?.get("/v1/keys")?;
    if target.json {
        return output::json(&answer);
    }
    let row = |key: &Value| {
        let note = text(&key["note"]);
        vec![
            text(&key["id"]),
            text(&key["state"]),
            joined(&key["scopes"], "-"),
            joined(&key["prefixes"], if key["account"].is_null() { "everywhere" } else { "its buckets" }),
            text(&key["account"]),
            key["expires_ms"].as_u64().map_or_else(|| "never".to_owned(), output::time),
            note,
        ]
    };
    let rows: Vec<_> = answer["keys"].as_array().into_iter().flatten().map(row).collect();
    columns(&["ID", "STATE", "SCOPES", "PREFIXES", "ACCOUNT", "EXPIRES", "NOTE"], &rows)
}

fn tell(key: &Value, what: &str, json: bool) -> Result<()> {
    if json {
        return output::json(key);
    }
    let end = key["expires_ms"].as_u64().map_or(String::new(), |ms| format!(" (its end: {})", output::time(ms)));
    println!("the key {} {what}{end}", text(&key["id"]));
    Ok(())
}

/// The longest time of a key that has an end at all.
const SECONDS_MAX: u64 = 100 * 366 * 86_400;

/// A length of time, such as `90d`.
fn seconds(text: &str) -> Result<u64> {
    let wrong = || format!("{text:?} is no length of time such as 90d, 12h, 30m or 45s");
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let unit = match unit {
        "d" => 86_400,
        "h" => 3_600,
        "m" => 60,
        "s" => 1,
        _ => bail!(wrong()),
    };
    let number: u64 = number.parse().with_context(wrong)?;
    match number.checked_mul(unit).with_context(wrong)? {
        0 => bail!("{text:?} is over at once; to end a key now, revoke it"),
        seconds if seconds > SECONDS_MAX => bail!("{text:?} is longer than a hundred years; leave the end out instead"),
        seconds => Ok(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_given_whole_is_named_by_its_id_alone() {
        let id = "zd3abwxj9peg";
        for text in [id.to_owned(), format!("hw_{id}"), format!("hw_{id}_ymdj90y9tdxkfj6f37prqhjn")] {
            assert_eq!(id_of(&text), id, "{text}");
        }
    }

    #[test]
    fn lengths_of_time_are_a_number_and_a_unit() {
        let told: Vec<_> = ["90d", "12h", "30m", "45s"].map(|text| seconds(text).ok()).into();
        assert_eq!(told, [Some(7_776_000), Some(43_200), Some(1_800), Some(45)]);
        for wrong in
            ["", "d", "5", "5w", "-1d", "1.5h", "99999999999999999999s", "18446744073709551615d", "0s", "99999999d"]
        {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}

//! `highwater account …`.

use super::arguments::AccountCommand;
use super::{Server, columns, joined, segment, text};
use crate::output;
use anyhow::Result;
use highwater_client::Verb;
use serde_json::{Value, json};

/// Runs one command.
pub fn run(command: AccountCommand) -> Result<()> {
    match command {
        AccountCommand::Create { name, plan, bucket, target } => {
            let body = json!({ "name": name, "plan": plan, "buckets": bucket });
            tell(&Server::new(&target)?.change(Verb::Post, "/v1/accounts", &body)?, target.json)
        }
        AccountCommand::Set { name, plan, bucket, no_buckets, revoked, active, target } => {
            let mut body = json!({});
            if let Some(plan) = plan {
                body["plan"] = plan.into();
            }
            if !bucket.is_empty() || no_buckets {
                body["buckets"] = bucket.into();
            }
            if revoked || active {
                body["revoked"] = revoked.into();
            }
            let path = format!("/v1/accounts/{}", segment(&name));
            tell(&Server::new(&target)?.change(Verb::Patch, &path, &body)?, target.json)
        }
        AccountCommand::Delete { name, target } => {
            let path = format!("/v1/accounts/{}", segment(&name));
            let account = Server::new(&target)?.ask(Verb::Delete, &path, None, None)?;
            if target.json {
                return output::json(&account);
            }
            println!("the account {} is deleted", text(&account["name"]));
            Ok(())
        }
        AccountCommand::List { target } => {
            let answer = Server::new(&target)?.get("/v1/accounts")?;
            if target.json {
                return output::json(&answer);
            }
            let stored =
                |account: &Value| account["stored_bytes"].as_u64().map_or_else(|| "-".to_owned(), output::bytes);
            let row = |account: &Value| {
                let (name, plan, state) = (text(&account["name"]), text(&account["plan"]), text(&account["state"]));
                vec![name, plan, state, stored(account), joined(&account["buckets"], "-")]
            };
            let rows: Vec<_> = answer["accounts"].as_array().into_iter().flatten().map(row).collect();
            columns(&["NAME", "PLAN", "STATE", "STORED", "BUCKETS"], &rows)
        }
    }
}

fn tell(account: &Value, json: bool) -> Result<()> {
    if json {
        return output::json(account);
    }
    let (name, plan, state) = (text(&account["name"]), text(&account["plan"]), text(&account["state"]));
    println!(
        "the account {name} is {state}, on the plan {plan}, with the buckets {}",
        joined(&account["buckets"], "none")
    );
    Ok(())
}

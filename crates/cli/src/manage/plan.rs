//! `highwater plan …`.

use super::arguments::{Limits, PlanCommand};
use super::{Server, columns, segment, text};
use crate::output;
use anyhow::{Context as _, Result};
use highwater_client::Verb;
use serde_json::{Value, json};

/// The limits, as the server names them.
const LIMITS: [&str; 4] = ["storage_bytes_max", "requests_per_second", "requests_burst", "append_bytes_per_second"];

/// Runs one command.
pub fn run(command: PlanCommand) -> Result<()> {
    match command {
        PlanCommand::Create { name, limits, target } => {
            let mut body = limits.body()?;
            body["name"] = name.into();
            tell(&Server::new(&target)?.change(Verb::Post, "/v1/plans", &body)?, target.json)
        }
        PlanCommand::Set { name, limits, target } => {
            let path = format!("/v1/plans/{}", segment(&name));
            tell(&Server::new(&target)?.change(Verb::Patch, &path, &limits.body()?)?, target.json)
        }
        PlanCommand::Delete { name, target } => {
            let path = format!("/v1/plans/{}", segment(&name));
            let plan = Server::new(&target)?.ask(Verb::Delete, &path, None, None)?;
            if target.json {
                return output::json(&plan);
            }
            println!("the plan {} is deleted", text(&plan["name"]));
            Ok(())
        }
        PlanCommand::List { target } => {
            let answer = Server::new(&target)?.get("/v1/plans")?;
            if target.json {
                return output::json(&answer);
            }
            let row = |plan: &Value| std::iter::once("name").chain(LIMITS).map(|name| text(&plan[name])).collect();
            let rows: Vec<Vec<String>> = answer["plans"].as_array().into_iter().flatten().map(row).collect();
            columns(&["NAME", "STORAGE BYTES", "REQUESTS/S", "BURST", "APPEND BYTES/S"], &rows)
        }
    }
}

impl Limits {
    fn body(&self) -> Result<Value> {
        let given =
            [&self.storage_bytes_max, &self.requests_per_second, &self.requests_burst, &self.append_bytes_per_second];
        let mut body = json!({});
        for (name, text) in LIMITS.iter().zip(given) {
            let Some(text) = text else { continue };
            body[*name] = match text.as_str() {
                "none" => Value::Null,
                number => number
                    .parse::<u64>()
                    .with_context(|| format!("{name}: {number:?} is neither a number nor none"))?
                    .into(),
            };
        }
        Ok(body)
    }
}

fn tell(plan: &Value, json: bool) -> Result<()> {
    if json {
        return output::json(plan);
    }
    let set = LIMITS.iter().filter(|name| !plan[**name].is_null()).map(|name| format!("{name} {}", plan[*name]));
    let set: Vec<String> = set.collect();
    let set = if set.is_empty() { "no limits".to_owned() } else { set.join(", ") };
    println!("the plan {}: {set}", text(&plan["name"]));
    Ok(())
}

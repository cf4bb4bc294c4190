//! The same cells against a server that somebody else started, so that servers can be compared in one run.

use crate::cell::Row;
use crate::subject::{Dialect, Subject};
use crate::{appends, bounds, reads};
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::net::SocketAddr;
use std::time::Duration;

/// What is measured against what.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where the server listens
    #[arg(long)]
    address: SocketAddr,
    /// How it is asked
    #[arg(long, value_enum, default_value = "durable-streams")]
    dialect: Dialect,
    /// What the paths of its streams begin with; they must not exist
    #[arg(long, default_value = "/v1/stream/bench")]
    prefix: String,
    /// Its process, for its memory and processor time
    #[arg(long)]
    pid: Option<u32>,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Only cells whose name contains one of these
    #[arg(long)]
    only: Vec<String>,
    /// Streams that the creating cell makes
    #[arg(long, default_value_t = 10_000)]
    streams: usize,
}

#[derive(Serialize)]
struct Figures {
    name: String,
    /// Why it has none: what the server answered.
    failed: Option<String>,
    rows: Vec<Row>,
}

/// Measures and prints one JSON document a line.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { address, dialect, ref prefix, pid, .. } = *arguments;
    let subject = Subject { address, dialect, prefix: prefix.clone(), pid };
    let duration = Duration::from_secs(arguments.seconds);
    let wanted = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| name.contains(only));
    let print = |name: String, measure: &dyn Fn() -> Result<Vec<Row>>| -> Result<()> {
        if !wanted(&name) {
            return Ok(());
        }
        eprintln!("{name} …");
        let figures = match measure() {
            Ok(rows) => Figures { name, failed: None, rows },
            Err(error) => Figures { name, failed: Some(format!("{error:#}")), rows: Vec::new() },
        };
        println!("{}", serde_json::to_string(&figures)?);
        Ok(())
    };
    for (name, load) in appends::loads() {
        print(name, &|| Ok(appends::rows(&load, &appends::run(&subject, &load, duration)?, None)))?;
    }
    print("create".to_owned(), &|| bounds::create(&subject, arguments.streams))?;
    if dialect == Dialect::S2 {
        return Ok(());
    }
    for readers in [1, 100, 1_000] {
        print(format!("fan-out by events, {readers} readers"), &|| reads::fan_out(&subject, readers, duration))?;
    }
    for connections in [1, 8, 32] {
        print(format!("catch-up, 16 MiB, {connections} at once"), &|| {
            reads::catch_up(&subject, connections, duration)
        })?;
    }
    for connections in [1, 64] {
        print(format!("read at the tail, {connections} at once"), &|| reads::tail(&subject, connections, duration))?;
    }
    Ok(())
}

//! Measurements beside their physical limits, in one run, with the durability named.
//!
//! `highwater-bench all [--seconds N] [--json FILE]` measures every cell; `smoke` runs each for a moment and only says
//! that it works. Figures are ratios: an absolute time on a shared machine says little.

mod against;
mod appends;
mod bounds;
mod calibrate;
mod cell;
mod database;
mod load;
mod process;
mod quantiles;
mod reads;
mod repositories;
mod server;
mod subject;
mod wire;

use anyhow::{Context as _, Result};
use calibrate::Calibration;
use cell::Cell;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measure every cell
    All {
        /// Seconds for each measurement
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        /// Only cells whose name contains this
        #[arg(long)]
        only: Option<String>,
        /// Where the results go as JSON, besides standard output as Markdown
        #[arg(long)]
        json: Option<PathBuf>,
        /// A directory on the disk to measure; the system's temporary one without it
        #[arg(long)]
        directory: Option<PathBuf>,
    },
    /// Run every cell for a moment, to see that it works
    Smoke,
    /// Measure the physical limits alone
    Calibrate,
    /// Measure a server that runs already, of whatever make, and print its figures as JSON
    Against(against::Arguments),
    /// Measure a server of repositories that runs already, of whatever make, and print its figures as JSON
    AgainstRepositories(repositories::Arguments),
    /// Serve a directory until standard input ends; the cells run it as a process of its own
    #[command(hide = true)]
    ServeChild {
        /// The directory
        directory: PathBuf,
    },
    /// Write to many accounts and print what they cost; the memory cell runs it as a process of its own
    #[command(hide = true)]
    AccountsChild {
        /// The directory
        directory: PathBuf,
        /// How many
        count: usize,
    },
    /// Restore a database and print the peak memory; the restore cell runs it as a process of its own
    #[command(hide = true)]
    RestoreChild {
        /// The stream
        url: String,
        /// Where the database goes
        target: PathBuf,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().what {
        What::All { seconds, only, json, directory } => all(Duration::from_secs(seconds), only, json, directory),
        What::Smoke => smoke(),
        What::Against(arguments) => against::run(&arguments),
        What::AgainstRepositories(arguments) => repositories::against(&arguments),
        What::ServeChild { directory } => server::child(&directory),
        What::AccountsChild { directory, count } => repositories::accounts_child(&directory, count),
        What::RestoreChild { url, target } => database::restore_child(&url, &target),
        What::Calibrate => {
            let folder = tempfile::tempdir()?;
            let calibration = Calibration::measure(folder.path(), Duration::from_secs(2))?;
            println!("{}", serde_json::to_string_pretty(&calibration)?);
            Ok(())
        }
    }
}

fn cells() -> Vec<Cell> {
    [appends::cells(), reads::cells(), bounds::cells(), database::cells(), repositories::cells()]
        .into_iter()
        .flatten()
        .collect()
}

fn all(duration: Duration, only: Option<String>, json: Option<PathBuf>, directory: Option<PathBuf>) -> Result<()> {
    let chosen = cells().into_iter().filter(|cell| only.as_deref().is_none_or(|only| cell.name.contains(only)));
    let mut outcomes = Vec::new();
    for cell in chosen {
        let folder = match &directory {
            Some(directory) => tempfile::tempdir_in(directory)?,
            None => tempfile::tempdir()?,
        };
        eprintln!("{} …", cell.name);
        let outcome = cell.measure(folder.path(), duration)?;
        println!("{}", outcome.markdown());
        outcomes.push(outcome);
    }
    if let Some(path) = json {
        std::fs::write(&path, serde_json::to_string_pretty(&outcomes)?).context("cannot write the results")?;
    }
    Ok(())
}

fn smoke() -> Result<()> {
    let (moment, folder) = (Duration::from_millis(200), tempfile::tempdir()?);
    let limits = Calibration::measure(folder.path(), moment)?;
    for cell in cells() {
        let folder = tempfile::tempdir()?;
        let rows = (cell.run)(folder.path(), &limits, moment).with_context(|| format!("the cell {}", cell.name))?;
        anyhow::ensure!(rows.iter().all(|row| row.value.is_finite()), "{}: {rows:?}", cell.name);
        println!("{}: {} figures", cell.name, rows.len());
    }
    Ok(())
}

//! The gate: one command that checks everything and changes nothing.

use crate::interop;
use crate::process::{self, run};
use anyhow::{Context as _, Result, bail};
use std::time::Instant;

/// One step of the gate.
struct Step {
    /// How it is named on the command line and in the report.
    name: &'static str,
    /// What it may take on a machine with two cores, in minutes; more is reported, not failed.
    minutes_planned: u64,
    /// What it does.
    run: fn() -> Result<()>,
}

/// Cheap and decisive steps come first.
const STEPS: [Step; 8] = [
    Step { name: "format", minutes_planned: 1, run: || run("cargo", &["fmt", "--all", "--check"]) },
    Step { name: "lints", minutes_planned: 6, run: lints },
    Step { name: "tests", minutes_planned: 14, run: tests },
    Step { name: "demo", minutes_planned: 4, run: || process::demo(&["--quick"]) },
    Step { name: "suite", minutes_planned: 5, run: || interop::suite(&[]) },
    Step { name: "clients", minutes_planned: 2, run: || interop::clients(&[]) },
    Step { name: "docs", minutes_planned: 2, run: docs },
    Step { name: "bench", minutes_planned: 2, run: bench },
];

/// Runs every step, or those named.
pub fn test(names: &[&str]) -> Result<()> {
    if let Some(unknown) = names.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        bail!("there is no step {unknown}; there are {}", STEPS.map(|step| step.name).join(", "));
    }
    let start = Instant::now();
    for step in STEPS.iter().filter(|step| names.is_empty() || names.contains(&step.name)) {
        println!("== {} (planned: {} min)", step.name, step.minutes_planned);
        let begun = Instant::now();
        (step.run)().with_context(|| format!("the step {} failed", step.name))?;
        let seconds = begun.elapsed().as_secs();
        let late = if seconds > step.minutes_planned * 60 { ", over its plan" } else { "" };
        println!("== {} passed in {seconds} s{late}", step.name);
    }
    println!("== all passed in {} s", start.elapsed().as_secs());
    Ok(())
}

/// Writes what the gate would complain of.
pub fn fix() -> Result<()> {
    run("cargo", &["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"])?;
    run("cargo", &["fmt", "--all"])
}

/// The fuzz targets are behind a feature, because they have no `main` of their own; here they must only compile.
fn lints() -> Result<()> {
    run("cargo", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])?;
    let fuzz = ["clippy", "--package", "highwater-fuzz", "--features", "targets", "--bins", "--locked"];
    run("cargo", &[fuzz.as_slice(), &["--", "-D", "warnings"]].concat())
}

/// The extension is a library that other programs load, so it is built before the tests that load it.
fn tests() -> Result<()> {
    run("cargo", &["build", "--locked", "--package", "highwater", "--package", "highwater-sqlite"])?;
    run("cargo", &["test", "--workspace", "--locked", "--no-fail-fast"])
}

fn docs() -> Result<()> {
    run("cargo", &["doc", "--workspace", "--no-deps", "--locked"])
}

fn bench() -> Result<()> {
    run("cargo", &["run", "--locked", "--package", "highwater-bench", "--", "smoke"])
}

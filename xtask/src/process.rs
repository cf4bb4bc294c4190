//! Running other programs.

use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the work tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the work tree").to_owned()
}

/// The seed of the property tests. A gate gives the same verdict on the same tree each time; who wants to look further
/// sets another one, and `PROPTEST_CASES`, by hand.
const RANDOM_SEED: &str = "PROPTEST_RNG_SEED";

/// Runs a program in the work tree's root and fails unless it succeeds.
pub fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    if std::env::var_os(RANDOM_SEED).is_none() {
        command.env(RANDOM_SEED, "1");
    }
    let status = command.status().with_context(|| format!("{program} could not be started"))?;
    if !status.success() {
        bail!("{program} {} ended with {status}", arguments.join(" "));
    }
    Ok(())
}

/// Builds what the demonstration needs and hands over to its script.
pub fn demo(arguments: &[&str]) -> Result<()> {
    run("cargo", &["build", "--package", "highwater", "--package", "highwater-sqlite"])?;
    let script = root().join("demo/run.py");
    let python = python()?;
    let script = script.to_str().context("the work tree's path is not text")?;
    run(&python, &[&[script], arguments].concat())
}

/// The first Python whose `sqlite3` can load extensions.
pub fn python() -> Result<String> {
    const PROBE: &str = "import sqlite3, venv, ensurepip; sqlite3.connect(':memory:').enable_load_extension(True)";
    let named = std::env::var("HIGHWATER_DEMO_PYTHON").ok();
    let candidates = named.iter().map(String::as_str).chain(["/usr/bin/python3", "python3", "/usr/local/bin/python3"]);
    for candidate in candidates {
        let probe = Command::new(candidate).args(["-c", PROBE]).output();
        if probe.is_ok_and(|output| output.status.success()) {
            return Ok(candidate.to_owned());
        }
    }
    bail!(
        "no Python here can load SQLite extensions and make environments. On Debian or Ubuntu: \
         apt-get install python3 python3-venv. Pythons of pyenv and of macOS are built without extension loading; \
         name another one in HIGHWATER_DEMO_PYTHON."
    )
}

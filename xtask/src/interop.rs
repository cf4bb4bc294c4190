//! The server judged by software of others: the published conformance suite and the published clients, unmodified.

use crate::process::{root, run};
use anyhow::{Context as _, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// The first release of Node.js that the suite's runner works with: major and minor.
const NODE_MIN: (u32, u32) = (20, 19);

/// Runs the published suite and judges it by `interop/expected-failures.txt`.
pub fn suite(arguments: &[&str]) -> Result<()> {
    prepare()?;
    let script = script("suite.mjs")?;
    run("node", &[&[script.as_str()], arguments].concat())
}

/// Builds the server and installs exactly the packages that the lock file names.
fn prepare() -> Result<()> {
    check_node()?;
    run("cargo", &["build", "--locked", "--package", "highwater"])?;
    let wanted = std::fs::read(folder().join("package-lock.json")).context("interop/package-lock.json")?;
    let installed = folder().join("node_modules/installed-lock.json");
    if std::fs::read(&installed).is_ok_and(|lock| lock == wanted) {
        return Ok(());
    }
    let prefix = folder();
    let prefix = prefix.to_str().context("the work tree's path is not text")?;
    run("npm", &["ci", "--prefix", prefix, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
        .context("the packages of interop/ come from the npm registry, which must be reachable for the first run")?;
    std::fs::write(installed, wanted)?;
    Ok(())
}

fn check_node() -> Result<()> {
    let (major, minor) = NODE_MIN;
    let asked = Command::new("node").arg("--version").output();
    let version = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let mut numbers = version.trim_start_matches('v').split('.').map_while(|number| number.parse::<u32>().ok());
    let found = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    if found < NODE_MIN {
        let found = if version.is_empty() { "none was found" } else { version.as_str() };
        bail!("Node.js {major}.{minor} or later is needed with its npm; {found}. `.ci/run` installs it on Debian");
    }
    Ok(())
}

fn folder() -> PathBuf {
    root().join("interop")
}

fn script(name: &str) -> Result<String> {
    let path = folder().join(name);
    Ok(path.to_str().context("the work tree's path is not text")?.to_owned())
}

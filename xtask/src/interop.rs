//! The server judged by software of others: the published conformance suite and the published clients, unmodified.

use crate::process::{self, root, run};
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The first release of Node.js that the suite's runner works with: major and minor.
const NODE_MIN: (u32, u32) = (20, 19);

/// A program that takes longer is stuck.
const CLIENTS_TIMEOUT: &str = "--test-timeout=100000";

/// Runs the published suite and judges it by `interop/expected-failures.txt`.
pub fn suite(arguments: &[&str]) -> Result<()> {
    prepare()?;
    let script = text(&folder().join("suite.mjs"))?;
    run("node", &[&[script.as_str()], arguments].concat())
}

/// Runs the programs that use the published clients, all of them or those whose file names contain a word.
pub fn clients(words: &[&str]) -> Result<()> {
    prepare()?;
    prepare_python()?;
    let mut programs = Vec::new();
    for entry in std::fs::read_dir(folder().join("clients"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".test.mjs") && (words.is_empty() || words.iter().any(|word| name.contains(word))) {
            programs.push(text(&path)?);
        }
    }
    programs.sort();
    if programs.is_empty() {
        bail!("no program of interop/clients is named so");
    }
    let options = ["--test", "--test-force-exit", "--test-reporter=spec", CLIENTS_TIMEOUT];
    run("node", &options.into_iter().chain(programs.iter().map(String::as_str)).collect::<Vec<_>>())
}

/// Builds the server and installs exactly the packages that the lock file names.
fn prepare() -> Result<()> {
    check_node()?;
    run("cargo", &["build", "--locked", "--package", "highwater"])?;
    let modules = folder().join("node_modules");
    unless_installed(&folder().join("package-lock.json"), &modules, || {
        let prefix = text(&folder())?;
        run("npm", &["ci", "--prefix", &prefix, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
            .context("the packages of interop/ come from the npm registry, which must be reachable for the first run")
    })
}

/// Makes an environment with exactly the packages that `requirements.txt` names.
fn prepare_python() -> Result<()> {
    let wanted = folder().join("requirements.txt");
    let environment = target().join("interop-venv");
    unless_installed(&wanted, &environment, || {
        run(&process::python()?, &["-m", "venv", "--clear", &text(&environment)?])?;
        let python = text(&environment.join("bin/python"))?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--requirement"];
        run(&python, &[install.as_slice(), &[text(&wanted)?.as_str()]].concat())
            .context("the packages of interop/ come from PyPI, which must be reachable for the first run")
    })
}

/// Installs into `folder` unless what `list` says now is there already.
fn unless_installed(list: &Path, folder: &Path, install: impl FnOnce() -> Result<()>) -> Result<()> {
    let wanted = std::fs::read(list).with_context(|| list.display().to_string())?;
    let installed = folder.join("highwater-installed");
    if std::fs::read(&installed).is_ok_and(|list| list == wanted) {
        return Ok(());
    }
    install()?;
    Ok(std::fs::write(installed, wanted)?)
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

/// Where cargo builds, as the programs of `interop/` see it.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().context("the work tree's path is not text")?.to_owned())
}

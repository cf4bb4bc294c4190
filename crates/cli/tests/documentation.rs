//! Runs the shell snippets of the README and the docs, page by page, as a reader would.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies two folders deep").to_owned()
}

/// The page's `sh` blocks as one script: the server on a port of its own, built programs instead of a build.
fn script(page: &str, port: u16) -> String {
    let text = fs::read_to_string(root().join(page)).expect("the page is there");
    let mut script = String::from("set -eu\n");
    let mut inside = false;
    for line in text.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            _ if !inside || calls_cargo(line) || line.starts_with("export PATH=") => {}
            _ => script.push_str(&translate(line, port)),
        }
    }
    script
}

/// Builds and tests are for the work tree; a page's folder has none. Variables may stand before the command.
fn calls_cargo(line: &str) -> bool {
    line.split_whitespace().find(|word| !word.contains('=')) == Some("cargo")
}

fn translate(line: &str, port: u16) -> String {
    let line = line.replace("127.0.0.1:4437", &format!("127.0.0.1:{port}"));
    let line = line.replace("target/release/highwater", "highwater");
    let line = line.replace("target/release/libhighwater_sqlite", "$HIGHWATER_EXTENSION");
    let line = line.replace("<<'SQL'", "<<SQL");
    match line.strip_suffix(" &") {
        Some(server) => {
            format!("{server} --listen 127.0.0.1:{port} 2>server.log &\n{}\n", wait_until_ready(port))
        }
        None => line + "\n",
    }
}

fn wait_until_ready(port: u16) -> String {
    format!("for i in $(seq 300); do (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && break; sleep 0.05; done")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    listener.local_addr().expect("it is bound").port()
}

fn run_page(page: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let binary = Path::new(env!("CARGO_BIN_EXE_highwater"));
    let built = binary.parent().expect("the binary lies in a folder");
    let path = format!("{}:{}", built.display(), std::env::var("PATH").unwrap_or_default());
    let script = script(page, free_port());
    let log = folder.path().join("page.log");
    let file = fs::File::create(&log).expect("the log can be written");
    let mut child = Command::new("bash")
        .args(["-c", &format!("{script}\ntrap - EXIT\n")])
        .current_dir(folder.path())
        .env("PATH", path)
        .env("HIGHWATER_EXTENSION", built.join("libhighwater_sqlite"))
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("the log can be shared"))
        .stderr(file)
        .process_group(0)
        .spawn()
        .expect("bash runs");
    let status = child.wait().expect("bash ends");
    end_group(child.id());
    let said = fs::read_to_string(log).unwrap_or_default();
    assert!(status.success(), "{page} fails:\n{script}\n-- it said:\n{said}");
}

/// Ends the server that the page started.
fn end_group(leader: u32) {
    let ended = Command::new("kill").args(["--", &format!("-{leader}")]).stderr(Stdio::null()).status();
    assert!(ended.is_ok(), "kill can be run");
}

/// The pages that the summary names, below `docs`.
fn pages(summary: &str) -> Vec<&str> {
    summary.lines().filter_map(|line| line.split_once("](")?.1.strip_suffix(')')).collect()
}

#[test]
fn every_snippet_of_the_readme_and_the_docs_runs() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).expect("the summary is there");
    let mut run = 0;
    let docs = pages(&summary).into_iter().map(|page| format!("docs/{page}"));
    for page in std::iter::once("README.md".to_owned()).chain(docs) {
        let text = fs::read_to_string(root().join(&page)).expect("the page is there");
        if text.lines().any(|line| line == "```sh") {
            run_page(&page);
            run += 1;
        }
    }
    assert!(run >= 5, "only {run} pages have snippets");
}

#[test]
fn every_page_that_the_summary_names_is_there_and_no_other() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("the summary is there");
    let named = pages(&summary);
    for page in &named {
        assert!(docs.join(page).is_file(), "the summary names {page}, which is not there");
    }
    for folder in ["tutorials", "how-to", "reference", "explanation", "runbooks", "formats", "adr", "results"] {
        for entry in fs::read_dir(docs.join(folder)).expect("the folder is there") {
            let name = format!("{folder}/{}", entry.expect("readable").file_name().to_string_lossy());
            assert!(!name.ends_with(".md") || named.contains(&name.as_str()), "the summary does not name {name}");
        }
    }
}

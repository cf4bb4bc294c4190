//! The reference pages say what the program does: its flags, and the members of its JSON.

use crate::bed::{Ran, Server, folder, highwater, highwater_with, program, text, wait_for};
use crate::content::stock_write;
use crate::session::{Session, published};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const GENERATED: &str = "reference -->\n";

fn page() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies two folders deep");
    root.join("docs/reference/cli.md")
}

/// A command's help, and below it that of each of its own commands.
fn help(command: &[&str], out: &mut String) {
    let said = highwater(command.iter().copied().chain(["--help"])).ok();
    let named = std::iter::once("highwater").chain(command.iter().copied()).collect::<Vec<_>>().join(" ");
    out.push_str(&format!("\n### `{named}`\n\n```text\n{}\n```\n", said.trim_end()));
    let below = said.split_once("Commands:\n").map_or("", |(_, rest)| rest);
    let names = below.lines().map_while(|line| line.strip_prefix("  ")?.split(' ').next());
    for name in names.filter(|name| *name != "help") {
        help(&[command, &[name]].concat(), out);
    }
}

#[test]
fn the_page_of_the_command_line_has_every_command_and_flag() {
    let written = fs::read_to_string(page()).expect("the page is there");
    let (by_hand, _) = written.split_once(GENERATED).expect("the page has a place for what is generated");
    let mut expected = format!("{by_hand}{GENERATED}");
    help(&[], &mut expected);
    if std::env::var_os("HIGHWATER_WRITE_DOCS").is_some() {
        fs::write(page(), &expected).expect("the page can be written");
    } else {
        assert!(written == expected, "docs/reference/cli.md is old; run this test with HIGHWATER_WRITE_DOCS=1");
    }
}

/// The members that the page gives each command: name, and the types that it may have.
type Documented = BTreeMap<String, BTreeMap<String, Vec<String>>>;

fn documented() -> Documented {
    let written = fs::read_to_string(page()).expect("the page is there");
    let mut commands = Documented::new();
    let mut command = String::new();
    for line in written.lines() {
        if let Some(heading) = line.strip_prefix("### `highwater ") {
            command = heading.split(" --json`").next().unwrap_or_default().to_owned();
        }
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (Some(name), Some(types)) = (cells.next(), cells.next()) else { continue };
        let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) else { continue };
        if !command.is_empty() {
            let types = types.split(" or ").map(str::to_owned).collect();
            commands.entry(command.clone()).or_default().insert(name.to_owned(), types);
        }
    }
    commands
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// `{"a":{"b":1}}` has the member `a.b`.
fn flatten(value: &Value, prefix: &str, out: &mut BTreeMap<String, &'static str>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let dot = if prefix.is_empty() { "" } else { "." };
                flatten(value, &format!("{prefix}{dot}{name}"), out);
            }
        }
        other => drop(out.insert(prefix.to_owned(), type_of(other))),
    }
}

/// Which commands were held to the page.
struct Check {
    documented: Documented,
    seen: BTreeSet<String>,
}

impl Check {
    #[track_caller]
    fn holds(&mut self, command: &str, value: &Value) {
        let expected = self.documented.get(command).unwrap_or_else(|| panic!("the page lacks `{command} --json`"));
        let mut found = BTreeMap::new();
        flatten(value, "", &mut found);
        let names = |keys: Vec<&String>| keys.into_iter().cloned().collect::<BTreeSet<_>>();
        assert_eq!(names(found.keys().collect()), names(expected.keys().collect()), "{command}: {value}");
        for (name, found) in found {
            assert!(
                expected[&name].iter().any(|named| named == found),
                "{command}: {name} is of type {found}: {value}"
            );
        }
        self.seen.insert(command.to_owned());
    }

    /// Runs a command with `--json` and holds what it prints to the page.
    #[track_caller]
    fn run(&mut self, command: &str, rest: &[&str], input: &[u8]) -> Ran {
        let arguments: Vec<&str> = command.split(' ').chain(rest.iter().copied()).chain(["--json"]).collect();
        let ran = highwater_with(arguments, input);
        let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(!printed.is_empty(), "{command} printed nothing: {}", ran.stderr);
        for line in printed.lines() {
            self.holds(command, &serde_json::from_str(line).expect("each line is JSON"));
        }
        ran
    }
}

#[test]
fn every_command_prints_the_members_that_the_page_names_and_no_others() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let mut check = Check { documented: documented(), seen: BTreeSet::new() };
    let url = &server.url("json/stream");
    check.run("stream create", &[url], b"").ok();
    check.run("stream create", &[url], b"").ok();
    check.run("stream append", &[url], b"some bytes").ok();
    check.run("stream read", &[url], b"").ok();
    check.run("stream head", &[url], b"").ok();
    check.run("stream close", &[url], b"").ok();
    check.run("stream tail", &[url, "--offset", "0"], b"").ok();
    check.run("health", &[&format!("http://127.0.0.1:{}", server.port)], b"").ok();
    check.run("health", &["http://127.0.0.1:9"], b"").fails(5, &["does not serve"]);
    check.run("check-config", &["--data", text(&folder.path().join("none"))], b"").ok();
    let (backup, data) = (folder.path().join("backup"), folder.path().join("restored"));
    check.run("backup", &[&server.url("").replace("/v1/stream/", ""), text(&backup)], b"").ok();
    check.run("backup verify", &[text(&backup)], b"").ok();
    check.run("restore", &[text(&backup), "--data", text(&data)], b"").ok();
    databases(&mut check, folder.path(), &mut server);
    accounts(&mut check, folder.path(), &server);
    server.terminate();
    check.run("pds mark-restored", &["--data", text(&server.data)], b"").ok();
    let moved = folder.path().join("accounts");
    fs::create_dir(&moved).expect("a folder");
    check.run("pds restore", &[text(&folder.path().join("pds-backup")), "--data", text(&moved)], b"").ok();
    check.run("pds verify", &[text(&server.data)], b"").ok();
    check.run("pds forget", &["--data", text(&folder.path().join("given-up")), "--yes"], b"").ok();
    check.run("mark-restored", &["--data", text(&server.data)], b"").ok();
    assert_eq!(check.seen, check.documented.keys().cloned().collect(), "commands on the page that were not run");
}

fn accounts(check: &mut Check, folder: &Path, server: &Server) {
    let url = format!("http://127.0.0.1:{}", server.port);
    let asked = ["--url", &url];
    let made = check.run("pds account create", &asked, b"").json();
    let did = made["did"].as_str().expect("a DID");
    check.run("pds account list", &asked, b"").ok();
    check.run("pds account show", &[did, "--url", &url], b"").ok();
    check.run("pds account lock", &[did, "--url", &url], b"").ok();
    check.run("pds status", &asked, b"").ok();
    check.run("pds announce", &asked, b"").ok();
    check.run("pds backup", &[text(&folder.join("pds-backup")), "--url", &url], b"").ok();
    check.run("pds follow", &[&url, "--cursor", "0", "--until", "4"], b"").ok();
    check.run("pds new-key", &[text(&folder.join("pds.key"))], b"").ok();
}

fn databases(check: &mut Check, folder: &Path, server: &mut Server) {
    let (old, url) = (&folder.join("old.db"), &server.url("json/database"));
    stock_write(old, "CREATE TABLE t (n INTEGER)");
    check.run("db bind", &[text(old), url], b"").ok();
    check.run("db bind", &[text(old), url], b"").ok();
    check.run("db bind", &[text(&folder.join("new.db")), &server.url("json/new")], b"").ok();
    check.run("db status", &[text(old)], b"").ok();
    check.run("db push", &[text(old)], b"").ok();
    check.run("db restore", &[url, text(&folder.join("copy.db"))], b"").ok();
    check.run("db verify", &[text(old), url], b"").ok();
    statuses(check, &folder.join("copy.db"), old, server);
}

/// The page of an owner, of one that is cut off, of one that is fenced, and of one that is closed.
fn statuses(check: &mut Check, copy: &Path, old: &Path, server: &mut Server) {
    let mut first = Session::on(old);
    let mut hold = |what: &str, file: &Path, wanted: &dyn Fn(&Value) -> bool| {
        let page = wait_for(what, || published(file).filter(|page| wanted(page)));
        check.holds("db status", &page);
    };
    first.all(&["INSERT INTO t VALUES (1)"]);
    first.synced(old);
    hold("an owner", old, &|page| page["ownership"]["state"] == "owner");
    server.kill();
    first.all(&["INSERT INTO t VALUES (2)"]);
    hold("an outage", old, &|page| page["replication"]["condition"] == "retrying");
    server.restart();
    first.synced(old);
    let mut second = Session::on(copy);
    // The copy lacks two commits that came later, so its claim finds that it is behind.
    second.all(&["INSERT INTO t VALUES (3)"]);
    hold("a stop", copy, &|page| page["ownership"]["state"] == "stopped");
    first.finish();
    hold("a close", old, &|page| page["ownership"]["state"] == "closed");
}

#[test]
fn the_settings_that_the_server_prints_start_it_the_same() {
    let folder = folder();
    let data = folder.path().join("data");
    let mut command = program(env!("CARGO_BIN_EXE_highwater"));
    command.args(["serve", "--print-config", "--groups", "4", "--data"]).arg(&data).env("HIGHWATER_LOG", "warn");
    let printed = Ran::of(&mut command, b"").ok();
    let file = folder.path().join("highwater.toml");
    fs::write(&file, &printed).expect("it can be written");
    let again = highwater(["serve", "--print-config", "--config", text(&file)]).ok();
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split("  # ").next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(values(&printed), values(&again));
    let set = again.lines().filter(|line| line.contains(" = ")).all(|line| line.ends_with("# file"));
    assert!(set && !data.exists(), "{again}");
    fs::write(&file, "listen = \"127.0.0.1:1\"\ngruops = 4\n").expect("it can be written");
    highwater(["serve", "--config", text(&file)]).fails(2, &["gruops", "the settings are", "groups"]);
    highwater(["serve", "--config", "/no/such/file"]).fails(1, &["cannot read /no/such/file"]);
}

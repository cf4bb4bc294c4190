//! What the status, the list of accounts and the metrics tell an operator, and what the commands say of what they did.

use super::consumer::Consumer;
use super::{base, create, newest, operate};
use crate::bed::{Ran, Server, folder, free_port, highwater, text, wait_for};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The accounts' families stand behind the others, which the tests of the listeners write.
const HEADING: &str = "\n## Accounts\n";

/// Kind and help of each family, by its name.
type Families = BTreeMap<String, (String, String)>;

fn scraped(server: &Server) -> Families {
    let text = ureq::get(format!("{}/metrics", base(server))).call().expect("metrics").body_mut().read_to_string();
    let mut families = Families::new();
    for line in text.expect("text").lines() {
        let mut words = line.splitn(4, ' ').skip(1);
        let (Some(what), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) else { continue };
        match what {
            "TYPE" => families.entry(name.to_owned()).or_default().0 = rest.to_owned(),
            "HELP" => families.entry(name.to_owned()).or_default().1 = rest.to_owned(),
            _ => {}
        }
    }
    families
}

fn rows(page: &str) -> Families {
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = page.lines().filter(|line| line.starts_with("| `")).map(cells);
    rows.map(|row| (row[1].trim_matches('`').to_owned(), (row[2].clone(), row[row.len() - 2].clone()))).collect()
}

/// The page had no family of the accounts at all.
#[test]
fn the_page_of_metrics_has_what_a_running_server_with_accounts_tells_and_nothing_else() {
    let folder = folder();
    let server = Server::start(folder.path());
    create(&server, &[]).write(&server, "one", "one");
    let told = scraped(&server);
    let of_accounts = |name: &str| name.starts_with("highwater_pds_");
    let mut section = format!(
        "{HEADING}\n<!-- Made from what a running server tells; HIGHWATER_WRITE_DOCS=1 cargo test -p highwater --test e2e \
         metrics writes it. -->\n\nOf a server with accounts of the AT Protocol. While they do not open, \
         `highwater_pds_serving` alone is told, and is 0.\n\n| name | type | meaning |\n| --- | --- | --- |\n"
    );
    for (name, (kind, help)) in told.iter().filter(|(name, _)| of_accounts(name)) {
        section.push_str(&format!("| `{name}` | {kind} | {help} |\n"));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies two folders deep");
    let path = root.join("docs/reference/metrics.md");
    let page = fs::read_to_string(&path).expect("the page is there");
    let (others, written) = page.split_at(page.find(HEADING).unwrap_or(page.len()));
    if std::env::var_os("HIGHWATER_WRITE_DOCS").is_some() {
        fs::write(&path, format!("{others}{section}")).expect("the page can be written");
    } else {
        assert!(written == section, "docs/reference/metrics.md is old; run this test with HIGHWATER_WRITE_DOCS=1");
    }
    let others = rows(others);
    for (name, family) in told.iter().filter(|(name, _)| !of_accounts(name)) {
        assert_eq!(others.get(name), Some(family), "{name} is told, and not on the page as it is");
    }
    let runbooks = ["docs/runbooks/pds-operate.md", "docs/runbooks/pds-capacity.md", "docs/runbooks/disk-full.md"];
    for runbook in runbooks {
        let text = fs::read_to_string(root.join(runbook)).expect("the page is there");
        let names = text.split('`').filter(|word| word.starts_with("highwater_") && !word.contains(' '));
        for name in names {
            let family = name.strip_suffix("_total").unwrap_or(name);
            let known = told.contains_key(family) || others.contains_key(family);
            assert!(known || name.ends_with('…'), "{runbook} names {name}, which is no metric");
        }
    }
}

#[test]
fn the_status_shows_where_each_account_stands_beside_what_was_announced_and_how_far_each_subscriber_is() {
    let folder = folder();
    let server = Server::start(folder.path());
    let account = create(&server, &["--handle", "agent-one"]);
    let other = create(&server, &["--inactive"]);
    let mut consumer = Consumer::new(&server);
    consumer.connect();
    account.write(&server, "one", "one");
    consumer.read_to(newest(&server));
    let last = newest(&server);
    let status = wait_for("the subscriber to have taken all", || {
        let status = operate(&server, &["status"]);
        (status["subscribers"][0]["at"] == last).then_some(status)
    });
    let one = &status["subscribers"][0];
    assert_eq!((&one["address"], &one["behind"], &one["state"]), (&"127.0.0.1".into(), &0.into(), &"live".into()));
    assert_eq!(status["stream"]["newest"], last);
    assert_eq!(status["accounts"]["by_position"]["active"], 1);
    assert_eq!(status["accounts"]["by_position"]["none"], 1);
    let text = highwater(["pds", "status", "--url", &base(&server)]).ok();
    for words in [
        "active 1",
        "none 1",
        "127.0.0.1",
        "live",
        "SUBSCRIBER",
        "checkpoints",
        "memory of accounts",
        "set pds.witness_path",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let shown = operate(&server, &["account", "show", "agent-one"]);
    assert_eq!((&shown["did"], &shown["position"]), (&account.did.clone().into(), &shown["announced"]), "{shown}");
    let shown = highwater(["pds", "account", "show", &other.did, "--url", &base(&server)]).ok();
    assert!(shown.contains("provisioned") && shown.contains("announced"), "{shown}");
    let listed = highwater(["pds", "account", "list", "--url", &base(&server)]).ok();
    assert!(listed.contains("POSITION") && listed.contains("ANNOUNCED"), "{listed}");
}

/// `account create` takes the first word of a handle, and no other command did.
#[test]
fn an_account_is_found_by_the_word_that_it_was_made_with() {
    let folder = folder();
    let server = Server::start(folder.path());
    let account = create(&server, &["--handle", "agent-one"]);
    for what in ["lock", "lift", "show"] {
        assert_eq!(operate(&server, &["account", what, "agent-one"])["did"], account.did, "{what}");
    }
    highwater(["pds", "account", "show", "agent", "--url", &base(&server)]).fails(3, &["ACCOUNT_NOT_FOUND"]);
    let erased = operate(&server, &["account", "erase", "agent-one", "--yes"]);
    assert_eq!(erased["state"], "erased");
}

/// A lift of what was not locked said that the account is active, as if it had done something.
#[test]
fn what_changed_nothing_says_so() {
    let folder = folder();
    let server = Server::start(folder.path());
    create(&server, &["--handle", "agent-one"]);
    let run = |what: &str| highwater(["pds", "account", what, "agent-one", "--url", &base(&server)]);
    assert!(run("lift").stderr.contains("nothing was changed"), "it was not locked");
    assert!(!run("lock").stderr.contains("nothing was changed"));
    assert!(run("lock").stderr.contains("nothing was changed"), "it is locked");
    assert_eq!(operate(&server, &["account", "lift", "agent-one"])["changed"], true);
    assert_eq!(operate(&server, &["account", "lift", "agent-one"])["changed"], false);
}

/// The address at which the operator asked was named, also where that listener serves no clients.
#[test]
fn whoever_makes_an_account_is_told_where_clients_log_in() {
    let folder = folder();
    let mut server = Server::new(folder.path());
    let clients = free_port();
    let file = folder.path().join("highwater.toml");
    let listeners = format!(
        "[[listener]]\naddress = \"127.0.0.1:{}\"\nservices = [\"admin\"]\n\
         [[listener]]\naddress = \"127.0.0.1:{clients}\"\nservices = [\"xrpc\"]\n",
        server.port
    );
    fs::write(&file, listeners).expect("written");
    server.config = Some(file);
    server.restart();
    let ran: Ran = highwater(["pds", "account", "create", "--url", &base(&server)]);
    ran.ok();
    assert!(ran.stderr.contains(&format!("http://localhost:{clients}")), "{}", ran.stderr);
    let made: Value = operate(&server, &["account", "create"]);
    assert_eq!(made["service"], format!("http://localhost:{clients}"));
}

/// After a restore the status told to announce, also where that asks nobody.
#[test]
fn relays_that_are_to_be_asked_and_are_not_set_are_said_to_be_missing() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    create(&server, &[]);
    let told = |server: &Server| highwater(["pds", "status", "--url", &base(server)]).ok();
    assert!(told(&server).contains("relays to be asked          no"), "{}", told(&server));
    server.terminate();
    highwater(["pds", "mark-restored", "--data", text(&server.data)]).ok();
    server.restart();
    assert!(told(&server).contains("pds.relays names none"), "{}", told(&server));
    server.terminate();
    server.options = ["--pds-relays", "http://127.0.0.1:9"].map(str::to_owned).to_vec();
    server.restart();
    let told = told(&server);
    assert!(told.contains("yes: highwater pds announce") && told.contains("http://127.0.0.1:9"), "{told}");
}

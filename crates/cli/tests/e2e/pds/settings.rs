//! Mistakes in the settings of accounts, found before anything is made.

use super::{base, create, operate};
use crate::bed::{Ran, Server, folder, free_port, highwater, program, text};
use std::fs;
use std::process::Stdio;

/// A zone without a listener for it passed, and so did what no relay and no reader can use.
#[test]
fn settings_of_accounts_that_cannot_work_are_refused_before_a_start() {
    let folder = folder();
    let (file, data) = (folder.path().join("highwater.toml"), folder.path().join("data"));
    for (settings, words) in [
        ("[pds]\ncontact = \"hello\"", "pds.contact"),
        ("[pds]\naccount_limit = 0", "pds.account_limit"),
        ("[pds]\nrequests_per_5_min = 0", "pds.requests_per_5_min"),
        (
            "[[listener]]\naddress = \"127.0.0.1:0\"\nservices = [\"streams\", \"admin\"]\n[pds]\nzone = \"pds.example.com\"",
            "no listener has the service xrpc",
        ),
        // There is no key yet either, which is no mistake and must not hide one.
        ("[pds]\nzone = \"pds.example.com\"\nadmin_password_file = \"/none\"", "pds.admin_password_file"),
        ("[pds]\nzone = \"pds.example.com\"\nencryption_file = \"/none\"", "pds.encryption_file"),
        ("[pds]\nzone = \"pds.example.com\"", "highwater key create"),
    ] {
        fs::write(&file, settings).expect("written");
        for command in ["check-config", "serve"] {
            let ran = highwater([command, "--config", text(&file), "--data", text(&data)]);
            ran.fails(2, &[words]);
        }
        assert!(!data.exists(), "{settings}: nothing was made");
    }
}

/// Another port gave the accounts of a server without a zone names that nobody could resolve, in silence; and `health` said nothing of
/// accounts that are not served.
#[test]
fn accounts_are_not_served_at_another_port_than_that_in_their_names() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let account = create(&server, &["--handle", "first"]);
    let port = server.port;
    server.kill();
    server.port = free_port();
    server.restart();
    let theirs = format!("localhost:{port}");
    let words = ["1 accounts of the zone", &theirs, "data is whole", "start again with a listener on"];
    highwater(["pds", "status", "--url", &base(&server)]).fails(5, &words);
    let health = highwater(["health", &base(&server), "--json"]).json();
    assert!(health["ready"] == true && health["reason"].as_str().is_some_and(|why| why.contains(&theirs)), "{health}");
    assert!(highwater(["health", &base(&server)]).ok().starts_with("ready; the accounts"));
    server.kill();
    server.port = port;
    server.restart();
    assert_eq!(operate(&server, &["account", "show", "first"])["did"], account.did);
    assert_eq!(highwater(["health", &base(&server)]).ok().trim(), "ready");
}

/// `highwater serve &` and a command behind it raced.
#[test]
fn a_command_given_while_the_server_starts_waits_for_it_and_one_to_nobody_says_that_nothing_was_sent() {
    let folder = folder();
    let mut server = Server::new(folder.path());
    let command = |url: &str| {
        let mut command = program(env!("CARGO_BIN_EXE_highwater"));
        command.args(["pds", "account", "create", "--handle", "first", "--url", url]);
        command
    };
    let waiting = command(&base(&server)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    std::thread::sleep(std::time::Duration::from_millis(300));
    server.restart();
    let done = waiting.wait_with_output().expect("it ends");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(operate(&server, &["account", "list"])["accounts"].as_array().map(Vec::len), Some(1));
    let ran = Ran::of(&mut command(&format!("http://127.0.0.1:{}", free_port())), b"");
    ran.fails(5, &["nothing was sent", "is the server running?"]);
    assert!(!ran.stderr.contains("not known"), "{}", ran.stderr);
    Ran::of(&mut command("127.0.0.1:4437"), b"").fails(2, &["begins with http://"]);
    let file = text(&folder.path().join("none")).to_owned();
    let mut without = command(&base(&server));
    Ran::of(without.env("HIGHWATER_TOKEN_FILE", &file), b"")
        .fails(2, &["HIGHWATER_TOKEN_FILE", &file, "nothing was sent"]);
}

/// What nothing undoes was done at once.
#[test]
fn an_account_is_decommissioned_only_by_whoever_types_its_name() {
    let folder = folder();
    let server = Server::start(folder.path());
    create(&server, &["--handle", "first"]);
    let run = |input: &[u8]| {
        let mut command = program(env!("CARGO_BIN_EXE_highwater"));
        command.args(["pds", "account", "decommission", "first", "--url", &base(&server)]);
        Ran::of(&mut command, input)
    };
    run(b"").fails(1, &["first.localhost", "nothing was changed"]);
    assert_eq!(operate(&server, &["account", "show", "first"])["state"], "active");
    run(b"first.localhost\n").ok();
    assert_eq!(operate(&server, &["account", "show", "first"])["state"], "decommissioned");
}

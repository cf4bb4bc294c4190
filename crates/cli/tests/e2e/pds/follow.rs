//! What `highwater pds follow` says of a stream that it could not verify, or could not reach.

use super::{Account, base};
use crate::bed::{Ran, Server, folder, free_port, highwater, program, text};
use serde_json::Value;

/// Commits that nobody could verify, because the DID documents were not to be had, were passed over, and it ended with 0.
#[test]
fn following_ends_with_6_if_a_key_was_not_to_be_had() {
    let folder = folder();
    let mut server = Server::new(folder.path());
    // A zone that no name service knows; others are meant to reach it, so that its operator needs a key.
    server.options = ["--pds-zone", "pds.invalid"].map(str::to_owned).to_vec();
    let key = highwater(["key", "create", "--data", text(&server.data), "--scopes", "admin"]).ok().trim().to_owned();
    server.restart();
    let url = base(&server);
    let mut create = program(env!("CARGO_BIN_EXE_highwater"));
    create.env("HIGHWATER_TOKEN", key).args(["pds", "account", "create", "--json", "--url", &url]);
    let account = Account::of(&Ran::of(&mut create, b"").json());
    account.write(&server, "one", "one");
    let ran = highwater(["pds", "follow", &base(&server), "--cursor", "0", "--until", "4", "--json"]);
    ran.fails(6, &["2 events of 1 accounts were not verified", &account.did, "its key is not to be had"]);
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let told: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let events: Vec<_> = told.iter().map(|event| event["event"].as_str().unwrap_or_default()).collect();
    assert_eq!(events, ["identity", "account", "unverified", "unverified", "end"], "{text}");
    assert_eq!((&told[2]["sequence"], &told[3]["sequence"]), (&3.into(), &4.into()), "{text}");
    let end = &told[4];
    assert_eq!((&end["messages"], &end["unverified"], &end["violations"]), (&4.into(), &2.into(), &0.into()), "{end}");
    let words = highwater(["pds", "follow", &base(&server), "--cursor", "0", "--until", "4"]);
    words.fails(6, &["were not verified"]);
    assert!(String::from_utf8_lossy(&words.stdout).contains("unverified"), "it is told as it comes");
}

/// It tried for ever, and did not say so.
#[test]
fn following_a_server_that_is_not_there_ends_with_5_and_one_without_accounts_with_3() {
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let ran = highwater(["pds", "follow", &nobody, "--timeout-s", "1", "--json"]);
    ran.fails(5, &["connecting again, every second, for 1 s", "was out of reach for 1 s"]);
    let end: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!((&end["event"], &end["messages"]), (&"end".into(), &0.into()));
    let folder = folder();
    let mut server = Server::new(folder.path());
    server.options = ["--pds-enabled", "false"].map(str::to_owned).to_vec();
    server.restart();
    highwater(["pds", "follow", &base(&server)]).fails(3, &["404", "pds_enabled"]);
}

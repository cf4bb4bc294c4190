//! Copies, keys, and accounts that do not open.

use super::{base, create, get, operate};
use crate::bed::{Server, folder, highwater, text};
use serde_json::json;
use std::fs;

#[test]
fn a_backup_of_a_running_server_verifies_and_comes_back_marked() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let account = create(&server, &[]);
    account.write(&server, "kept", "kept");
    let backup = folder.path().join("backup");
    operate(&server, &["backup", text(&backup)]);
    let found = highwater(["pds", "verify", text(&backup), "--json"]).json();
    assert_eq!((&found["accounts"], &found["records"]), (&1.into(), &1.into()), "{found}");
    account.write(&server, "lost", "lost");
    highwater(["pds", "backup", text(&backup), "--url", &base(&server)]).fails(1, &["not empty"]);
    server.terminate();
    highwater(["pds", "restore", text(&backup), "--data", text(&server.data)]).fails(1, &["not empty", "move it away"]);
    fs::rename(server.data.join("pds"), folder.path().join("old")).expect("it is moved away");
    highwater(["pds", "restore", text(&backup), "--data", text(&server.data)]).ok();
    server.restart();
    assert_eq!(account.note(&server, "kept").as_deref(), Some("kept"));
    assert_eq!(account.note(&server, "lost"), None);
    let status = operate(&server, &["status"]);
    assert_eq!(status["restore"]["done"], true, "a restore is marked: {status}");
    account.write(&server, "after", "after");
}

#[test]
fn accounts_that_do_not_open_say_why_and_the_streams_are_served() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let account = create(&server, &[]);
    server.terminate();
    let layout = server.data.join("pds/pds.layout");
    let whole = fs::read(&layout).expect("it is there");
    fs::write(&layout, b"something else").expect("it is damaged");
    server.restart();
    let (status, said) = get(&server, "com.atproto.server.describeServer");
    assert_eq!((status, said["error"].as_str()), (503, Some("PdsUnavailable")), "{said}");
    assert!(said["message"].as_str().is_some_and(|why| why.contains("pds.layout")), "{said}");
    highwater(["pds", "account", "list", "--url", &base(&server)]).fails(5, &["PDS_UNAVAILABLE", "pds.layout"]);
    highwater(["stream", "create", &server.url("goes/on")]).ok();
    let ready = ureq::get(format!("{}/readyz", base(&server))).call().expect("ready").body_mut().read_to_string();
    assert!(ready.expect("text").contains("are not served"), "readiness says so");
    assert!(server.log().contains("pds_not_opened"), "{}", server.log());
    server.terminate();
    fs::write(&layout, whole).expect("it is whole again");
    server.restart();
    account.write(&server, "again", "nothing was changed");
}

#[test]
fn a_directory_with_a_key_file_serves_its_accounts_with_that_file_alone() {
    let folder = folder();
    let (key, other) = (folder.path().join("pds.key"), folder.path().join("other.key"));
    highwater(["pds", "new-key", text(&key)]).ok();
    highwater(["pds", "new-key", text(&other)]).ok();
    highwater(["pds", "new-key", text(&key)]).fails(2, &["never replaced"]);
    let mut server = Server::new(folder.path());
    let with = |key: &std::path::Path| vec!["--pds-encryption-file".to_owned(), text(key).to_owned()];
    server.options = with(&key);
    server.restart();
    let account = create(&server, &[]);
    server.terminate();
    for wrong in [Vec::new(), with(&other)] {
        server.options = wrong;
        server.restart();
        let (status, said) = get(&server, "com.atproto.server.describeServer");
        assert!(status == 503 && said["message"].as_str().is_some_and(|why| why.contains("key")), "{said}");
        server.terminate();
    }
    let data = text(&server.data).to_owned();
    let verify = |more: &[&str]| highwater(["pds", "verify", &data].into_iter().chain(more.iter().copied()));
    let unchecked = verify(&["--json"]).json();
    assert_eq!((&unchecked["secrets_checked"], &unchecked["faults"]), (&false.into(), &json!([])), "{unchecked}");
    assert!(verify(&[]).ok().contains("NOT CHECKED"));
    verify(&["--encryption-file", text(&other)]).fails(2, &["encrypted under key"]);
    let checked = verify(&["--encryption-file", text(&key), "--json"]).json();
    assert_eq!((&checked["secrets_checked"], &checked["secrets"]), (&true.into(), &2.into()), "{checked}");
    server.options = with(&key);
    server.restart();
    account.write(&server, "again", "the key is back");
}

/// A backup was copied into its place as it was, however damaged, and said to be restored; the server then refused to open it.
#[test]
fn a_damaged_backup_is_not_restored_and_what_is_there_stays_as_it_is() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let account = create(&server, &[]);
    account.write(&server, "kept", "kept");
    let backup = folder.path().join("backup");
    operate(&server, &["backup", text(&backup)]);
    server.terminate();
    fs::rename(server.data.join("pds"), folder.path().join("old")).expect("it is moved away");
    let before = names(&server.data);
    let files = || fs::read_dir(backup.join("store")).expect("listed").map(|entry| entry.expect("an entry").path());
    let largest = files().max_by_key(|path| path.metadata().expect("a file").len()).expect("a file");
    let whole = fs::read(&largest).expect("read");
    let mut damaged = whole.clone();
    for byte in damaged.iter_mut().skip(4096).step_by(64) {
        *byte ^= 1;
    }
    fs::write(&largest, damaged).expect("damaged");
    let restore = || highwater(["pds", "restore", text(&backup), "--data", text(&server.data)]);
    restore().fails(4, &["nothing was restored", "damaged"]);
    assert_eq!(names(&server.data), before);
    fs::write(&largest, whole).expect("whole");
    let restored = restore().ok();
    assert!(restored.contains("each can be used"), "{restored}");
    server.restart();
    assert_eq!(account.note(&server, "kept").as_deref(), Some("kept"));
}

fn names(directory: &std::path::Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> =
        fs::read_dir(directory).expect("listed").map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    names
}

/// `pds` was removed, or its volume was not mounted: an empty server took its place, without a word.
#[test]
fn accounts_that_are_gone_are_missed_and_given_up_only_by_a_word_of_the_operators() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    create(&server, &[]);
    server.kill();
    let (pds, away) = (server.data.join("pds"), folder.path().join("away"));
    fs::rename(&pds, &away).expect("it is moved away");
    server.restart();
    let (status, said) = get(&server, "com.atproto.server.describeServer");
    let why = said["message"].as_str().unwrap_or_default();
    assert!(status == 503 && why.contains("remembers 1 accounts") && why.contains("pds forget"), "{said}");
    highwater(["pds", "forget", "--data", text(&server.data), "--yes"]).fails(5, &["in use"]);
    server.terminate();
    assert!(!pds.exists(), "nothing was made");
    let given_up = highwater(["pds", "forget", "--data", text(&server.data), "--yes"]).ok();
    assert!(given_up.contains("empty server"), "{given_up}");
    server.restart();
    let account = create(&server, &[]);
    account.write(&server, "a", "b");
    let status = operate(&server, &["status"]);
    assert!(status["stream"]["newest"].as_u64().is_some_and(|newest| newest > 1_000_000_000_000), "{status}");
    server.terminate();
    highwater(["pds", "forget", "--data", text(&server.data), "--yes"]).fails(1, &["move the directory away"]);
    let marked = ["pds", "mark-restored", "--data", text(&server.data), "--json", "--min-seq"];
    let marked = |seq| highwater(marked.into_iter().chain([seq]));
    assert_eq!(marked("5000000000000").json()["min_seq"], 5_000_000_000_000_u64);
    marked("9007199254740991").fails(2, &["--min-seq", "no room"]);
    highwater(["pds", "mark-restored", "--data", text(&server.data), "--min-rev", "bzzzzzzzzzzzz"])
        .fails(2, &["--min-rev", "ahead of this machine's clock"]);
    server.restart();
    let status = operate(&server, &["status"]);
    assert!(status["stream"]["ceiling"].as_u64().is_some_and(|seq| seq > 6_000_000_000_000), "{status}");
}

/// Whoever takes a backup of the server takes it for everything.
#[test]
fn a_backup_of_the_streams_says_that_accounts_are_not_in_it() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let back_up = |server: &Server, name: &str| {
        let to = folder.path().join(name);
        let made = highwater(["backup", &base(server), text(&to), "--json"]).json();
        (made["pds_accounts"].clone(), made["pds_instead"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(back_up(&server, "before"), (json!(0), String::new()));
    create(&server, &[]);
    let (accounts, instead) = back_up(&server, "after");
    assert!(accounts == 1 && instead.contains("highwater pds backup"), "{accounts} {instead}");
    let loud = highwater(["backup", &base(&server), text(&folder.path().join("third"))]).ok();
    assert!(loud.contains("NOT INCLUDED"), "{loud}");
    server.terminate();
    let fourth = folder.path().join("fourth");
    let stopped = highwater(["backup", "--data", text(&server.data), text(&fourth), "--json"]).json();
    assert!(stopped["pds_accounts"].is_null() && stopped["pds_instead"].is_string(), "{stopped}");
}

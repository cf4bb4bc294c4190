//! Copies, keys, and accounts that do not open.

use super::{base, create, get, operate};
use crate::bed::{Server, folder, highwater, text};
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
    server.options = with(&key);
    server.restart();
    account.write(&server, "again", "the key is back");
}

//! A server whose old data files lie in a folder, which goes away and comes back.

use crate::bed::{Server, folder, highwater, highwater_with, text, wait_for};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Bytes of one append; four of them fill more than one data file.
const PART: usize = 24 << 20;

fn part(number: u8) -> Vec<u8> {
    (0..PART).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ number).collect()
}

fn status(server: &Server) -> Value {
    let url = format!("http://127.0.0.1:{}/v1/admin/status", server.port);
    let text = ureq::get(&url).call().expect("it answers").body_mut().read_to_string().expect("text");
    serde_json::from_str::<Value>(&text).expect("JSON")["node"]["object_store"].clone()
}

/// The status and the code of a read of one byte.
fn read_at(server: &Server, offset: usize) -> (u16, String) {
    let url = format!("{}?offset={offset:020}&max_bytes=1", server.url("films"));
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let mut answer = agent.get(&url).call().expect("it answers");
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap_or_default())
}

fn content(server: &Server, parts: u8) -> bool {
    let ran = highwater(["stream", "read", &server.url("films")]);
    ran.ok();
    ran.stdout == (0..parts).flat_map(part).collect::<Vec<_>>()
}

#[test]
fn old_data_lies_in_a_folder_and_its_absence_is_told_and_survived() {
    let folder = folder();
    let archive = folder.path().join("archive");
    fs::create_dir(&archive).expect("made");
    let place = format!("file://{}", text(&archive));
    let mut server = Server::new(folder.path());
    server.options =
        ["--groups", "1", "--object-store", &place, "--object-store-local-bytes", "0"].map(String::from).into();
    server.restart();
    let films = server.url("films");
    highwater(["stream", "create", &films]).ok();
    for number in 0..4 {
        highwater_with(["stream", "append", &films], &part(number)).ok();
    }
    wait_for("a file to move", || (status(&server)["moved_files"].as_u64()? > 0).then_some(()));
    assert_eq!(status(&server)["place"], place.as_str());
    assert!(content(&server, 4));

    // The folder's disk is gone: what is here is served, what is there is not, and writes go on.
    let away = folder.path().join("away");
    fs::rename(&archive, &away).expect("renamed");
    let (code, body) = read_at(&server, 0);
    assert!(code == 503 && body.contains("COLD_BACKPRESSURE"), "{code} {body}");
    highwater_with(["stream", "append", &films], &part(4)).ok();
    assert_eq!(read_at(&server, 5 * PART - 1).0, 200);
    assert_eq!(server.terminate().code(), Some(0), "{}", server.log());
    server.restart();
    wait_for("the failure to be told", || status(&server)["failing_since_ms"].as_u64());
    assert_eq!(read_at(&server, 0).0, 503);
    fs::rename(&away, &archive).expect("renamed");
    wait_for("it to go on", || status(&server)["failing_since_ms"].is_null().then_some(()));
    assert!(content(&server, 5));

    // A backup contains everything, of a running server and of a stopped one.
    let (running, stopped) = (folder.path().join("running"), folder.path().join("stopped"));
    highwater(["backup", &format!("http://127.0.0.1:{}", server.port), text(&running)]).ok();
    server.kill();
    highwater(["backup", "--data", text(&server.data), text(&stopped)]).fails(1, &["object_store"]);
    highwater(["backup", "--data", text(&server.data), "--object-store", &place, text(&stopped)]).ok();
    for backup in [&running, &stopped] {
        let restored = folder.path().join("restored");
        highwater(["restore", text(backup), "--data", text(&restored)]).ok();
        let mut alone = Server::new(folder.path());
        alone.data = restored.clone();
        alone.restart();
        assert!(content(&alone, 5), "without an object store");
        alone.kill();
        fs::remove_dir_all(&restored).expect("removed");
    }
    refusals(&server, &place, folder.path());
}

/// A server does not start without what it needs, nor on what is another's.
fn refusals(server: &Server, place: &str, folder: &Path) {
    let data = text(&server.data);
    highwater(["serve", "--data", data, "--listen", "127.0.0.1:0"]).fails(1, &["none is set"]);
    let other = folder.join("other");
    highwater(["serve", "--data", text(&other), "--listen", "127.0.0.1:0", "--object-store", place])
        .fails(1, &["is the object store of cluster hw-"]);
    let found = highwater(["check-config", "--data", data, "--object-store", place, "--json"]).json();
    assert!(found["object_store_cluster"].as_str().is_some_and(|id| id.starts_with("hw-")), "{found}");
    highwater(["check-config", "--data", data, "--object-store", "file:///nowhere/at/all"]).fails(1, &["nowhere"]);
    highwater(["check-config", "--data", data, "--object-store", "ftp://x"]).fails(2, &["neither a folder"]);
}

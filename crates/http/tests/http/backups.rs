//! The routes of backups, of a real node: who may take one, what it gives, and what is no part of it.

use crate::node::open;
use crate::wire::{Answer, Server};
use highwater_base::Digest;
use highwater_http::{Front, HttpOptions, Services};
use serde_json::Value;

const BACKUPS: &str = "/v1/admin/backups";
const TEXT: (&str, &str) = ("content-type", "text/plain");

fn value(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).expect("JSON")
}

fn begin(server: &Server) -> Value {
    let begun = server.ask("POST", BACKUPS, &[], b"");
    assert_eq!((begun.status, begun.header("cache-control")), (201, Some("no-store")));
    value(&begun)
}

#[test]
fn a_backup_is_begun_read_by_range_and_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, mut server) = open(folder.path());
    assert_eq!(server.ask("PUT", "/v1/stream/a", &[TEXT], &[7; 100_000]).status, 201);
    let plan = begin(&server);
    assert_eq!((&plan["groups"], &plan["absent"]), (&Value::from(2), &Value::Array(Vec::new())));
    let files = plan["files"].as_array().expect("files");
    assert!(files.iter().any(|file| file["path"] == "cluster"));
    let of = |what: &str, path: &str| format!("{BACKUPS}/{}/{what}/{path}", plan["id"].as_str().expect("an id"));
    for file in files {
        let (path, bytes) = (file["path"].as_str().expect("a path"), file["bytes"].as_u64().expect("bytes"));
        let whole = server.ask("GET", &of("files", path), &[], b"");
        assert_eq!((whole.status, whole.body.len() as u64), (200, bytes), "{path}");
        assert_eq!(whole.header("content-type"), Some("application/octet-stream"));
        let digest = server.ask("GET", &of("digests", path), &[], b"");
        assert_eq!(digest.text().trim(), Digest::of(&whole.body).to_string(), "{path}");
        let part = server.ask("GET", &format!("{}?offset=3&length=5", of("files", path)), &[], b"");
        assert_eq!(part.body, whole.body[3..8], "{path}");
        for (range, length) in [(format!("offset={bytes}"), 0), (format!("offset={}&length=9", bytes - 2), 2)] {
            let rest = server.ask("GET", &format!("{}?{range}", of("files", path)), &[], b"");
            assert_eq!((rest.status, rest.body.len()), (200, length), "{path} {range}");
        }
        let beyond = server.ask("GET", &format!("{}?offset=18446744073709551615", of("files", path)), &[], b"");
        assert_eq!((beyond.status, beyond.body.len()), (200, 0), "{path}");
    }
    for wrong in ["offset=-1", "offset=x", "length=1.5", "ofset=1", "offset=1&offset=2"] {
        let answer = server.ask("GET", &format!("{}?{wrong}", of("files", "cluster")), &[], b"");
        assert_eq!(answer.told(), (400, "INVALID_QUERY".to_owned()), "{wrong}");
    }
    for elsewhere in
        ["wal/state", "lock", "restored", "store/g0", "store/g0/", "store/g9/index-0000000000000001", "../cluster"]
    {
        for what in ["files", "digests"] {
            let answer = server.ask("GET", &of(what, elsewhere), &[], b"");
            assert_eq!(answer.told(), (404, "NOT_FOUND".to_owned()), "{what} {elsewhere}");
        }
    }
    let this = format!("{BACKUPS}/{}", plan["id"].as_str().expect("an id"));
    for (method, target, allow) in
        [("GET", BACKUPS, "POST"), ("GET", &this, "DELETE"), ("PUT", &of("files", "cluster"), "GET, HEAD")]
    {
        let answer = server.ask(method, target, &[], b"");
        assert_eq!(
            (answer.told(), answer.header("allow")),
            ((405, "METHOD_NOT_ALLOWED".to_owned()), Some(allow)),
            "{target}"
        );
    }
    assert_eq!(
        server.ask("POST", &format!("{BACKUPS}?except=all"), &[], b"").told(),
        (400, "INVALID_QUERY".to_owned())
    );
    assert_eq!(server.ask("DELETE", &this, &[], b"").status, 204);
    assert_eq!(server.ask("DELETE", &this, &[], b"").told(), (404, "NOT_FOUND".to_owned()));
    assert_eq!(server.ask("GET", &of("files", "cluster"), &[], b"").told(), (404, "NOT_FOUND".to_owned()));
    server.stop();
    node.shutdown().expect("a clean end");
}

#[test]
fn there_are_four_backups_at_a_time_and_the_status_counts_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, mut server) = open(folder.path());
    let ids: Vec<String> = (0..4).map(|_| begin(&server)["id"].as_str().expect("an id").to_owned()).collect();
    let more = server.ask("POST", BACKUPS, &[], b"");
    assert_eq!(more.told(), (429, "BACKUPS_LIMIT".to_owned()));
    assert_eq!(value(&server.ask("GET", "/v1/admin/status", &[], b""))["node"]["backups"], 4);
    assert_eq!(server.ask("DELETE", &format!("{BACKUPS}/{}", ids[2]), &[], b"").status, 204);
    begin(&server);
    server.stop();
    node.shutdown().expect("a clean end");
}

/// A backup holds everything, so that nothing less than administration takes or reads one.
#[test]
fn a_backup_is_for_administrators_and_for_listeners_with_administration() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, mut server) = open(folder.path());
    let id = begin(&server)["id"].as_str().expect("an id").to_owned();
    let made = value(&server.ask("POST", "/v1/keys", &[], br#"{"scopes":["admin"]}"#));
    let admin = format!("Bearer {}", made["key"].as_str().expect("a key"));
    let all = br#"{"scopes":["read","append","create","snapshot","delete","metrics"]}"#;
    let made = value(&server.ask("POST", "/v1/keys", &[("authorization", &admin)], all));
    let other = format!("Bearer {}", made["key"].as_str().expect("a key"));
    let asks = [
        ("POST", BACKUPS.to_owned()),
        ("GET", format!("{BACKUPS}/{id}/files/cluster")),
        ("GET", format!("{BACKUPS}/{id}/digests/cluster")),
        ("DELETE", format!("{BACKUPS}/{id}")),
    ];
    for (method, target) in &asks {
        assert_eq!(server.ask(method, target, &[], b"").status, 401, "{method} {target}");
        assert_eq!(server.ask(method, target, &[("authorization", &other)], b"").status, 403, "{method} {target}");
    }
    let front = Front { services: Services { streams: true, ..Services::NONE }, ..Front::default() };
    let mut public = Server::behind(node.handle(), HttpOptions::default(), front, None);
    for (method, target) in &asks {
        let answer = public.ask(method, target, &[("authorization", &admin)], b"");
        assert_eq!(answer.told(), (404, "NOT_FOUND".to_owned()), "{method} {target}");
    }
    public.stop();
    assert_eq!(server.ask("GET", &asks[1].1, &[("authorization", &admin)], b"").status, 200);
    server.stop();
    node.shutdown().expect("a clean end");
}

#[test]
fn a_damaged_group_is_left_out_when_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, mut server) = open(folder.path());
    assert_eq!(server.ask("PUT", "/v1/stream/a", &[TEXT], &[7; 100_000]).status, 201);
    begin(&server);
    server.stop();
    node.shutdown().expect("a clean end");
    let index = folder.path().join("store/g1/index-0000000000000001");
    let mut bytes = std::fs::read(&index).expect("it made a checkpoint");
    bytes[20] ^= 1;
    std::fs::write(&index, bytes).expect("written");

    let (node, mut server) = open(folder.path());
    let refused = server.ask("POST", BACKUPS, &[], b"");
    assert_eq!(refused.told(), (503, "APPLY_STOPPED".to_owned()));
    assert!(refused.text().contains("g1") && refused.text().contains("--except-damaged"), "{}", refused.text());
    let plan = value(&server.ask("POST", &format!("{BACKUPS}?except_damaged=true"), &[], b""));
    assert_eq!(plan["absent"][0]["group"], "g1", "{plan}");
    assert!(plan["absent"][0]["why"].as_str().is_some_and(|why| why.contains("index")), "{plan}");
    let of_g1 =
        plan["files"].as_array().expect("files").iter().filter(|file| file["path"].to_string().contains("/g1/"));
    assert_eq!(of_g1.count(), 0);
    server.stop();
    node.shutdown().expect("a clean end");
}

//! The server on a network: TLS, several listeners, its log, and its end.

use crate::bed::{Ran, Server, folder, free_port, highwater, program, text, wait_for};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Writes a certificate for `localhost` and its key, and a copy of the certificate for clients to trust.
fn certify(folder: &Path, trusted: &Path) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    fs::write(folder.join("tls.pem"), made.cert.pem()).expect("written");
    fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).expect("written");
    fs::write(trusted, made.cert.pem()).expect("written");
}

/// Whether a client that trusts this certificate alone reaches the server.
fn reached(url: &str, trusted: &Path) -> bool {
    let mut command = program(env!("CARGO_BIN_EXE_highwater"));
    command.args(["stream", "create", url]).env("HIGHWATER_CA_FILE", trusted);
    Ran::of(&mut command, b"").status == 0
}

#[test]
fn a_certificate_is_renewed_under_a_running_server_and_a_bad_one_is_told_and_not_used() {
    let folder = folder();
    let (first, second) = (folder.path().join("first.pem"), folder.path().join("second.pem"));
    certify(folder.path(), &first);
    let mut server = Server::new(folder.path());
    let (certificate, key) = (folder.path().join("tls.pem"), folder.path().join("tls.key"));
    let tls = ["--tls-certificate", text(&certificate), "--tls-key", text(&key), "--log-format", "json"];
    server.options = tls.map(str::to_owned).to_vec();
    server.launch();
    let url = format!("https://localhost:{}/v1/stream/over/tls", server.port);
    wait_for("the server to answer over TLS", || reached(&url, &first).then_some(()));

    fs::write(&key, "half of a renewal").expect("written");
    server.hang_up();
    wait_for("the refusal in the log", || server.log().contains("\"tls_refused\"").then_some(()));
    assert!(reached(&url, &first), "the old certificate stays");

    certify(folder.path(), &second);
    server.hang_up();
    wait_for("the new certificate", || reached(&url, &second).then_some(()));
    assert!(!reached(&url, &first), "the old one is gone");
    assert!(server.terminate().success(), "{}", server.log());
    let log = server.log();
    let events: Vec<String> = log.lines().map(|line| event(line, &log)).collect();
    for event in ["listening", "ready", "tls_refused", "tls_reloaded", "stopping", "stopped"] {
        assert!(events.iter().any(|other| other == event), "{event}:\n{log}");
    }
}

/// The event that a line of a log in JSON tells; with such a log there are no other lines.
fn event(line: &str, log: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}\n{log}"));
    assert!(line["timestamp"].is_string() && line["level"].is_string() && line["message"].is_string(), "{line}");
    line["event"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn each_listener_serves_what_its_table_says() {
    let folder = folder();
    let (streams, admin) = (free_port(), free_port());
    let file = folder.path().join("highwater.toml");
    let data = folder.path().join("data");
    let tables = format!(
        "data = {data:?}\n[[listener]]\naddress = \"127.0.0.1:{streams}\"\nservices = [\"streams\"]\n[[listener]]\n\
         address = \"127.0.0.1:{admin}\"\nservices = [\"admin\"]\n",
    );
    fs::write(&file, tables).expect("written");
    let mut process = program(env!("CARGO_BIN_EXE_highwater")).args(["serve", "--config", text(&file)]).spawn();
    let status = |port: u16, path: &str| match ureq::get(&format!("http://127.0.0.1:{port}{path}")).call() {
        Ok(answer) => Some(answer.status().as_u16()),
        Err(ureq::Error::StatusCode(code)) => Some(code),
        Err(_) => None,
    };
    let process = process.as_mut().expect("highwater can be run");
    wait_for("the server to be ready", || (status(admin, "/readyz") == Some(200)).then_some(()));
    for (path, on_streams, on_admin) in [
        ("/readyz", 200, 200),
        ("/healthz", 200, 200),
        ("/metrics", 404, 200),
        ("/v1/admin/status", 404, 200),
        ("/v1/stream/a?offset=-1", 404, 404),
    ] {
        assert_eq!((status(streams, path), status(admin, path)), (Some(on_streams), Some(on_admin)), "{path}");
    }
    let create = |port: u16| highwater(["stream", "create", &format!("http://127.0.0.1:{port}/v1/stream/a")]).status;
    assert_eq!((create(admin), create(streams)), (3, 0), "a stream is made where streams are served");
    process.kill().and_then(|()| process.wait()).expect("it ends");
}

/// SIGTERM used to wait ten seconds for a long-poll, and a supervisor that waits less killed the server.
#[test]
fn sigterm_answers_a_waiting_reader_at_once() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    highwater(["stream", "create", &server.url("quiet")]).ok();
    let mut reader = TcpStream::connect(("127.0.0.1", server.port)).expect("it listens");
    let query = "offset=0&live=long-poll&timeout_ms=60000";
    write!(reader, "GET /v1/stream/quiet?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is taken");
    std::thread::sleep(Duration::from_millis(200));
    let begun = Instant::now();
    assert!(server.terminate().success(), "{}", server.log());
    assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?} to end", begun.elapsed());
    let mut answer = String::new();
    reader.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
}

/// The way from a server on loopback to one that others reach, as the refusals tell it.
#[test]
fn a_server_that_others_reach_starts_with_keys_and_tls_and_answers_nobody_without_a_key() {
    let folder = folder();
    let trusted = folder.path().join("trusted.pem");
    certify(folder.path(), &trusted);
    let mut server = Server::start(folder.path());
    let made = ureq::post(&format!("http://127.0.0.1:{}/v1/keys", server.port)).send(r#"{"scopes":["admin"]}"#);
    let made = made.expect("the first key").into_body().read_to_string().expect("readable");
    let made: Value = serde_json::from_str(&made).expect("JSON");
    let key = made["key"].as_str().expect("a key").to_owned();
    assert!(server.terminate().success(), "{}", server.log());
    let (certificate, secret) = (folder.path().join("tls.pem"), folder.path().join("tls.key"));
    let listen = format!("0.0.0.0:{}", server.port);
    let mut command = program(env!("CARGO_BIN_EXE_highwater"));
    command.args(["serve", "--data", text(&server.data), "--listen", &listen]);
    Ran::of(&mut command, b"").fails(2, &["neither TLS nor a proxy"]);
    command.args(["--tls-certificate", text(&certificate), "--tls-key", text(&secret)]);
    let mut process = command.spawn().expect("highwater can be run");
    let url = format!("https://localhost:{}/v1/stream/far/away", server.port);
    let create = |token: &str| {
        let mut command = program(env!("CARGO_BIN_EXE_highwater"));
        command.args(["stream", "create", &url]).env("HIGHWATER_CA_FILE", &trusted).env("HIGHWATER_TOKEN", token);
        Ran::of(&mut command, b"")
    };
    wait_for("the server to answer one with a key", || (create(&key).status == 0).then_some(()));
    assert!(create("").status != 0 && create("hw_nobody_knows").status != 0, "nobody else");
    process.kill().and_then(|()| process.wait()).expect("it ends");
}

/// A hundred readers that asked for the largest answer and took none of it used to hold 873 MB of them, although the
/// budget was 256 MiB: each was fetched before room for it was asked.
#[test]
fn a_hundred_readers_who_take_nothing_stay_within_the_memory_for_answers() {
    const BUDGET: u64 = 256 << 20;
    const REST: u64 = 128 << 20;
    let folder = folder();
    let server = Server::start(folder.path());
    let file = folder.path().join("bytes");
    fs::write(&file, vec![b'x'; 24 << 20]).expect("written");
    let url = server.url("large");
    highwater(["stream", "create", &url]).ok();
    highwater(["stream", "append", &url, text(&file)]).ok();
    let ask = |n: u64| {
        let mut reader = TcpStream::connect(("127.0.0.1", server.port)).expect("it listens");
        let offset = n % 3 * (8 << 20);
        write!(reader, "GET /v1/stream/large?offset={offset} HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .expect("it is taken");
        reader
    };
    // The first one is served before the others come: which of many is, is nobody's promise.
    let (mut first, mut begun) = (ask(0), [0; 12]);
    first.read_exact(&mut begun).expect("an answer");
    assert_eq!(&begun, b"HTTP/1.1 200");
    let others: Vec<TcpStream> = (1..100).map(ask).collect();
    std::thread::sleep(Duration::from_secs(2));
    // Those for whom there is no room are told, or wait; either way the memory is bounded.
    let peak = server.memory_peak();
    assert!(peak < BUDGET + REST, "{} MiB", peak >> 20);
    let metrics = ureq::get(&format!("http://127.0.0.1:{}/metrics", server.port)).call().expect("an answer");
    assert_eq!(metrics.status().as_u16(), 200, "others are served");
    drop((first, others));
}

#[test]
fn settings_are_checked_without_a_start() {
    let folder = folder();
    let check = |more: &[&str]| {
        let data = folder.path().join("data");
        highwater([&["check-config", "--data", text(&data), "--json"], more].concat())
    };
    let found = check(&[]).json();
    assert_eq!(found["listeners"][0]["address"], "127.0.0.1:4437");
    assert_eq!(found["listeners"][0]["keys_required"], false);
    check(&["--listen", "0.0.0.0:0"]).fails(2, &["neither TLS nor a proxy"]);
    check(&["--tls-certificate", "/no/such.pem", "--tls-key", "/no/such.key"]).fails(1, &["/no/such.pem"]);
    check(&["--log-format", "xml"]).fails(2, &["log_format"]);
    check(&["--log", "a=b=c"]).fails(2, &["log ="]);
    check(&["--log", "verbose"]).fails(2, &["\"verbose\" is no level"]);
    check(&["--groups", "0"]).fails(2, &["groups"]);
    let there = ["check-config", "--data", text(folder.path()), "--behind-proxy", "10.0.0.1"];
    let elsewhere = ["--listen", "203.0.113.9:4501"];
    highwater([&there[..], &elsewhere].concat()).fails(2, &["no address of this machine"]);
    check(&["--behind-proxy", "0.0.0.0/0"]).fails(2, &["names everybody"]);
    let file = folder.path().join("two.toml");
    let table = "[[listener]]\naddress = \"127.0.0.1:4501\"\n";
    fs::write(&file, [table, table].concat()).expect("written");
    check(&["--config", text(&file)]).fails(2, &["the same port"]);
    fs::write(&file, b"").expect("written");
    highwater(["check-config", "--data", text(&file)]).fails(2, &["is a file"]);
    assert!(!folder.path().join("data").exists(), "nothing was made");
}

/// What a check said nothing of, and a start then met: whoever holds the port or the directory, and who may read it.
#[test]
fn a_check_of_settings_notes_what_a_server_holds_and_who_else_reads_the_directory() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let server = Server::start(folder.path());
    let check = |more: &[&str]| {
        let listen = format!("127.0.0.1:{}", server.port);
        let found = [&["check-config", "--data", text(&server.data), "--listen", &listen, "--json"], more].concat();
        let found = highwater(found).json();
        (found["notes"].to_string(), found["listeners"][0]["proxies"].to_string())
    };
    let (notes, proxies) = check(&[]);
    assert!(notes.contains("in use") && notes.contains("another program listens"), "{notes}");
    assert_eq!(proxies, "[]");
    fs::set_permissions(&server.data, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let (notes, proxies) = check(&["--behind-proxy", "10.0.0.7,64.0.0.0/2"]);
    assert!(notes.contains("chmod 700") && notes.contains("64.0.0.0/2"), "{notes}");
    assert!(proxies.contains("10.0.0.7/32"), "{proxies}");
}

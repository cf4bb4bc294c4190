//! A server of accounts and the relays that it asks.

use super::{create, operate};
use crate::bed::{Ran, Server, folder, highwater, program, text, wait_for};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A relay that says what it is told to say, and remembers what it was asked.
#[derive(Clone)]
struct Relay {
    url: String,
    /// The status and the body that it answers to `getHostStatus`.
    says: Arc<Mutex<(u16, String)>>,
    /// The status that it answers to a request to crawl.
    crawls_with: Arc<Mutex<u16>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Relay {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let relay = Self { url, says: Arc::default(), crawls_with: Arc::new(Mutex::new(200)), asked: Arc::default() };
        relay.say(404, r#"{"error":"HostNotFound"}"#);
        let answering = relay.clone();
        thread::spawn(move || listener.incoming().flatten().for_each(|stream| answering.answer(stream)));
        relay
    }

    fn say(&self, status: u16, body: &str) {
        *self.says.lock().expect("whole") = (status, body.to_owned());
    }

    /// What it was asked since the last call that found so much: the method, and of a request to crawl the host.
    fn asked(&self, at_least: usize) -> Option<Vec<String>> {
        let mut asked = self.asked.lock().expect("whole");
        (asked.len() >= at_least).then(|| std::mem::take(&mut *asked))
    }

    /// Whether it was asked to crawl.
    fn crawls(&self) -> usize {
        self.asked.lock().expect("whole").iter().filter(|asked| asked.starts_with("crawl")).count()
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&bytes).to_lowercase();
            let length = text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            if let Some(head) = text.find("\r\n\r\n")
                && bytes.len() >= head + 4 + length.unwrap_or(0)
            {
                break;
            }
            match stream.read(&mut part) {
                Ok(count) if count > 0 => bytes.extend_from_slice(&part[..count]),
                _ => return,
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let crawl = text.starts_with("POST");
        let crawled = (*self.crawls_with.lock().expect("whole"), r#"{"error":"Told"}"#.to_owned());
        let (status, body) = if crawl { crawled } else { self.says.lock().expect("whole").clone() };
        let told = if crawl {
            format!("crawl {}", text.split("\r\n\r\n").nth(1).unwrap_or_default())
        } else {
            "status".to_owned()
        };
        self.asked.lock().expect("whole").push(told);
        let head = format!(
            "HTTP/1.1 {status} .\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        // A client that went away is no failure of the test's.
        stream.write_all(format!("{head}{body}").as_bytes()).ok();
    }
}

/// A server whose relay it is.
fn asking(folder: &std::path::Path, relay: &Relay, on_boot: bool) -> Server {
    let mut server = Server::new(folder);
    server.options =
        ["--pds-relays", &relay.url, "--pds-check-on-boot", &on_boot.to_string()].map(str::to_owned).to_vec();
    server
}

/// A relay that gave up on a host is told by a start; one that reads it is left alone.
#[test]
fn a_start_asks_a_relay_to_read_the_server_only_if_it_does_not() {
    let folder = folder();
    let relay = Relay::start();
    let mut server = asking(folder.path(), &relay, true);
    let status = |server: &Server| operate(server, &["status"])["relays"][0].clone();
    server.restart();
    let told = wait_for("the relay to be asked", || relay.asked(2));
    let host = format!("crawl {{\"hostname\":\"localhost:{}\"}}", server.port);
    assert_eq!(told, ["status".to_owned(), host.clone()]);
    server.terminate();
    relay.say(200, r#"{"hostname":"localhost","seq":7,"accountCount":250,"status":"active"}"#);
    server.restart();
    wait_for("the relay to be asked", || Some(status(&server)).filter(|relay| relay["status"] == "active"));
    assert_eq!(relay.asked(0).as_deref(), Some(&["status".to_owned()][..]), "it reads the server already");
    assert_eq!(status(&server)["accounts"], 250);
    assert!(server.log().contains("relay_account_limit"), "more accounts than it may take: {}", server.log());
    server.terminate();
    relay.say(500, "{}");
    server.restart();
    wait_for("the relay's failure to be told", || server.log().contains("relay_unreachable").then_some(()));
    relay.say(200, r#"{"status":"idle"}"#);
    wait_for("the relay to be asked again", || (relay.crawls() > 0).then_some(()));
}

/// After a restore relays are asked whatever they say of themselves, once each has answered that is noted for good.
#[test]
fn a_restore_has_every_relay_asked_once_and_announce_asks_when_told_to() {
    let folder = folder();
    let relay = Relay::start();
    relay.say(200, r#"{"status":"active"}"#);
    let mut server = asking(folder.path(), &relay, false);
    server.restart();
    create(&server, &[]);
    server.terminate();
    assert_eq!(relay.asked(0), Some(Vec::new()), "nobody said that relays are to be asked");
    highwater(["pds", "mark-restored", "--data", text(&server.data)]).ok();
    server.restart();
    assert_eq!(operate(&server, &["status"])["poke_pending"], true);
    assert!(server.log().contains("highwater pds announce"), "{}", server.log());
    let outcome = |more: &[&str]| operate(&server, &[&["announce"], more].concat())["relays"][0]["outcome"].clone();
    assert_eq!(outcome(&[]), "asked");
    assert_eq!(operate(&server, &["status"])["poke_pending"], false);
    assert_eq!(outcome(&[]), "recent", "at most once in 20 minutes");
    assert_eq!(outcome(&["--force"]), "asked");
    assert_eq!(relay.crawls(), 2);
    let resynced = operate(&server, &["announce", "--resync", "--yes"]);
    assert_eq!(resynced["frames"], 2, "{resynced}");
    server.terminate();
    highwater(["pds", "mark-restored", "--data", text(&server.data)]).ok();
    server.options[3] = "true".to_owned();
    let before = relay.crawls();
    server.restart();
    wait_for("the relay to be asked", || (relay.crawls() > before).then_some(()));
    wait_for("that to be noted", || (operate(&server, &["status"])["poke_pending"] == false).then_some(()));
}

/// It ended with 0 where nobody was asked, and with --json also where a relay had failed.
#[test]
fn announce_ends_as_it_says_whether_every_relay_was_asked() {
    let folder = folder();
    let relay = Relay::start();
    let mut server = asking(folder.path(), &relay, false);
    server.restart();
    let announce = |json: &[&str]| {
        let url = super::base(&server);
        highwater([&["pds", "announce", "--force", "--url", &url], json].concat())
    };
    for (answers, exit, outcome) in [(500, 5, "failed"), (403, 1, "refused"), (429, 5, "failed")] {
        *relay.crawls_with.lock().expect("whole") = answers;
        let told = announce(&["--json"]);
        told.fails(exit, &["a relay"]);
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).expect("JSON");
        assert_eq!(told["relays"][0]["outcome"], outcome);
        assert!(told["relays"][0]["message"].as_str().is_some_and(|why| why.contains("Told")), "{told}");
        announce(&[]).fails(exit, &["a relay"]);
        assert_eq!(operate(&server, &["status"])["relays"][0]["outcome"], outcome);
        let metrics = ureq::get(format!("{}/metrics", super::base(&server))).call().expect("metrics");
        let metrics = metrics.into_body().read_to_string().expect("text");
        assert!(metrics.contains("highwater_pds_relays_failing 1"), "{metrics}");
    }
    *relay.crawls_with.lock().expect("whole") = 200;
    announce(&["--json"]).ok();
    server.terminate();
    server.options.clear();
    server.restart();
    let url = super::base(&server);
    let alone = highwater(["pds", "announce", "--url", &url]);
    alone.ok();
    assert!(alone.stderr.contains("nobody was asked"), "names of this machine alone: {}", alone.stderr);
    server.terminate();
    server.options = ["--pds-zone", "pds.invalid"].map(str::to_owned).to_vec();
    let key = highwater(["key", "create", "--data", text(&server.data), "--scopes", "admin"]).ok().trim().to_owned();
    server.restart();
    let mut asked = program(env!("CARGO_BIN_EXE_highwater"));
    asked.env("HIGHWATER_TOKEN", key).args(["pds", "announce", "--url", &url]);
    Ran::of(&mut asked, b"").fails(2, &["pds.relays", "nobody was asked"]);
}

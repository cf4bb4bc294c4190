//! What lives beside the node, through the listeners of the node.

use crate::fake::Fake;
use crate::keys::{secret, value};
use crate::wire::{Server, request};
use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use highwater_http::mount::{Mounted, Number, Routers, Told};
use highwater_http::{Closing, Front, HttpOptions, Services};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Page;

impl Told for Page {
    fn status(&self) -> Value {
        json!({ "accounts": 3 })
    }

    fn numbers(&self) -> Vec<Number> {
        vec![Number { name: "highwater_pds_accounts", kind: "gauge", help: "Accounts.", value: 3 }]
    }
}

/// A socket that says back what it is told, until the server stops.
async fn echo(mut request: Request, closing: Closing) -> Response {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut io = TokioIo::new(upgrade.await.expect("it is upgraded"));
        let mut bytes = [0; 64];
        loop {
            let count = tokio::select! {
                () = closing.wait() => break,
                count = io.read(&mut bytes) => count.unwrap_or(0),
            };
            if count == 0 {
                break;
            }
            io.write_all(&bytes[..count]).await.expect("the peer reads");
        }
        io.write_all(b"bye").await.expect("the peer reads");
    });
    let headers = [(header::UPGRADE, "echo"), (header::CONNECTION, "upgrade")];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

fn routers(closing: Closing) -> Routers {
    let whoami = async |ConnectInfo(client): ConnectInfo<SocketAddr>| client.ip().to_string();
    let xrpc = Router::new()
        .route("/xrpc/whoami", get(whoami))
        .route("/xrpc/write", post(async |body: String| body))
        .route("/xrpc/socket", get(move |request| echo(request, closing.clone())))
        .route("/.well-known/did.json", get(async || "document"));
    Routers { xrpc, operator: Router::new().route("/v1/pds/accounts", get(async || "accounts")) }
}

/// A server whose accounts serve or do not.
fn server(front: Front, broken: Option<&str>) -> Server {
    let server = highwater_http::Server::new(Fake::new(), HttpOptions::default());
    let routers = broken.map_or_else(|| Ok(routers(server.closing())), |why| Err(why.to_owned()));
    let mounted = Mounted { routers, told: Arc::new(Page) };
    Server::built(server.beside(mounted), front, None)
}

#[test]
fn the_protocol_is_asked_without_a_key_of_the_server_and_its_operator_with_one() {
    let server = server(Front::default(), None);
    assert_eq!(server.ask("GET", "/v1/pds/accounts", &[], b"").text(), "accounts", "open, on loopback");
    let made = server.ask("POST", "/v1/keys", &[], br#"{"scopes":["admin"]}"#);
    let admin = format!("Bearer {}", secret(&made));
    let reader = server.ask("POST", "/v1/keys", &[("authorization", &admin)], br#"{"scopes":["read"]}"#);
    let reader = format!("Bearer {}", secret(&reader));
    assert_eq!(server.ask("GET", "/v1/pds/accounts", &[], b"").status, 401);
    assert_eq!(server.ask("GET", "/v1/pds/accounts", &[("authorization", &reader)], b"").status, 403);
    assert_eq!(server.ask("GET", "/v1/pds/accounts", &[("authorization", &admin)], b"").status, 200);
    // A token of the protocol's own is no key of this server's, and none of its business.
    let token = [("authorization", "Bearer eyJ0eXAiOiJhdCtqd3QifQ.e30.AA"), ("origin", "https://example.com")];
    let answer = server.ask("GET", "/xrpc/whoami", &token, b"");
    assert_eq!((answer.status, answer.text().as_str()), (200, "127.0.0.1"));
    assert_eq!(answer.header("cross-origin-resource-policy"), Some("cross-origin"));
    assert_eq!(server.ask("POST", "/xrpc/write", &[], b"body").text(), "body");
    assert_eq!(server.ask("GET", "/.well-known/did.json", &[], b"").text(), "document");
    assert_eq!(server.ask("HEAD", "/.well-known/did.json", &[], b"").header("content-length"), Some("8"));
    let status = value(&server.ask("GET", "/v1/admin/status", &[("authorization", &admin)], b""));
    assert_eq!(status["pds"]["accounts"], 3);
    let metrics = server.ask("GET", "/metrics", &[("authorization", &admin)], b"").text();
    assert!(metrics.contains("\nhighwater_pds_accounts 3\n"), "{metrics}");
}

/// In open mode a name that is somebody else's would let a page of theirs in; the answer is worded as the protocol has it.
#[test]
fn open_mode_answers_this_machine_alone_below_xrpc_too() {
    let server = server(Front::default(), None);
    assert_eq!(server.ask("GET", "/xrpc/whoami", &[("host", "7f3a9c.localhost:4437")], b"").status, 200);
    let refused = server.ask("GET", "/xrpc/whoami", &[("host", "pds.example.com")], b"");
    assert_eq!((refused.status, &value(&refused)["error"]), (421, &json!("MisdirectedRequest")));
    assert!(value(&refused)["message"].as_str().is_some_and(|text| text.contains("pds.example.com")));
}

#[test]
fn a_service_that_does_not_serve_says_why_and_the_streams_go_on() {
    let why = "the log is damaged at 17";
    let server = server(Front::default(), Some(why));
    let refused = server.ask("GET", "/xrpc/whoami", &[], b"");
    assert_eq!((refused.status, &value(&refused)["error"]), (503, &json!("PdsUnavailable")));
    assert_eq!(value(&refused)["message"], why);
    assert_eq!(server.ask("GET", "/v1/pds/accounts", &[], b"").told(), (503, "PDS_UNAVAILABLE".to_owned()));
    let ready = server.ask("GET", "/readyz", &[], b"");
    assert!(ready.status == 200 && ready.text().contains(why), "{}", ready.text());
    assert_eq!(server.ask("PUT", "/v1/stream/a", &[("content-type", "text/plain")], b"x").status, 201);
    drop(server);
    let alone = Front { services: Services { xrpc: true, ..Services::NONE }, ..Front::default() };
    let server = self::server(alone, Some(why));
    assert_eq!(server.ask("GET", "/readyz", &[], b"").status, 503, "it has nothing else to offer");
}

/// What this server answers below the protocol's paths by itself is on the protocol's page; `PdsUnavailable` was on none.
#[test]
fn every_name_that_is_answered_before_a_method_is_asked_stands_on_the_page() {
    const PAGE: &str = include_str!("../../../../docs/reference/xrpc.md");
    let (_, section) = PAGE.split_once("### Before a method is asked").expect("the page has the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let open = server(Front::default(), None);
    let none = Server::start(Fake::new());
    let page = [("origin", "https://example.com"), ("sec-fetch-site", "cross-site"), ("content-type", "text/plain")];
    let answers = [
        server(Front::default(), Some("damaged")).ask("GET", "/xrpc/whoami", &[], b""),
        open.ask("GET", "/xrpc/whoami", &[("host", "pds.example.com")], b""),
        none.ask("GET", "/xrpc/whoami", &[], b""),
        open.ask("POST", "/xrpc/write", &page, b"x"),
    ];
    let mut told: Vec<String> = Vec::new();
    for answer in answers.into_iter().filter(|answer| answer.status >= 400) {
        let name = value(&answer)["error"].as_str().expect("a name").to_owned();
        let row = format!("| `{name}` | {} |", answer.status);
        assert!(section.contains(&row), "the page lacks {row}");
        told.push(name);
    }
    for name in ["PdsUnavailable", "MisdirectedRequest", "NotFound"] {
        assert!(told.iter().any(|other| other == name), "{name} was not answered: {told:?}");
    }
}

#[test]
fn a_server_without_accounts_says_that_it_has_none() {
    let server = Server::start(Fake::new());
    let refused = server.ask("GET", "/xrpc/com.atproto.server.describeServer", &[], b"");
    assert_eq!((refused.status, &value(&refused)["error"]), (404, &json!("NotFound")));
    assert_eq!(server.ask("GET", "/v1/pds/status", &[], b"").told(), (404, "NOT_FOUND".to_owned()));
    assert_eq!(value(&server.ask("GET", "/v1/admin/status", &[], b""))["pds"], Value::Null);
}

/// A connection that became a socket used to be no connection any more: nobody counted it, and nobody waited for it.
#[test]
fn a_socket_keeps_its_connections_place_and_ends_when_the_server_stops() {
    let mut server = server(Front::default(), None);
    let mut socket = server.connect();
    let upgrade = [("connection", "upgrade"), ("upgrade", "echo")];
    socket.write_all(&request("GET", "/xrpc/socket", &upgrade, b"")).expect("it is taken");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    socket.write_all(b"hello").expect("it is taken");
    let mut said = [0; 5];
    socket.read_exact(&mut said).expect("it is said back");
    assert_eq!(&said, b"hello");
    let open = || {
        let text = server.ask("GET", "/metrics", &[("connection", "close")], b"").text();
        let line = text.lines().find_map(|line| line.strip_prefix("highwater_connections ").map(str::to_owned));
        line.and_then(|count| count.parse::<u64>().ok()).expect("a number")
    };
    assert!(open() >= 2, "the socket and the one that asks");
    server.stop();
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).expect("it ends");
    assert_eq!(rest, b"bye", "it was ended, not cut");
}

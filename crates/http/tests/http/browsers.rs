//! Open mode, browsers, and the two versions of HTTP.

use crate::fake::Fake;
use crate::wire::{Answer, Server, request};
use axum::body::Body;
use axum::http::{Request, Version};
use highwater_http::{Front, HttpOptions, ServeError, router, serve};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

const PATH: &str = "/v1/stream/a";
const TEXT: (&str, &str) = ("content-type", "text/plain");

#[test]
fn a_server_without_keys_refuses_to_listen_off_loopback() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let refused = runtime.block_on(async {
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("a port");
        let options = HttpOptions::default();
        serve(listener, router(Fake::new(), options.clone()), options, std::future::pending()).await
    });
    assert!(matches!(refused, Err(ServeError::NotLoopback(_))), "{refused:?}");
}

#[test]
fn what_is_not_meant_for_this_machine_is_misdirected_on_every_route() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT], b"secret");
    for target in [PATH, "/healthz", "/readyz", "/metrics", "/v1/admin/status", "/nothing"] {
        for header in [
            ("host", "rebound.example.com"),
            ("forwarded", "for=1.2.3.4"),
            ("x-forwarded-for", "1.2.3.4"),
            ("via", "1.1 p"),
        ] {
            let answer = server.ask("GET", target, &[header], b"");
            assert_eq!(answer.told(), (421, "MISDIRECTED_REQUEST".to_owned()), "{target} {header:?}");
        }
    }
}

/// A page of another site can make a browser send a POST without asking first, so the answer's headers alone protect
/// nothing: the write itself must be refused. Reading needs no leave of the server where it answers `*`, so until this
/// was refused, any page that a developer opened could read the streams on the developer's machine.
#[test]
fn a_page_of_another_site_can_neither_write_nor_read() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT], b"mine");
    for foreign in [("origin", "https://example.com"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
        for method in ["POST", "PUT", "DELETE", "GET"] {
            let answer = server.ask(method, PATH, &[TEXT, foreign], b"x");
            assert_eq!(answer.told(), (403, "FORBIDDEN".to_owned()), "{method} {foreign:?}");
            assert_eq!(answer.header("producer-epoch"), None, "no fence");
            assert_eq!(answer.header("access-control-allow-origin"), None, "{method} {foreign:?}");
            assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"), "{method} {foreign:?}");
        }
    }
    assert_eq!(server.ask("GET", PATH, &[], b"").text(), "mine");
}

#[test]
fn a_page_of_this_machine_or_of_a_stated_origin_may_use_the_streams() {
    let front = Front { origins: vec!["https://app.example.com".to_owned()], ..Front::default() };
    let server = Server::behind(Fake::new(), HttpOptions::default(), front, None);
    server.ask("PUT", PATH, &[TEXT], b"");
    for origin in ["http://localhost:5173", "http://127.0.0.1:8080", "https://app.example.com"] {
        let page = ("origin", origin);
        for (method, headers, status) in [
            ("OPTIONS", &[page, ("access-control-request-method", "POST")][..], 204),
            ("POST", &[page, TEXT], 204),
            ("GET", &[page], 200),
        ] {
            let answer = server.ask(method, PATH, headers, if method == "POST" { b"x" } else { b"" });
            assert_eq!(answer.status, status, "{method} {origin}");
            assert_eq!(answer.header("access-control-allow-origin"), Some(origin), "{method}");
            if method == "GET" {
                assert_eq!(answer.header("vary"), Some("stream-incarnation, origin"), "a cache keeps origins apart");
            }
        }
    }
    assert_eq!(server.ask("GET", PATH, &[("origin", "https://app.example.com.evil.com")], b"").status, 403);
}

/// A browser does as the preflight's answer says; one of another site's page is not given leave.
#[test]
fn a_preflight_of_another_sites_page_is_answered_without_leave() {
    let server = Server::start(Fake::new());
    let asks = [("origin", "https://example.com"), ("access-control-request-method", "GET")];
    let answer = server.ask("OPTIONS", PATH, &asks, b"");
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, None));
}

#[test]
fn a_preflight_allows_what_clients_send() {
    let server = Server::start(Fake::new());
    let asks = [
        ("origin", "http://localhost:5173"),
        ("access-control-request-method", "GET"),
        ("access-control-request-headers", "if-none-match"),
    ];
    let answer = server.ask("OPTIONS", PATH, &asks, b"");
    assert_eq!(answer.status, 204);
    assert_eq!(answer.header("access-control-allow-origin"), Some("http://localhost:5173"));
    let allowed = |name: &str| answer.header(name).unwrap_or_default().to_ascii_lowercase();
    for header in [
        "if-none-match",
        "content-type",
        "stream-closed",
        "stream-seq",
        "producer-id",
        "producer-digest",
        "stream-incarnation",
    ] {
        assert!(allowed("access-control-allow-headers").split(", ").any(|name| name == header), "{header}");
    }
    for method in ["get", "head", "put", "post", "delete"] {
        assert!(allowed("access-control-allow-methods").split(", ").any(|name| name == method), "{method}");
    }
}

#[test]
fn every_answer_of_a_stream_is_marked_for_browsers_and_no_other_is_shared() {
    let server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[("content-type", "text/html")], b"<script>");
    for (method, target) in [
        ("GET", PATH),
        ("HEAD", PATH),
        ("GET", "/v1/stream/none"),
        ("POST", PATH),
        ("PATCH", PATH),
        ("GET", "/v1/stream/a//b"),
    ] {
        let answer = server.ask(method, target, &[], b"");
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{method} {target}");
        let exposed = answer.header("access-control-expose-headers").unwrap_or_default().to_ascii_lowercase();
        for name in [
            "stream-next-offset",
            "producer-epoch",
            "stream-sse-data-encoding",
            "etag",
            "location",
            "retry-after",
            "highwater-durability",
        ] {
            assert!(exposed.split(", ").any(|header| header == name), "{name}");
        }
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("cross-origin"));
        assert_eq!(
            answer.header("content-security-policy"),
            Some("sandbox; default-src 'none'"),
            "no script runs here"
        );
    }
    for target in ["/healthz", "/readyz", "/metrics", "/v1/admin/status", "/nothing"] {
        let answer = server.ask("GET", target, &[("origin", "http://localhost:5173")], b"");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{target}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{target}");
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"), "{target}");
    }
}

#[test]
fn methods_that_a_stream_does_not_have_are_named_as_such() {
    let server = Server::start(Fake::new());
    let answer = server.ask("PATCH", PATH, &[], b"x");
    assert_eq!(answer.told(), (405, "METHOD_NOT_ALLOWED".to_owned()));
    assert_eq!(answer.header("allow"), Some("GET, HEAD, PUT, POST, DELETE, OPTIONS"));
}

#[test]
fn http_2_by_prior_knowledge_does_the_same() {
    let server = Server::start(Fake::new());
    server.runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(server.address).await.expect("the server listens");
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .expect("a handshake");
        tokio::spawn(connection);
        let uri = |host: &str| format!("http://{host}{PATH}");
        let ask = |method: &str, host: &str, body: Vec<u8>| {
            let request = Request::builder().method(method).uri(uri(host)).header("content-type", "text/plain");
            request.body(Body::from(body)).expect("a request")
        };
        let created = sender.send_request(ask("PUT", "localhost:1", vec![])).await.expect("an answer");
        assert_eq!((created.version(), created.status().as_u16()), (Version::HTTP_2, 201));
        assert_eq!(created.headers()["location"], "http://localhost:1/v1/stream/a");
        for _ in 0..3 {
            let refused =
                sender.send_request(ask("POST", "example.com", vec![b'x'; 4 << 20])).await.expect("an answer");
            assert_eq!(refused.status().as_u16(), 421, "refused before its body, and the connection goes on");
        }
        let large = sender.send_request(ask("POST", "localhost", vec![b'y'; 4 << 20])).await.expect("an answer");
        assert_eq!(large.status().as_u16(), 204);
        let read = sender.send_request(ask("GET", "localhost", vec![])).await.expect("an answer");
        assert_eq!(read.headers()["stream-up-to-date"], "true");
        assert_eq!(read.into_body().collect().await.expect("a body").to_bytes().len(), 4 << 20);
    });
}

#[test]
fn one_connection_carries_many_requests() {
    let server = Server::start(Fake::new());
    let mut stream = server.connect();
    let put = request("PUT", PATH, &[TEXT], b"");
    let post = request("POST", PATH, &[TEXT], b"abc");
    stream.write_all(&[&put[..], &post, &post, &request("GET", PATH, &[], b"")].concat()).expect("all is taken");
    let statuses: Vec<u16> = (0..3).map(|_| Answer::read(&mut stream, "POST").status).collect();
    assert_eq!(statuses, [201, 204, 204]);
    assert_eq!(Answer::read(&mut stream, "GET").text(), "abcabc");
}

/// SIGTERM used to wait ten seconds for readers that waited for nothing in particular, and then cut them.
#[test]
fn a_server_that_stops_answers_waiting_readers_at_once_and_finishes_what_is_being_written() {
    let mut server = Server::start(Fake::new());
    server.ask("PUT", PATH, &[TEXT], b"abc");
    let mut reader = server.connect();
    let wait = format!("{PATH}?offset=3&live=long-poll&timeout_ms=60000");
    reader.write_all(&request("GET", &wait, &[], b"")).expect("it is taken");
    let mut writer = server.connect();
    writer.write_all(&request("POST", PATH, &[TEXT, ("content-length", "4")], b"12")).expect("it is taken");
    let _idle = server.connect();
    std::thread::sleep(Duration::from_millis(100));
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let answer = Answer::read(&mut reader, "GET");
            assert_eq!((answer.status, answer.next()), (204, 3));
            assert_eq!(reader.read(&mut [0]).ok(), Some(0), "the connection ends");
            assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
            writer.write_all(b"34").expect("what is being written is still taken");
            assert_eq!(Answer::read(&mut writer, "POST").status, 204);
        });
        server.stop();
    });
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(std::net::TcpStream::connect(server.address).is_err(), "nobody listens any more");
}

#[test]
fn a_server_that_stops_cuts_what_takes_too_long() {
    let options = HttpOptions { shutdown_ms_max: 300, ..HttpOptions::default() };
    let mut server = Server::with(Fake::new(), options);
    server.ask("PUT", PATH, &[TEXT], b"");
    let mut writer = server.connect();
    writer.write_all(&request("POST", PATH, &[TEXT, ("content-length", "4")], b"12")).expect("it is taken");
    std::thread::sleep(Duration::from_millis(50));
    let start = Instant::now();
    server.stop();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let mut rest = Vec::new();
    writer.read_to_end(&mut rest).ok();
    assert_eq!(rest, b"", "no answer is better than a wrong one");
}

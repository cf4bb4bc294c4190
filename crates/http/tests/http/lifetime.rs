//! Streams that end by themselves.

use crate::fake::Fake;
use crate::wire::Server;

const PATH: &str = "/v1/stream/a";
const TEXT: (&str, &str) = ("content-type", "text/plain");

#[test]
fn a_window_is_told_as_it_was_asked_for_and_compared_on_a_match() {
    let server = Server::start(Fake::new());
    let create = |headers: &[(&str, &str)]| server.ask("PUT", PATH, &[&[TEXT], headers].concat(), b"").told();
    assert_eq!(create(&[("stream-ttl", "3600")]).0, 201);
    let head = server.ask("HEAD", PATH, &[], b"");
    assert_eq!((head.header("stream-ttl"), head.header("stream-expires-at")), (Some("3600"), None));
    assert_eq!(create(&[("stream-ttl", "3600")]).0, 200);
    let conflict = (409, "STREAM_ALREADY_EXISTS_CONFLICT".to_owned());
    for other in [&[][..], &[("stream-ttl", "3601")], &[("stream-expires-at", "2999-01-01T00:00:00Z")]] {
        assert_eq!(create(other), conflict, "{other:?}");
    }
}

#[test]
fn a_time_is_told_in_utc_and_the_same_moment_matches_in_any_zone() {
    let server = Server::start(Fake::new());
    let create = |at: &str| server.ask("PUT", PATH, &[TEXT, ("stream-expires-at", at)], b"").status;
    assert_eq!(create("2999-01-01T01:30:00.5+01:30"), 201);
    let head = server.ask("HEAD", PATH, &[], b"");
    assert_eq!((head.header("stream-ttl"), head.header("stream-expires-at")), (None, Some("2999-01-01T00:00:00.500Z")));
    assert_eq!(create("2998-12-31T23:00:00.500-01:00"), 200);
    assert_eq!(create("2999-01-01T00:00:00Z"), 409);
}

#[test]
fn a_lifetime_that_is_none_creates_nothing() {
    let server = Server::start(Fake::new());
    for headers in [
        &[("stream-ttl", "01")][..],
        &[("stream-ttl", "1e3")],
        &[("stream-ttl", "")],
        &[("stream-expires-at", "tomorrow")],
        &[("stream-ttl", "60"), ("stream-expires-at", "2999-01-01T00:00:00Z")],
        &[("stream-ttl", "60"), ("stream-ttl", "60")],
    ] {
        let answer = server.ask("PUT", PATH, &[&[TEXT], headers].concat(), b"");
        assert_eq!(answer.told(), (400, "INVALID_HEADER".to_owned()), "{headers:?}");
        assert_eq!(server.ask("HEAD", PATH, &[], b"").status, 404, "{headers:?}");
    }
}

#[test]
fn a_stream_that_is_over_is_as_if_it_never_was() {
    let fake = Fake::new();
    let server = Server::start(fake.clone());
    let first = server.ask("PUT", PATH, &[TEXT, ("stream-expires-at", "1970-01-01T00:01:00Z")], b"old");
    fake.pass(120_000);
    for method in ["HEAD", "GET", "DELETE"] {
        assert_eq!(server.ask(method, PATH, &[], b"").status, 404, "{method}");
    }
    assert_eq!(server.ask("POST", PATH, &[TEXT], b"x").told(), (404, "STREAM_NOT_FOUND".to_owned()));
    let again = server.ask("PUT", PATH, &[TEXT], b"new");
    assert_eq!((again.status, again.next()), (201, 3));
    assert_ne!(first.header("stream-incarnation"), again.header("stream-incarnation"));
    assert_eq!(server.ask("GET", PATH, &[], b"").text(), "new");
}

//! Who may ask a server in open mode: this machine, directly.
//!
//! Without keys the only protection is that nobody else can reach the listener. Three ways around it are closed here:
//! a name that resolves to loopback but is somebody else's (the `Host` says so), a proxy that lets others in (it says
//! so in `Forwarded`, `X-Forwarded-*`, `Via`, or one of the names that single products use), and a web page of another
//! site in a browser of this machine (its browser says so in `Origin` or `Sec-Fetch-Site`); such a page neither reads nor
//! writes, unless its origin is stated. A page that may use the streams may use nothing else: without a preflight it could
//! make the first key, which nobody would ever see.
//!
//! Source: DESIGN decision 9.

use crate::cors::Pages;
use crate::error::{Code, Error};
use crate::front::{Arrival, Front};
use crate::mount::is_xrpc;
use crate::names;
use crate::router::below_streams;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, Uri, header};
use std::net::IpAddr;

/// Judges a request's head. `open` says whether it is answered without a key.
///
/// # Errors
/// `NOT_FOUND` for what the listener does not serve, `MISDIRECTED_REQUEST` for another machine's, `FORBIDDEN` for
/// another site's page.
pub(crate) fn check(head: &Parts, arrival: &Arrival, pages: &Pages, open: bool) -> Result<(), Error> {
    let front = &arrival.front;
    if !front.offers(head.uri.path()) {
        return Err(Error::new(Code::NotFound, "this listener does not serve this path"));
    }
    if !open {
        return closed(head, arrival);
    }
    direct(head)?;
    // What a preflight is told decides what the browser does next; the answer without leave is the refusal.
    if head.method == Method::OPTIONS {
        return Ok(());
    }
    match pages {
        Pages::All => Ok(()),
        Pages::Origin(origin) if streams_or_probe(head.uri.path()) || is_own(origin, head) => Ok(()),
        Pages::Origin(_) => {
            Err(Error::new(Code::Forbidden, "a page of another origin may use the streams, and nothing else here"))
        }
        Pages::None => Err(Error::new(
            Code::Forbidden,
            "a page of another site may not use a server in open mode; name its origin in the setting cors_origins, or \
             use keys",
        )),
    }
}

fn streams_or_probe(path: &str) -> bool {
    below_streams(path).is_some() || is_xrpc(path) || is_probe(path)
}

fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// Whether a page came from the very listener that it asks.
fn is_own(origin: &HeaderValue, head: &Parts) -> bool {
    let host = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    let host = host.or_else(|| head.headers.get(header::HOST).map(HeaderValue::as_bytes));
    let (_, page) = origin.to_str().ok().and_then(|origin| origin.split_once("://")).unwrap_or_default();
    host.is_some_and(|host| host.eq_ignore_ascii_case(page.as_bytes()))
}

/// A listener without TLS that has a proxy in front answers that proxy alone: what others send it, their keys
/// included, crosses the network in the clear.
fn closed(head: &Parts, arrival: &Arrival) -> Result<(), Error> {
    let probe = is_probe(head.uri.path());
    let front = &arrival.front;
    if probe || arrival.secure || front.proxies.is_empty() || front.is_proxy(arrival.peer.ip()) {
        return Ok(());
    }
    Err(Error::new(Code::MisdirectedRequest, "this listener answers the proxy in front of it alone; ask the proxy"))
}

/// Which pages may read the answer to a request.
pub(crate) fn pages(head: &Parts, front: &Front, open: bool) -> Pages {
    if !open {
        return Pages::All;
    }
    let mut origins = head.headers.get_all(header::ORIGIN).iter().peekable();
    let Some(first) = origins.peek().copied() else {
        // Some requests of a page carry no Origin; every current browser says this much of them.
        let foreign = head.headers.get(names::SEC_FETCH_SITE).is_some_and(|site| site.as_bytes() == b"cross-site");
        return if foreign { Pages::None } else { Pages::All };
    };
    let may = |origin: &HeaderValue| {
        let text = origin.to_str().unwrap_or_default();
        is_loopback_origin(text) || front.origins.iter().any(|stated| stated == text)
    };
    if origins.all(may) { Pages::Origin(first.clone()) } else { Pages::None }
}

/// Headers that proxies and networks of distribution add besides the common ones. No browser and no client sends them.
const PROXIES_OWN: [&str; 6] =
    ["x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip", "cf-connecting-ip", "fastly-client-ip"];

/// Whether a header says that the request was passed on.
fn is_forwarding(name: &HeaderName) -> bool {
    let text = name.as_str();
    *name == header::FORWARDED
        || *name == header::VIA
        || text.starts_with("x-forwarded-")
        || PROXIES_OWN.contains(&text)
}

fn direct(head: &Parts) -> Result<(), Error> {
    let forwarded = head.headers.keys().find(|name| is_forwarding(name));
    if let Some(name) = forwarded {
        return Err(misdirected(format!("the request came through a proxy ({name})")));
    }
    // HTTP/2 names the host in the authority, HTTP/1.1 in Host, a request to a proxy in both: all must agree.
    let hosts = head.headers.get_all(header::HOST).iter().map(|value| value.to_str().unwrap_or_default());
    let mut named = head.uri.authority().map(|authority| authority.as_str()).into_iter().chain(hosts).peekable();
    if named.peek().is_none() {
        return Err(misdirected("the request names no host".to_owned()));
    }
    match named.find(|host| !is_loopback(host)) {
        None => Ok(()),
        Some(host) => Err(misdirected(format!("{host} is not a loopback name or address"))),
    }
}

fn misdirected(reason: String) -> Error {
    Error::new(Code::MisdirectedRequest, format!("{reason}; a server in open mode answers this machine only"))
}

/// Whether an origin, such as `http://localhost:5173`, is this machine's; `null` is nobody's.
fn is_loopback_origin(origin: &str) -> bool {
    origin.parse::<Uri>().ok().and_then(|uri| uri.authority().map(|host| is_loopback(host.as_str()))).unwrap_or(false)
}

/// Whether a host, with or without a port, is a loopback name or address in its usual spelling.
fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (address, port),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port_is_one = port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    let name = name.to_ascii_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name);
    port_is_one
        && match name.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => name == "localhost" || name.ends_with(".localhost"),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::Services;
    use axum::http::Request;

    fn judge(method: &str, headers: &[(&str, &str)]) -> Result<(), Code> {
        let mut request = Request::builder().method(method).uri("/v1/stream/a");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        judged(&head)
    }

    fn judged(head: &Parts) -> Result<(), Code> {
        let arrival = Arrival::default();
        check(head, &arrival, &pages(head, &arrival.front, true), true).map_err(|error| error.code())
    }

    #[test]
    fn only_loopback_names_and_addresses_are_answered() {
        for host in [
            "localhost",
            "LOCALHOST:4437",
            "localhost.",
            "app.localhost:1",
            "127.0.0.1",
            "127.8.9.1:80",
            "[::1]:4437",
            "[::1]",
        ] {
            assert_eq!(judge("GET", &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "",
            "example.com",
            "localhost.example.com",
            "127.0.0.1.example.com",
            "notlocalhost",
            "10.0.0.1:4437",
            "0.0.0.0",
            "[::]",
            "[::1]evil",
            "[::1",
            "127.1",
            "0x7f.0.0.1",
            "localhost@evil.com",
            "localhost:evil.com",
            "[2001:db8::1]:80",
            "::1:evil",
        ] {
            assert_eq!(judge("GET", &[("host", host)]), Err(Code::MisdirectedRequest), "{host:?}");
        }
        assert_eq!(judge("GET", &[]), Err(Code::MisdirectedRequest));
        assert_eq!(judge("GET", &[("host", "localhost"), ("host", "evil.com")]), Err(Code::MisdirectedRequest));
    }

    #[test]
    fn an_absolute_target_must_be_loopback_too() {
        let request = Request::builder().uri("http://evil.com/v1/stream/a").header("host", "localhost");
        let (head, ()) = request.body(()).expect("a request").into_parts();
        assert_eq!(judged(&head), Err(Code::MisdirectedRequest));
    }

    #[test]
    fn whatever_a_proxy_forwarded_is_misdirected() {
        let common = ["forwarded", "via", "x-forwarded-for", "X-Forwarded-Proto", "x-forwarded-anything"];
        for name in common.into_iter().chain(PROXIES_OWN) {
            assert_eq!(judge("GET", &[("host", "localhost"), (name, "x")]), Err(Code::MisdirectedRequest), "{name}");
        }
    }

    /// Any page that somebody opens could otherwise read what a developer's server holds.
    #[test]
    fn a_page_of_another_site_neither_reads_nor_writes() {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"] {
            for foreign in [
                ("origin", "https://example.com"),
                ("origin", "null"),
                ("origin", ""),
                ("origin", "https://localhost.example.com"),
                ("sec-fetch-site", "cross-site"),
            ] {
                assert_eq!(
                    judge(method, &[("host", "localhost"), foreign]),
                    Err(Code::Forbidden),
                    "{method} {foreign:?}"
                );
            }
            for own in
                [("origin", "http://localhost:5173"), ("origin", "http://[::1]:1"), ("sec-fetch-site", "same-origin")]
            {
                assert_eq!(judge(method, &[("host", "localhost"), own]), Ok(()), "{method} {own:?}");
            }
            let own = [("host", "127.0.0.1"), ("origin", "http://localhost:5173"), ("sec-fetch-site", "cross-site")];
            assert_eq!(judge(method, &own), Ok(()), "names of one machine are sites of their own to a browser");
            assert_eq!(judge(method, &[("host", "localhost")]), Ok(()), "no browser");
        }
        assert_eq!(judge("OPTIONS", &[("host", "localhost"), ("origin", "https://example.com")]), Ok(()));
    }

    /// A page of another port, or of a stated origin, could otherwise make the first key blindly: a POST of text needs no
    /// preflight, and a server with a key that nobody knows is closed to its owner.
    #[test]
    fn a_page_that_may_use_the_streams_may_use_nothing_else() {
        let front = Front { origins: vec!["https://app.example.com".to_owned()], ..Front::default() };
        let arrival = Arrival::new("127.0.0.1:1".parse().expect("an address"), false, std::sync::Arc::new(front));
        let judge = |path: &str, origin: &str| {
            let request = Request::builder().method("POST").uri(path);
            let request = request.header("host", "localhost:4437").header("origin", origin);
            let (head, ()) = request.body(()).expect("a request").into_parts();
            check(&head, &arrival, &pages(&head, &arrival.front, true), true).map_err(|error| error.code())
        };
        for page in ["http://localhost:5173", "http://127.0.0.1:4437", "https://app.example.com"] {
            assert_eq!(judge("/v1/stream/a", page), Ok(()), "{page}");
            assert_eq!(judge("/healthz", page), Ok(()), "{page}");
            for path in ["/v1/keys", "/v1/admin/backups", "/metrics", "/v1/streams", "/anything"] {
                assert_eq!(judge(path, page), Err(Code::Forbidden), "{page} {path}");
            }
        }
        assert_eq!(judge("/v1/keys", "http://localhost:4437"), Ok(()), "a page of this very listener");
    }

    #[test]
    fn a_listener_serves_what_it_states_and_whatever_is_new_counts_as_administration() {
        let with = |services| Front { services, ..Front::default() };
        let streams = with(Services { streams: true, ..Services::NONE });
        let admin = with(Services { admin: true, ..Services::NONE });
        let xrpc = with(Services { xrpc: true, ..Services::NONE });
        for path in ["/xrpc", "/xrpc/_health", "/.well-known/did.json", "/healthz"] {
            assert!(xrpc.offers(path), "{path}");
            assert!(path == "/healthz" || !streams.offers(path) && !admin.offers(path), "{path}");
        }
        for path in ["/v1/stream/a", "/v1/pds/accounts", "/v1/keys", "/metrics", "/xrpcs", "/.well-knownst"] {
            assert!(!xrpc.offers(path), "{path}");
        }
        for (path, on_streams, on_admin) in [
            ("/healthz", true, true),
            ("/readyz", true, true),
            ("/v1/stream/a", true, false),
            ("/v1/stream", true, false),
            ("/v1/streams", false, true),
            ("/metrics", false, true),
            ("/v1/admin/status", false, true),
            ("/v1/keys", false, true),
            ("/v1/pds/accounts", false, true),
            ("/anything", false, true),
        ] {
            assert_eq!((streams.offers(path), admin.offers(path)), (on_streams, on_admin), "{path}");
        }
    }

    #[test]
    fn a_listener_behind_a_proxy_answers_that_proxy_alone() {
        let front = Front { open: false, proxies: vec!["10.0.0.0/8".parse().expect("a network")], ..Front::default() };
        let front = std::sync::Arc::new(front);
        for (peer, path, secure, answered) in [
            ("10.0.0.1:1", "/v1/stream/a", false, true),
            ("192.0.2.1:1", "/v1/stream/a", false, false),
            ("127.0.0.1:1", "/v1/stream/a", false, false),
            ("192.0.2.1:1", "/readyz", false, true),
            ("192.0.2.1:1", "/v1/stream/a", true, true),
        ] {
            let arrival = Arrival::new(peer.parse().expect("an address"), secure, front.clone());
            let request = Request::builder().uri(path).header("host", "streams.example.com");
            let (head, ()) = request.body(()).expect("a request").into_parts();
            let judged =
                check(&head, &arrival, &pages(&head, &front, front.open), front.open).map_err(|error| error.code());
            assert_eq!(judged, if answered { Ok(()) } else { Err(Code::MisdirectedRequest) }, "{peer} {path}");
        }
    }
}

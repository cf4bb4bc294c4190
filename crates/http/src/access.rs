//! Who may ask a server in open mode: this machine, directly.
//!
//! Without keys the only protection is that nobody else can reach the listener. Three ways around it are closed here:
//! a name that resolves to loopback but is somebody else's (the `Host` says so), a proxy that lets others in (it says
//! so in `Forwarded`, `X-Forwarded-*` or `Via`), and a web page of another site in a browser of this machine (its
//! browser says so in `Origin` or `Sec-Fetch-Site`); such a page must not write.
//!
//! Source: DESIGN decision 9.

use crate::error::{Code, Error};
use crate::names;
use axum::http::request::Parts;
use axum::http::{Method, Uri, header};
use std::net::IpAddr;

/// Judges a request's head.
///
/// # Errors
/// `MISDIRECTED_REQUEST` for another machine's, `FORBIDDEN` for another site's write.
pub(crate) fn check(head: &Parts) -> Result<(), Error> {
    direct(head)?;
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&head.method);
    if reads || !foreign_page(head) {
        return Ok(());
    }
    Err(Error::new(Code::Forbidden, "a page of another site may not write to a server in open mode"))
}

fn direct(head: &Parts) -> Result<(), Error> {
    let forwarded = head
        .headers
        .keys()
        .find(|name| **name == header::FORWARDED || **name == header::VIA || name.as_str().starts_with("x-forwarded-"));
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

/// Whether a browser sent this for a page that is not this machine's.
fn foreign_page(head: &Parts) -> bool {
    let mut origins = head.headers.get_all(header::ORIGIN).iter().peekable();
    if origins.peek().is_none() {
        // Some requests of a page carry no Origin; every current browser says this much of them.
        return head.headers.get(names::SEC_FETCH_SITE).is_some_and(|site| site.as_bytes() == b"cross-site");
    }
    !origins.all(|origin| origin.to_str().is_ok_and(is_loopback_origin))
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
    use axum::http::Request;

    fn judge(method: &str, headers: &[(&str, &str)]) -> Result<(), Code> {
        let mut request = Request::builder().method(method).uri("/v1/stream/a");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        check(&head).map_err(|error| error.code())
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
        assert_eq!(check(&head).map_err(|error| error.code()), Err(Code::MisdirectedRequest));
    }

    #[test]
    fn whatever_a_proxy_forwarded_is_misdirected() {
        for name in
            ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "X-Forwarded-Proto", "x-forwarded-anything"]
        {
            assert_eq!(judge("GET", &[("host", "localhost"), (name, "x")]), Err(Code::MisdirectedRequest), "{name}");
        }
    }

    #[test]
    fn a_page_of_another_site_reads_but_never_writes() {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
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
            assert_eq!(judge(method, &[("host", "localhost")]), Ok(()), "no browser");
        }
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert_eq!(judge(method, &[("host", "localhost"), ("origin", "https://example.com")]), Ok(()));
        }
    }
}

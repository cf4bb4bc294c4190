//! What one listener offers and to whom, and how a request came to it.

use crate::mount;
use crate::network::Network;
use crate::router;
use axum::http::{Extensions, HeaderMap, header};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// The services of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Services {
    /// `/v1/stream`.
    pub streams: bool,
    /// `/v1/admin`, `/v1/keys`, `/v1/accounts`, `/v1/plans`, `/v1/pds` and `/metrics`. Health and readiness are everywhere.
    pub admin: bool,
    /// `/xrpc` and `/.well-known`.
    pub xrpc: bool,
}

impl Services {
    /// Everything.
    pub const ALL: Self = Self { streams: true, admin: true, xrpc: true };

    /// Nothing but probes.
    pub const NONE: Self = Self { streams: false, admin: false, xrpc: false };
}

/// What one listener offers and to whom.
#[derive(Debug, Clone)]
pub struct Front {
    /// Whether requests are answered without a key for as long as there are no keys. On loopback only.
    pub open: bool,
    /// What is served.
    pub services: Services,
    /// Where clients reach it, without a slash at the end, if that is not what `Host` says.
    pub url_public: Option<String>,
    /// Proxies whose word about who asks is taken, for logs and rate limits alone. Where some are stated, they alone
    /// may ask a listener without TLS.
    pub proxies: Vec<Network>,
    /// Origins of web pages, besides this machine's, that may use the streams in open mode.
    pub origins: Vec<String>,
}

impl Default for Front {
    /// Open mode: everything, for this machine.
    fn default() -> Self {
        Self { open: true, services: Services::ALL, url_public: None, proxies: Vec::new(), origins: Vec::new() }
    }
}

impl Front {
    /// Whether a path is served here. Whatever is neither a stream, nor the AT Protocol's, nor a probe counts as administration, so that a
    /// route that is added is not public by accident.
    pub(crate) fn offers(&self, path: &str) -> bool {
        match path {
            "/healthz" | "/readyz" => true,
            path if router::below_streams(path).is_some() => self.services.streams,
            path if mount::is_xrpc(path) => self.services.xrpc,
            _ => self.services.admin,
        }
    }

    /// Who asks: the other end of the connection, or whom a stated proxy names.
    ///
    /// Proxies append what they see, so the list is read from its end, and ends at the first address that is no
    /// stated proxy: what stands before it is the client's own word.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        let named = forwarded_for(headers);
        for address in named.iter().rev() {
            if !self.is_proxy(client) {
                break;
            }
            let Some(address) = address else { break };
            client = *address;
        }
        client
    }

    /// Whether an address is a stated proxy's.
    pub(crate) fn is_proxy(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|network| network.contains(address))
    }
}

/// The addresses of `X-Forwarded-For`, or else of `Forwarded`, in their order; `None` where one is not an address.
fn forwarded_for(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    let texts = |name| headers.get_all(name).iter().filter_map(|value: &axum::http::HeaderValue| value.to_str().ok());
    let plain: Vec<_> = texts("x-forwarded-for").flat_map(|text| text.split(',')).map(address).collect();
    if !plain.is_empty() {
        return plain;
    }
    let elements = texts(header::FORWARDED.as_str()).flat_map(|text| text.split(','));
    let named = elements.map(|element| {
        let pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("for")).and_then(|(_, value)| address(value))
    });
    named.collect()
}

/// An address, with or without quotes, brackets and a port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    let bare = text.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or(text, |(address, _)| address);
    let parsed = bare.parse().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()));
    parsed.ok().map(|address: IpAddr| address.to_canonical())
}

/// How a request came to this server; stands in the extensions of every request.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// Who asks, for logs and rate limits: the peer, or whom a stated proxy names.
    pub client: IpAddr,
    /// Whether the connection is TLS.
    pub secure: bool,
    /// The listener's front.
    pub front: Arc<Front>,
}

impl Arrival {
    pub(crate) fn new(peer: SocketAddr, secure: bool, front: Arc<Front>) -> Self {
        Self { peer, client: peer.ip().to_canonical(), secure, front }
    }

    /// The arrival of a request, as its connection noted it.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }
}

impl Default for Arrival {
    /// From this machine, as a router that is asked without a connection has it.
    fn default() -> Self {
        Self::new(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0), false, Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(proxies: &[&str], peer: &str, headers: &[(&'static str, &str)]) -> String {
        let proxies = proxies.iter().map(|text| text.parse().expect("a network")).collect();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().expect("a value"));
        }
        Front { proxies, ..Front::default() }.client(peer.parse().expect("an address"), &map).to_string()
    }

    /// A client that writes the header itself would otherwise choose whose rate limit it uses up.
    #[test]
    fn only_a_stated_proxy_is_believed_and_only_about_whom_it_saw() {
        const PROXY: &[&str] = &["10.0.0.0/8"];
        let told = |value| [("x-forwarded-for", value)];
        assert_eq!(client(&[], "203.0.113.9", &told("198.51.100.1")), "203.0.113.9");
        assert_eq!(client(PROXY, "203.0.113.9", &told("198.51.100.1")), "203.0.113.9");
        assert_eq!(client(PROXY, "10.0.0.1", &told("198.51.100.1")), "198.51.100.1");
        assert_eq!(client(PROXY, "10.0.0.1", &told("6.6.6.6, 198.51.100.1")), "198.51.100.1", "the last one");
        assert_eq!(client(PROXY, "10.0.0.1", &told("198.51.100.1, 10.0.0.2")), "198.51.100.1", "two proxies");
        assert_eq!(client(PROXY, "10.0.0.1", &told("unknown, 10.0.0.2")), "10.0.0.2");
        assert_eq!(client(PROXY, "10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(client(PROXY, "::ffff:10.0.0.1", &told("198.51.100.1:4711")), "198.51.100.1");
        let forwarded = [("forwarded", "for=6.6.6.6, for=\"[2001:db8::7]:443\";proto=https")];
        assert_eq!(client(PROXY, "10.0.0.1", &forwarded), "2001:db8::7");
        let both = [("forwarded", "for=6.6.6.6"), ("x-forwarded-for", "198.51.100.1")];
        assert_eq!(client(PROXY, "10.0.0.1", &both), "198.51.100.1");
    }
}

//! From an address to an open WebSocket.
//!
//! Source: RFC 6455, sections 4.1 and 4.2.2.

use super::Io;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use sha1::{Digest, Sha1};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// What the protocol lets a server add to the key, to show that it understood.
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of the answer's head at the most.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of a refusal's body that are kept for people.
const REFUSAL_BYTES_MAX: usize = 1_024;

/// How to connect.
#[derive(Debug, Clone)]
pub struct WebSocketOptions {
    /// How long each step of connecting may take.
    pub patience: Duration,
    /// Bytes of a message at the most.
    pub message_bytes_max: usize,
    /// A file of further certificates that are trusted.
    pub ca_file: Option<PathBuf>,
    /// The `Host` to ask for, if it is another than the address says.
    pub host: Option<String>,
}

impl Default for WebSocketOptions {
    fn default() -> Self {
        Self { patience: Duration::from_secs(10), message_bytes_max: 8 << 20, ca_file: None, host: None }
    }
}

/// Why there is no WebSocket.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The address is none.
    #[error("{0:?} is not the address of a server: http(s)://host[:port]/path")]
    Address(String),
    /// The server cannot be reached, or what answers does not keep the protocol of TLS.
    #[error("cannot connect to {host}: {source}")]
    Io {
        /// The host and port.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// Its certificates cannot be checked.
    #[error("TLS cannot begin: {0}")]
    Tls(String),
    /// The server answered something else.
    #[error("the server answered {status} instead of a WebSocket: {body}")]
    Refused {
        /// The status.
        status: u16,
        /// The beginning of what it said.
        body: String,
    },
    /// What answered is no HTTP, or agreed to something else.
    #[error("the answer is no WebSocket's: {0}")]
    Answer(&'static str),
}

/// An address's parts.
struct Target<'a> {
    tls: bool,
    authority: &'a str,
    host: &'a str,
    port: u16,
    path: String,
}

fn parse(url: &str) -> Option<Target<'_>> {
    let (scheme, rest) = url.split_once("://")?;
    let tls = match scheme {
        "http" | "ws" => false,
        "https" | "wss" => true,
        _ => return None,
    };
    let plain = rest.bytes().all(|byte| byte.is_ascii_graphic()) && !rest.contains(['@', '#']);
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    // The colons of an IPv6 address stand in brackets.
    let port_at = authority.rfind(':').filter(|at| !authority[*at..].contains(']'));
    let (host, port) = match port_at {
        Some(at) => (&authority[..at], authority[at + 1..].parse().ok()?),
        None => (authority, if tls { 443 } else { 80 }),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (plain && !host.is_empty()).then_some(Target { tls, authority, host, port, path })
}

/// Unpredictable bytes, without a source of randomness at hand: the standard library keys its hash tables with some.
pub(super) fn random_bytes<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0; COUNT];
    for chunk in bytes.chunks_mut(8) {
        let drawn = RandomState::new().build_hasher().finish().to_le_bytes();
        chunk.copy_from_slice(&drawn[..chunk.len()]);
    }
    bytes
}

/// Connects, and agrees on a WebSocket. Returns what came behind the answer, too.
pub(super) fn connect(url: &str, options: &WebSocketOptions) -> Result<(Io, Vec<u8>), ConnectError> {
    let target = parse(url).ok_or_else(|| ConnectError::Address(url.to_owned()))?;
    let failed = |source| ConnectError::Io { host: format!("{}:{}", target.host, target.port), source };
    let tcp = open(&target, options).map_err(failed)?;
    let mut io = if target.tls { encrypted(tcp, &target, options)? } else { Io::Plain(tcp) };
    let key = STANDARD.encode(random_bytes::<16>());
    let host = options.host.as_deref().unwrap_or(target.authority);
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: {key}\r\nUser-Agent: highwater/{}\r\n\r\n",
        target.path,
        env!("CARGO_PKG_VERSION")
    );
    io.write_all(request.as_bytes()).and_then(|()| io.flush()).map_err(failed)?;
    let (head, mut rest) = head(&mut io).map_err(failed)?;
    let head = String::from_utf8(head).map_err(|_| ConnectError::Answer("its head is no text"))?;
    let status = head.split(' ').nth(1).filter(|_| head.starts_with("HTTP/1.1 ")).and_then(|code| code.parse().ok());
    match status {
        Some(101) => agreed(&head, &key)?,
        Some(status) => {
            let mut more = [0; REFUSAL_BYTES_MAX];
            // What cannot be read need not be shown.
            let read = if rest.is_empty() { io.read(&mut more).unwrap_or_default() } else { 0 };
            rest.extend_from_slice(&more[..read]);
            rest.truncate(REFUSAL_BYTES_MAX);
            return Err(ConnectError::Refused { status, body: String::from_utf8_lossy(&rest).into_owned() });
        }
        None => return Err(ConnectError::Answer("it is no HTTP/1.1")),
    }
    Ok((io, rest))
}

fn open(target: &Target<'_>, options: &WebSocketOptions) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in (target.host, target.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, options.patience) {
            Ok(tcp) => {
                tcp.set_nodelay(true)?;
                tcp.set_read_timeout(Some(options.patience))?;
                tcp.set_write_timeout(Some(options.patience))?;
                return Ok(tcp);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn encrypted(tcp: TcpStream, target: &Target<'_>, options: &WebSocketOptions) -> Result<Io, ConnectError> {
    let bad = |error: &dyn std::fmt::Display| ConnectError::Tls(error.to_string());
    let mut roots = rustls::RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(path) = &options.ca_file {
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(&error))? {
            roots.add(certificate.map_err(|error| bad(&error))?).map_err(|error| bad(&error))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.map_err(|error| bad(&error))?.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(target.host.to_owned()).map_err(|error| bad(&error))?;
    let tls = rustls::ClientConnection::new(Arc::new(config), name).map_err(|error| bad(&error))?;
    Ok(Io::Tls(Box::new(rustls::StreamOwned::new(tls, tcp))))
}

/// The head of an answer without its empty line, and what came behind it.
fn head(io: &mut Io) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 1_024];
    loop {
        let read = io.read(&mut buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&buffer[..read]);
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            bytes.truncate(end);
            return Ok((bytes, rest));
        }
        if bytes.len() > HEAD_BYTES_MAX {
            return Err(io::Error::other("the head of the answer is too long"));
        }
    }
}

/// Whether the server understood the request, and agreed to what was asked.
fn agreed(head: &str, key: &str) -> Result<(), ConnectError> {
    let header = |name: &str| {
        let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    let lists = |name: &str, word: &str| {
        header(name).is_some_and(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
    };
    if !lists("upgrade", "websocket") || !lists("connection", "upgrade") {
        return Err(ConnectError::Answer("it does not upgrade the connection"));
    }
    let accept = STANDARD.encode(Sha1::digest(format!("{key}{ACCEPT_SUFFIX}")));
    if header("sec-websocket-accept") != Some(accept.as_str()) {
        return Err(ConnectError::Answer("its Sec-WebSocket-Accept does not fit the key"));
    }
    if header("sec-websocket-extensions").is_some() || header("sec-websocket-protocol").is_some() {
        return Err(ConnectError::Answer("it agrees to an extension or a subprotocol that nobody asked for"));
    }
    Ok(())
}

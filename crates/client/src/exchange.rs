//! One request and its answer over HTTP/1.1: no redirect followed, nothing sent twice, nothing read without bound.

use crate::headers::Headers;
use crate::token::{TokenId, TokenSource, token_id};
use crate::transport::PatientConnector;
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error;
use ureq::http::Method;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::RustlsConnector;
use ureq::{Agent, http};

/// Time without progress after which an attempt is given up, outcome unknown.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How a client connects.
#[derive(Debug)]
pub struct Options {
    /// Time without progress after which an attempt is given up.
    pub patience: Duration,
    /// Where the bearer token comes from.
    pub token: TokenSource,
    /// A file of certificates in PEM form that are trusted besides the system's.
    pub ca_file: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { patience: PATIENCE, token: TokenSource::none(), ca_file: None }
    }
}

impl Options {
    /// Token and certificates as `HIGHWATER_TOKEN_FILE`, `HIGHWATER_TOKEN` and `HIGHWATER_CA_FILE` say.
    #[must_use]
    pub fn from_environment() -> Self {
        let ca_file = std::env::var_os("HIGHWATER_CA_FILE").filter(|value| !value.is_empty()).map(PathBuf::from);
        Self { token: TokenSource::from_environment(), ca_file, ..Self::default() }
    }
}

/// Why a client cannot be made.
#[derive(Debug, Error)]
pub enum SetupError {
    /// The file of certificates cannot be read.
    #[error("cannot read the certificates in {path}: {source}")]
    CaUnreadable {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
    /// The file holds no certificate.
    #[error("{0} holds no certificate in PEM form")]
    CaEmpty(PathBuf),
}

/// A request as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Request<'a> {
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Option<&'a [u8]>,
    /// Bytes of the answer's body beyond which it is no answer.
    pub(crate) answer_bytes_max: u64,
}

/// An answer as it arrived, whole.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
}

/// What is known of a request without a whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The token's file could not be read: nothing was sent.
    Token,
    /// Nothing listens at the address, or not yet: nothing was sent.
    Refused,
    /// It may have been carried out.
    Unknown,
}

/// A request got no whole answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{said}")]
pub struct Unanswered {
    /// What is known of it.
    pub why: Why,
    /// The cause, for people.
    pub said: String,
}

impl Unanswered {
    fn of(error: &ureq::Error) -> Self {
        let refused = matches!(error, ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused);
        Self { why: if refused { Why::Refused } else { Why::Unknown }, said: describe(error) }
    }
}

/// Sends requests one at a time, over one connection that is kept between them.
#[derive(Debug)]
pub struct Client {
    agent: Mutex<Option<Agent>>,
    connect: Connect,
    token: TokenSource,
}

#[derive(Debug)]
struct Connect {
    patience: Duration,
    roots: RootCerts,
    tls: Arc<RustlsConnector>,
}

impl Client {
    /// A client; it connects with its first request.
    /// # Errors
    /// The file of certificates cannot be used.
    pub fn new(options: Options) -> Result<Self, SetupError> {
        let (roots, tls) = match &options.ca_file {
            None => (RootCerts::WebPki, shared_tls()),
            Some(path) => (with_extra_roots(path)?, Arc::new(RustlsConnector::default())),
        };
        let connect = Connect { patience: options.patience, roots, tls };
        Ok(Self { agent: Mutex::new(None), connect, token: options.token })
    }

    /// Closes the kept connection and frees its buffers; the next request opens another.
    pub fn rest(&self) {
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Reads the token's file again before the next request.
    pub fn reread_token(&self) {
        self.token.reread();
    }

    /// The id of the token that the next request carries; 0 for none.
    #[must_use]
    pub fn token(&self) -> TokenId {
        token_id(self.token.current().ok().flatten().as_deref())
    }

    /// Sends a request and reads its answer to the end.
    /// # Errors
    /// Why there is no whole answer, for people; the request may have been carried out.
    pub(crate) fn exchange(&self, request: &Request<'_>) -> (TokenId, Result<Reply, String>) {
        let (id, reply) = self.attempt(request);
        (id, reply.map_err(|unanswered| unanswered.said))
    }

    /// The same, with what is known of a request that got no answer.
    pub(crate) fn attempt(&self, request: &Request<'_>) -> (TokenId, Result<Reply, Unanswered>) {
        match self.token.current() {
            Err(error) => {
                let said = format!("cannot read the token's file: {error}");
                (TokenId(0), Err(Unanswered { why: Why::Token, said }))
            }
            Ok(token) => {
                let id = token_id(token.as_deref());
                (id, self.send(request, token.as_deref()).map_err(|error| Unanswered::of(&error)))
            }
        }
    }

    fn send(&self, request: &Request<'_>, token: Option<&str>) -> Result<Reply, ureq::Error> {
        let agent = self.agent();
        let mut builder = http::Request::builder().method(request.method.clone()).uri(&request.url);
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        if let Some(token) = token {
            builder = builder.header("authorization", format!("Bearer {token}"));
        }
        let mut response = match request.body {
            Some(body) => agent.run(builder.body(body)?)?,
            None => agent.run(builder.body(())?)?,
        };
        let body = response.body_mut().with_config().limit(request.answer_bytes_max).read_to_vec()?;
        let headers = response.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        Ok(Reply { status: response.status().as_u16(), headers: Headers::new(headers), body: body.into() })
    }

    fn agent(&self) -> Agent {
        let mut agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        agent.get_or_insert_with(|| self.connect.agent()).clone()
    }
}

impl Connect {
    fn agent(&self) -> Agent {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            // A proxy named by the host program's environment was not meant for us, least of all on loopback.
            .proxy(None)
            .timeout_resolve(Some(self.patience))
            .max_idle_connections(1)
            .max_idle_connections_per_host(1)
            .max_idle_age(Duration::from_secs(60))
            .user_agent(concat!("highwater/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(self.roots.clone()).build())
            .build();
        let connector = PatientConnector::new(self.patience, Arc::clone(&self.tls));
        Agent::with_parts(config, connector, DefaultResolver::default())
    }
}

/// The public roots, parsed once for all clients of the process.
fn shared_tls() -> Arc<RustlsConnector> {
    static SHARED: Mutex<Option<Arc<RustlsConnector>>> = Mutex::new(None);
    // Never waited for: in a forked child the one who held the lock may not exist. Parsing them twice costs little.
    match SHARED.try_lock() {
        Ok(mut shared) => Arc::clone(shared.get_or_insert_with(Default::default)),
        Err(_) => Arc::default(),
    }
}

/// The certificates of the file, and those that the system trusts where it keeps them in one of the usual places.
fn with_extra_roots(path: &Path) -> Result<RootCerts, SetupError> {
    const SYSTEM: [&str; 4] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    let pem = std::fs::read(path).map_err(|source| SetupError::CaUnreadable { path: path.to_owned(), source })?;
    let mut roots = certificates(&pem);
    if roots.is_empty() {
        return Err(SetupError::CaEmpty(path.to_owned()));
    }
    let system = SYSTEM.iter().find_map(|place| std::fs::read(place).ok());
    roots.extend(system.as_deref().map(certificates).unwrap_or_default());
    Ok(RootCerts::new_with_certs(&roots))
}

fn certificates(pem: &[u8]) -> Vec<Certificate<'static>> {
    parse_pem(pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect()
}

/// The cause in plain words, down to the system's.
fn describe(error: &ureq::Error) -> String {
    let said = match error {
        ureq::Error::Io(error) => error.to_string(),
        ureq::Error::Timeout(ureq::Timeout::Resolve) => "the host's name was not resolved in time".to_owned(),
        error => error.to_string(),
    };
    match certificate_advice(&said) {
        Some(advice) => format!("{said}: {advice}"),
        None => said,
    }
}

/// What to do about the two refusals of a certificate that everybody meets who makes the first one by hand, and whose
/// names in the TLS library say too little.
fn certificate_advice(said: &str) -> Option<&'static str> {
    let (_, reason) = said.split_once("invalid peer certificate: ")?;
    if reason.contains("CaUsedAsEndEntity") {
        Some("it is made for an authority, not for a server; make it with basicConstraints=critical,CA:FALSE")
    } else if reason.contains("UnknownIssuer") {
        Some("no authority that is trusted here issued it; HIGHWATER_CA_FILE names a file with further ones")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::certificate_advice;

    #[test]
    fn a_certificate_that_is_refused_comes_with_what_to_do() {
        let own = "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))";
        assert!(certificate_advice(own).is_some_and(|advice| advice.contains("CA:FALSE")));
        assert!(certificate_advice("invalid peer certificate: certificate expired").is_none(), "it says enough");
        assert!(certificate_advice("Connection refused (os error 111)").is_none());
    }
}

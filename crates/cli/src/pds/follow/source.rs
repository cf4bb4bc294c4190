//! What a stream does not carry: keys and whole repositories.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use highwater_client::{Client, Options, TokenSource};
use highwater_consumer::follower::Source;
use highwater_repo::key::PublicKey;
use highwater_repo::syntax::Did;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Bytes of a repository that is asked for, at the most.
const REPO_BYTES_MAX: u64 = 1 << 30;

/// Bytes of a DID document, at the most.
const DOCUMENT_BYTES_MAX: u64 = 1 << 20;

/// How long what was asked for in vain is not asked for again: an account that writes much, and whose document is not to be had,
/// must not hold the stream up with every event.
const AGAIN: Duration = Duration::from_secs(30);

/// The server that is followed, for what its stream does not carry.
pub struct Server {
    client: Client,
    url: String,
    /// Who was asked for in vain, and when: whoever has no key is not asked for with every event.
    vain: BTreeMap<String, Instant>,
    /// Accounts of which something was not to be had since [`Self::missed`] was last asked, in order.
    missed: BTreeSet<Did>,
}

impl Server {
    /// The server at a URL without a slash at its end.
    ///
    /// # Errors
    /// If HTTP cannot be spoken.
    pub fn new(url: &str) -> Result<Self> {
        let options = Options { token: TokenSource::none(), ..Options::from_environment() };
        let client = Client::new(options).context("cannot set up the HTTP client")?;
        Ok(Self { client, url: url.to_owned(), vain: BTreeMap::new(), missed: BTreeSet::new() })
    }

    /// Accounts of which something was not to be had since the last call.
    pub fn missed(&mut self) -> BTreeSet<Did> {
        std::mem::take(&mut self.missed)
    }

    /// Asks at once for what was not to be had.
    pub fn forget(&mut self) {
        self.vain.clear();
    }

    /// What an account has at a URL; nothing if that was asked for in vain a moment ago.
    fn of<T>(&mut self, did: &Did, what: &str, get: impl FnOnce(&Self) -> Option<T>) -> Option<T> {
        let name = format!("{what} {}", did.as_str());
        let waits = self.vain.get(&name).is_some_and(|at| at.elapsed() < AGAIN);
        let got = if waits { None } else { get(self) };
        match got {
            Some(_) => drop(self.vain.remove(&name)),
            None => {
                self.missed.insert(did.clone());
                if !waits {
                    self.vain.insert(name, Instant::now());
                }
            }
        }
        got
    }

    /// A DID document. Names below localhost are in no DNS: their server is the one that is followed.
    fn document(&self, did: &Did) -> Option<Bytes> {
        let name = did.as_str();
        let (url, host) = match name.strip_prefix("did:web:").map(|host| host.replace("%3A", ":")) {
            Some(host) if is_localhost(&host) => (self.url.clone(), Some(host)),
            Some(host) => (format!("https://{host}"), None),
            None => return self.fetch(&format!("https://plc.directory/{name}"), None, DOCUMENT_BYTES_MAX),
        };
        self.fetch(&format!("{url}/.well-known/did.json"), host, DOCUMENT_BYTES_MAX)
    }

    fn fetch(&self, url: &str, host: Option<String>, bytes_max: u64) -> Option<Bytes> {
        let headers: Vec<_> = host.map(|host| ("host", host)).into_iter().collect();
        match self.client.fetch(url, headers, bytes_max) {
            Ok(answer) if answer.status == 200 => Some(answer.body),
            Ok(answer) => {
                eprintln!("highwater: {url} answers {}", answer.status);
                None
            }
            Err(why) => {
                eprintln!("highwater: {url}: {why}");
                None
            }
        }
    }
}

fn is_localhost(host: &str) -> bool {
    let name = host.split(':').next().unwrap_or(host);
    name == "localhost" || name.ends_with(".localhost")
}

impl Source for Server {
    fn key(&mut self, did: &Did) -> Option<PublicKey> {
        self.of(did, "key", |server| {
            let document: Value = serde_json::from_slice(&server.document(did)?).ok()?;
            let methods = document["verificationMethod"].as_array()?;
            let method =
                methods.iter().find(|method| method["id"].as_str().is_some_and(|id| id.ends_with("#atproto")))?;
            PublicKey::parse(method["publicKeyMultibase"].as_str()?).ok()
        })
    }

    fn repo(&mut self, did: &Did) -> Option<Bytes> {
        let did_escaped = crate::manage::segment(did.as_str());
        let url = format!("{}/xrpc/com.atproto.sync.getRepo?did={did_escaped}", self.url);
        self.of(did, "repository", |server| server.fetch(&url, None, REPO_BYTES_MAX))
    }
}

//! A server with its files in a temporary directory.

use crate::wire::{self, Answer};
use axum::http::header;
use axum::http::request::Parts;
use highwater_base::Clock;
use highwater_base::random::SplitMix;
use highwater_disk::{OsDisk, SystemClock, SystemRandom};
use highwater_host::{Host, NewAccount};
use highwater_pds::lifecycle::Change;
use highwater_pds::{Account, AccountId, Authority, Position};
use highwater_repo::key::Curve;
use highwater_xrpc::{Access, Context, Error, Gatekeeper, Name, Options, Scope, Seams};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

pub const ZONE: &str = "pds.test";

/// Lets whoever names an account's DID do what that account may.
#[derive(Debug)]
struct ByName;

impl Gatekeeper for ByName {
    fn access(&self, context: &Context, head: &Parts) -> Result<Access, Error> {
        let missing = || Error::new(Name::AuthMissing, "a test names a DID");
        let value = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let did = value.and_then(|value| value.strip_prefix("Bearer ")).ok_or_else(missing)?;
        let account = context.host.state(|state| state.by_did(did).map(|account| account.id));
        Ok(Access { account: account.ok_or_else(missing)?, scope: Scope::Full, authority: Authority::Server })
    }
}

/// A running server; it stops when dropped.
pub struct Server {
    pub address: SocketAddr,
    pub host: Host,
    pub context: Arc<Context>,
    pub runtime: Runtime,
    /// What its start did.
    pub boot: highwater_host::Boot,
    running: Option<highwater_host::Running>,
    directory: Option<TempDir>,
}

impl Server {
    pub fn start() -> Self {
        Self::with(|_| (), |_| ())
    }

    pub fn with(change: impl FnOnce(&mut Options), host: impl FnOnce(&mut highwater_host::Options)) -> Self {
        Self::guarded(change, host, Arc::new(SystemClock::default()), |_| Arc::new(ByName))
    }

    /// With another clock, and somebody else who judges requests.
    pub fn guarded(
        change: impl FnOnce(&mut Options),
        host: impl FnOnce(&mut highwater_host::Options),
        clock: Arc<dyn Clock>,
        gatekeeper: impl FnOnce(&Host) -> Arc<dyn Gatekeeper>,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self::placed(directory, change, host, clock, gatekeeper)
    }

    /// On a directory that a server left.
    pub fn at(directory: TempDir) -> Self {
        Self::placed(directory, |_| (), |_| (), Arc::new(SystemClock::default()), |_| Arc::new(ByName))
    }

    fn placed(
        directory: TempDir,
        change: impl FnOnce(&mut Options),
        host: impl FnOnce(&mut highwater_host::Options),
        clock: Arc<dyn Clock>,
        gatekeeper: impl FnOnce(&Host) -> Arc<dyn Gatekeeper>,
    ) -> Self {
        let mut hosting = highwater_host::Options::new(directory.path().join("pds"), ZONE);
        host(&mut hosting);
        let seams = highwater_host::Seams {
            disk: Arc::new(OsDisk::default()),
            clock: Arc::clone(&clock),
            random: Box::new(SystemRandom),
            sealer: None,
        };
        let (host, worker, boot) = Host::open(hosting, seams).expect("the directory opens");
        let running = worker.spawn().expect("a thread");
        let mut options = Options::new(host.zone());
        // Tests ask more than a client, from one address.
        options.rates.enabled = false;
        change(&mut options);
        let seams = Seams { clock, random: Box::new(SplitMix::new(1)), gatekeeper: gatekeeper(&host) };
        let context = Arc::new(Context::new(host.clone(), options, seams));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let router = highwater_xrpc::router(Arc::clone(&context));
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        runtime.spawn(async move { axum::serve(listener, service).await });
        Self { address, host, context, runtime, boot, running: Some(running), directory: Some(directory) }
    }

    /// Stops in order; returns its directory.
    pub fn stop(mut self) -> TempDir {
        self.directory.take().expect("a server has a directory")
    }

    /// An active account.
    pub fn account(&self) -> Account {
        self.new_account(true)
    }

    pub fn new_account(&self, activate: bool) -> Account {
        let new = NewAccount { handle: None, password_hash: None, curve: Curve::K256, activate };
        let id = self.host.create_account(new).wait().expect("made");
        self.row(id)
    }

    pub fn row(&self, id: AccountId) -> Account {
        self.host.state(|state| state.accounts[&id].clone())
    }

    pub fn change(&self, account: &Account, change: Change) -> Option<Position> {
        self.host.change(account.id, change).wait().expect("done");
        self.row(account.id).position()
    }

    pub fn get(&self, path: &str) -> Answer {
        wire::ask(self.address, "GET", path, &[], None)
    }

    pub fn query(&self, method: &str, query: &str) -> Answer {
        self.get(&format!("/xrpc/{method}?{query}"))
    }

    /// Calls a procedure of `com.atproto.repo` as an account.
    pub fn write(&self, account: &Account, method: &str, input: &Value) -> Answer {
        let path = format!("/xrpc/com.atproto.repo.{method}");
        let authorization = format!("Bearer {}", account.did);
        let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
        wire::ask(self.address, "POST", &path, &headers, Some(input.to_string().as_bytes()))
    }

    /// Creates a record of text, and gives what is answered.
    pub fn post(&self, account: &Account, rkey: &str, text: &str) -> Value {
        let record = json!({ "$type": COLLECTION, "text": text });
        let input = json!({ "repo": account.did.as_str(), "collection": COLLECTION, "rkey": rkey, "record": record });
        self.write(account, "createRecord", &input).ok()
    }
}

/// The collection of most records here.
pub const COLLECTION: &str = "com.example.note";

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let _stopped = running.stop();
        }
    }
}

//! A server that accounts log in to, whose clock is set.

use crate::server::{COLLECTION, Server, ZONE};
use crate::wire::{self, Answer};
use highwater_base::{Clock, Millis};
use highwater_host::{Host, NewAccount};
use highwater_pds::Account;
use highwater_pds::lifecycle::Change;
use highwater_repo::key::Curve;
use highwater_xrpc::passwords::{Cost, Hash, Memory};
use highwater_xrpc::{Auth, AuthOptions, Gatekeeper, Options};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The password of every account here.
pub const PASSWORD: &str = "correct horse";
pub const ADMIN: &str = "the operator's";
/// Hashes that cost little: what they cost is another test's.
pub const CHEAP: Cost = Cost { memory_kib: 8, passes: 1, lanes: 1 };

/// A clock that is set.
#[derive(Debug)]
pub struct SetClock(AtomicU64);

impl SetClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(1_796_000_000_000)))
    }

    pub fn advance_seconds(&self, seconds: u64) {
        self.0.fetch_add(seconds * 1_000, Ordering::Relaxed);
    }

    pub fn seconds(&self) -> u64 {
        self.wall().0 / 1_000
    }
}

impl Clock for SetClock {
    fn wall(&self) -> Millis {
        Millis(self.0.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub fn auth(host: &Host, cost: Cost) -> Auth {
    Auth::open(host, AuthOptions { admin_password: Some(ADMIN.into()), cost }).expect("sessions open")
}

pub struct Home {
    pub server: Server,
    cost: Cost,
    pub clock: Arc<SetClock>,
}

/// Tokens of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub access: String,
    pub refresh: String,
}

impl Session {
    pub fn of(told: &Value) -> Self {
        let text = |name: &str| told[name].as_str().expect("a token").to_owned();
        Self { access: text("accessJwt"), refresh: text("refreshJwt") }
    }
}

impl Home {
    pub fn new() -> Self {
        Self::with(|_| (), CHEAP)
    }

    pub fn with(change: impl FnOnce(&mut Options), cost: Cost) -> Self {
        let clock = SetClock::new();
        let server =
            Server::guarded(change, |_| (), Arc::clone(&clock) as Arc<dyn Clock>, |host| Arc::new(auth(host, cost)));
        Self { server, cost, clock }
    }

    /// With somebody before whoever judges requests.
    pub fn guarded<G: Gatekeeper>(guard: impl FnOnce(&Host, Auth) -> G) -> Self {
        let clock = SetClock::new();
        let gatekeeper = |host: &Host| Arc::new(guard(host, auth(host, CHEAP))) as Arc<dyn Gatekeeper>;
        let server = Server::guarded(|_| (), |_| (), Arc::clone(&clock) as Arc<dyn Clock>, gatekeeper);
        Self { server, cost: CHEAP, clock }
    }

    /// Calls a method with a token; a procedure if there is an input.
    pub fn call(&self, method: &str, token: &str, input: Option<Value>) -> Answer {
        self.send(method, &[("authorization", &format!("Bearer {token}"))], input)
    }

    pub fn send(&self, method: &str, headers: &[(&str, &str)], input: Option<Value>) -> Answer {
        let path = format!("/xrpc/{method}");
        match input {
            None => wire::ask(self.server.address, "GET", &path, headers, None),
            Some(input) => {
                let headers = [headers, &[("content-type", "application/json")]].concat();
                wire::ask(self.server.address, "POST", &path, &headers, Some(input.to_string().as_bytes()))
            }
        }
    }

    /// Calls a method as the administrator.
    pub fn admin(&self, method: &str, input: Option<Value>) -> Answer {
        self.send(method, &[("authorization", &basic("admin", ADMIN))], input)
    }

    /// An active account that has the password.
    pub fn account(&self) -> Account {
        self.new_account(true)
    }

    pub fn new_account(&self, activate: bool) -> Account {
        let hash = Hash::of(PASSWORD.as_bytes(), [1; 16], self.cost, &mut Memory::default()).to_string();
        let new = NewAccount { handle: None, password_hash: Some(hash), curve: Curve::K256, activate };
        let id = self.server.host.create_account(new).wait().expect("made");
        self.server.row(id)
    }

    pub fn row(&self, did: &str) -> Account {
        self.server.host.state(|state| state.by_did(did).expect("an account").clone())
    }

    pub fn try_login(&self, identifier: &str, password: &str) -> Answer {
        let input = json!({ "identifier": identifier, "password": password });
        self.send("com.atproto.server.createSession", &[], Some(input))
    }

    pub fn login(&self, identifier: &str, password: &str) -> Session {
        Session::of(&self.try_login(identifier, password).ok())
    }

    pub fn try_refresh(&self, token: &str) -> Answer {
        self.call("com.atproto.server.refreshSession", token, Some(json!({})))
    }

    /// Creates a record.
    pub fn post(&self, account: &Account, token: &str) -> Answer {
        let record = json!({ "$type": COLLECTION, "text": "x" });
        let input = json!({ "repo": account.did.as_str(), "collection": COLLECTION, "record": record });
        self.call("com.atproto.repo.createRecord", token, Some(input))
    }

    pub fn change(&self, account: &Account, change: Change) {
        self.server.change(account, change);
    }
}

pub fn basic(user: &str, password: &str) -> String {
    use base64::Engine as _;
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}")))
}

/// The server's own DID.
pub fn audience() -> String {
    format!("did:web:{ZONE}")
}

/// The status and the name of a refusal.
pub fn refused(status: u16, name: &str) -> (u16, String) {
    (status, name.to_owned())
}

//! Relays: asked whether they still read this server, and to read it.
//!
//! Nothing about them delays or fails a start: everything here runs on a thread of its own, behind the listeners.
//!
//! Source: lexicons `com.atproto.sync.getHostStatus` and `com.atproto.sync.requestCrawl`.

use crate::config::PdsSettings;
use highwater_base::{Clock as _, Millis};
use highwater_client::{Client, Options, TokenSource, Verb};
use highwater_disk::SystemClock;
use highwater_host::Host;
use highwater_pds::Fact;
use highwater_xrpc::operator::{Announcer, Asked};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Milliseconds between two requests to crawl of one relay: what relays ask of hosts.
const CRAWL_MS_MIN: u64 = 20 * 60_000;

/// Milliseconds before the first repeat of what failed, doubled up to the last.
const RETRY_MS: std::ops::RangeInclusive<u64> = 2_000..=15 * 60_000;

/// What is known of a relay.
#[derive(Debug, Clone, Default)]
struct Known {
    asked: Option<Millis>,
    outcome: Option<Asked>,
    /// Accounts of this server that it counts, as it last said.
    accounts: Option<u64>,
    /// Whether it told that it reads this server, as of the last look.
    status: Option<String>,
    /// Why the last look came to nothing, if it did.
    unreachable: Option<String>,
}

/// Whether a relay was asked, now or a moment ago, and took it.
fn was_asked(asked: &Asked) -> bool {
    matches!(asked.outcome, "asked" | "recent")
}

impl Known {
    fn fails(&self) -> bool {
        self.unreachable.is_some() || self.outcome.as_ref().is_some_and(|asked| !was_asked(asked))
    }
}

/// The relays of the settings.
pub struct Relays {
    urls: Vec<String>,
    /// This server's host name, as relays know it.
    hostname: String,
    pub check_on_boot: bool,
    account_limit: u64,
    client: Option<Client>,
    known: Mutex<BTreeMap<String, Known>>,
    stopping: Mutex<bool>,
    stopped: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relays {
    /// Those of the settings; they are told of a server that is reached there.
    pub fn new(settings: &PdsSettings, public_url: String) -> Self {
        let hostname = public_url.split_once("://").map_or(public_url.clone(), |(_, host)| host.to_owned());
        let options = Options { token: TokenSource::none(), ..Options::from_environment() };
        Self {
            urls: settings.relays.clone(),
            hostname,
            check_on_boot: settings.check_on_boot && !settings.relays.is_empty(),
            account_limit: settings.account_limit,
            client: Client::new(options).inspect_err(|error| tracing::warn!(event = "relays", %error)).ok(),
            known: Mutex::default(),
            stopping: Mutex::default(),
            stopped: Condvar::new(),
        }
    }

    /// Asks every relay until each has answered, and notes that once they have. `pending` asks all of them to crawl, whatever
    /// they say of themselves: what they hold may be ahead of this server.
    pub fn watch(&self, host: &Host, pending: bool) {
        let mut left = self.urls.clone();
        let mut pause = *RETRY_MS.start();
        loop {
            left.retain(|url| !self.look(url, pending));
            if left.is_empty() {
                break;
            }
            if self.wait(Duration::from_millis(pause)) {
                return;
            }
            pause = (pause * 2).min(*RETRY_MS.end());
        }
        if pending && let Err(error) = host.note(Fact::PokePending(false)).wait() {
            tracing::warn!(event = "relay_poke_pending", %error, "relays were asked, and the next start asks them again");
        }
    }

    /// Asks one relay. Whether it answered.
    fn look(&self, url: &str, pending: bool) -> bool {
        let status = self.host_status(url);
        lock(&self.known).entry(url.to_owned()).or_default().unreachable = status.clone().err();
        if let Err(why) = &status {
            tracing::warn!(event = "relay_unreachable", relay = url, why, "a relay does not answer; it is asked again");
            return false;
        }
        let active = status.is_ok_and(|status| status.as_deref() == Some("active"));
        if active && !pending {
            tracing::info!(event = "relay_active", relay = url, "a relay reads this server");
            return true;
        }
        let asked = self.ask(url, false);
        tracing::info!(event = "relay_asked", relay = url, outcome = asked.outcome, message = asked.message.as_deref());
        was_asked(&asked)
    }

    /// What a relay says of this server: its word for how it stands with it, none if it knows nothing of it.
    fn host_status(&self, url: &str) -> Result<Option<String>, String> {
        let client = self.client.as_ref().ok_or("the HTTP client could not be set up")?;
        let target =
            format!("{url}/xrpc/com.atproto.sync.getHostStatus?hostname={}", self.hostname.replace(':', "%3A"));
        let answer = client.manage(Verb::Get, &target, None, None).map_err(|why| why.said)?;
        let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if answer.status >= 500 {
            return Err(format!("status {}", answer.status));
        }
        let accounts = said["accountCount"].as_u64();
        let status = (answer.status == 200).then(|| said["status"].as_str().unwrap_or("active").to_owned());
        {
            let mut known = lock(&self.known);
            let known = known.entry(url.to_owned()).or_default();
            (known.accounts, known.status) = (accounts, status.clone());
        }
        if let Some(accounts) = accounts.filter(|accounts| *accounts > self.account_limit) {
            tracing::warn!(
                event = "relay_account_limit",
                relay = url,
                accounts,
                limit = self.account_limit,
                "a relay counts more accounts of this server than it may take: it drops the others' commits until its staff raises the limit"
            );
        }
        Ok(status)
    }

    /// Asks a relay to crawl, unless it was asked a moment ago.
    fn ask(&self, url: &str, force: bool) -> Asked {
        let now = SystemClock::new().wall();
        let told = |outcome, message: Option<String>| Asked { url: url.to_owned(), outcome, message };
        let recent = lock(&self.known).get(url).and_then(|known| known.asked).map(|at| now.since(at));
        if let Some(ago) = recent.filter(|ago| *ago < CRAWL_MS_MIN && !force) {
            let message = format!("it was asked {} s ago; --force asks again", ago / 1_000);
            return told("recent", Some(message));
        }
        let asked =
            self.client.as_ref().ok_or_else(|| "the HTTP client could not be set up".to_owned()).and_then(|client| {
                let body = json!({ "hostname": self.hostname }).to_string();
                let target = format!("{url}/xrpc/com.atproto.sync.requestCrawl");
                client.manage(Verb::Post, &target, None, Some(body.as_bytes())).map_err(|why| why.said)
            });
        let asked = match asked {
            Ok(answer) if (200..300).contains(&answer.status) => told("asked", None),
            Ok(answer) => {
                let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                let message =
                    said["message"].as_str().or_else(|| said["error"].as_str()).unwrap_or_default().to_owned();
                // What a client did wrong does not go away by itself, but for a limit of requests.
                let refused = (400..500).contains(&answer.status) && answer.status != 429;
                told(if refused { "refused" } else { "failed" }, Some(format!("status {}: {message}", answer.status)))
            }
            Err(why) => told("failed", Some(why)),
        };
        let mut known = lock(&self.known);
        let known = known.entry(url.to_owned()).or_default();
        if asked.outcome == "asked" {
            known.asked = Some(now);
        }
        (known.outcome, known.unreachable) = (Some(asked.clone()), None);
        asked
    }

    /// Waits, or until the server stops: whether it does.
    fn wait(&self, pause: Duration) -> bool {
        let stopping = lock(&self.stopping);
        let waited = self.stopped.wait_timeout_while(stopping, pause, |stopping| !*stopping);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Relays that did not answer, or refused, when they were last asked.
    pub fn failing(&self) -> u64 {
        lock(&self.known).values().filter(|known| known.fails()).count() as u64
    }

    /// Ends what waits.
    pub fn stop(&self) {
        *lock(&self.stopping) = true;
        self.stopped.notify_all();
    }
}

impl Announcer for Relays {
    fn announce(&self, host: &Host, force: bool) -> Vec<Asked> {
        let asked: Vec<Asked> = self.urls.iter().map(|url| self.ask(url, force)).collect();
        let all = !asked.is_empty() && asked.iter().all(was_asked);
        let pending = host.state(|state| state.poke_pending);
        if all
            && pending
            && let Err(error) = host.note(Fact::PokePending(false)).wait()
        {
            tracing::warn!(event = "relay_poke_pending", %error, "relays were asked, and the status goes on saying that they have to be");
        }
        asked
    }

    fn relays(&self) -> Value {
        let known = lock(&self.known);
        let relay = |url: &String| {
            let known = known.get(url).cloned().unwrap_or_default();
            json!({
                "url": url,
                "status": known.status,
                "accounts": known.accounts,
                "asked_ms": known.asked.map(|at| at.0),
                "outcome": known.outcome.as_ref().map(|asked| asked.outcome),
                "message": known.outcome.and_then(|asked| asked.message).or(known.unreachable),
            })
        };
        self.urls.iter().map(relay).collect()
    }
}

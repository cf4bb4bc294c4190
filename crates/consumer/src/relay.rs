//! A model of the relay that the network runs, reading one server in virtual time.
//!
//! It keeps the relay's limits, its workers and its habits, not what it hands on: a server is held to what the relay makes of
//! its stream. Nothing here waits or reads a clock: [`Relay::step`] takes the time and what happened, and [`Relay::due`] says
//! when it has something to do by itself. Whoever drives it plays the network: it brings messages, pongs and the end of a
//! connection in the order in which they would be read, and holds them back while [`Relay::reads`] says no, as a socket does.
//! Signatures are not verified here; that is the [follower's](crate::follower) part.
//!
//! Source: the relay of bluesky-social/indigo at `4b983a7`, `cmd/relay`: `slurper.go`, `crawl.go`, `ingest.go`, `verify.go`,
//! `account.go`, `stream/consumer.go` and `stream/schedulers/parallel`.

mod accounts;
mod connection;
mod limits;
mod workers;

pub use accounts::{Dropped, Held, Verdict};
pub use limits::Limits;

use crate::frame::Position;
use accounts::Accounts;
use bytes::Bytes;
use connection::{Connection, Incoming};
use highwater_base::Millis;
use highwater_repo::syntax::Did;

/// Accounts of one host that a relay takes unless somebody raises the limit.
pub const ACCOUNTS_DEFAULT: u64 = 100;
/// Milliseconds between two writes of the cursor.
const PERSIST_MS: u64 = 4_000;
/// Milliseconds before the next dial, behind each of the first failures but the very first: the relay draws up to a second.
const QUICK_MS: u64 = 500;
/// Failures behind which it dials again soon.
const QUICK_FAILURES: u32 = 10;
/// Milliseconds before the next dial behind those.
const SLOW_MS: u64 = 30_000;
/// The failure with which it gives up on a host.
const FAILURES_MAX: u32 = 16;

/// What the relay thinks of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostStatus {
    /// It reads it, or would.
    Active,
    /// The host answered `FutureCursor`; it is not dialed.
    Idle,
    /// It could not be reached often enough; it is not dialed.
    Offline,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// Somebody asked it to read the host.
    RequestCrawl,
    /// Whether the host answered [`Output::DescribeServer`] as a server of accounts.
    Described(bool),
    /// The dial that was asked for led to a socket, or not.
    Dialed(bool),
    /// A binary message came.
    Message(Bytes),
    /// The host answered a ping.
    Pong,
    /// The host closed the connection.
    Closed,
    /// What the host's `getRepoStatus` answered; `None` for an error.
    RepoStatus {
        /// The account that was asked for.
        did: Did,
        /// Where it stands.
        position: Option<Position>,
    },
    /// The relay's process ended and begins anew, with what it had stored.
    Restart,
    /// Nothing but time.
    Tick,
}

/// What the relay does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// It asks whether the host serves accounts: answer with [`Input::Described`].
    DescribeServer,
    /// It opens a socket: answer with [`Input::Dialed`].
    Dial {
        /// The cursor in the address; `None` for what comes from now on.
        cursor: Option<u64>,
    },
    /// It sends a ping.
    Ping,
    /// It closes the socket.
    Close,
    /// It asks where an account stands: answer with [`Input::RepoStatus`].
    GetRepoStatus {
        /// The account.
        did: Did,
    },
    /// A worker is done with an event.
    Processed {
        /// Its number.
        sequence: u64,
        /// The account.
        did: Did,
        /// What became of it.
        verdict: Verdict,
    },
    /// What the relay thinks of the host is another thing now.
    Host(HostStatus),
}

/// What is left of a subscription when no socket is open.
#[derive(Debug)]
enum Link {
    /// It waits to dial.
    Waiting(u64),
    /// It dialed.
    Dialing,
    /// It reads.
    Open(Box<Connection>),
}

/// The relay's life with a host, from a crawl until it gives up.
#[derive(Debug)]
struct Subscription {
    /// What the next dial says; 0 says nothing.
    cursor: u64,
    /// The number behind which everything was processed, as the workers last said it.
    last: u64,
    /// Failures since the cursor moved.
    failures: u32,
    limits: Limits,
    link: Link,
}

/// The relay, as one host meets it.
#[derive(Debug)]
pub struct Relay {
    now: u64,
    status: HostStatus,
    /// The cursor on its disk.
    stored: u64,
    persist_at: u64,
    accounts: Accounts,
    subscription: Option<Subscription>,
    /// Times that a connection was opened.
    connections: u64,
}

impl Relay {
    /// One that does not know the host yet, and takes so many accounts of it.
    #[must_use]
    pub fn new(now: Millis, account_limit: u64) -> Self {
        Self {
            now: now.0,
            status: HostStatus::Active,
            stored: 0,
            persist_at: now.0 + PERSIST_MS,
            accounts: Accounts::new(account_limit),
            subscription: None,
            connections: 0,
        }
    }

    /// One that has read the host before, up to a cursor that it stored, and begins anew: it dials at once.
    #[must_use]
    pub fn resuming(now: Millis, account_limit: u64, cursor: u64) -> Self {
        let mut relay = Self { stored: cursor, ..Self::new(now, account_limit) };
        relay.subscribe();
        relay
    }

    /// What `getHostStatus` answers: what it thinks of the host, and the cursor that it stored.
    #[must_use]
    pub fn host(&self) -> (HostStatus, u64) {
        (self.status, self.stored)
    }

    /// Whether it is subscribed, redialing included: then a crawl does nothing.
    #[must_use]
    pub fn is_subscribed(&self) -> bool {
        self.subscription.is_some()
    }

    /// How often a socket was opened.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// What it holds of an account.
    #[must_use]
    pub fn account(&self, did: &Did) -> Option<&Held> {
        self.accounts.get(did)
    }

    /// How many accounts of the host it counts, those beyond the limit too.
    #[must_use]
    pub fn account_count(&self) -> u64 {
        self.accounts.count()
    }

    /// Somebody raises or lowers how many accounts it takes, and with them its limits of events.
    pub fn set_account_limit(&mut self, account_limit: u64) {
        self.accounts.set_limit(account_limit);
        if let Some(subscription) = &mut self.subscription {
            subscription.limits.set(account_limit);
        }
    }

    /// Whether its reader would take something from the socket. While it does not, even pongs wait.
    #[must_use]
    pub fn reads(&self) -> bool {
        matches!(&self.subscription, Some(Subscription { link: Link::Open(connection), .. }) if connection.reads())
    }

    /// When it has something to do by itself.
    #[must_use]
    pub fn due(&self) -> Option<Millis> {
        let subscription = self.subscription.as_ref()?;
        let due = match &subscription.link {
            Link::Waiting(until) => *until,
            Link::Dialing => self.persist_at,
            Link::Open(connection) => connection.due(self.now).min(self.persist_at),
        };
        Some(Millis(due.min(self.persist_at)))
    }

    /// Takes what happened at a time, which does not go back; returns what it does, in order.
    pub fn step(&mut self, now: Millis, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.pass(now, &mut out);
        match input {
            Input::RequestCrawl => out.push(Output::DescribeServer),
            Input::Described(true) => self.subscribe(),
            Input::Described(false) | Input::Tick => {}
            Input::Dialed(opened) => self.dialed(opened, &mut out),
            Input::Message(message) => self.incoming(Incoming::Message(message)),
            Input::Pong => self.incoming(Incoming::Pong),
            Input::Closed => self.incoming(Incoming::End),
            Input::RepoStatus { did, position } => self.answered(&did, position, &mut out),
            Input::Restart => {
                self.subscription = None;
                if self.status == HostStatus::Active && self.stored > 0 {
                    self.subscribe();
                }
            }
        }
        self.pass(now, &mut out);
        out
    }

    /// Lets time pass, in steps of what is due.
    fn pass(&mut self, now: Millis, out: &mut Vec<Output>) {
        while let Some(Millis(at)) = self.due().filter(|at| *at <= now) {
            self.now = self.now.max(at);
            self.turn(out);
        }
        self.now = self.now.max(now.0);
        if self.subscription.is_none() {
            // Nothing is stored while nothing is read.
            self.persist_at = self.persist_at.max(self.now);
        }
    }

    fn turn(&mut self, out: &mut Vec<Output>) {
        if self.persist_at <= self.now {
            self.persist_at = self.now + PERSIST_MS;
            self.persist(out);
        }
        let (now, accounts) = (self.now, &mut self.accounts);
        let Some(subscription) = &mut self.subscription else { return };
        match &mut subscription.link {
            Link::Waiting(until) if *until <= now => {
                subscription.link = Link::Dialing;
                out.push(Output::Dial { cursor: Some(subscription.cursor).filter(|cursor| *cursor > 0) });
            }
            Link::Waiting(_) | Link::Dialing => {}
            Link::Open(connection) => {
                let ended = connection.turn(now, &mut subscription.limits, accounts, out);
                if connection.is_cancelled() && self.status != HostStatus::Idle {
                    self.status = HostStatus::Idle;
                    out.push(Output::Host(HostStatus::Idle));
                }
                if ended {
                    self.ended(out);
                }
            }
        }
    }

    /// Writes the cursor, and with it that the host is active, as the relay does for every host that it is subscribed to.
    fn persist(&mut self, out: &mut Vec<Output>) {
        let Some(subscription) = &mut self.subscription else { return };
        subscription.note();
        let cancelled = matches!(&subscription.link, Link::Open(connection) if connection.is_cancelled());
        if subscription.last > 0 && !cancelled {
            self.stored = subscription.last;
            if self.status != HostStatus::Active {
                self.status = HostStatus::Active;
                out.push(Output::Host(HostStatus::Active));
            }
        }
    }

    fn subscribe(&mut self) {
        if self.subscription.is_none() {
            let limits = Limits::new(self.accounts.limit());
            let link = Link::Waiting(self.now);
            let cursor = self.stored;
            self.subscription = Some(Subscription { cursor, last: cursor, failures: 0, limits, link });
        }
    }

    fn dialed(&mut self, opened: bool, out: &mut Vec<Output>) {
        let Some(subscription) = self.subscription.as_mut().filter(|it| matches!(it.link, Link::Dialing)) else {
            return;
        };
        if opened {
            self.connections += 1;
            subscription.link = Link::Open(Box::new(Connection::new(self.now)));
            return;
        }
        let wait_ms = match subscription.failures {
            0 => 0,
            failures if failures < QUICK_FAILURES => QUICK_MS,
            _ => SLOW_MS,
        };
        subscription.failures += 1;
        subscription.link = Link::Waiting(self.now + wait_ms);
        if subscription.failures == FAILURES_MAX {
            self.subscription = None;
            self.status = HostStatus::Offline;
            out.push(Output::Host(HostStatus::Offline));
        }
    }

    fn incoming(&mut self, incoming: Incoming) {
        if let Some(Subscription { link: Link::Open(connection), .. }) = &mut self.subscription {
            connection.push(incoming);
        }
    }

    fn answered(&mut self, did: &Did, position: Option<Position>, out: &mut Vec<Output>) {
        if let Some(Subscription { link: Link::Open(connection), .. }) = &mut self.subscription {
            connection.answered(self.now, did, position, &mut self.accounts, out);
        }
    }

    /// A connection is over and its workers are done: the next one begins where they got to.
    fn ended(&mut self, out: &mut Vec<Output>) {
        out.push(Output::Close);
        let Some(subscription) = &mut self.subscription else { return };
        subscription.note();
        let cancelled = matches!(&subscription.link, Link::Open(connection) if connection.is_cancelled());
        subscription.link = Link::Waiting(self.now);
        let moved = subscription.last > subscription.cursor;
        if moved {
            (subscription.cursor, subscription.failures) = (subscription.last, 0);
            self.stored = subscription.last;
        }
        if cancelled {
            self.subscription = None;
        }
    }
}

impl Subscription {
    /// Takes from the workers how far they got.
    fn note(&mut self) {
        if let Link::Open(connection) = &self.link
            && connection.processed() > 0
        {
            self.last = connection.processed();
        }
    }
}

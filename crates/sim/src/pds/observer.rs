//! A consumer that follows the stream by the specification: it reads slowly, loses its connection, and comes back with its cursor.

use super::server::Server;
use crate::invariants::{Checked, Invariant, violated};
use bytes::Bytes;
use highwater_base::Millis;
use highwater_consumer::Violation;
use highwater_consumer::follower::{Follower, Input, Options, Output, Source};
use highwater_host::{CursorRefused, Delivery, Host, Subscription};
use highwater_pds::AccountId;
use highwater_repo::key::PublicKey;
use highwater_repo::syntax::Did;
use std::collections::{BTreeSet, VecDeque};

/// A consumer.
#[derive(Default)]
pub struct Observer {
    /// What it holds.
    pub follower: Follower,
    subscription: Option<Subscription>,
    /// What was sent and it did not read yet.
    socket: VecDeque<Bytes>,
    /// Whether something that it asked for was not to be had, so that it waits for the next event.
    pub missed: bool,
    /// Whether frames that it never saw may be gone, so that nothing tells it where an account stands until that changes.
    partial: bool,
    /// Accounts that were erased when it read, so that frames of theirs may have been left out.
    left_out: BTreeSet<Did>,
    /// Those of them that a restore brought back: the next commit of such a one does not follow what it holds.
    revived: BTreeSet<Did>,
    /// How often the stream went on behind a gap.
    pub outdated: u64,
    /// How often it asked for a whole repository.
    pub fetched: u64,
}

/// Where it gets keys and repositories: from the server, while that runs.
struct Net<'a> {
    host: Option<&'a Host>,
    missed: bool,
    fetched: u64,
}

/// The account with a DID.
#[must_use]
pub fn account_of(host: &Host, did: &Did) -> Option<AccountId> {
    host.state(|state| state.by_did(did.as_str()).map(|account| account.id))
}

/// An account's repository as it is served; `None` if it is not.
/// # Errors
/// [`Invariant::BlocksAreThere`] if it is served and is not whole.
pub fn repository(host: &Host, account: AccountId) -> Checked<Option<Bytes>> {
    use highwater_host::ReadError;
    let broken = |error: ReadError| violated(Invariant::BlocksAreThere, format!("account {}: {error}", account.0));
    let mut export = match host.export(account) {
        Ok(export) => export,
        Err(ReadError::Account(_)) => return Ok(None),
        Err(error) => return broken(error),
    };
    let mut archive = Vec::new();
    loop {
        match export.chunk() {
            Ok(Some(chunk)) => archive.extend_from_slice(&chunk),
            Ok(None) => return Ok(Some(archive.into())),
            Err(error) => return broken(error),
        }
    }
}

impl Source for Net<'_> {
    fn key(&mut self, did: &Did) -> Option<PublicKey> {
        let key = self.host.and_then(|host| {
            host.state(|state| state.by_did(did.as_str()).and_then(|row| PublicKey::parse(&row.key.public).ok()))
        });
        self.missed |= key.is_none();
        key
    }

    fn repo(&mut self, did: &Did) -> Option<Bytes> {
        self.fetched += 1;
        // What cannot be read now may be read later: the disk may just have failed one call.
        let archive = self.host.and_then(|host| repository(host, account_of(host, did)?).ok()?);
        self.missed |= archive.is_none();
        archive
    }
}

impl Observer {
    /// A new one.
    #[must_use]
    pub fn new() -> Self {
        Self { follower: Follower::new(Options::default()), ..Self::default() }
    }

    /// Whether it has a connection.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.subscription.is_some()
    }

    /// Whether frames that it never saw may be gone.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.partial
    }

    /// Its connection ends; what it did not read is lost.
    pub fn disconnect(&mut self) {
        self.subscription = None;
        self.socket.clear();
    }

    /// A restore brought accounts back that the lost run had erased.
    pub fn revive(&mut self, erased: &BTreeSet<Did>) {
        self.revived.extend(self.left_out.intersection(erased).cloned());
        self.left_out.clear();
    }

    fn note_erased(&mut self, host: &Host) {
        host.state(|state| {
            let erased = state.accounts.values().filter(|account| account.standing.erased);
            self.left_out.extend(erased.map(|account| account.did.clone()));
        });
    }

    /// Connects with its cursor; a new one takes everything that is kept, or what comes.
    /// # Errors
    /// [`Invariant::CursorsAreKnown`].
    pub fn connect(&mut self, host: &Host, whole: bool, now: Millis) -> Checked {
        self.disconnect();
        let cursor = self.follower.cursor().or(whole.then_some(0));
        let oldest = host.state(|state| state.events.oldest());
        self.partial |= match cursor {
            None => true,
            Some(0) => oldest.is_some_and(|oldest| oldest.ordinal > 0),
            Some(cursor) => oldest.is_some_and(|oldest| cursor + 1 < oldest.seq.0),
        };
        match host.subscribe(cursor) {
            Ok(subscription) => self.subscription = Some(subscription),
            Err(CursorRefused::Stopped(_)) => return Ok(()),
            Err(error @ CursorRefused::Future { .. }) => {
                return violated(Invariant::CursorsAreKnown, error.to_string());
            }
        }
        let mut net = Net { host: Some(host), missed: false, fetched: 0 };
        self.follower.follow(now, Input::Connected { cursor }, &mut net);
        Ok(())
    }

    /// Reads so many messages; how many there were.
    /// # Errors
    /// [`Invariant::FollowersFindNoFault`].
    pub fn read(&mut self, server: &Server, most: usize) -> Checked<usize> {
        let now = Millis(server.clocks.true_ms());
        server.host().into_iter().for_each(|host| self.note_erased(host));
        let mut read = 0;
        while read < most {
            if self.socket.is_empty() {
                match self.subscription.as_mut().and_then(Subscription::take) {
                    Some(Delivery::Frames(frames)) => self.socket.extend(frames),
                    Some(Delivery::TooSlow) => {
                        return violated(Invariant::FollowersFindNoFault, "a consumer is called too slow");
                    }
                    Some(Delivery::Ended(_)) => {
                        self.disconnect();
                        break;
                    }
                    None => break,
                }
            }
            let Some(message) = self.socket.pop_front() else { break };
            self.take(server.host(), message, now)?;
            read += 1;
        }
        Ok(read)
    }

    fn take(&mut self, host: Option<&Host>, message: Bytes, now: Millis) -> Checked {
        let mut net = Net { host, missed: false, fetched: 0 };
        let outputs = self.follower.follow(now, Input::Message(message), &mut net);
        self.missed |= net.missed;
        self.fetched += net.fetched;
        for output in outputs {
            match output {
                // It did not get the commits before this one, and has to ask for the repository; once.
                Output::Violation { did: Some(did), violation: Violation::Since { .. }, .. }
                    if self.revived.remove(&did) => {}
                Output::Violation { .. } | Output::Refused(_) => {
                    return violated(Invariant::FollowersFindNoFault, format!("{output:?}"));
                }
                Output::Outdated => {
                    self.outdated += 1;
                    // Behind a gap nothing has to follow.
                    self.revived.clear();
                }
                Output::Resynchronized { did, .. } => drop(self.revived.remove(&did)),
                _ => {}
            }
        }
        Ok(())
    }
}

//! Who follows a stream by the rules of the sync specification, and holds what it says of each account.
//!
//! The follower does no I/O: [`Follower::step`] takes the time and what happened and returns what it found and what it asks
//! for. Whoever has a socket at hand calls [`Follower::follow`], which asks a [`Source`]:
//!
//! ```
//! # use highwater_base::Millis;
//! # use highwater_consumer::follower::{Follower, Input, Output, Options, Source};
//! # fn example(messages: Vec<bytes::Bytes>, source: &mut dyn Source, now: Millis) {
//! let mut follower = Follower::new(Options::default());
//! // The socket is opened with the cursor that the follower names.
//! let cursor = follower.cursor();
//! follower.follow(now, Input::Connected { cursor }, source);
//! for message in messages {
//!     for found in follower.follow(now, Input::Message(message), source) {
//!         assert!(!matches!(found, Output::Violation { .. }), "{found:?}");
//!     }
//! }
//! # }
//! ```
//!
//! Source: atproto sync specification, "Firehose"; atproto event stream specification, "Sequence Numbers".

mod account;
mod verify;

pub use account::{Account, Head, Lacks, Record, Unverified};
pub(crate) use verify::told_commit;

use crate::frame::{ErrorFrame, Frame, Position};
use crate::violation::Violation;
use account::Context;
use bytes::Bytes;
use highwater_base::Millis;
use highwater_repo::key::PublicKey;
use highwater_repo::syntax::{Did, Handle};
use highwater_repo::write::Operation;
use highwater_repo::{Cid, Tid};
use std::collections::{BTreeMap, VecDeque};

/// Milliseconds that a revision may be ahead of the clock: what the network's relay allows.
pub const AHEAD_MS_MAX: u64 = 5 * 60_000;

/// How a follower follows.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether the bytes of records are kept, not their names alone.
    pub bytes_kept: bool,
    /// Milliseconds that a revision may be ahead of the clock.
    pub ahead_ms_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { bytes_kept: false, ahead_ms_max: AHEAD_MS_MAX }
    }
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// A connection was opened with this cursor.
    Connected {
        /// `None` for what comes from now on.
        cursor: Option<u64>,
    },
    /// A binary message came.
    Message(Bytes),
    /// The answer to [`Output::Resolve`]; `None` if there is no key to be had now.
    Key {
        /// The account.
        did: Did,
        /// The key that its DID document names for signing.
        key: Option<PublicKey>,
    },
    /// The answer to [`Output::GetRepo`], or a repository to begin with; `None` if it is not to be had now.
    Repo {
        /// The account.
        did: Did,
        /// The archive.
        archive: Option<Bytes>,
    },
}

/// Why what is held of a repository is not what the server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Nothing is held of it, and the commit is not its first one.
    Unknown,
    /// A commit does not follow the one that is held.
    Chain,
    /// A commit does not say all that happened.
    Broken,
    /// A `#sync` names another tree.
    Sync,
}

/// What the follower found, and what it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The key that signs for an account is needed: answer with [`Input::Key`].
    Resolve {
        /// The account.
        did: Did,
    },
    /// The whole repository is needed, from the server's `getRepo`: answer with [`Input::Repo`].
    GetRepo {
        /// The account.
        did: Did,
    },
    /// An account stands there now.
    Account {
        /// The event's number.
        sequence: u64,
        /// The account.
        did: Did,
        /// Where.
        position: Position,
    },
    /// An account's handle, if the server said it. Its key is asked for again before it is needed.
    Identity {
        /// The event's number.
        sequence: u64,
        /// The account.
        did: Did,
        /// Its handle.
        handle: Option<Handle>,
    },
    /// A commit was verified and applied.
    Committed {
        /// The event's number.
        sequence: u64,
        /// The account.
        did: Did,
        /// Its revision now.
        rev: Tid,
        /// The root of its tree now.
        data: Cid,
        /// What it did.
        operations: Vec<Operation>,
    },
    /// A `#sync` names the tree that is held: only the revision moved.
    Advanced {
        /// The event's number.
        sequence: u64,
        /// The account.
        did: Did,
        /// Its revision now.
        rev: Tid,
    },
    /// A revision that is not newer than the one that is held.
    Ignored {
        /// The event's number.
        sequence: u64,
        /// The account.
        did: Did,
        /// The event's revision.
        rev: Tid,
        /// The one that is held.
        held: Tid,
        /// Whether a repository that was asked for was ahead of the stream, so that this had to come.
        fetched: bool,
    },
    /// What is held of a repository is not what the server has; it is asked for as a whole.
    Desynchronized {
        /// The number of the event that shows it.
        sequence: u64,
        /// The account.
        did: Did,
        /// Why.
        cause: Cause,
    },
    /// A repository is held as a whole again.
    Resynchronized {
        /// The account.
        did: Did,
        /// Its revision now.
        rev: Tid,
    },
    /// The stream goes on behind a gap.
    Outdated,
    /// The server closes the connection.
    Refused(ErrorFrame),
    /// The server broke a rule. What broke it was not taken.
    Violation {
        /// The event's number, if it has one.
        sequence: Option<u64>,
        /// The account, if it is about one.
        did: Option<Did>,
        /// The rule.
        violation: Violation,
    },
}

/// Where a follower gets what it asks for.
pub trait Source {
    /// The key that an account's DID document names for signing.
    fn key(&mut self, did: &Did) -> Option<PublicKey>;
    /// An account's repository, as the server's `getRepo` answers it.
    fn repo(&mut self, did: &Did) -> Option<Bytes>;
}

/// Who follows a stream.
#[derive(Debug, Clone, Default)]
pub struct Follower {
    options: Options,
    accounts: BTreeMap<Did, Account>,
    /// The number of the last event.
    cursor: Option<u64>,
    /// What the next number of this connection must be behind.
    last: u64,
    /// Whether the connection ended with an error.
    over: bool,
}

impl Follower {
    /// One that holds nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// The number of the last event: the cursor to connect with.
    #[must_use]
    pub fn cursor(&self) -> Option<u64> {
        self.cursor
    }

    /// What is held of an account.
    #[must_use]
    pub fn account(&self, did: &Did) -> Option<&Account> {
        self.accounts.get(did)
    }

    /// Every account of which something is held, in order.
    pub fn accounts(&self) -> impl ExactSizeIterator<Item = (&Did, &Account)> {
        self.accounts.iter()
    }

    /// Accounts whose repository was asked for in vain, in order: whoever waits for no further event of theirs asks again, after
    /// a while, and answers with [`Input::Repo`].
    #[must_use]
    pub fn lost(&self) -> Vec<Did> {
        let lost = self.accounts.iter().filter(|(_, account)| account.is_given_up());
        lost.map(|(did, _)| did.clone()).collect()
    }

    /// Accounts with events that could not be verified so far, in order. Each event of theirs asks again for what is missing;
    /// whoever waits for no further one answers with [`Input::Key`] or [`Input::Repo`].
    pub fn unverified(&self) -> impl Iterator<Item = (&Did, Unverified)> {
        self.accounts.iter().filter_map(|(did, account)| Some((did, account.unverified()?)))
    }

    /// Takes what happened at a time; returns what was found and what is asked for, in order.
    pub fn step(&mut self, now: Millis, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        match input {
            Input::Connected { cursor } => self.connected(cursor),
            Input::Message(message) => self.message(now, message, &mut out),
            Input::Key { did, key } => self.of(now, did, |account, context| account.key(context, key, &mut out)),
            Input::Repo { did, archive } => {
                self.of(now, did, |account, context| account.repo(context, archive, &mut out));
            }
        }
        out
    }

    /// As [`Self::step`], with everything asked of a source at once; returns what was found.
    pub fn follow(&mut self, now: Millis, input: Input, source: &mut dyn Source) -> Vec<Output> {
        let (mut inputs, mut found) = (VecDeque::from([input]), Vec::new());
        while let Some(input) = inputs.pop_front() {
            for output in self.step(now, input) {
                match output {
                    Output::Resolve { did } => inputs.push_back(Input::Key { key: source.key(&did), did }),
                    Output::GetRepo { did } => inputs.push_back(Input::Repo { archive: source.repo(&did), did }),
                    other => found.push(other),
                }
            }
        }
        found
    }

    fn connected(&mut self, cursor: Option<u64>) {
        (self.last, self.over) = (cursor.unwrap_or_default(), false);
        if cursor.is_none() {
            // What was sent between two connections is not sent again.
            self.missed();
        }
    }

    /// From here on, a chain may be broken without the server's fault.
    fn missed(&mut self) {
        self.accounts.values_mut().for_each(Account::missed);
    }

    fn of(&mut self, now: Millis, did: Did, act: impl FnOnce(&mut Account, &Context<'_>)) {
        let options = self.options;
        let account = self.accounts.entry(did.clone()).or_default();
        act(account, &Context { did: &did, now, options });
    }

    fn message(&mut self, now: Millis, message: Bytes, out: &mut Vec<Output>) {
        let frame = match Frame::decode(message) {
            Ok(frame) => frame,
            Err(error) => return out.push(violation(None, None, error.into())),
        };
        let (sequence, did) = (frame.sequence(), frame.did().cloned());
        if self.over {
            return out.push(violation(sequence, did, Violation::AfterError(frame.kind())));
        }
        if let Some(told) = sequence {
            if told <= self.last {
                return out.push(violation(sequence, did, Violation::Sequence { last: self.last, told }));
            }
            (self.last, self.cursor) = (told, sequence);
        }
        match frame {
            Frame::Outdated(_) => {
                self.missed();
                out.push(Output::Outdated);
            }
            Frame::Error(error) => {
                self.over = true;
                out.push(Output::Refused(error));
            }
            event => {
                if let Some(did) = did {
                    self.of(now, did, |account, context| account.take(context, event, out));
                }
            }
        }
    }
}

fn violation(sequence: Option<u64>, did: Option<Did>, violation: Violation) -> Output {
    Output::Violation { sequence, did, violation }
}

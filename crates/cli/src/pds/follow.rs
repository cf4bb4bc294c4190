//! `highwater pds follow`: a consumer that takes nothing on trust.

mod source;
mod told;

use super::arguments::FollowArguments;
use crate::exit::{self, Status};
use anyhow::{Result, anyhow};
use bytes::Bytes;
use highwater_base::Clock as _;
use highwater_client::Options;
use highwater_client::websocket::{ConnectError, Message, WebSocket, WebSocketOptions};
use highwater_consumer::follower::{Follower, Input, Lacks, Options as Rules, Output, Source as _};
use highwater_disk::SystemClock;
use source::Server;
use std::time::{Duration, Instant};
use told::Counts;

/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a connection may be silent before the server is asked for a sign of life, and again before it is given up: a stream
/// that rests is quiet, and one whose other end is gone is, too.
const QUIET: Duration = Duration::from_secs(45);

/// A connection without a message that ended sooner was none.
const SETTLED: Duration = Duration::from_secs(5);

/// Accounts whose events could not be verified, of which the error names so many.
const NAMED_MAX: usize = 10;

/// Follows until it is stopped, or has come as far as it should.
pub fn run(arguments: &FollowArguments) -> Result<()> {
    let url = arguments.url.trim_end_matches('/');
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(exit::with(Status::Wrong, format!("{url} is no URL of a server such as https://pds.example.com")));
    }
    let mut following = Following {
        arguments,
        url,
        source: Server::new(url)?,
        follower: Follower::new(Rules::default()),
        counts: Counts::default(),
        unreachable: None,
    };
    let ended = following.follow();
    following.settle()?;
    following.judge(ended)
}

/// Why a connection ended before what was asked for had come.
enum Broken {
    /// Another one may do better.
    Again(anyhow::Error),
    /// None would.
    Final(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Broken {
    fn from(error: E) -> Self {
        Self::Again(error.into())
    }
}

/// A follower with what it follows.
struct Following<'a> {
    arguments: &'a FollowArguments,
    url: &'a str,
    source: Server,
    follower: Follower,
    counts: Counts,
    /// Since when the server is out of reach.
    unreachable: Option<Instant>,
}

impl Following<'_> {
    /// Reads connection after connection.
    fn follow(&mut self) -> Result<()> {
        loop {
            let (begun, before) = (Instant::now(), self.counts.messages);
            let ended = self.connect().and_then(|connection| self.read(connection));
            if self.counts.messages > before || begun.elapsed() >= SETTLED {
                self.unreachable = None;
            }
            match ended {
                Ok(()) => return Ok(()),
                Err(Broken::Final(error)) => return Err(error),
                Err(Broken::Again(error)) => self.endure(&error)?,
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Says that a connection failed, and gives up after a while.
    fn endure(&mut self, error: &anyhow::Error) -> Result<()> {
        let patience_s = self.arguments.timeout_s;
        let Some(since) = self.unreachable else {
            self.unreachable = Some(Instant::now());
            let until =
                if patience_s == 0 { "until this is stopped".to_owned() } else { format!("for {patience_s} s") };
            eprintln!("highwater: {error:#}; connecting again, every second, {until}");
            return Ok(());
        };
        if patience_s > 0 && since.elapsed() >= Duration::from_secs(patience_s) {
            let words = format!("{} was out of reach for {patience_s} s: {error:#}", self.url);
            return Err(exit::with(Status::Later, words));
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<WebSocket, Broken> {
        let socket = format!("{}/xrpc/com.atproto.sync.subscribeRepos", self.url);
        let cursor = self.follower.cursor().or(self.arguments.cursor);
        let target = cursor.map_or_else(|| socket.clone(), |cursor| format!("{socket}?cursor={cursor}"));
        let options = WebSocketOptions { ca_file: Options::from_environment().ca_file, ..WebSocketOptions::default() };
        let connection = WebSocket::connect(&target, &options).map_err(|error| {
            let status = match &error {
                ConnectError::Address(_) => Some(Status::Wrong),
                ConnectError::Refused { status: 404, .. } => Some(Status::NotFound),
                // A limit, a proxy's time limit: those pass.
                ConnectError::Refused { status: 408 | 429, .. } => None,
                ConnectError::Refused { status: 400..500, .. } => Some(Status::Failed),
                _ => None,
            };
            match status {
                Some(status) => Broken::Final(exit::with(status, format!("{}: {error}", self.url))),
                None => Broken::Again(anyhow!(error)),
            }
        })?;
        self.follower.follow(SystemClock::new().wall(), Input::Connected { cursor }, &mut self.source);
        Ok(connection)
    }

    /// Reads one connection until what was asked for has come.
    fn read(&mut self, mut connection: WebSocket) -> Result<(), Broken> {
        let mut asked = false;
        loop {
            let read = connection.read(QUIET)?;
            asked &= read.is_none();
            match read {
                Some(Message::Binary(bytes)) => self.message(bytes)?,
                Some(Message::Close { code, reason }) => {
                    return Err(anyhow!("the server closed the connection: {code} {reason}").into());
                }
                Some(_) => {}
                None if asked => {
                    return Err(anyhow!("the server gave no sign of life for {} s", 2 * QUIET.as_secs()).into());
                }
                None => {
                    connection.ping()?;
                    asked = true;
                }
            }
            if self.arguments.until.is_some_and(|until| self.follower.cursor() >= Some(until)) {
                return Ok(());
            }
        }
    }

    fn message(&mut self, bytes: Bytes) -> Result<(), Broken> {
        self.counts.messages += 1;
        let refused = self.take(Input::Message(bytes))?;
        for did in self.source.missed() {
            let found = self.follower.unverified().find(|(other, _)| **other == did);
            if let Some((did, found)) = found {
                told::tell_unverified(self.follower.cursor(), did, found, self.arguments.json)?;
            }
        }
        refused.map_or(Ok(()), |why| Err(Broken::Final(exit::with(Status::Failed, why))))
    }

    /// Takes what happened and tells of it. Returns why nothing more will come, if that is so.
    fn take(&mut self, input: Input) -> Result<Option<String>> {
        let mut refused = None;
        for found in self.follower.follow(SystemClock::new().wall(), input, &mut self.source) {
            self.counts.violations += u64::from(matches!(found, Output::Violation { .. }));
            // Whoever was too slow comes back with its cursor; nobody comes back from the future.
            if let Output::Refused(error) = &found
                && error.error == "FutureCursor"
            {
                refused = Some(format!("the server closes the stream: {}", told::refusal(error)));
            }
            told::tell(&found, self.arguments.json)?;
        }
        self.counts.sequence = self.follower.cursor();
        Ok(refused)
    }

    /// Asks once more for the keys and repositories that were not to be had.
    fn settle(&mut self) -> Result<()> {
        self.source.forget();
        let open: Vec<_> = self.follower.unverified().map(|(did, found)| (did.clone(), found.lacks)).collect();
        for (did, lacks) in open {
            let input = match lacks {
                Lacks::Key => self.source.key(&did).map(|key| Input::Key { key: Some(key), did }),
                Lacks::Repository => self.source.repo(&did).map(|archive| Input::Repo { archive: Some(archive), did }),
            };
            if let Some(input) = input {
                self.take(input)?;
            }
        }
        Ok(())
    }

    /// What came of it all: what broke a rule first, then what kept it from going on, then what could not be verified.
    fn judge(&self, ended: Result<()>) -> Result<()> {
        let unverified: u64 = self.follower.unverified().map(|(_, found)| found.events).sum();
        if self.arguments.json {
            told::tell_end(&self.counts, unverified)?;
        }
        let accounts: Vec<String> = self
            .follower
            .unverified()
            .map(|(did, found)| format!("{}: {}", did.as_str(), told::lacks(found.lacks)))
            .collect();
        let left = accounts.len().saturating_sub(NAMED_MAX);
        let more = if left > 0 { format!("; and {left} more") } else { String::new() };
        let listed = accounts.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join("; ");
        let open = format!("{unverified} events of {} accounts were not verified: {listed}{more}", accounts.len());
        match (self.counts.violations, ended) {
            (0, Ok(())) if unverified == 0 => Ok(()),
            (0, Ok(())) => Err(exit::with(Status::Partly, open)),
            (0, Err(error)) if unverified == 0 => Err(error),
            (0, Err(error)) => {
                eprintln!("highwater: {open}");
                Err(error)
            }
            (broken, ended) => {
                if let Err(error) = ended {
                    eprintln!("highwater: {error:#}");
                }
                let open = if unverified > 0 { format!("; {open}") } else { String::new() };
                Err(exit::with(Status::Differs, format!("the server broke a rule {broken} times{open}")))
            }
        }
    }
}

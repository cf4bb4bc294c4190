//! DIDs and handles of a zone, each given once.

#[cfg(test)]
mod tests;
mod words;

use crate::state::State;
use highwater_repo::syntax::{Did, Handle};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Bytes of a label between the dots of a name at the most.
const LABEL_BYTES_MAX: usize = 63;
/// Hexadecimal digits of an account's label: what a server that lost its newest names with its newest data would give again is one in
/// 10^12.
const LABEL_DIGITS: usize = 10;
/// Draws before a name gets a third word, and before nothing more is tried.
const DRAWS_MAX: usize = 64;
/// Words of a handle, first and after so many draws.
const WORDS: [usize; 2] = [2, 3];

/// Where a server gives names: a host, and for tests on one machine a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    host: String,
    port: Option<u16>,
}

/// Why names cannot be given.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// No zone.
    #[error("{0:?} is no zone: a host name of two labels or more in lower case, or localhost with a port")]
    Zone(String),
    /// No handle of this zone.
    #[error(
        "{handle:?} is no handle of this server: one label in lower case, digits and hyphens, and .{zone} behind it"
    )]
    Handle {
        /// What was asked for.
        handle: String,
        /// The zone.
        zone: String,
    },
    /// The name was given before.
    #[error("{0} was given before, and is not given again, also if its account was erased")]
    Taken(String),
    /// No free name was drawn.
    #[error("no free name was found in {DRAWS_MAX} draws")]
    Exhausted,
}

/// An account's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Its name for good.
    pub did: Did,
    /// Its name for people.
    pub handle: Handle,
}

fn is_label(label: &str) -> bool {
    (1..=LABEL_BYTES_MAX).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

impl FromStr for Zone {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let bad = || NameError::Zone(text.to_owned());
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        // Names of accounts are longer by a label: 63 bytes and a dot.
        let sound = host.len() < 253 - LABEL_BYTES_MAX && host.split('.').all(is_label);
        let last = host.rsplit('.').next().unwrap_or_default();
        let letter = last.starts_with(|first: char| first.is_ascii_alphabetic());
        let local = host == "localhost";
        // Only there does the protocol know ports.
        if !sound || !letter || local != port.is_some() || !local && !host.contains('.') || port == Some(0) {
            return Err(bad());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Zone {
    /// The zone in which a DID was given; `None` if this program gives no such DID.
    #[must_use]
    pub fn of(did: &Did) -> Option<Self> {
        let host = did.as_str().strip_prefix("did:web:")?.replace("%3A", ":");
        // On this machine the zone itself can be an account's name.
        let below = if without_port(&host) == "localhost" { &host } else { host.split_once('.')?.1 };
        below.parse().ok()
    }

    /// Its host name.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Where the server of its accounts is, for DID documents.
    #[must_use]
    pub fn endpoint(&self) -> String {
        match self.port {
            Some(port) => format!("http://{}:{port}", self.host),
            None => format!("https://{}", self.host),
        }
    }

    fn did_of_host(&self, host: &str) -> Option<Did> {
        let port = self.port.map(|port| format!("%3A{port}")).unwrap_or_default();
        format!("did:web:{host}{port}").parse().ok()
    }

    /// The account whose DID document a request to this host asks for, whatever port stands behind it: the account may not exist.
    #[must_use]
    pub fn did_at(&self, host: &str) -> Option<Did> {
        let host = without_port(host).to_ascii_lowercase();
        let label = host.strip_suffix(&self.host).and_then(|rest| rest.strip_suffix('.'));
        // The zone itself can be the one account of a server on this machine, which resolvers find without a name service.
        let alone = self.port.is_some() && host == self.host;
        (alone || label.is_some_and(is_label)).then(|| self.did_of_host(&host)).flatten()
    }

    /// The handle that a request to this host asks about; no account may have it.
    #[must_use]
    pub fn handle_at(&self, host: &str) -> Option<Handle> {
        self.handle(&without_port(host).to_ascii_lowercase()).ok()
    }

    /// A handle of this zone.
    /// # Errors
    /// [`NameError::Handle`].
    pub fn handle(&self, text: &str) -> Result<Handle, NameError> {
        let label = text.strip_suffix(&self.host).and_then(|rest| rest.strip_suffix('.'));
        let handle = label.filter(|label| is_label(label)).and_then(|_| text.parse().ok());
        handle.ok_or_else(|| NameError::Handle { handle: text.to_owned(), zone: self.host.clone() })
    }

    /// Names for a new account: a DID that is drawn, and the handle that is asked for, or one of words that are drawn.
    ///
    /// `taken` says of a DID or a handle whether it was ever given, or is about to be: [`is_taken`], and what is on its way.
    /// # Errors
    /// [`NameError`].
    pub fn give(
        &self,
        handle: Option<&str>,
        taken: impl Fn(&str) -> bool,
        mut random: impl FnMut() -> u64,
    ) -> Result<Names, NameError> {
        // One host is never the DID of one account and the handle of another.
        let host_taken = |host: &str| taken(host) || self.did_of_host(host).is_none_or(|did| taken(did.as_str()));
        let handle = match handle {
            Some(text) => {
                let handle = self.handle(text)?;
                if host_taken(handle.as_str()) {
                    return Err(NameError::Taken(handle.to_string()));
                }
                handle
            }
            None => {
                let mut draws = WORDS.into_iter().flat_map(|words| std::iter::repeat_n(words, DRAWS_MAX));
                let drawn = draws.find_map(|words| {
                    let handle = self.handle(&format!("{}.{}", words_drawn(words, &mut random), self.host)).ok()?;
                    (!host_taken(handle.as_str())).then_some(handle)
                });
                drawn.ok_or(NameError::Exhausted)?
            }
        };
        let did = (0..DRAWS_MAX).find_map(|_| {
            let digits = format!("{:016x}", random());
            let host = format!("{}.{}", &digits[..LABEL_DIGITS], self.host);
            let did = self.did_of_host(&host)?;
            (!host_taken(&host) && host != handle.as_str()).then_some(did)
        });
        Ok(Names { did: did.ok_or(NameError::Exhausted)?, handle })
    }

    /// The zone's own name as the DID of the one account of a server on this machine.
    #[must_use]
    pub fn did_alone(&self) -> Option<Did> {
        self.did_of_host(&self.host).filter(|_| self.port.is_some())
    }
}

/// Whether a DID or a handle was ever given.
#[must_use]
pub fn is_taken(state: &State, name: &str) -> bool {
    state.by_did(name).is_some() || state.by_handle(name).is_some()
}

fn without_port(host: &str) -> &str {
    host.rsplit_once(':').map_or(host, |(host, _)| host)
}

fn words_drawn(count: usize, random: &mut impl FnMut() -> u64) -> String {
    let word = |place: usize, random: u64| {
        let list: &[&str] = if place + 1 == count { words::THINGS } else { words::QUALITIES };
        list[(random % list.len() as u64) as usize]
    };
    (0..count).map(|place| word(place, random())).collect::<Vec<_>>().join("-")
}

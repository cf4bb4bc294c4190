//! A session: one login and the refresh tokens that followed from it.

use crate::time::Micros;
use highwater_base::codec::{DecodeError, Reader, Writer};
use std::collections::VecDeque;
use std::fmt;
use thiserror::Error;

/// Seconds for which a refresh token is good.
pub const REFRESH_SECONDS: u64 = 90 * 24 * 60 * 60;

/// Seconds for which a refresh token that gave the next one gives it again: a client that never saw the answer asks once more.
pub const REFRESH_GRACE_SECONDS: u64 = 2 * 60 * 60;

/// Generations of a session that are kept at the most, the newest among them.
///
/// A client refreshes when its access token has expired, thus once in two hours, and needs two. One that refreshes without end
/// loses the grace of what it left longest ago, and takes no more room.
pub const GENERATIONS_KEPT_MAX: usize = 16;

/// A session's number, drawn at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    /// Reads the spelling of 32 hexadecimal digits in lower case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 32 || !digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(|number| Self(number.to_be_bytes()))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a session was opened with, and so what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// The account's password: everything that the account may do.
    Full,
    /// A program's password.
    AppPassword {
        /// Its name.
        name: String,
        /// Whether it may do what only privileged ones may.
        privileged: bool,
    },
}

impl Grant {
    /// The program's password, if it was one.
    #[must_use]
    pub fn app_password(&self) -> Option<&String> {
        match self {
            Self::Full => None,
            Self::AppPassword { name, .. } => Some(name),
        }
    }

    pub(super) fn encode(&self, out: &mut Writer) {
        match self {
            Self::Full => out.u8(0),
            Self::AppPassword { name, privileged } => out.u8(1).bytes(name.as_bytes()).bool(*privileged),
        };
    }

    pub(super) fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match input.u8()? {
            0 => Self::Full,
            1 => Self::AppPassword { name: input.string()?, privileged: input.bool()? },
            _ => return Err(DecodeError::Invalid("grant")),
        })
    }
}

/// A generation of a session, and when its refresh token was issued: all that is in the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Issued {
    /// From 1.
    pub generation: u32,
    /// When.
    pub at: Micros,
}

/// What a refresh token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refresh {
    /// It gives the next one now.
    Rotates,
    /// It gave this one, and gives it again.
    Gave(Issued),
}

/// A refresh token that is good no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the session ended, or this refresh token was replaced more than {} hours ago", REFRESH_GRACE_SECONDS / 3_600)]
pub struct GraceOver;

/// One login and what followed from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// What it was opened with.
    pub grant: Grant,
    /// When it was opened.
    pub opened: Micros,
    /// Generations without a gap, the newest last; there is always one.
    issued: VecDeque<Issued>,
}

impl Session {
    pub(super) fn opened(grant: Grant, at: Micros) -> Self {
        Self { grant, opened: at, issued: VecDeque::from([Issued { generation: 1, at }]) }
    }

    /// The newest generation.
    #[must_use]
    pub fn newest(&self) -> Issued {
        // Opening makes one, rotating adds one, and what is read without one is refused.
        self.issued.back().copied().unwrap_or(Issued { generation: 0, at: Micros(0) })
    }

    /// The generation that followed from another one, if that is still known.
    #[must_use]
    pub fn after(&self, generation: u32) -> Option<Issued> {
        self.issued.iter().find(|issued| issued.generation == generation.saturating_add(1)).copied()
    }

    /// Whether its newest refresh token has expired.
    #[must_use]
    pub fn expired(&self, now: Micros) -> bool {
        now >= self.newest().at.plus_seconds(REFRESH_SECONDS)
    }

    pub(super) fn refresh(&self, generation: u32, now: Micros) -> Result<Refresh, GraceOver> {
        if self.expired(now) {
            return Err(GraceOver);
        }
        if generation == self.newest().generation {
            return Ok(Refresh::Rotates);
        }
        let next = self.after(generation).ok_or(GraceOver)?;
        let good = now < next.at.plus_seconds(REFRESH_GRACE_SECONDS);
        if good { Ok(Refresh::Gave(next)) } else { Err(GraceOver) }
    }

    /// Whoever asks twice at once rotates once: the second one finds another newest generation.
    pub(super) fn rotate(&mut self, from: u32, at: Micros) {
        let newest = self.newest();
        if newest.generation != from {
            return;
        }
        // A clock that was set back makes no token that is older than the one before it.
        let at = at.max(newest.at);
        self.issued.push_back(Issued { generation: from.saturating_add(1), at });
        // A generation is kept for the grace of the one before it, which gave it.
        let over = |first: &Issued| at >= first.at.plus_seconds(REFRESH_GRACE_SECONDS);
        while self.issued.len() > GENERATIONS_KEPT_MAX || self.issued.len() > 1 && self.issued.front().is_some_and(over)
        {
            self.issued.pop_front();
        }
    }

    pub(super) fn encode(&self, out: &mut Writer) {
        self.grant.encode(out);
        out.u64(self.opened.0).u32(self.newest().generation).u32(self.issued.len() as u32);
        for issued in &self.issued {
            out.u64(issued.at.0);
        }
    }

    pub(super) fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let (grant, opened) = (Grant::decode(input)?, Micros(input.u64()?));
        let (newest, count) = (input.u32()?, input.u32()?);
        if count == 0 || count > newest || count as usize > GENERATIONS_KEPT_MAX {
            return Err(DecodeError::Invalid("generations of a session"));
        }
        let mut issued = VecDeque::new();
        for generation in newest - count + 1..=newest {
            issued.push_back(Issued { generation, at: Micros(input.u64()?) });
        }
        Ok(Self { grant, opened, issued })
    }
}

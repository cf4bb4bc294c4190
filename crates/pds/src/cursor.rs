//! Where a subscriber starts, by the number that it saw last.

use crate::account::AccountId;
use crate::events::Events;
use crate::frame::Kind;
use crate::sequence::Sequence;
use crate::state::State;
use highwater_base::planted::{Bug, active};
use thiserror::Error;

/// Text that is no cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a cursor is a whole number, not below zero")]
pub struct CursorError;

/// Where a subscriber starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With what comes next.
    Live,
    /// With the kept frames that have larger numbers than this one, then what comes next.
    Behind {
        /// The number.
        seq: u64,
        /// Frames before that are missing, and it is told so first.
        outdated: bool,
    },
    /// Nowhere: the number was never handed out. A restored server without its mark would say so to everybody who is ahead of it.
    Future {
        /// The highest number that could have been.
        ceiling: u64,
    },
}

/// Reads a cursor. One beyond what 64 bits hold is as good as the largest.
/// # Errors
/// If it is negative, or no whole number.
pub fn parse(text: &str) -> Result<u64, CursorError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CursorError);
    }
    Ok(text.parse().unwrap_or(u64::MAX))
}

/// Where a subscriber with this cursor starts.
///
/// The frames that follow have larger numbers than the cursor, as every consumer expects; the specification's text has them as large at
/// least.
/// Source: atproto event stream specification, "Sequence Numbers".
#[must_use]
pub fn start(cursor: Option<u64>, events: &Events, sequence: &Sequence) -> Start {
    let Some(cursor) = cursor else { return Start::Live };
    let ceiling = match active(Bug::ForgetCeiling) {
        true => events.newest.map_or(0, |newest| newest.0),
        false => sequence.ceiling(),
    };
    if cursor > ceiling {
        return Start::Future { ceiling };
    }
    let whole = Start::Behind { seq: 0, outdated: true };
    if let Some(end) = sequence.gap(cursor) {
        return Start::Behind { seq: end, outdated: true };
    }
    let (Some(oldest), Some(newest)) = (events.oldest(), events.newest) else { return Start::Live };
    match cursor {
        0 => Start::Behind { seq: 0, outdated: false },
        _ if cursor >= newest.0 => Start::Live,
        _ if cursor + 1 >= oldest.seq.0 => Start::Behind { seq: cursor, outdated: false },
        _ => whole,
    }
}

/// Whether a frame that is replayed is left out: of an account that was erased since, only where it stands is still sent.
#[must_use]
pub fn is_left_out(state: &State, account: AccountId, kind: Kind) -> bool {
    kind != Kind::Account && state.accounts.get(&account).is_some_and(|account| account.standing.erased)
}

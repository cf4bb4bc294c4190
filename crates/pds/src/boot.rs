//! What a start tells relays: rule A2. And what an operator tells them once more.
//!
//! A start sends only where an account stands elsewhere than relays were told last. Nothing is signed, and a start where nothing
//! changed hands over nothing.

use crate::account::{Account, Position};
use crate::draft::Draft;
use crate::sequence::Sequence;
use crate::state::State;
use crate::time::Micros;
use crate::turn::{Refused, catch_up, tell_head, tell_position};
use crate::witness::Witness;
use bytes::Bytes;
use std::fmt;

/// Accounts of which relays have something yet to hear, by DID.
pub fn due(state: &State) -> impl Iterator<Item = &Account> {
    state.by_did_order().filter(|account| is_due(account))
}

fn is_due(account: &Account) -> bool {
    account.position().is_some_and(|position| Some(position) != account.announced || account.head_untold().is_some())
}

/// What relays have yet to hear of an account that is due: `#account`, and `#sync` of the newest commit if it is active and no frame
/// told of that commit. Its block is needed whenever [`Account::head_untold`] names one. `None` if there is nothing.
/// # Errors
/// [`Refused::HeadBlock`].
pub fn draft(account: &Account, head_block: Option<&Bytes>, at: Micros) -> Result<Option<Draft>, Refused> {
    match account.position().filter(|_| is_due(account)) {
        None => Ok(None),
        Some(Position::Active) => catch_up(Draft::new(at), account, head_block).map(Some),
        Some(position) => Ok(Some(tell_position(Draft::new(at), account, position))),
    }
}

/// Accounts that an operator can have told of once more, by DID: those that are active. Each takes two frames.
pub fn live(state: &State) -> impl Iterator<Item = &Account> {
    state.by_did_order().filter(|account| account.position() == Some(Position::Active) && account.head.is_some())
}

/// `#account` and `#sync` over the newest commit of an active account, for relays that are new. Nothing is signed.
/// # Errors
/// [`Refused`] if the account is not active any more, or the block of its newest commit is not given.
pub fn resync(account: &Account, head_block: &Bytes, at: Micros) -> Result<Draft, Refused> {
    crate::turn::may_write(account)?;
    let Some(head) = account.head.filter(|_| account.position().is_some()) else { return Err(Refused::NotActivated) };
    let draft = tell_position(Draft::new(at), account, Position::Active);
    tell_head(draft, account, head.commit, Some(head_block))
}

/// The floor that a file beside the log knows of, where the log does not: numbers go on above it, and the gap is kept as others are.
/// `None` if the log knows of them all.
#[must_use]
pub fn floor(sequence: &Sequence, side_file: u64, at: Micros) -> Option<Draft> {
    (side_file > sequence.ceiling()).then(|| Draft::new(at).fact(crate::Fact::Floor(side_file)))
}

/// Seconds for which a server is away without a warning: an operator who restores a copy restores one of last night more likely
/// than one of this hour, and a server that was shut down for a day is worth a look.
pub const AWAY_SECONDS_MAX: u64 = 6 * 3600;

/// What a start should tell its operator. It acts on none of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warning {
    /// The clock is behind the newest stored time, by so many seconds.
    ClockBehind(u64),
    /// A witness knows another start than the directory does, or higher numbers.
    WitnessDiffers,
    /// A restore began, and nothing outside the directory told which numbers the lost run handed out.
    NumbersUntold,
    /// Nothing was stored for so many seconds.
    Away(u64),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STEP: &str = "if this data directory was restored, stop and run `highwater pds mark-restored` before anything is written";
        match self {
            Self::ClockBehind(seconds) => {
                write!(
                    f,
                    "the clock is {seconds} s behind the newest stored time: revisions run ahead of it, and relays refuse those that are five minutes ahead; set the clock"
                )
            }
            Self::WitnessDiffers => {
                write!(f, "the witness file knows of a run that this data directory does not: {STEP}")
            }
            Self::NumbersUntold => {
                f.write_str(
                    "no witness and no --min-seq told which numbers of the stream the lost run gave out: those of the run that was copied, and of \
                     runs that began with this copy, are passed over, if the clock is right; if another copy had been put back, or this one \
                     with --min-seq, run `highwater pds mark-restored --min-seq` with the highest number that a relay knows, and \
                     start again; set pds.witness_path, so that the next restore knows",
                )
            }
            Self::Away(seconds) => write!(f, "nothing was stored here for {seconds} s: {STEP}"),
        }
    }
}

/// What the clock and witnesses say about the data directory at a start, before it notes its own number in all of them.
#[must_use]
pub fn warnings(state: &State, witnesses: impl IntoIterator<Item = Witness>, now: Micros) -> Vec<Warning> {
    let mut found = Vec::new();
    let behind = state.newest.seconds_since(now);
    if state.newest > now && behind > 0 {
        found.push(Warning::ClockBehind(behind));
    }
    if witnesses.into_iter().any(|witness| !witness.knows(state)) {
        found.push(Warning::WitnessDiffers);
    }
    let away = now.seconds_since(state.newest);
    if state.newest != Micros::default() && away > AWAY_SECONDS_MAX {
        found.push(Warning::Away(away));
    }
    found
}

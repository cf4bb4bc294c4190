//! What a start makes of a data directory that was restored: rules R1 to R4.
//!
//! The directory cannot tell a restore from a restart, so an operator leaves a marker. The start that finds it raises the floor, then
//! tells relays of every account that has a position: `#account`, and for an active one `#sync` over a fresh commit, which makes
//! whoever follows the specification drop what the lost run wrote. Every account's frames and the note that it is done are one record,
//! so that a start that dies is resumed by the next one without repeating a frame or signing twice.

use crate::account::{Account, AccountId, Position};
use crate::draft::Draft;
use crate::record::{Fact, Restore};
use crate::sequence::{Exhausted, PASSED_MICROS_MAX, SEQ_MAX};
use crate::state::State;
use crate::time::Micros;
use crate::turn::{Signer, tell_fresh, tell_position};
use crate::witness::Witness;
use highwater_base::planted::{Bug, active};
use highwater_repo::{Cid, Tid};
use std::fmt;
use thiserror::Error;

/// The marker's name in the data directory.
pub const MARKER_NAME: &str = "pds.restored";
/// How far a fresh revision may lie ahead of the clock, in microseconds: relays refuse those beyond.
pub const REV_AHEAD_MICROS_MAX: u64 = 5 * 60 * 1_000_000;
const DAY_MICROS: u64 = 86_400 * 1_000_000;
/// The start of 2026, in microseconds since 1970: no directory is older.
const OLDEST_MICROS: u64 = 1_767_225_600_000_000;
/// What counts of the age of an empty directory, thirty years of it: a tenth of all numbers, with a clock that is decades ahead.
const EMPTY_MICROS_MAX: u64 = 30 * 365 * DAY_MICROS;
/// Bytes of a marker at the most.
pub const MARKER_BYTES_MAX: usize = 256;

/// What an operator leaves in a restored data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marker {
    /// Which restore it is. `None` in a file that was made by hand: the start draws one and writes it in, before anything else.
    pub id: Option<u64>,
    /// Fresh revisions are above this one, whatever the clock and a witness say.
    pub rev_min: Option<Tid>,
    /// The lost run handed out numbers up to this one, as far as its operator knows.
    pub seq_min: Option<u64>,
}

/// A marker that says nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{MARKER_NAME} holds {line:?}, which is none of `id=` with 16 hexadecimal digits, `min_rev=` with a revision and `min_seq=` with a \
     number, each once; nothing was sent; run `highwater pds mark-restored` to write it anew, or remove it if this directory was not restored"
)]
pub struct MarkerError {
    /// What was found.
    pub line: String,
}

impl Marker {
    /// Reads a marker. An empty file is a new restore.
    /// # Errors
    /// [`MarkerError`] for anything else that is no marker.
    pub fn parse(bytes: &[u8]) -> Result<Self, MarkerError> {
        let bad = |line: &str| MarkerError { line: line.chars().take(80).collect() };
        let text = std::str::from_utf8(bytes.get(..=MARKER_BYTES_MAX).unwrap_or(bytes));
        let text = text.map_err(|_| bad("bytes that are no text"))?;
        if text.len() > MARKER_BYTES_MAX {
            return Err(bad(text));
        }
        let mut marker = Self::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.split_once('=') {
                Some(("id", digits)) if marker.id.is_none() => {
                    marker.id = Some(parse_id(digits).ok_or_else(|| bad(line))?);
                }
                Some(("min_rev", rev)) if marker.rev_min.is_none() => {
                    marker.rev_min = Some(rev.parse().map_err(|_| bad(line))?);
                }
                Some(("min_seq", digits)) if marker.seq_min.is_none() => {
                    marker.seq_min = Some(parse_seq(digits).ok_or_else(|| bad(line))?);
                }
                _ => return Err(bad(line)),
            }
        }
        Ok(marker)
    }
}

/// Sixteen hexadecimal digits in lower case: one restore has one spelling.
fn parse_id(digits: &str) -> Option<u64> {
    let plain = digits.len() == 16 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u64::from_str_radix(digits, 16).ok().filter(|_| plain)
}

/// A number of the stream, without a sign and without zeros before it.
#[must_use]
pub fn parse_seq(digits: &str) -> Option<u64> {
    digits.parse().ok().filter(|seq: &u64| *seq <= SEQ_MAX && seq.to_string() == digits)
}

/// As it is written.
impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(id) = self.id {
            writeln!(f, "id={id:016x}")?;
        }
        if let Some(rev) = self.rev_min {
            writeln!(f, "min_rev={rev}")?;
        }
        self.seq_min.map_or(Ok(()), |seq| writeln!(f, "min_seq={seq}"))
    }
}

/// What is known of the runs that are lost, beside what the directory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Numbers up to this one were handed out; 0 if nobody knows.
    pub seq: u64,
    /// Revisions up to this one were made.
    pub rev: Option<Tid>,
    /// Whether somebody outside of the directory spoke of numbers. Without it a raise covers the run that was copied and runs that
    /// began with this copy, and none that began with another one, or that was told.
    pub is_told: bool,
}

impl Lost {
    /// What the operator's marker and witnesses say. A revision that the operator names counts alone: a lost run whose clock was ahead
    /// made revisions that nobody can go above. Numbers count in any case.
    ///
    /// A witness that lies in the data directory comes back with a copy of all of it, and tells something only if it is ahead.
    #[must_use]
    pub fn new(state: &State, marker: &Marker, outside: Option<Witness>, beside: Option<Witness>) -> Self {
        let ceiling = state.sequence.ceiling();
        let witnesses = || outside.into_iter().chain(beside).filter(|_| !active(Bug::ForgetWitness));
        Self {
            seq: witnesses().map(|witness| witness.seq).chain(marker.seq_min).max().unwrap_or(0),
            rev: marker.rev_min.or_else(|| witnesses().filter_map(|witness| witness.rev).max()),
            is_told: marker.seq_min.is_some() || outside.is_some() || beside.is_some_and(|near| near.seq > ceiling),
        }
    }
}

/// Why a restore stops. Nothing was sent for the account that it stopped at, the marker stays, and the next start goes on there.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RestoreError {
    /// The next fresh revision would be refused by relays.
    #[error(
        "the next revision of {did} would lie {ahead_seconds} s ahead of the clock, and relays refuse those that are more than five minutes \
         ahead; if the clock is behind, set it, and if --min-rev named a later one than was meant, run `highwater pds mark-restored` with that; a \
         revision that the account has itself cannot be lowered: start again when the clock has come to it"
    )]
    ClockBehind {
        /// The account.
        did: String,
        /// By how much.
        ahead_seconds: u64,
    },
    /// The revision that fresh ones must be above is one that relays refuse.
    #[error(
        "the revision that fresh ones are to be above lies {ahead_seconds} s ahead of the clock, and relays refuse those that are more than five \
         minutes ahead; set the clock, or run `highwater pds mark-restored` with an earlier --min-rev, and start again"
    )]
    RevAhead {
        /// By how much.
        ahead_seconds: u64,
    },
    /// The copy is older than any that somebody keeps, or the clock is wrong.
    #[error(
        "the newest record of this copy is {days} days older than the clock says, and nobody told which numbers were given out since; set \
         the clock, or, if it is right, name the highest number that a relay knows with `highwater pds mark-restored --min-seq`, and start \
         again"
    )]
    Age {
        /// How old it is.
        days: u64,
    },
    /// There are not enough numbers left.
    #[error("this restore cannot raise the stream's floor: {0}")]
    Exhausted(#[from] Exhausted),
}

/// What a start that finds a marker does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// The restore is new: this floor and the restore's beginning are stored, and the floor copied beside the log, before any frame is
    /// numbered.
    Begin {
        /// The floor.
        floor: u64,
        /// Fresh revisions are above this one.
        rev_min: Option<Tid>,
    },
    /// It began before: go on with the accounts that are left.
    Resume,
    /// It ended before: only remove the marker.
    AlreadyDone,
}

impl Plan {
    /// What to do about a marker with this number.
    /// # Errors
    /// [`RestoreError`] if the clock or the numbers do not allow it; nothing was begun then.
    pub fn new(state: &State, id: u64, lost: Lost, now: Micros) -> Result<Self, RestoreError> {
        let known = state.restore.as_ref().filter(|restore| restore.id == id);
        if known.is_some_and(|restore| restore.done) {
            return Ok(Self::AlreadyDone);
        }
        // An operator who marks the directory anew may lower what an earlier marker asked for.
        let rev_min = known.map_or(lost.rev, |restore| restore.rev_min);
        // Whoever is locked now gets a fresh revision later, and every account that is made.
        let ahead = rev_min.map_or(0, |rev| rev.micros().saturating_sub(now.0));
        if ahead > REV_AHEAD_MICROS_MAX {
            return Err(RestoreError::RevAhead { ahead_seconds: ahead / 1_000_000 });
        }
        for account in left(state, id).filter(|account| account.position() == Some(Position::Active)) {
            check_rev(account, Tid::after(account.head.map(|head| head.rev).max(rev_min), now.0, 0), now)?;
        }
        if known.is_some() {
            return Ok(Self::Resume);
        }
        if state.newest == Micros::default() {
            // Nothing was ever stored, and a copy of nothing may be put back twice, too: it is as old as it can be.
            let passed = now.0.saturating_sub(OLDEST_MICROS).min(EMPTY_MICROS_MAX);
            return Ok(Self::Begin { floor: state.sequence.raised(lost.seq, passed)?, rev_min });
        }
        let passed = now.0.saturating_sub(state.newest.0);
        if passed > PASSED_MICROS_MAX && !lost.is_told {
            return Err(RestoreError::Age { days: passed / DAY_MICROS });
        }
        let passed = passed.min(PASSED_MICROS_MAX);
        Ok(Self::Begin { floor: state.sequence.raised(lost.seq, passed)?, rev_min })
    }
}

fn check_rev(account: &Account, rev: Tid, now: Micros) -> Result<(), RestoreError> {
    let ahead = rev.micros().saturating_sub(now.0);
    if ahead > REV_AHEAD_MICROS_MAX {
        return Err(RestoreError::ClockBehind { did: account.did.to_string(), ahead_seconds: ahead / 1_000_000 });
    }
    Ok(())
}

/// The restore's beginning. Stored, and the floor copied beside the log, before anything else.
#[must_use]
pub fn begin(id: u64, floor: u64, rev_min: Option<Tid>, at: Micros) -> Draft {
    let floor = if active(Bug::KeepFloor) { 0 } else { floor };
    Draft::new(at).fact(Fact::Floor(floor)).fact(Fact::Restore(Restore::Begun { id, rev_min }))
}

/// Accounts that are left to do, by DID: those that have a position, were not decommissioned, and are not done.
pub fn left(state: &State, id: u64) -> impl Iterator<Item = &Account> {
    let progress = state.restore.as_ref().filter(|restore| restore.id == id).map(|restore| &restore.progress);
    state.by_did_order().filter(move |account| {
        let done = progress.is_some_and(|progress| progress.contains(&account.id));
        account.position().is_some() && !account.standing.decommissioned && !done
    })
}

/// What relays are told of an account: `#account`, whatever they were told before, because that came from the lost run; and of an active
/// one `#sync` over a fresh commit.
///
/// `signer` must have the state's `rev_min`. `None` for an account without a position.
/// # Errors
/// [`RestoreError::ClockBehind`].
pub fn account(account: &Account, id: u64, signer: &Signer, at: Micros) -> Result<Option<Draft>, RestoreError> {
    let Some(position) = account.position() else { return Ok(None) };
    let mut draft = tell_position(Draft::new(at), account, position);
    let told = position == Position::Active && !active(Bug::SkipFreshCommits);
    if let Some(fresh) = signer.fresh(account, at).filter(|_| told) {
        check_rev(account, fresh.commit.rev, at)?;
        draft = tell_fresh(draft, account, &fresh);
    }
    Ok(Some(draft.fact(Fact::Restore(Restore::Progress { id, account: account.id }))))
}

/// The restore's end: what is left is to remove the marker, and to have relays crawl. Rule A2 goes before it.
#[must_use]
pub fn done(id: u64, at: Micros) -> Draft {
    Draft::new(at).fact(Fact::Restore(Restore::Done { id })).fact(Fact::PokePending(true))
}

/// An account that a restore announced as active. One that was erased after the copy was made is among them: only its operator knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// Its number.
    pub account: AccountId,
    /// Its DID.
    pub did: String,
    /// Its handle.
    pub handle: String,
    /// The fresh commit.
    pub commit: Cid,
    /// The fresh revision.
    pub rev: Tid,
}

/// The rows of a restore's report, by DID: what an operator goes through for accounts that had been erased.
#[must_use]
pub fn report(state: &State) -> Vec<Announced> {
    let Some(restore) = &state.restore else { return Vec::new() };
    let told = state.by_did_order().filter(|account| restore.progress.contains(&account.id));
    let rows = told.filter(|account| account.announced == Some(Position::Active)).filter_map(|account| {
        let head = account.head?;
        Some(Announced {
            account: account.id,
            did: account.did.to_string(),
            handle: account.handle.to_string(),
            commit: head.commit,
            rev: head.rev,
        })
    });
    rows.collect()
}

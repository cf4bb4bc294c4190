//! What is done to an account, and what relays are told of it: rules A1 and A3.
//!
//! A change compares with what relays were told last, not with what the row said before: what they missed goes out with the next
//! change. Whatever leaves an account active sends `#account` and then `#sync` over a fresh commit, so that a consumer that dropped
//! frames meanwhile, or holds what a restore took back, starts over from there.

use crate::account::{Account, Position, Standing};
use crate::draft::{Draft, Part};
use crate::frame;
use crate::record::Fact;
use crate::time::Micros;
use crate::turn::{Refused, Signer, head_of, tell_commit, tell_fresh, tell_position};
use highwater_base::planted::{self, Bug};

/// When relays hear of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Announce {
    /// When it is activated.
    #[default]
    OnActivation,
    /// With its first write.
    OnFirstWrite,
}

/// What is done to an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It begins to be an account that relays may hear of.
    Activate(Announce),
    /// The operator's lock.
    Lock,
    /// The lock's end.
    Lift,
    /// By the admin API.
    TakeDown,
    /// The end of what the admin API did.
    Restore,
    /// By its owner.
    Deactivate,
    /// The end of what its owner did.
    Reactivate,
    /// For good: its row and its names stay, everything else goes.
    Erase,
    /// It was handed to another host, or is retired.
    Decommission,
}

/// A change as a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turned {
    /// The row's change and all frames, as one record.
    pub draft: Draft,
    /// The row's change alone, for when its frames find no room: so that a lock always bites. The next change, write or start
    /// sends them.
    pub fallback: Option<Draft>,
}

/// What a change of an account hands over. `None` if it is so already and relays know: then there is nothing to do.
/// # Errors
/// [`Refused`] if the account stands where that cannot be done.
/// Source: atproto account specification, "Hosting Status"; sync specification.
pub fn decide(account: &Account, change: Change, signer: &Signer, at: Micros) -> Result<Option<Turned>, Refused> {
    let standing = standing_after(account.standing, change)?;
    let changed = standing != account.standing;
    let position = standing.position();
    let active = position == Some(Position::Active);
    let missed = position.is_some() && position != account.announced || active && account.head_untold().is_some();
    if !changed && !missed {
        return Ok(None);
    }
    let row = if changed { Draft::new(at).fact(Fact::Standing(account.id, standing)) } else { Draft::new(at) };
    let (mut draft, mut fallback) = (row.clone(), row);
    let begins = standing.activated && !account.standing.activated;
    if begins && position.is_some() {
        draft = draft.frame(account.id, frame::identity(&account.did, &account.handle, at));
    }
    if let Some(position) = position.filter(|position| active || Some(*position) != account.announced) {
        draft = tell_position(draft, account, position);
    }
    if begins && account.head.is_none() {
        let genesis = signer.genesis(account, at);
        let sections = genesis.archive.slice(genesis.stored.clone());
        let alone = Part::Alone { account: account.id, head: head_of(&genesis.commit, genesis.cid, false), sections };
        draft = if active { tell_commit(draft, account, &genesis)? } else { draft.part(alone.clone()) };
        fallback = fallback.part(alone);
    } else if let Some(fresh) = signer.fresh(account, at).filter(|_| active) {
        if !planted::active(Bug::LiftWithoutSync) {
            draft = tell_fresh(draft, account, &fresh);
        }
        let sections = fresh.archive.slice(fresh.stored.clone());
        let head = head_of(&fresh.commit, fresh.cid, false);
        fallback = fallback.part(Part::Alone { account: account.id, head, sections });
    }
    let fallback = (changed && draft.has_frames()).then_some(fallback);
    Ok(Some(Turned { draft, fallback }))
}

/// A new account, activated at once or not.
/// # Errors
/// [`Refused`], which a row without standing does not meet.
pub fn create(account: Account, activate: Option<Announce>, signer: &Signer, at: Micros) -> Result<Turned, Refused> {
    let turned = match activate {
        Some(announce) => decide(&account, Change::Activate(announce), signer, at)?,
        None => None,
    };
    let created = |draft: Draft| {
        let mut whole = Draft::new(at).fact(Fact::Created(Box::new(account.clone())));
        whole.parts.extend(draft.parts);
        whole
    };
    Ok(match turned {
        None => Turned { draft: created(Draft::new(at)), fallback: None },
        Some(Turned { draft, fallback }) => Turned { draft: created(draft), fallback: fallback.map(created) },
    })
}

/// Where an account stands after a change.
fn standing_after(before: Standing, change: Change) -> Result<Standing, Refused> {
    let mut after = before;
    match change {
        Change::Erase => after.erased = true,
        _ if before.erased => return Err(Refused::Erased),
        Change::Activate(_) | Change::Deactivate | Change::Reactivate if before.decommissioned => {
            return Err(Refused::Decommissioned);
        }
        Change::Activate(announce) => {
            after.until_first_write |= !before.activated && announce == Announce::OnFirstWrite;
            after.activated = true;
        }
        Change::Deactivate | Change::Reactivate if !before.activated => return Err(Refused::NotActivated),
        Change::Lock => after.suspended = true,
        Change::Lift => after.suspended = false,
        Change::TakeDown => after.taken_down = true,
        Change::Restore => after.taken_down = false,
        Change::Deactivate => after.deactivated = true,
        Change::Reactivate => after.deactivated = false,
        Change::Decommission => after.decommissioned = true,
    }
    Ok(after)
}

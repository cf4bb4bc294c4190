//! Accounts: made, changed, and told of.

use crate::error::{Refused, Unsettled};
use crate::host::{Host, stopped};
use crate::pending::{Pending, pending};
use crate::queue::Turn;
use crate::shared::Shared;
use crate::slot::lock;
use crate::turn::{Building, Built, Handed, take_turn, take_urgent_turn};
use crate::types::NewAccount;
use bytes::Bytes;
use highwater_pds::account::StoredKey;
use highwater_pds::lifecycle::{self, Change, Turned};
use highwater_pds::names::{NameError, Names, is_taken};
use highwater_pds::{Account, AccountId, Asker, Draft, Fact, Signer, boot, credentials, turn};
use highwater_repo::Tree;
use highwater_repo::key::{Curve, SigningKey};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Draws of a key before something must be wrong: one in 2^128 is none.
const KEY_DRAWS_MAX: usize = 4;

type Answered<T> = Pending<Result<T, Refused>>;

impl From<highwater_pds::Refused> for Refused {
    fn from(refused: highwater_pds::Refused) -> Self {
        Self::Turn(refused)
    }
}

/// An account that is to be made and cannot have the handle that was asked for.
enum NotGiven {
    Refused(Refused),
    /// An account has the handle that is on its way itself: whether it is taken shows when that came to its end.
    TakenBy(Arc<AtomicBool>, Refused),
}

impl From<Refused> for NotGiven {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl Host {
    /// Makes an account.
    pub fn create_account(&self, new: NewAccount) -> Answered<AccountId> {
        self.create(&new).unwrap_or_else(|refused| Pending::ready(Err(refused)))
    }

    fn create(&self, new: &NewAccount) -> Result<Answered<AccountId>, Refused> {
        let shared = &self.shared;
        let key = self.draw_key(new.curve)?;
        let (sealed, secret) = shared.seal(&key.secret());
        let stored = StoredKey { curve: new.curve, public: key.public().multibase(), sealed, secret };
        // One at a time until the turn is handed over: two who ask for one handle do not both get it, and the second one's answer
        // stands behind the turn of the first.
        let _naming = lock(&shared.naming_turn);
        let (id, named) = match self.take_names(new) {
            Ok(given) => given,
            Err(NotGiven::Refused(refused)) => return Err(refused),
            Err(NotGiven::TakenBy(other, refused)) => return self.refuse_behind(other, refused),
        };
        let at = shared.now();
        let mut row = Account::new((id, named.names.did.clone(), named.names.handle.clone()), stored, at);
        if let Some(hash) = &new.password_hash {
            row.credentials.apply(&credentials::Change::Password(hash.clone()));
        }
        let signer = Signer { key: &key, clock_id: shared.clock_id, rev_min: shared.state().rev_min() };
        let activate = new.activate.then_some(shared.options.announce);
        let (answer, waiting) = pending(stopped);
        let Turned { draft, fallback } = lifecycle::create(row, activate, &signer, at)?;
        let chain = Some(Arc::clone(&named.refused));
        let done = Box::new(move |result: Result<(), Unsettled>| {
            drop(named);
            answer.send(result.map(|()| id).map_err(Refused::from));
        });
        // No turn of the account can be built before this one is durable, because nobody finds its row.
        shared.queue.push(Turn { slot: None, chain, draft, fallback, urgent: false, tree: None, done })?;
        Ok(waiting)
    }

    /// Refuses once a turn that is on its way is durable; if that one is refused, there was no reason to.
    fn refuse_behind(&self, other: Arc<AtomicBool>, refused: Refused) -> Result<Answered<AccountId>, Refused> {
        let (answer, waiting) = pending(stopped);
        let done = Box::new(move |result: Result<(), Unsettled>| {
            answer.send(Err(result.map_or_else(Refused::from, |()| refused)));
        });
        let (chain, draft) = (Some(other), Draft::new(self.now()));
        let turn = Turn { slot: None, chain, draft, fallback: None, urgent: false, tree: None, done };
        self.shared.queue.push(turn)?;
        Ok(waiting)
    }

    fn draw_key(&self, curve: Curve) -> Result<SigningKey, Refused> {
        let draw = || {
            let mut secret = [0; 32];
            let mut random = lock(&self.shared.random);
            secret.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&random.next_u64().to_le_bytes()));
            SigningKey::from_secret(curve, &secret).ok()
        };
        let key = (0..KEY_DRAWS_MAX).find_map(|_| draw());
        key.ok_or_else(|| Refused::Undrawn("no key could be drawn: the system's entropy is not to be trusted".into()))
    }

    /// A number and names that nobody had, and that nobody else gets while the account is on its way.
    fn take_names(&self, new: &NewAccount) -> Result<(AccountId, NamesOnTheirWay), NotGiven> {
        let shared = &self.shared;
        let (state, mut naming) = (shared.state(), lock(&shared.naming));
        let on_its_way = RefCell::new(None);
        let taken = |name: &str| {
            let other = naming.taken.get(name).cloned();
            is_taken(&state, name)
                || other.inspect(|other| *on_its_way.borrow_mut() = Some(Arc::clone(other))).is_some()
        };
        let handle = new.handle.as_ref().map(|handle| handle.as_str());
        let names = shared.zone.give(handle, taken, || shared.random_u64()).map_err(|error| match error {
            NameError::Taken(handle) => match on_its_way.take() {
                Some(other) => NotGiven::TakenBy(other, Refused::Taken(handle)),
                None => Refused::Taken(handle).into(),
            },
            NameError::Exhausted => Refused::Undrawn(error.to_string()).into(),
            other => Refused::Invalid(other.to_string()).into(),
        })?;
        let id = state.next_account().0.max(naming.next);
        if id > AccountId::MAX {
            return Err(Refused::Undrawn("the numbers of accounts are used up: no account can be made".into()).into());
        }
        naming.next = id + 1;
        let refused = Arc::<AtomicBool>::default();
        for name in [names.did.to_string(), names.handle.to_string()] {
            naming.taken.insert(name, Arc::clone(&refused));
        }
        Ok((AccountId(id), NamesOnTheirWay { shared: Arc::clone(shared), names, refused }))
    }

    /// Locks, lifts, erases and the like. `false` if it is so already and relays know.
    pub fn change(&self, asker: impl Into<Asker>, change: Change) -> Answered<bool> {
        // Whatever its owner or the operator gives back can wait for space: it must not use up what locks need.
        let urgent = matches!(change, Change::Lock | Change::TakeDown | Change::Erase | Change::Decommission);
        let build = move |building: &mut Building<'_>| build_change(building, change, urgent);
        let (asker, absent) = (asker.into(), Refused::NoAccount);
        match urgent {
            true => take_urgent_turn(&self.shared, &asker, absent, build),
            false => take_turn(&self.shared, &asker, absent, build),
        }
    }

    /// Has a fact of an account become durable: of its credentials or its blobs.
    pub fn fact(&self, asker: impl Into<Asker>, fact: Fact) -> Answered<()> {
        self.facts(asker, vec![fact])
    }

    /// Has several facts of an account become durable together.
    pub fn facts(&self, asker: impl Into<Asker>, facts: Vec<Fact>) -> Answered<()> {
        let asker = asker.into();
        let of_account =
            |fact: &Fact| matches!(fact, Fact::Credentials(id, _) | Fact::Blob(id, _) if *id == asker.account);
        if !facts.iter().all(of_account) {
            return Pending::ready(Err(Refused::Invalid(
                "only credentials and blobs of the account are facts of it".into(),
            )));
        }
        take_turn(&self.shared, &asker, Refused::NoAccount, |building| {
            let row = building.row();
            if row.standing.erased {
                return Err(highwater_pds::Refused::Erased.into());
            }
            facts.iter().try_for_each(|fact| fact.judge(row))?;
            let draft = facts.into_iter().fold(Draft::new(building.at), Draft::fact);
            Ok(Built { draft, handed: Handed::default(), answer: () })
        })
    }

    /// Tells relays of an active account once more: `#account` and `#sync` over its newest commit. Nothing is signed.
    pub fn resync(&self, account: AccountId) -> Answered<()> {
        take_turn(&self.shared, &account.into(), Refused::NoAccount, |building| {
            turn::may_write(building.row())?;
            let head = building.row().head.ok_or(highwater_pds::Refused::NotActivated)?;
            let block = building.blocks()?.get(&head.commit)?;
            let draft = boot::resync(building.row(), &block, building.at)?;
            Ok(Built { draft, handed: Handed::default(), answer: () })
        })
    }
}

fn build_change(building: &mut Building<'_>, change: Change, urgent: bool) -> Result<Built<bool>, Refused> {
    let key = building.key()?;
    let row = building.row();
    let turned = lifecycle::decide(row, change, &building.signer(key), building.at)?;
    let Some(Turned { draft, fallback }) = turned else { return Ok(Built::nothing(building, false)) };
    let begins = row.head.is_none();
    let tree = begins.then(|| {
        let mut tree = Tree::new();
        tree.seal();
        tree
    });
    // A fresh commit is looked for by the next turn, if that must tell of it.
    let blocks = commit_blocks(&draft);
    Ok(Built { draft, handed: Handed { fallback, urgent, tree, blocks }, answer: true })
}

/// Blocks of commits that a draft stores by themselves.
fn commit_blocks(draft: &Draft) -> std::collections::BTreeMap<highwater_repo::Cid, Bytes> {
    let mut blocks = std::collections::BTreeMap::new();
    for part in &draft.parts {
        if let highwater_pds::Part::Alone { sections, .. } = part {
            for (cid, range) in highwater_repo::car::Sections::new(sections).flatten() {
                blocks.insert(cid, sections.slice(range));
            }
        }
    }
    blocks
}

/// Names of an account that is on its way, free again once it is there or refused.
struct NamesOnTheirWay {
    shared: Arc<Shared>,
    names: Names,
    /// Set once it was refused.
    refused: Arc<AtomicBool>,
}

impl Drop for NamesOnTheirWay {
    fn drop(&mut self) {
        let mut naming = lock(&self.shared.naming);
        naming.taken.remove(self.names.did.as_str());
        naming.taken.remove(self.names.handle.as_str());
    }
}

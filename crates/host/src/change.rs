//! Accounts: made, changed, and told of.

use crate::error::{ReadError, Refused, Unsettled};
use crate::host::{Host, stopped};
use crate::pending::{Pending, pending};
use crate::queue::Turn;
use crate::shared::Shared;
use crate::slot::lock;
use crate::turn::{Building, Handed, reserve};
use crate::types::NewAccount;
use bytes::Bytes;
use highwater_pds::account::StoredKey;
use highwater_pds::lifecycle::{self, Change, Turned};
use highwater_pds::names::{NameError, Names, is_taken};
use highwater_pds::{Account, AccountId, Draft, Fact, Signer, boot, credentials};
use highwater_repo::Tree;
use highwater_repo::key::{Curve, SigningKey};
use std::sync::Arc;

/// Draws of a key before something must be wrong: one in 2^128 is none.
const KEY_DRAWS_MAX: usize = 4;

type Answered<T> = Pending<Result<T, Refused>>;

impl From<highwater_pds::Refused> for Refused {
    fn from(refused: highwater_pds::Refused) -> Self {
        Self::Turn(refused)
    }
}

impl From<ReadError> for Refused {
    fn from(error: ReadError) -> Self {
        Self::Invalid(error.to_string())
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
        let (id, names) = self.take_names(new)?;
        let at = shared.now();
        let mut row = Account::new((id, names.did.clone(), names.handle.clone()), stored, at);
        if let Some(hash) = &new.password_hash {
            row.credentials.apply(&credentials::Change::Password(hash.clone()));
        }
        let signer = Signer { key: &key, clock_id: shared.clock_id, rev_min: shared.state().rev_min() };
        let activate = new.activate.then_some(shared.options.announce);
        let (answer, waiting) = pending(stopped);
        let named = NamesOnTheirWay { shared: Arc::clone(shared), names };
        let done = Box::new(move |result: Result<(), Unsettled>| {
            drop(named);
            answer.send(result.map(|()| id).map_err(Refused::from));
        });
        let Turned { draft, fallback } = lifecycle::create(row, activate, &signer, at)?;
        // No turn of the account can be built before this one is durable, because nobody finds its row.
        shared.queue.push(Turn { slot: None, chain: None, draft, fallback, urgent: false, tree: None, done })?;
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
        key.ok_or_else(|| Refused::Invalid("no key could be drawn: the system's entropy is not to be trusted".into()))
    }

    /// Names that nobody had, and that nobody else gets while the account is on its way.
    fn take_names(&self, new: &NewAccount) -> Result<(AccountId, Names), Refused> {
        let shared = &self.shared;
        // One at a time, so that two who ask for one handle do not both get it.
        let _naming = lock(&shared.naming_turn);
        let state = shared.state();
        let taken = |name: &str| is_taken(&state, name) || lock(&shared.naming).taken.contains(name);
        let handle = new.handle.as_ref().map(|handle| handle.as_str());
        let names = shared.zone.give(handle, taken, || shared.random_u64()).map_err(|error| match error {
            NameError::Taken(handle) => Refused::Taken(handle),
            other => Refused::Invalid(other.to_string()),
        })?;
        drop(state);
        Ok((reserve(shared, &names), names))
    }

    /// Locks, lifts, erases and the like. `false` if it is so already and relays know.
    pub fn change(&self, account: AccountId, change: Change) -> Answered<bool> {
        self.turn(account, |building| {
            let key = building.key()?;
            let row = building.row();
            let turned = lifecycle::decide(row, change, &building.signer(key), building.at)?;
            let Some(Turned { draft, fallback }) = turned else { return Ok(None) };
            let begins = row.head.is_none();
            let tree = begins.then(|| {
                let mut tree = Tree::new();
                tree.seal();
                tree
            });
            // A fresh commit is looked for by the next turn, if that must tell of it.
            let blocks = commit_blocks(&draft);
            // Whatever its owner or the operator gives back can wait for space: it must not use up what locks need.
            let urgent = matches!(change, Change::Lock | Change::TakeDown | Change::Erase | Change::Decommission);
            Ok(Some((draft, Handed { fallback, urgent, tree, blocks })))
        })
    }

    /// Has a fact of an account become durable: of its credentials or its blobs.
    pub fn fact(&self, account: AccountId, fact: Fact) -> Answered<()> {
        self.facts(account, vec![fact])
    }

    /// Has several facts of an account become durable together.
    pub fn facts(&self, account: AccountId, facts: Vec<Fact>) -> Answered<()> {
        let foreign = |fact: &Fact| !matches!(fact, Fact::Credentials(id, _) | Fact::Blob(id, _) if *id == account);
        if facts.iter().any(foreign) {
            return Pending::ready(Err(Refused::Invalid(
                "only credentials and blobs of the account are facts of it".into(),
            )));
        }
        self.turn_answered(account, (), |building| {
            if building.row().standing.erased {
                return Err(highwater_pds::Refused::Erased.into());
            }
            let draft = facts.iter().cloned().fold(Draft::new(building.at), Draft::fact);
            Ok(Some((draft, Handed::default())))
        })
    }

    /// Tells relays of an active account once more: `#account` and `#sync` over its newest commit. Nothing is signed.
    pub fn resync(&self, account: AccountId) -> Answered<()> {
        self.turn_answered(account, (), |building| {
            let head = building.row().head.ok_or(highwater_pds::Refused::NotActivated)?;
            let block = building.blocks()?.get(&head.commit)?;
            Ok(Some((boot::resync(building.row(), &block, building.at)?, Handed::default())))
        })
    }

    fn turn(
        &self,
        account: AccountId,
        build: impl FnOnce(&Building<'_>) -> Result<Option<(Draft, Handed)>, Refused>,
    ) -> Answered<bool> {
        let slot = self.shared.slots.get(account);
        let Some(building) = Building::begin(&self.shared, &slot) else {
            return Pending::ready(Err(Refused::NoAccount));
        };
        let (answer, waiting) = pending(stopped);
        let (draft, handed, changed) = match build(&building) {
            Err(refused) => return Pending::ready(Err(refused)),
            Ok(Some((draft, handed))) => (draft, handed, true),
            Ok(None) if !building.is_ahead() => return Pending::ready(Ok(false)),
            // What this was judged by has to be durable before it is answered.
            Ok(None) => (Draft::new(building.at), Handed::default(), false),
        };
        let done = Box::new(move |result: Result<(), Unsettled>| {
            answer.send(result.map(|()| changed).map_err(Refused::from));
        });
        match building.hand_over(draft, handed, done) {
            Ok(()) => waiting,
            Err(why) => Pending::ready(Err(why.into())),
        }
    }

    fn turn_answered(
        &self,
        account: AccountId,
        value: (),
        build: impl FnOnce(&Building<'_>) -> Result<Option<(Draft, Handed)>, Refused>,
    ) -> Answered<()> {
        let slot = self.shared.slots.get(account);
        let Some(building) = Building::begin(&self.shared, &slot) else {
            return Pending::ready(Err(Refused::NoAccount));
        };
        let (answer, waiting) = pending(stopped);
        let built = match build(&building) {
            Err(refused) => return Pending::ready(Err(refused)),
            Ok(built) => built.unwrap_or_else(|| (Draft::new(building.at), Handed::default())),
        };
        let done = Box::new(move |result: Result<(), Unsettled>| {
            answer.send(result.map(|()| value).map_err(Refused::from));
        });
        match building.hand_over(built.0, built.1, done) {
            Ok(()) => waiting,
            Err(why) => Pending::ready(Err(why.into())),
        }
    }
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
}

impl Drop for NamesOnTheirWay {
    fn drop(&mut self) {
        let mut naming = lock(&self.shared.naming);
        naming.taken.remove(self.names.did.as_str());
        naming.taken.remove(self.names.handle.as_str());
    }
}

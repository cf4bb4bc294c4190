//! Building a turn of an account, and handing it over.

use crate::blocks::{AccountBlocks, tree};
use crate::error::{ReadError, Unsettled};
use crate::host::stopped;
use crate::pending::{Answer, Pending, pending};
use crate::queue::{Done, Turn};
use crate::shared::Shared;
use crate::slot::{Ahead, Slot, Withheld, Working, lock};
use bytes::Bytes;
use highwater_base::planted::{Bug, active};
use highwater_pds::{Account, Asker, Draft, Micros, Part, Signer, Withdrawn, blob};
use highwater_repo::key::SigningKey;
use highwater_repo::{Cid, Tid, Tree};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

/// The turn of an account: while it lives, nobody else hands over anything of this account.
pub(crate) struct Building<'a> {
    shared: &'a Arc<Shared>,
    slot: &'a Arc<Slot>,
    working: MutexGuard<'a, Working>,
    /// When it is made.
    pub at: Micros,
    rev_min: Option<Tid>,
}

/// What a turn hands over beside its draft.
#[derive(Default)]
pub(crate) struct Handed {
    pub fallback: Option<Draft>,
    pub urgent: bool,
    pub tree: Option<Tree>,
    /// Blocks that the next turn may need before this one is durable.
    pub blocks: BTreeMap<Cid, Bytes>,
}

/// What a turn comes to: what it hands over, and what is answered once that is durable.
pub(crate) struct Built<T> {
    /// Without parts nothing changes.
    pub draft: Draft,
    pub handed: Handed,
    pub answer: T,
}

impl<T> Built<T> {
    /// Nothing changes.
    pub fn nothing(building: &Building<'_>, answer: T) -> Self {
        Self { draft: Draft::new(building.at), handed: Handed::default(), answer }
    }
}

/// Waits for an account's turn, has it built, and answers it.
///
/// What let the request in is judged first, by the row that the turn builds on. And an answer waits until everything is durable that
/// it rests on, also if nothing changes and if it is a refusal: else somebody acts on what a power cut undoes.
pub(crate) fn take_turn<T, E>(
    shared: &Arc<Shared>,
    asker: &Asker,
    absent: E,
    build: impl FnOnce(&mut Building<'_>) -> Result<Built<T>, E>,
) -> Pending<Result<T, E>>
where
    T: Send + 'static,
    E: From<Unsettled> + From<Withdrawn> + Send + 'static,
{
    let (say, waiting) = pending(stopped);
    let slot = shared.slots.get(asker.account);
    match Building::begin(shared, &slot) {
        None => say.send(Err(absent)),
        // It would be built on what is refused, and what takes something away from the account on it in turn.
        Some(_) if slot.is_withheld() => say.send(Err(Unsettled::Overtaken.into())),
        Some(mut building) => {
            let built = building.judge(asker, build);
            building.answer(built, Box::new(move |answer| say.send(answer)));
        }
    }
    waiting
}

/// The same for what takes something away from the account, so that it bites whatever is refused: a turn that was built on a refused
/// one is built anew, by the writer who refused it, and meanwhile nobody else has a turn of the account.
pub(crate) fn take_urgent_turn<T, E>(
    shared: &Arc<Shared>,
    asker: &Asker,
    absent: E,
    build: impl Fn(&mut Building<'_>) -> Result<Built<T>, E> + Send + 'static,
) -> Pending<Result<T, E>>
where
    T: Send + 'static,
    E: From<Unsettled> + From<Withdrawn> + PartialEq + Send + 'static,
{
    let (say, waiting) = pending(stopped);
    let slot = shared.slots.get(asker.account);
    if Building::begin(shared, &slot).is_none() {
        return Pending::ready(Err(absent));
    }
    Urgent { shared: Arc::clone(shared), slot, asker: asker.clone(), build, say, withheld: None }.take();
    waiting
}

/// What takes something away from an account, on its way.
struct Urgent<B, T> {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    asker: Asker,
    build: B,
    say: Answer<T>,
    /// Held from the first time on that it was built in vain.
    withheld: Option<Withheld>,
}

impl<B, T, E> Urgent<B, Result<T, E>>
where
    B: Fn(&mut Building<'_>) -> Result<Built<T>, E> + Send + 'static,
    T: Send + 'static,
    E: From<Unsettled> + From<Withdrawn> + PartialEq + Send + 'static,
{
    fn take(self) {
        let (shared, slot) = (Arc::clone(&self.shared), Arc::clone(&self.slot));
        let Some(mut building) = Building::begin(&shared, &slot) else { return };
        let built = building.judge(&self.asker, &self.build);
        building.answer(
            built,
            Box::new(move |answer| match answer {
                Err(why) if why == E::from(Unsettled::Overtaken) => {
                    let withheld = self.withheld.or_else(|| Some(Withheld::of(&self.slot)));
                    Self { withheld, ..self }.take();
                }
                answer => {
                    drop(self.withheld);
                    self.say.send(answer);
                }
            }),
        );
    }
}

/// The row of an account as its turns left it that were handed over; `None` if there is no such account.
pub(crate) fn row_now(shared: &Shared, slot: &Slot, working: &Working) -> Option<Account> {
    let generation = slot.generation.load(Ordering::Acquire);
    match &working.ahead {
        Some(ahead) if working.generation == generation && !slot.is_settled() => Some(ahead.row.clone()),
        _ => shared.state().accounts.get(&slot.id).cloned(),
    }
}

impl<'a> Building<'a> {
    /// Waits for the account's turn. `None` if there is no such account.
    pub fn begin(shared: &'a Arc<Shared>, slot: &'a Arc<Slot>) -> Option<Self> {
        let mut working = lock(&slot.working);
        // In this order: what was handed over in an older generation is refused, or durable.
        let generation = slot.generation.load(Ordering::Acquire);
        let settled = slot.settled.load(Ordering::Acquire);
        let fresh = working.ahead.is_none() || working.generation != generation || slot.is_settled();
        let at = shared.now();
        let state = shared.state();
        let rev_min = state.rev_min();
        if fresh {
            let row = state.accounts.get(&slot.id)?.clone();
            working.ahead = Some(Ahead { row, tree: None, blocks: VecDeque::new(), blobs: VecDeque::new() });
            working.generation = generation;
        } else if let Some(ahead) = &mut working.ahead {
            ahead.settle(settled);
        }
        drop(state);
        Some(Self { shared, slot, working, at, rev_min })
    }

    fn ahead(&self) -> &Ahead {
        self.working.ahead.as_ref().expect("a turn that began has it")
    }

    fn ahead_mut(&mut self) -> &mut Ahead {
        self.working.ahead.as_mut().expect("a turn that began has it")
    }

    /// The row that this turn builds on.
    pub fn row(&self) -> &Account {
        &self.ahead().row
    }

    /// Whether something of the account that this turn builds on may not be durable yet.
    pub fn is_ahead(&self) -> bool {
        !self.slot.is_settled()
    }

    /// Blocks that this turn builds on.
    pub fn blocks(&self) -> Result<AccountBlocks<'_>, ReadError> {
        let extent = self.shared.state().accounts.get(&self.slot.id).map(|account| account.blocks);
        let blocks = AccountBlocks::open(self.shared, self.slot, extent.unwrap_or_default())?;
        Ok(blocks.with(self.ahead()))
    }

    /// The tree that this turn builds on.
    pub fn tree(&mut self) -> Result<Tree, ReadError> {
        if let Some(tree) = &self.ahead().tree {
            return Ok(tree.clone());
        }
        let tree = match self.row().head {
            None => Tree::new(),
            // What is not durable yet is found among the blocks that were handed over.
            Some(head) if self.is_ahead() => {
                let blocks = self.blocks()?;
                Tree::open(head.data, &blocks).map_err(|error| blocks.explain(error))?
            }
            Some(_) => tree(self.shared, self.slot, self.row())?,
        };
        self.ahead_mut().tree = Some(tree.clone());
        Ok(tree)
    }

    /// The account's blobs that this turn builds on.
    pub fn blobs(&self) -> blob::Blobs {
        let mut blobs = self.shared.state().blobs.get(&self.slot.id).cloned().unwrap_or_default();
        // Some of them may be durable; doing them again, in order, changes nothing.
        let changes = self.ahead().blobs.iter().flat_map(|(_, changes)| changes);
        changes.for_each(|change| blobs.apply(change));
        blobs
    }

    /// Whether the account has blobs at all.
    pub fn has_blobs(&self) -> bool {
        self.shared.state().blobs.get(&self.slot.id).is_some_and(|blobs| !blobs.0.is_empty())
            || !self.ahead().blobs.is_empty()
    }

    /// The account's key.
    pub fn key(&self) -> Result<&'a SigningKey, ReadError> {
        key(self.shared, self.slot, self.row())
    }

    /// What signs and numbers its commits.
    pub fn signer<'k>(&self, key: &'k SigningKey) -> Signer<'k> {
        Signer { key, clock_id: self.shared.clock_id, rev_min: self.rev_min }
    }

    /// The block of its newest commit, if whoever sends the next frame needs that.
    pub fn head_block(&self) -> Result<Option<Bytes>, ReadError> {
        self.row().head_untold().map(|cid| self.blocks()?.get(&cid)).transpose()
    }

    fn judge<T, E: From<Withdrawn>>(
        &mut self,
        asker: &Asker,
        build: impl FnOnce(&mut Self) -> Result<Built<T>, E>,
    ) -> Result<Built<T>, E> {
        asker.authority.judge(self.row())?;
        build(self)
    }

    /// Hands over what was built; `tell` hears the answer once everything is durable that it rests on.
    fn answer<T, E>(self, built: Result<Built<T>, E>, tell: Box<dyn FnOnce(Result<T, E>) + Send>)
    where
        T: Send + 'static,
        E: From<Unsettled> + Send + 'static,
    {
        let (draft, handed, answer) = match built {
            Ok(Built { draft, handed, answer }) => (draft, handed, Ok(answer)),
            Err(refused) => (Draft::new(self.at), Handed::default(), Err(refused)),
        };
        if draft.parts.is_empty() && (!self.is_ahead() || active(Bug::AnswerEarly)) {
            drop(self);
            return tell(answer);
        }
        let done = Box::new(move |settled: Result<(), Unsettled>| tell(settled.map_err(E::from).and(answer)));
        self.hand_over(draft, handed, done);
    }

    /// Hands the turn over; `done` hears what became of it.
    fn hand_over(mut self, draft: Draft, handed: Handed, done: Done) {
        let Handed { fallback, urgent, mut tree, blocks } = handed;
        if let Some(tree) = &mut tree {
            tree.keep_layers(crate::slot::TREE_LAYERS);
        }
        let changes: Vec<_> = draft.parts.iter().filter_map(blob_change).collect();
        let generation = self.working.generation;
        let number = self.slot.queued.load(Ordering::Relaxed) + 1;
        let mut row = self.row().clone();
        row.advance(&draft);
        let turn = Turn {
            slot: Some((Arc::clone(self.slot), generation)),
            chain: None,
            draft,
            fallback,
            urgent,
            tree: tree.clone(),
            done,
        };
        // Before it is handed over: it may come to its end at once.
        self.slot.queued.store(number, Ordering::Release);
        if let Err(refused) = self.shared.queue.offer(turn) {
            self.slot.queued.store(number - 1, Ordering::Release);
            drop(self);
            let (turn, why) = *refused;
            return (turn.done)(Err(why));
        }
        let ahead = self.ahead_mut();
        ahead.row = row;
        ahead.tree = tree.or_else(|| ahead.tree.take());
        if !blocks.is_empty() {
            ahead.blocks.push_back((number, blocks));
        }
        if !changes.is_empty() {
            ahead.blobs.push_back((number, changes));
        }
    }
}

fn blob_change(part: &Part) -> Option<blob::Change> {
    match part {
        Part::Fact(highwater_pds::Fact::Blob(_, change)) => Some(change.clone()),
        _ => None,
    }
}

/// The key of an account.
pub(crate) fn key<'a>(shared: &Shared, slot: &'a Slot, row: &Account) -> Result<&'a SigningKey, ReadError> {
    if let Some(key) = slot.key.get() {
        return Ok(key);
    }
    let damaged = |what: &str| ReadError::Damaged(format!("the key of {}: {what}", row.did));
    let secret = shared.unseal(row.key.sealed, &row.key.secret).ok_or_else(|| damaged("it cannot be decrypted"))?;
    let secret: [u8; 32] = secret.try_into().map_err(|_| damaged("it has not 32 bytes"))?;
    let key = SigningKey::from_secret(row.key.curve, &secret).map_err(|error| damaged(&error.to_string()))?;
    Ok(slot.key.get_or_init(|| key))
}

/// Hands over a draft that belongs to no account's row.
pub(crate) fn hand_over_alone(shared: &Shared, draft: Draft, done: Done) -> Result<(), Unsettled> {
    shared.queue.push(Turn { slot: None, chain: None, draft, fallback: None, urgent: false, tree: None, done })
}

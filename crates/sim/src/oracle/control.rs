//! What is known of keys, accounts and plans: every field that was ever published, and the orders that would change it.

use crate::invariants::{Checked, Invariant, hold, violated};
use highwater_base::Millis;
use highwater_control::{Change, KeyId, Operation, PlanChanges, View};
use highwater_node::{ControlAnswer, Unavailable};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A change of the control plane that somebody sent, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderId(pub usize);

/// One field of one thing: which thing, and which of its fields.
type Field = (String, &'static str);

const REVOKED: &str = "revoked";
const BARRED: &str = "barred";
/// No field: the thing is not there.
const GONE: &str = "gone";

#[derive(Debug, Clone)]
struct Order {
    /// Whether it may find what it would make.
    creates: bool,
    effects: Vec<(Field, String)>,
    undecided: bool,
    /// It was answered since the view was looked at last.
    fresh: bool,
    life: u64,
}

/// The oracle of the control plane.
#[derive(Debug, Clone, Default)]
pub struct Control {
    orders: Vec<Order>,
    fields: BTreeMap<Field, String>,
    keys: Vec<KeyId>,
    seen: Option<Arc<View>>,
    life: u64,
    /// The first look of this life is still to come.
    anew: bool,
}

impl Control {
    /// Adds an order that may be sent.
    pub fn add(&mut self, operation: &Operation) -> OrderId {
        let (undecided, fresh, life) = (false, false, 0);
        let creates = matches!(operation, Operation::CreateAccount(_));
        self.orders.push(Order { creates, effects: effects(operation), undecided, fresh, life });
        OrderId(self.orders.len() - 1)
    }

    /// Keys that were published.
    #[must_use]
    pub fn keys(&self) -> &[KeyId] {
        &self.keys
    }

    /// An order reached the server.
    pub fn arrived(&mut self, order: OrderId) {
        let life = self.life;
        let order = &mut self.orders[order.0];
        (order.undecided, order.life) = (true, life);
    }

    /// The server answered it; [`Control::acknowledged`] follows once the view was looked at.
    pub fn answered(&mut self, order: OrderId, answer: &Result<ControlAnswer, Unavailable>) {
        let decided = !matches!(answer, Err(Unavailable::OutcomeUnknown { .. } | Unavailable::Internal(_)));
        let done = matches!(answer, Ok(ControlAnswer { result: Ok(_), .. }));
        let order = &mut self.orders[order.0];
        (order.undecided, order.fresh) = (order.undecided && !decided, done);
    }

    /// Holds a success against the view as it is published.
    /// # Errors
    /// `AcknowledgedIsThere`, `RevokedStaysRevoked`.
    pub fn acknowledged(&self, order: OrderId) -> Checked {
        let Order { creates, effects, .. } = &self.orders[order.0];
        // An account that was there already may be barred.
        for (field, value) in effects.iter().filter(|(field, _)| !creates || field.1 != BARRED) {
            if field.1 == GONE {
                let there = self.fields.keys().any(|(thing, _)| *thing == field.0);
                let again = self.open().any(|((thing, changed), _)| *thing == field.0 && *changed != GONE);
                hold(Invariant::AcknowledgedIsThere, !there || again, || format!("{} is not gone", field.0))?;
                continue;
            }
            let published = self.fields.get(field);
            let later = match published {
                Some(published) => self.explained(field, published),
                None => self.explained(&(field.0.clone(), GONE), ""),
            };
            hold(invariant(field), published == Some(value) || later, || {
                format!("{field:?} was acknowledged as {value} and is published as {published:?}")
            })?;
        }
        Ok(())
    }

    /// The server is down: what it had not answered is decided once it is up again.
    pub fn server_died(&mut self) {
        self.life += 1;
        (self.seen, self.anew) = (None, true);
    }

    /// The server became what it was when `earlier` was taken.
    pub fn rewind(&mut self, earlier: &Self) {
        let (life, orders) = (self.life, std::mem::take(&mut self.orders));
        *self = earlier.clone();
        let later = orders.into_iter().skip(earlier.orders.len());
        self.orders.extend(later.map(|order| Order { undecided: false, fresh: false, ..order }));
        self.life = life;
    }

    /// Holds what is published against what was, and learns what moved.
    /// # Errors
    /// `RevokedStaysRevoked`, `AcknowledgedIsThere` for what is gone, `NothingUnwritten` for what nobody ordered.
    pub fn look(&mut self, view: Option<&Arc<View>>, wall: Millis) -> Checked {
        let Some(view) = view else { return Ok(()) };
        if !self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, view)) {
            self.compare(view, wall)?;
            self.seen = Some(Arc::clone(view));
        }
        let (life, anew) = (self.life, std::mem::take(&mut self.anew));
        for order in &mut self.orders {
            order.fresh = false;
            order.undecided &= !anew || order.life == life;
        }
        Ok(())
    }

    fn compare(&mut self, view: &View, wall: Millis) -> Checked {
        let found = fields(view);
        let removed = |field: &Field| self.explained(&(field.0.clone(), GONE), "");
        let mut missing = self.fields.iter().filter(|(field, _)| !found.contains_key(*field));
        if let Some((field, value)) = missing.find(|(field, _)| !removed(field)) {
            return violated(invariant(field), format!("{field:?} was {value} and is gone"));
        }
        for (field, value) in &found {
            let before = self.fields.get(field);
            if before != Some(value) && !self.explained(field, value) {
                let broken = if before.is_none() { Invariant::NothingUnwritten } else { invariant(field) };
                return violated(broken, format!("{field:?} was {before:?} and is {value}, which nobody ordered"));
            }
        }
        for key in view.keys().filter(|key| key.revoked.is_some()) {
            hold(Invariant::RevokedStaysRevoked, view.recheck(key.id, wall).is_err(), || {
                format!("the key {} is revoked and taken", key.id)
            })?;
        }
        self.keys = view.keys().map(|key| key.id).collect();
        self.fields = found;
        Ok(())
    }

    fn explained(&self, field: &Field, value: &str) -> bool {
        self.open().any(|(changed, to)| changed == field && to == value)
    }

    /// What the orders would do that may have been done since the view was looked at.
    fn open(&self) -> impl Iterator<Item = &(Field, String)> {
        let open = self.orders.iter().filter(|order| order.undecided || order.fresh);
        open.flat_map(|order| &order.effects)
    }
}

fn invariant(field: &Field) -> Invariant {
    if field.1 == REVOKED { Invariant::RevokedStaysRevoked } else { Invariant::AcknowledgedIsThere }
}

fn key(id: KeyId) -> String {
    format!("key {id}")
}

fn account(name: &str) -> String {
    format!("account {name}")
}

fn plan(name: &str) -> String {
    format!("plan {name}")
}

/// The names of a plan's limits.
const LIMITS: [&str; 5] =
    ["storage bytes", "requests a second", "requests at once", "append bytes a second", "replicas"];

/// Everything that is published, field by field.
fn fields(view: &View) -> BTreeMap<Field, String> {
    let mut fields = BTreeMap::new();
    for known in view.keys() {
        let id = key(known.id);
        fields.insert((id.clone(), "rights"), format!("{:?} {:?} {:?}", known.secret, known.scopes, known.account));
        fields.insert((id.clone(), "expires"), format!("{:?}", known.expires));
        fields.insert((id, REVOKED), known.revoked.is_some().to_string());
    }
    for known in view.accounts() {
        let name = account(&known.name);
        fields.insert((name.clone(), "plan"), known.plan.clone());
        fields.insert((name.clone(), "buckets"), format!("{:?}", known.buckets));
        fields.insert((name, BARRED), known.revoked.is_some().to_string());
    }
    for known in view.plans() {
        let limits = known.limits;
        let all = [
            limits.storage_bytes_max,
            limits.requests_per_second,
            limits.requests_burst,
            limits.append_bytes_per_second,
            limits.replicas,
        ];
        fields.extend(LIMITS.into_iter().zip(all).map(|(l, value)| ((plan(&known.name), l), format!("{value:?}"))));
    }
    fields
}

/// What an order makes of which fields.
fn effects(operation: &Operation) -> Vec<(Field, String)> {
    match operation {
        Operation::CreateKey(create) => {
            let id = key(create.id);
            vec![
                ((id.clone(), "rights"), format!("{:?} {:?} {:?}", create.secret, create.scopes, create.account)),
                ((id.clone(), "expires"), format!("{:?}", create.expires)),
                ((id, REVOKED), false.to_string()),
            ]
        }
        Operation::RevokeKey { id, .. } => vec![((key(*id), REVOKED), true.to_string())],
        Operation::ExpireKey { id, expires } => vec![((key(*id), "expires"), format!("{expires:?}"))],
        Operation::CreateAccount(create) => {
            let name = account(&create.name);
            vec![
                ((name.clone(), "plan"), create.plan.clone()),
                ((name.clone(), "buckets"), format!("{:?}", create.buckets)),
                ((name, BARRED), false.to_string()),
            ]
        }
        Operation::PatchAccount(patch) => {
            let name = account(&patch.name);
            let plan = patch.plan.clone().map(|plan| ((name.clone(), "plan"), plan));
            let buckets = patch.buckets.as_ref().map(|buckets| ((name.clone(), "buckets"), format!("{buckets:?}")));
            let barred = patch.revoked.map(|barred| ((name.clone(), BARRED), barred.to_string()));
            plan.into_iter().chain(buckets).chain(barred).collect()
        }
        Operation::CreatePlan { name, limits, .. } => limited(name, limits, true),
        Operation::PatchPlan { name, limits } => limited(name, limits, false),
        Operation::DeleteAccount { name } => vec![((account(name), GONE), String::new())],
        Operation::DeletePlan { name } => vec![((plan(name), GONE), String::new())],
    }
}

fn limited(name: &str, changes: &PlanChanges, anew: bool) -> Vec<(Field, String)> {
    let PlanChanges { storage_bytes_max, requests_per_second, requests_burst, append_bytes_per_second, replicas } =
        *changes;
    let all = [storage_bytes_max, requests_per_second, requests_burst, append_bytes_per_second, replicas];
    let moved = LIMITS.into_iter().zip(all).filter(|(_, change)| anew || *change != Change::Keep);
    moved.map(|(limit, change)| ((plan(name), limit), format!("{:?}", change.apply(None)))).collect()
}

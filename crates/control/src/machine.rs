//! What each command does to the state.

use crate::command::{Command, CreateAccount, CreateKey, Operation, PatchAccount, PlanChanges};
use crate::credential::KeyId;
use crate::limits::{
    ACCOUNTS_MAX, BUCKETS_MAX, KEYS_MAX, NOTE_BYTES_MAX, PREFIXES_MAX, REQUEST_ID_BYTES_MAX, is_name, is_prefix,
    is_segment,
};
use crate::outcome::{Outcome, Refusal};
use crate::record::{Account, Key, Plan, PlanLimits, Record, account_object, key_object, plan_object};
use crate::scope::Scope;
use crate::view::View;
use bytes::Bytes;
use highwater_base::codec::DecodeError;
use highwater_base::planted::{Bug, active};
use highwater_base::{Digest, Millis};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names of what needs something that a refusal lists.
const NAMES_SHOWN: usize = 8;

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Its answer.
    pub result: Result<Outcome, Refusal>,
    /// Whether the state moved.
    pub changed: bool,
}

/// Every key, account and plan.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    view: Arc<View>,
    /// Keys by the id of the request that made them.
    requests: BTreeMap<String, KeyId>,
    /// Objects of accounts and plans.
    objects: BTreeSet<u64>,
    /// Records that were put, to tell whether a command moved something.
    moves: u64,
    /// Objects whose stored state is no longer the present one; absent ones are gone.
    changed: BTreeMap<u64, Option<Bytes>>,
}

impl Machine {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The machine whose records were stored as `objects`, each with its number.
    /// # Errors
    /// What the codec says of the first bad one; `Invalid` if two of them contradict each other.
    pub fn load(objects: Vec<(u64, Bytes)>) -> Result<Self, DecodeError> {
        let mut machine = Self::new();
        for (object, record) in objects {
            match Record::decode(object, record)? {
                Record::Key(key) => {
                    let request = key.request.clone().map(|request| (request, key.id));
                    let taken = machine.view().key(key.id).is_some();
                    if taken || request.is_some_and(|(request, id)| machine.requests.insert(request, id).is_some()) {
                        return Err(DecodeError::Invalid("key"));
                    }
                    machine.put_key(key);
                }
                Record::Account(account) => {
                    let taken = account.buckets.iter().any(|bucket| machine.view.owners.contains_key(bucket));
                    if taken || machine.view.account(&account.name).is_some() || !machine.objects.insert(object) {
                        return Err(DecodeError::Invalid("account"));
                    }
                    machine.put_account(account);
                }
                Record::Plan(plan) => {
                    if machine.view.plan(&plan.name).is_some() || !machine.objects.insert(object) {
                        return Err(DecodeError::Invalid("plan"));
                    }
                    machine.put_plan(plan);
                }
            }
        }
        machine.changed.clear();
        Ok(machine)
    }

    /// The state now, to be published.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    /// Applies one command, the only way in which the state moves. A refusal changes nothing.
    pub fn apply(&mut self, command: &Command) -> Applied {
        let before = self.moves;
        let result = match &command.operation {
            Operation::CreateKey(create) => self.create_key(create, command.at),
            Operation::RevokeKey { id, last } => self.revoke_key(*id, *last, command.at),
            Operation::ExpireKey { id, expires } => self.expire_key(*id, *expires, command.at),
            Operation::CreateAccount(create) => self.create_account(create, command.at),
            Operation::PatchAccount(patch) => self.patch_account(patch, command.at),
            Operation::CreatePlan { number, name, limits } => self.create_plan(*number, name, limits, command.at),
            Operation::PatchPlan { name, limits } => self.patch_plan(name, limits),
            Operation::DeleteAccount { name } => self.delete_account(name),
            Operation::DeletePlan { name } => self.delete_plan(name),
        };
        Applied { result, changed: self.moves != before }
    }

    fn create_key(&mut self, create: &CreateKey, at: Millis) -> Result<Outcome, Refusal> {
        check_key(create)?;
        if let Some(name) = &create.account
            && self.view.account(name).is_none()
        {
            return Err(Refusal::AccountNotFound(name.clone()));
        }
        if let Some(id) = create.request.as_ref().and_then(|request| self.requests.get(request))
            && let Some(key) = self.view.key(*id)
        {
            return if asks_for(create, key) {
                Ok(Outcome::KeyRepeated(Arc::clone(key)))
            } else {
                Err(Refusal::RequestReused)
            };
        }
        // The first key with an end that is over would close the server to everybody.
        if create.expires.is_some_and(|end| end <= at) {
            return Err(Refusal::Invalid("a new key's end lies ahead; times are milliseconds since 1970"));
        }
        if !create.scopes.contains(Scope::Admin) && !self.administered(at, None) {
            return Err(Refusal::AdminKeyFirst);
        }
        self.make_room_for_key()?;
        let mut id = create.id;
        while self.view.key(id).is_some() {
            id = id.following();
        }
        let key = Key {
            id,
            secret: create.secret,
            scopes: create.scopes,
            prefixes: create.prefixes.clone(),
            account: create.account.clone(),
            created: at,
            expires: create.expires,
            revoked: None,
            note: create.note.clone(),
            request: create.request.clone(),
        };
        if let Some(request) = &key.request {
            self.requests.insert(request.clone(), id);
        }
        Ok(Outcome::Key(self.put_key(key)))
    }

    /// Forgets the key that was revoked longest ago if there are as many as there may be.
    fn make_room_for_key(&mut self) -> Result<(), Refusal> {
        if self.view.keys.len() < KEYS_MAX {
            return Ok(());
        }
        let revoked = self.view.keys().filter_map(|key| key.revoked.map(|since| (since, key.id)));
        let (_, id) = revoked.min().ok_or(Refusal::Full("keys"))?;
        let view = Arc::make_mut(&mut self.view);
        if let Some(request) = view.keys.remove(&id).and_then(|key| key.request.clone()) {
            self.requests.remove(&request);
        }
        self.changed.insert(key_object(id), None);
        Ok(())
    }

    fn revoke_key(&mut self, id: KeyId, last: bool, at: Millis) -> Result<Outcome, Refusal> {
        let key = self.view.key(id).ok_or(Refusal::KeyNotFound)?;
        if key.revoked.is_some() {
            return Ok(Outcome::Key(Arc::clone(key)));
        }
        let (administers, only) = (key.scopes.contains(Scope::Admin), self.view.unrevoked == 1);
        if !last && (only || administers && !self.administered(at, Some(id))) {
            return Err(Refusal::AdminKeyLast);
        }
        let key = Key { revoked: Some(at), ..key.as_ref().clone() };
        Ok(Outcome::Key(self.put_key(key)))
    }

    fn expire_key(&mut self, id: KeyId, expires: Option<Millis>, at: Millis) -> Result<Outcome, Refusal> {
        let key = self.view.key(id).ok_or(Refusal::KeyNotFound)?;
        if key.revoked.is_some() {
            return Err(Refusal::KeyRevoked);
        }
        if key.expires == expires {
            return Ok(Outcome::Key(Arc::clone(key)));
        }
        // An end that is over is a revocation by another name.
        let ends = expires.is_some_and(|end| end <= at);
        if ends && key.scopes.contains(Scope::Admin) && !self.administered(at, Some(id)) {
            return Err(Refusal::AdminKeyLast);
        }
        let key = Key { expires, ..key.as_ref().clone() };
        Ok(Outcome::Key(self.put_key(key)))
    }

    /// Whether a key with the scope `admin`, other than `except`, is in force at `at`.
    fn administered(&self, at: Millis, except: Option<KeyId>) -> bool {
        let other = |key: &&Arc<Key>| Some(key.id) != except && key.scopes.contains(Scope::Admin);
        self.view.keys().filter(other).any(|key| key.is_active(at))
    }

    fn create_account(&mut self, create: &CreateAccount, at: Millis) -> Result<Outcome, Refusal> {
        let CreateAccount { number, name, plan, buckets } = create;
        check_name(name)?;
        let buckets = check_buckets(buckets)?;
        self.find_plan(plan)?;
        if let Some(account) = self.view.account(name) {
            if account.plan != *plan || account.buckets != buckets {
                return Err(Refusal::Exists(format!("the account {name}")));
            }
            return Ok(Outcome::Account { account: Arc::clone(account), created: false });
        }
        self.check_owners(name, &buckets)?;
        if self.view.accounts.len() >= ACCOUNTS_MAX {
            return Err(Refusal::Full("accounts"));
        }
        let object = self.new_object(*number, account_object);
        let account = Account { name: name.clone(), plan: plan.clone(), buckets, created: at, revoked: None, object };
        Ok(Outcome::Account { account: self.put_account(account), created: true })
    }

    fn patch_account(&mut self, patch: &PatchAccount, at: Millis) -> Result<Outcome, Refusal> {
        let PatchAccount { name, plan, buckets, revoked } = patch;
        let Some(before) = self.view.account(name) else { return Err(Refusal::AccountNotFound(name.clone())) };
        let mut account = before.as_ref().clone();
        if let Some(plan) = plan {
            self.find_plan(plan)?;
            account.plan.clone_from(plan);
        }
        if let Some(buckets) = buckets {
            account.buckets = check_buckets(buckets)?;
            self.check_owners(name, &account.buckets)?;
        }
        match revoked {
            Some(true) => account.revoked = account.revoked.or(Some(at)),
            Some(false) => account.revoked = None,
            None => {}
        }
        if account == **before {
            return Ok(Outcome::Account { account: Arc::clone(before), created: false });
        }
        Ok(Outcome::Account { account: self.put_account(account), created: false })
    }

    /// Buckets are taken off an account first: whoever removes it sees which streams will count for nobody.
    fn delete_account(&mut self, name: &str) -> Result<Outcome, Refusal> {
        let account = self.view.account(name).ok_or_else(|| Refusal::AccountNotFound(name.to_owned()))?;
        let what = || format!("the account {name}");
        if !account.buckets.is_empty() {
            let by = format!("it has the buckets {}; give it none first", some(&account.buckets));
            return Err(Refusal::InUse { what: what(), by });
        }
        let of_account = |key: &&Arc<Key>| key.revoked.is_none() && key.account.as_deref() == Some(name);
        let keys: Vec<String> = self.view.keys().filter(of_account).map(|key| key.id.to_string()).collect();
        if !keys.is_empty() {
            let by = format!("the keys {} are its own; revoke them first", some(&keys));
            return Err(Refusal::InUse { what: what(), by });
        }
        let account = Arc::clone(account);
        self.moves += 1;
        self.objects.remove(&account.object);
        self.changed.insert(account.object, None);
        Arc::make_mut(&mut self.view).accounts.remove(name);
        Ok(Outcome::AccountDeleted(account))
    }

    fn delete_plan(&mut self, name: &str) -> Result<Outcome, Refusal> {
        let plan = Arc::clone(self.find_plan(name)?);
        let on_plan = self.view.accounts().filter(|account| account.plan == name);
        let accounts: Vec<String> = on_plan.map(|account| account.name.clone()).collect();
        if !accounts.is_empty() {
            let by = format!("the accounts {} have it; give them another first", some(&accounts));
            return Err(Refusal::InUse { what: format!("the plan {name}"), by });
        }
        self.moves += 1;
        self.objects.remove(&plan.object);
        self.changed.insert(plan.object, None);
        Arc::make_mut(&mut self.view).plans.remove(name);
        Ok(Outcome::PlanDeleted(plan))
    }

    fn create_plan(&mut self, number: u64, name: &str, limits: &PlanChanges, at: Millis) -> Result<Outcome, Refusal> {
        check_name(name)?;
        let limits = changed(PlanLimits::default(), limits);
        if let Some(plan) = self.view.plan(name) {
            if plan.limits != limits {
                return Err(Refusal::Exists(format!("the plan {name}")));
            }
            return Ok(Outcome::Plan { plan: Arc::clone(plan), created: false });
        }
        if self.view.plans.len() >= ACCOUNTS_MAX {
            return Err(Refusal::Full("plans"));
        }
        let object = self.new_object(number, plan_object);
        let plan = Plan { name: name.to_owned(), limits, created: at, object };
        Ok(Outcome::Plan { plan: self.put_plan(plan), created: true })
    }

    fn patch_plan(&mut self, name: &str, limits: &PlanChanges) -> Result<Outcome, Refusal> {
        let before = self.find_plan(name)?;
        let limits = changed(before.limits, limits);
        if limits == before.limits {
            return Ok(Outcome::Plan { plan: Arc::clone(before), created: false });
        }
        let plan = Plan { limits, ..before.as_ref().clone() };
        Ok(Outcome::Plan { plan: self.put_plan(plan), created: false })
    }

    fn find_plan(&self, name: &str) -> Result<&Arc<Plan>, Refusal> {
        self.view.plan(name).ok_or_else(|| Refusal::PlanNotFound(name.to_owned()))
    }

    /// Refuses buckets that belong to another account than `name`.
    fn check_owners(&self, name: &str, buckets: &[String]) -> Result<(), Refusal> {
        let owner = |bucket: &String| self.view.owners.get(bucket).filter(|owner| owner.name != name);
        match buckets.iter().find_map(|bucket| owner(bucket).map(|owner| (bucket, owner))) {
            Some((bucket, owner)) => Err(Refusal::BucketTaken { bucket: bucket.clone(), account: owner.name.clone() }),
            None => Ok(()),
        }
    }

    /// The first object from the drawn number on that is not taken.
    fn new_object(&mut self, drawn: u64, object: fn(u64) -> u64) -> u64 {
        let mut number = drawn;
        while !self.objects.insert(object(number)) {
            number = number.wrapping_add(1);
        }
        object(number)
    }

    fn put_key(&mut self, key: Key) -> Arc<Key> {
        let (id, key) = (key.id, Arc::new(key));
        self.moves += 1;
        if key.revoked.is_none() || !active(Bug::ForgetRevocation) {
            self.changed.insert(key_object(id), Some(key.encode()));
        }
        let view = Arc::make_mut(&mut self.view);
        let before = view.keys.insert(id, Arc::clone(&key));
        view.unrevoked += usize::from(key.revoked.is_none());
        view.unrevoked -= usize::from(before.is_some_and(|before| before.revoked.is_none()));
        key
    }

    fn put_account(&mut self, account: Account) -> Arc<Account> {
        let account = Arc::new(account);
        self.moves += 1;
        self.changed.insert(account.object, Some(account.encode()));
        let view = Arc::make_mut(&mut self.view);
        let before = view.accounts.insert(account.name.clone(), Arc::clone(&account));
        for bucket in before.iter().flat_map(|before| &before.buckets) {
            view.owners.remove(bucket);
        }
        for bucket in &account.buckets {
            view.owners.insert(bucket.clone(), Arc::clone(&account));
        }
        account
    }

    fn put_plan(&mut self, plan: Plan) -> Arc<Plan> {
        let plan = Arc::new(plan);
        self.moves += 1;
        self.changed.insert(plan.object, Some(plan.encode()));
        Arc::make_mut(&mut self.view).plans.insert(plan.name.clone(), Arc::clone(&plan));
        plan
    }

    /// The state of the records that changed since the last call, with their objects; absent for one that is gone.
    pub fn take_changed(&mut self) -> Vec<(u64, Option<Bytes>)> {
        std::mem::take(&mut self.changed).into_iter().collect()
    }

    /// A digest of everything the machine knows; equal on nodes that applied the same commands.
    #[must_use]
    pub fn fingerprint(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        let keys = self.view.keys().map(|key| (key_object(key.id), key.encode()));
        let accounts = self.view.accounts().map(|account| (account.object, account.encode()));
        let plans = self.view.plans().map(|plan| (plan.object, plan.encode()));
        for (object, record) in keys.chain(accounts).chain(plans) {
            hasher.update(&object.to_le_bytes()).update(&(record.len() as u64).to_le_bytes()).update(&record);
        }
        Digest(*hasher.finalize().as_bytes())
    }
}

/// Whether a repeated request asks for the key that it made. The secret was drawn anew, and does not count.
fn asks_for(create: &CreateKey, key: &Key) -> bool {
    (create.scopes, &create.prefixes, &create.account, create.expires, &create.note)
        == (key.scopes, &key.prefixes, &key.account, key.expires, &key.note)
}

fn check_key(create: &CreateKey) -> Result<(), Refusal> {
    let refuse = |why| Err(Refusal::Invalid(why));
    if create.scopes.is_empty() {
        return refuse("a key needs a scope");
    }
    if create.scopes.contains(Scope::Admin) && (!create.prefixes.is_empty() || create.account.is_some()) {
        return refuse(
            "a key with the scope admin is bounded by no prefix and no account: it could make itself another",
        );
    }
    if create.scopes.contains(Scope::Metrics) && (!create.prefixes.is_empty() || create.account.is_some()) {
        return refuse(
            "a key with the scope metrics is bounded by no prefix and no account: the status tells of every stream's damage",
        );
    }
    if create.prefixes.len() > PREFIXES_MAX || !create.prefixes.iter().all(|prefix| is_prefix(prefix)) {
        return refuse("prefixes are at most 64 clean paths, without a slash in front or behind");
    }
    if create.note.len() > NOTE_BYTES_MAX || create.note.chars().any(char::is_control) {
        return refuse("a note is at most 256 bytes on one line");
    }
    let visible =
        |id: &String| !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX && id.bytes().all(|b| b.is_ascii_graphic());
    if !create.request.as_ref().is_none_or(visible) {
        return refuse("a request's id is 1 to 64 visible ASCII characters");
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), Refusal> {
    if is_name(name) { Ok(()) } else { Err(Refusal::Invalid("a name is 1 to 64 of a-z, 0-9, '-', '_' and '.'")) }
}

/// The buckets in order, each once.
fn check_buckets(buckets: &[String]) -> Result<Vec<String>, Refusal> {
    if buckets.len() > BUCKETS_MAX || !buckets.iter().all(|bucket| is_segment(bucket)) {
        return Err(Refusal::Invalid("buckets are at most 256 first segments of paths"));
    }
    Ok(buckets.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect())
}

/// The first few of some names, and how many more there are.
fn some(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(NAMES_SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

fn changed(limits: PlanLimits, changes: &PlanChanges) -> PlanLimits {
    let mut all = limits.all();
    for (limit, change) in all.iter_mut().zip(changes.all()) {
        *limit = change.apply(*limit);
    }
    PlanLimits::of(all)
}

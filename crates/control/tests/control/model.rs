//! Random commands, against a model that keeps lists and asks simple questions.

use highwater_base::{Digest, Millis};
use highwater_control::{
    Command, CreateAccount, CreateKey, KeyId, Machine, Operation, PatchAccount, PlanChanges, Scope, Scopes, View,
};
use proptest::collection::vec;
use proptest::prelude::*;

const PATHS: [&str; 5] = ["a/x", "b/x", "b", "ab/x", "c/y/z"];

#[derive(Debug, Clone)]
struct ModelKey {
    id: u64,
    scopes: Scopes,
    prefixes: Vec<String>,
    account: Option<String>,
    expires: Option<u64>,
    revoked: bool,
}

#[derive(Debug, Clone)]
struct ModelAccount {
    name: String,
    buckets: Vec<String>,
    revoked: bool,
}

/// What ought to be there.
#[derive(Debug, Default)]
struct Model {
    keys: Vec<ModelKey>,
    accounts: Vec<ModelAccount>,
    plans: Vec<String>,
}

impl Model {
    fn in_force(&self, key: &ModelKey, at: u64) -> bool {
        let account = key.account.as_ref().and_then(|name| self.accounts.iter().find(|a| a.name == *name));
        !key.revoked && key.expires.is_none_or(|end| at < end) && !account.is_some_and(|account| account.revoked)
    }

    fn administered(&self, at: u64, except: Option<u64>) -> bool {
        let admin = |key: &&ModelKey| key.scopes.contains(Scope::Admin) && Some(key.id) != except;
        self.keys.iter().filter(admin).any(|key| !key.revoked && key.expires.is_none_or(|end| at < end))
    }

    fn permits(&self, key: &ModelKey, scope: Scope, path: &str) -> bool {
        if key.scopes.contains(Scope::Admin) {
            return true;
        }
        let inside = |prefix: &String| path == prefix || path.starts_with(&format!("{prefix}/"));
        let own = key.account.as_ref().is_none_or(|name| {
            let account = self.accounts.iter().find(|account| account.name == *name);
            let bucket = path.split_once('/').map(|(bucket, _)| bucket.to_owned());
            account.zip(bucket).is_some_and(|(account, bucket)| account.buckets.contains(&bucket))
        });
        key.scopes.contains(scope) && (key.prefixes.is_empty() || key.prefixes.iter().any(inside)) && own
    }

    /// Whether a command is taken; if it is, does it.
    fn apply(&mut self, command: &Command) -> bool {
        let at = command.at.0;
        match &command.operation {
            Operation::CreateKey(new) => {
                let bounded = !new.prefixes.is_empty() || new.account.is_some();
                let admin = new.scopes.contains(Scope::Admin);
                let known = |name: &String| self.accounts.iter().any(|account| account.name == *name);
                if new.scopes.is_empty() || admin && bounded || !new.account.as_ref().is_none_or(known) {
                    return false;
                }
                if new.scopes.contains(Scope::Metrics) && bounded || new.expires.is_some_and(|end| end.0 <= at) {
                    return false;
                }
                if !admin && !self.administered(at, None) {
                    return false;
                }
                let mut id = new.id.get();
                while self.keys.iter().any(|key| key.id == id) {
                    id += 1;
                }
                let (prefixes, account) = (new.prefixes.clone(), new.account.clone());
                let expires = new.expires.map(|at| at.0);
                self.keys.push(ModelKey { id, scopes: new.scopes, prefixes, account, expires, revoked: false });
                true
            }
            Operation::RevokeKey { id, last } => {
                let Some(place) = self.keys.iter().position(|key| key.id == id.get()) else { return false };
                if self.keys[place].revoked {
                    return true;
                }
                let left = self.keys.iter().filter(|key| !key.revoked).count();
                let needed = self.keys[place].scopes.contains(Scope::Admin) && !self.administered(at, Some(id.get()));
                if !last && (left == 1 || needed) {
                    return false;
                }
                self.keys[place].revoked = true;
                true
            }
            Operation::ExpireKey { id, expires } => {
                let known = self.keys.iter().find(|key| key.id == id.get() && !key.revoked);
                let ends = expires.is_some_and(|end| end.0 <= at)
                    && known.is_some_and(|key| key.expires != expires.map(|end| end.0));
                let admin = known.is_some_and(|key| key.scopes.contains(Scope::Admin));
                if ends && admin && !self.administered(at, Some(id.get())) {
                    return false;
                }
                let key = self.keys.iter_mut().find(|key| key.id == id.get() && !key.revoked);
                key.map(|key| key.expires = expires.map(|at| at.0)).is_some()
            }
            Operation::CreateAccount(new) => {
                if !self.plans.contains(&new.plan) {
                    return false;
                }
                let mut buckets = new.buckets.clone();
                buckets.sort();
                buckets.dedup();
                if let Some(account) = self.accounts.iter().find(|account| account.name == new.name) {
                    return account.buckets == buckets;
                }
                if self.accounts.iter().any(|account| account.buckets.iter().any(|b| buckets.contains(b))) {
                    return false;
                }
                self.accounts.push(ModelAccount { name: new.name.clone(), buckets, revoked: false });
                true
            }
            Operation::PatchAccount(patch) => {
                let others = self.accounts.iter().filter(|account| account.name != patch.name);
                let taken: Vec<&String> = others.flat_map(|account| &account.buckets).collect();
                if patch.buckets.iter().flatten().any(|bucket| taken.contains(&bucket)) {
                    return false;
                }
                let Some(account) = self.accounts.iter_mut().find(|account| account.name == patch.name) else {
                    return false;
                };
                if let Some(buckets) = &patch.buckets {
                    account.buckets.clone_from(buckets);
                }
                account.revoked = patch.revoked.unwrap_or(account.revoked);
                true
            }
            Operation::CreatePlan { name, .. } => {
                if !self.plans.contains(name) {
                    self.plans.push(name.clone());
                }
                true
            }
            Operation::PatchPlan { name, .. } => self.plans.contains(name),
            Operation::DeleteAccount { name } => {
                let used = self.keys.iter().any(|key| !key.revoked && key.account.as_ref() == Some(name));
                let place = self.accounts.iter().position(|account| account.name == *name);
                let Some(place) = place.filter(|place| !used && self.accounts[*place].buckets.is_empty()) else {
                    return false;
                };
                self.accounts.remove(place);
                true
            }
            Operation::DeletePlan { name } => {
                let place = self.plans.iter().position(|plan| plan == name);
                // Every account of these commands has the one plan that there is.
                let Some(place) = place.filter(|_| self.accounts.is_empty()) else { return false };
                self.plans.remove(place);
                true
            }
        }
    }

    fn compare(&self, view: &View, at: u64) {
        assert_eq!(view.is_keyed(), self.keys.iter().any(|key| !key.revoked));
        assert_eq!(view.keys().count(), self.keys.len());
        for key in &self.keys {
            let id = KeyId::new(key.id);
            assert_eq!(view.recheck(id, Millis(at)).is_ok(), self.in_force(key, at), "{key:?}");
            let found = view.key(id).expect("it is there");
            for scope in Scope::ALL {
                for path in PATHS {
                    let expected = self.permits(key, *scope, path);
                    assert_eq!(view.permits(found, *scope, path), expected, "{key:?} {scope:?} {path}");
                }
            }
        }
    }
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just("a".to_owned()), Just("b".to_owned())]
}

fn buckets() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![
        Just(vec![]),
        Just(vec!["a".to_owned()]),
        Just(vec!["b".to_owned()]),
        Just(vec!["a".to_owned(), "b".to_owned()])
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let scopes = prop_oneof![
        2 => Just(Scopes::parse("admin").expect("known")),
        3 => (0..64u16).prop_map(|bits| Scopes::from_bits(bits).expect("known")),
    ];
    let end = proptest::option::of((0..40u64).prop_map(Millis));
    let account = proptest::option::weighted(0.4, name());
    let created =
        (0..5u64, scopes, buckets(), account, end.clone()).prop_map(|(id, scopes, prefixes, account, expires)| {
            let (id, secret, note) = (KeyId::new(id), Digest::of(b"s"), String::new());
            Operation::CreateKey(CreateKey { id, secret, scopes, prefixes, account, expires, note, request: None })
        });
    let id = || (0..7u64).prop_map(KeyId::new);
    prop_oneof![
        4 => created,
        2 => (id(), any::<bool>()).prop_map(|(id, last)| Operation::RevokeKey { id, last }),
        1 => (id(), end).prop_map(|(id, expires)| Operation::ExpireKey { id, expires }),
        2 => (0..2u64, name(), buckets()).prop_map(|(number, name, buckets)| {
            Operation::CreateAccount(CreateAccount { number, name, plan: "p".to_owned(), buckets })
        }),
        2 => (name(), proptest::option::of(buckets()), proptest::option::of(any::<bool>())).prop_map(
            |(name, buckets, revoked)| Operation::PatchAccount(PatchAccount { name, plan: None, buckets, revoked })
        ),
        1 => Just(Operation::CreatePlan { number: 1, name: "p".to_owned(), limits: PlanChanges::default() }),
        1 => name().prop_map(|name| Operation::PatchPlan { name, limits: PlanChanges::default() }),
        1 => name().prop_map(|name| Operation::DeleteAccount { name }),
        1 => Just(Operation::DeletePlan { name: "p".to_owned() }),
    ]
}

proptest! {
    /// The machine does what the model does; what it stores, applied in pieces, is the machine again; commands read back.
    #[test]
    fn the_machine_is_the_model_and_survives_every_checkpoint(operations in vec((0..4u64, operation()), 1..40)) {
        let (mut machine, mut model, mut at) = (Machine::new(), Model::default(), 0);
        let mut stored = std::collections::BTreeMap::new();
        for (pause, operation) in operations {
            at += pause;
            let command = Command { at: Millis(at), operation };
            let read = Command::decode(command.encode().into());
            prop_assert_eq!(read.as_ref(), Ok(&command));
            let before = machine.fingerprint();
            let applied = machine.apply(&command);
            prop_assert_eq!(applied.result.is_ok(), model.apply(&command), "{:?}", command);
            prop_assert!(applied.changed || machine.fingerprint() == before);
            prop_assert!(applied.result.is_ok() || !applied.changed, "a refusal changes nothing");
            model.compare(&machine.view(), at);
            if pause == 0 {
                for (object, record) in machine.take_changed() {
                    match record {
                        Some(record) => stored.insert(object, record),
                        None => stored.remove(&object),
                    };
                }
                machine = Machine::load(stored.clone().into_iter().collect()).expect("readable");
                model.compare(&machine.view(), at);
            }
        }
    }
}

//! The state as it is published, and its verdicts.

use crate::credential::{Credential, KeyId};
use crate::limits::{bucket_of, covers};
use crate::record::{Account, Key, Plan};
use crate::scope::Scope;
use highwater_base::Millis;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use thiserror::Error;

/// Every key, account and plan at one moment. Immutable once it is published.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    pub(crate) keys: BTreeMap<KeyId, Arc<Key>>,
    pub(crate) accounts: BTreeMap<String, Arc<Account>>,
    pub(crate) plans: BTreeMap<String, Arc<Plan>>,
    /// Which account has a bucket.
    pub(crate) owners: BTreeMap<String, Arc<Account>>,
    /// Keys that are not revoked.
    pub(crate) unrevoked: usize,
}

/// Why a credential is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Denied {
    /// There is no such key, its secret is another, or it was revoked.
    #[error("the key is not known here, or was revoked")]
    Invalid,
    /// It was one, and its time is over.
    #[error("the key has expired")]
    Expired,
    /// Its account was revoked.
    #[error("the account of the key was revoked")]
    AccountRevoked,
}

impl View {
    /// Whether requests need a key: some key is not revoked. One that expired still counts, so that time alone never
    /// opens a server.
    #[must_use]
    pub fn is_keyed(&self) -> bool {
        self.unrevoked > 0
    }

    /// The key that a credential is, if it is in force at `at`.
    /// # Errors
    /// [`Denied`]; that a key expired is told to those only who have its secret.
    pub fn authenticate(&self, credential: &Credential, at: Millis) -> Result<Arc<Key>, Denied> {
        let key = self.keys.get(&credential.id).ok_or(Denied::Invalid)?;
        if !credential.matches(key.secret) {
            return Err(Denied::Invalid);
        }
        self.in_force(key, at).map(|()| Arc::clone(key))
    }

    /// Whether a key that was taken before still is.
    /// # Errors
    /// As [`Self::authenticate`].
    pub fn recheck(&self, id: KeyId, at: Millis) -> Result<(), Denied> {
        self.keys.get(&id).ok_or(Denied::Invalid).and_then(|key| self.in_force(key, at))
    }

    fn in_force(&self, key: &Key, at: Millis) -> Result<(), Denied> {
        if key.revoked.is_some() {
            return Err(Denied::Invalid);
        }
        if key.is_expired(at) {
            return Err(Denied::Expired);
        }
        match self.account_of(key) {
            Some(account) if account.revoked.is_some() => Err(Denied::AccountRevoked),
            _ => Ok(()),
        }
    }

    /// Whether a key may do `scope` on the stream at `path`, which need not be there.
    #[must_use]
    pub fn permits(&self, key: &Key, scope: Scope, path: &str) -> bool {
        if key.scopes.contains(Scope::Admin) {
            return true;
        }
        let below = key.prefixes.is_empty() || key.prefixes.iter().any(|prefix| covers(prefix, path));
        key.scopes.contains(scope) && below && self.own_bucket(key, path)
    }

    /// Whether a key without an account asks, or one of the account that has the path's bucket.
    fn own_bucket(&self, key: &Key, path: &str) -> bool {
        let Some(name) = &key.account else { return true };
        bucket_of(path).and_then(|bucket| self.owners.get(bucket)).is_some_and(|owner| owner.name == *name)
    }

    /// The account of a key.
    #[must_use]
    pub fn account_of(&self, key: &Key) -> Option<&Arc<Account>> {
        key.account.as_ref().and_then(|name| self.accounts.get(name))
    }

    /// The account that has the bucket of `path`.
    #[must_use]
    pub fn owner_of(&self, path: &str) -> Option<&Arc<Account>> {
        bucket_of(path).and_then(|bucket| self.owners.get(bucket))
    }

    /// Up to `count` buckets that accounts have, in order, behind one of them, or from the first on.
    pub fn buckets_behind(&self, bucket: Option<&str>, count: usize) -> impl Iterator<Item = &str> {
        let from = bucket.map_or(Bound::Unbounded, Bound::Excluded);
        self.owners.range::<str, _>((from, Bound::Unbounded)).map(|(bucket, _)| bucket.as_str()).take(count)
    }

    /// The plan of an account.
    #[must_use]
    pub fn plan_of(&self, account: &Account) -> Option<&Arc<Plan>> {
        self.plans.get(&account.plan)
    }

    /// Every key, in the order of their ids.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<Key>> {
        self.keys.values()
    }

    /// The key of an id.
    #[must_use]
    pub fn key(&self, id: KeyId) -> Option<&Arc<Key>> {
        self.keys.get(&id)
    }

    /// Every account, in the order of their names.
    pub fn accounts(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.accounts.values()
    }

    /// The account of a name.
    #[must_use]
    pub fn account(&self, name: &str) -> Option<&Arc<Account>> {
        self.accounts.get(name)
    }

    /// Every plan, in the order of their names.
    pub fn plans(&self) -> impl Iterator<Item = &Arc<Plan>> {
        self.plans.values()
    }

    /// The plan of a name.
    #[must_use]
    pub fn plan(&self, name: &str) -> Option<&Arc<Plan>> {
        self.plans.get(name)
    }
}

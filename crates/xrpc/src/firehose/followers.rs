//! Where the stream's subscribers come from, for the status.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Addresses by the host's number of the subscriber.
#[derive(Debug, Clone, Default)]
pub struct Followers(Arc<Mutex<BTreeMap<u64, IpAddr>>>);

/// A subscriber; it is forgotten when this is dropped.
#[derive(Debug)]
pub struct Follower {
    followers: Followers,
    id: u64,
}

impl Followers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, IpAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more.
    #[must_use]
    pub fn add(&self, id: u64, address: IpAddr) -> Follower {
        self.lock().insert(id, address);
        Follower { followers: self.clone(), id }
    }

    /// Where one comes from, if it has not gone.
    #[must_use]
    pub fn address(&self, id: u64) -> Option<IpAddr> {
        self.lock().get(&id).copied()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.followers.lock().remove(&self.id);
    }
}

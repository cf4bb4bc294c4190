//! How many connections there may be, in all and from one address.

use crate::network::Network;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places for connections of one kind of listener.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    of_addresses: Arc<OfAddresses>,
}

#[derive(Debug)]
struct OfAddresses {
    max: usize,
    held: Mutex<HashMap<IpAddr, usize>>,
}

/// A place from an address, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _one_of_all: OwnedSemaphorePermit,
    of_address: Option<(Arc<OfAddresses>, IpAddr)>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((of_addresses, address)) = self.of_address.take() else { return };
        let mut held = of_addresses.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = held.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                held.remove(&address);
            }
        }
    }
}

impl Places {
    /// `all` places, of which one address has `per_address` at most.
    pub(crate) fn new(all: usize, per_address: usize) -> Self {
        let of_addresses = OfAddresses { max: per_address, held: Mutex::default() };
        Self { all: Arc::new(Semaphore::new(all)), of_addresses: Arc::new(of_addresses) }
    }

    /// Waits for a place; `None` never comes, as the semaphore is never closed.
    pub(crate) async fn wait(&self) -> Option<OwnedSemaphorePermit> {
        self.all.clone().acquire_owned().await.ok()
    }

    /// Gives a place to a connection from `peer`, or tells that its address has as many as it may.
    ///
    /// Addresses in `spared`, such as a proxy's, which stands for many, are not counted.
    pub(crate) fn take(&self, one_of_all: OwnedSemaphorePermit, peer: IpAddr, spared: &[Network]) -> Option<Place> {
        if spared.iter().any(|network| network.contains(peer)) {
            return Some(Place { _one_of_all: one_of_all, of_address: None });
        }
        let address = site(peer);
        let mut held = self.of_addresses.held.lock().unwrap_or_else(PoisonError::into_inner);
        let count = held.entry(address).or_default();
        if *count >= self.of_addresses.max {
            return None;
        }
        *count += 1;
        Some(Place { _one_of_all: one_of_all, of_address: Some((self.of_addresses.clone(), address)) })
    }
}

/// What counts as one address: of IPv6, where one customer has 2^64 of them, the network.
pub(crate) fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_address_never_has_more_than_its_share_and_gets_it_back() {
        let places = Places::new(10, 2);
        let take = async |text: &str, spared: &[Network]| {
            let permit = places.wait().await.expect("a place");
            places.take(permit, text.parse().expect("an address"), spared)
        };
        let first = take("192.0.2.1", &[]).await;
        let second = take("::ffff:192.0.2.1", &[]).await;
        assert!(first.is_some() && second.is_some());
        assert!(take("192.0.2.1", &[]).await.is_none(), "the third");
        assert!(take("192.0.2.1", &["192.0.2.0/24".parse().expect("a network")]).await.is_some(), "a spared one");
        assert!(take("192.0.2.2", &[]).await.is_some(), "another address");
        drop(first);
        assert!(take("192.0.2.1", &[]).await.is_some(), "it was given back");
        let of_a_network = [take("2001:db8::1", &[]).await, take("2001:db8::2", &[]).await];
        assert!(of_a_network.iter().all(Option::is_some));
        assert!(take("2001:db8::3", &[]).await.is_none(), "addresses of one IPv6 network are one household's");
        assert!(take("2001:db8:0:1::1", &[]).await.is_some());
        drop(of_a_network);
        drop(second);
        assert!(places.of_addresses.held.lock().expect("whole").is_empty(), "nothing is kept of those who left");
    }
}

//! How many subscribers there may be, and who has to give way.

use crate::limits::network;
use crate::options::StreamOptions;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The places of subscribers.
#[derive(Debug, Clone)]
pub struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    all_max: usize,
    address_max: usize,
    taken: Mutex<Taken>,
    /// The last one has gone.
    empty: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    next: u64,
    /// Of each address, those that it holds, the oldest first.
    addresses: HashMap<IpAddr, Vec<(u64, Arc<Notify>)>>,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The address has as many as it may.
    Address,
    /// All are taken, and no address has many more than this one.
    All,
}

/// A subscriber's place; it is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    address: IpAddr,
    number: u64,
    lost: Arc<Notify>,
}

impl Places {
    pub(crate) fn new(options: &StreamOptions) -> Self {
        Self(Arc::new(Shared {
            all_max: options.subscribers_max,
            address_max: options.subscribers_per_address_max,
            taken: Mutex::default(),
            empty: Notify::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.lock().all
    }

    /// Takes a place. Where all are taken, the address that holds the most loses its newest one, if it holds at least two more
    /// than this one does: otherwise two addresses would push each other out for ever.
    /// # Errors
    /// [`Full`].
    pub fn take(&self, address: IpAddr) -> Result<Place, Full> {
        let address = network(address);
        let mut taken = self.lock();
        let own = taken.addresses.get(&address).map_or(0, Vec::len);
        if own >= self.0.address_max {
            return Err(Full::Address);
        }
        if taken.all >= self.0.all_max {
            let most = taken.addresses.values_mut().max_by_key(|held| held.len()).filter(|held| held.len() >= own + 2);
            let (_, lost) = most.and_then(Vec::pop).ok_or(Full::All)?;
            lost.notify_one();
        } else {
            taken.all += 1;
        }
        taken.next += 1;
        let (number, lost) = (taken.next, Arc::new(Notify::new()));
        taken.addresses.entry(address).or_default().push((number, Arc::clone(&lost)));
        drop(taken);
        Ok(Place { places: self.clone(), address, number, lost })
    }

    /// Waits until nobody has one.
    pub async fn wait_empty(&self) {
        loop {
            let empty = self.0.empty.notified();
            tokio::pin!(empty);
            empty.as_mut().enable();
            if self.taken() == 0 {
                return;
            }
            empty.await;
        }
    }
}

impl Place {
    /// Waits until it is given to another one.
    pub async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        let Taken { all, addresses, .. } = &mut *taken;
        let Some(held) = addresses.get_mut(&self.address) else { return };
        // One that was lost is counted for whoever got it.
        if let Some(at) = held.iter().position(|(number, _)| *number == self.number) {
            held.remove(at);
            *all -= 1;
        }
        if held.is_empty() {
            addresses.remove(&self.address);
        }
        if *all == 0 {
            self.places.0.empty.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn places(subscribers_max: usize, subscribers_per_address_max: usize) -> Places {
        Places::new(&StreamOptions { subscribers_max, subscribers_per_address_max, ..StreamOptions::default() })
    }

    #[tokio::test]
    async fn an_address_with_many_gives_way_to_one_with_none_and_nobody_else_does() {
        let places = places(4, 3);
        let greedy: Vec<Place> = (0..3).map(|_| places.take(address(1)).expect("a place")).collect();
        assert_eq!(places.take(address(1)).expect_err("a fourth"), Full::Address);
        let other = places.take(address(2)).expect("the last place");
        let third = places.take(address(3)).expect("the greedy one's newest");
        greedy[2].lost().await;
        let fourth = places.take(address(4)).expect("its newest once more");
        greedy[1].lost().await;
        assert_eq!(places.taken(), 4);
        assert_eq!(places.take(address(5)).expect_err("one each"), Full::All);
        drop(greedy);
        assert_eq!(places.taken(), 3, "a place that was lost is not given back twice");
        drop((other, third, fourth));
        assert_eq!(places.taken(), 0);
        places.wait_empty().await;
        assert!(places.lock().addresses.is_empty());
    }
}

//! How often an address or an account may ask.
//!
//! Windows are fixed: they begin with the first request and end a while later. What is counted is kept in memory alone, for
//! a bounded number of addresses and accounts.

use crate::error::{Error, Name, Result};
use crate::options::Rates;
use crate::shares::Party;
use axum::http::{HeaderName, HeaderValue, header};
use highwater_base::Millis;
use highwater_pds::AccountId;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

const FIVE_MINUTES_MS: u64 = 300_000;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 86_400_000;

/// Addresses or accounts of which a rate keeps count, about 100 bytes each. Where there are more, those that asked least are
/// forgotten first.
const KEYS_MAX: usize = 65_536;

/// What a write costs an account, or whatever else of its own has the relays told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Points {
    /// A new record.
    Create = 3,
    /// Another record in its place.
    Update = 2,
    /// None in its place.
    Delete = 1,
    /// Deactivated, or active again: up to two frames.
    Stand = 4,
}

/// Where a rate stands for somebody, as the headers tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    limit: u64,
    remaining: u64,
    window_ms: u64,
    /// When the window ends.
    reset: Millis,
}

impl Rate {
    /// The headers.
    pub fn headers(&self) -> [(HeaderName, HeaderValue); 4] {
        let policy = format!("{};w={}", self.limit, self.window_ms / 1_000);
        [
            (HeaderName::from_static("ratelimit-limit"), HeaderValue::from(self.limit)),
            (HeaderName::from_static("ratelimit-remaining"), HeaderValue::from(self.remaining)),
            (HeaderName::from_static("ratelimit-reset"), HeaderValue::from(self.reset.0.div_ceil(1_000))),
            (
                HeaderName::from_static("ratelimit-policy"),
                HeaderValue::try_from(policy).unwrap_or(HeaderValue::from(0)),
            ),
        ]
    }

    fn refuse(&self, now: Millis) -> Error {
        let mut error = Error::new(Name::RateLimitExceeded, "asked too often; RateLimit-Reset says when to come back");
        for (name, value) in self.headers() {
            error = error.with(name, value);
        }
        error.with(header::RETRY_AFTER, HeaderValue::from(self.reset.since(now).div_ceil(1_000).max(1)))
    }
}

/// One rate, for many keys.
#[derive(Debug)]
struct Windows<K> {
    limit: u64,
    window_ms: u64,
    keys: Mutex<HashMap<K, Window>>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    begun: Millis,
    spent: u64,
}

impl<K: Hash + Eq> Windows<K> {
    fn new(limit: u64, window_ms: u64) -> Self {
        Self { limit, window_ms, keys: Mutex::default() }
    }

    /// Spends, or says when it may again.
    fn spend(&self, key: K, cost: u64, now: Millis) -> std::result::Result<Rate, Rate> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that was set back ends the window, so that nobody waits for the time that is to come again.
        let over = |window: &Window| now < window.begun || now.since(window.begun) >= self.window_ms;
        if keys.len() >= KEYS_MAX && !keys.contains_key(&key) {
            keys.retain(|_, window| !over(window));
            if keys.len() >= KEYS_MAX {
                let mut spent: Vec<u64> = keys.values().map(|window| window.spent).collect();
                let (_, median, _) = spent.select_nth_unstable(KEYS_MAX / 2);
                let median = *median;
                keys.retain(|_, window| window.spent > median);
            }
        }
        let window = keys.entry(key).or_insert(Window { begun: now, spent: 0 });
        if over(window) {
            *window = Window { begun: now, spent: 0 };
        }
        let fits = window.spent.saturating_add(cost) <= self.limit;
        if fits {
            window.spent += cost;
        }
        let rate = Rate {
            limit: self.limit,
            remaining: self.limit - window.spent,
            window_ms: self.window_ms,
            reset: window.begun.plus(self.window_ms),
        };
        if fits { Ok(rate) } else { Err(rate) }
    }

    /// Whether anything is left of a window.
    fn may(&self, key: &K, now: Millis) -> std::result::Result<(), Rate> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(window) = keys.get(key) else { return Ok(()) };
        let over = now < window.begun || now.since(window.begun) >= self.window_ms;
        if over || window.spent < self.limit {
            return Ok(());
        }
        Err(Rate {
            limit: self.limit,
            remaining: 0,
            window_ms: self.window_ms,
            reset: window.begun.plus(self.window_ms),
        })
    }

    /// Gives back what was spent for nothing.
    fn refund(&self, key: &K, cost: u64) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(window) = keys.get_mut(key) {
            window.spent = window.spent.saturating_sub(cost);
        }
    }
}

/// Every rate.
#[derive(Debug)]
pub struct Limits {
    enabled: bool,
    requests: Windows<Party>,
    hour: Windows<AccountId>,
    day: Windows<AccountId>,
    sessions: Windows<(IpAddr, Whom)>,
    /// Of all names together.
    logins: Windows<IpAddr>,
}

/// Under whose name somebody logs in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Whom {
    /// An account, however its name was spelled.
    Account(AccountId),
    /// Nobody of that name. It is counted all the same: otherwise a refusal would tell which accounts there are.
    Nobody(String),
    /// The administrator: only wrong passwords count.
    Administrator,
}

impl Whom {
    /// By what somebody gave as a name, and the account that has it.
    #[must_use]
    pub fn named(identifier: &str, account: Option<AccountId>) -> Self {
        // The longest name that an account can have, so that a key is bounded.
        let name = || identifier.trim_start_matches('@').chars().take(320).collect::<String>().to_ascii_lowercase();
        account.map_or_else(|| Self::Nobody(name()), Self::Account)
    }
}

/// Names under which an address may log in as often as it may under one. An address with more bots has them use their sessions.
const LOGIN_NAMES: u64 = 10;

impl Limits {
    pub(crate) fn new(rates: Rates) -> Self {
        Self {
            enabled: rates.enabled,
            requests: Windows::new(rates.requests_per_5_min, FIVE_MINUTES_MS),
            hour: Windows::new(rates.points_per_hour, HOUR_MS),
            day: Windows::new(rates.points_per_day, DAY_MS),
            sessions: Windows::new(rates.sessions_per_5_min, FIVE_MINUTES_MS),
            logins: Windows::new(rates.sessions_per_5_min.saturating_mul(LOGIN_NAMES), FIVE_MINUTES_MS),
        }
    }

    /// One request of somebody.
    /// # Errors
    /// `RateLimitExceeded`.
    pub fn request(&self, who: Party, now: Millis) -> Result<Option<Rate>> {
        if !self.enabled {
            return Ok(None);
        }
        self.requests.spend(who, 1, now).map(Some).map_err(|rate| rate.refuse(now))
    }

    /// Writes of an account.
    /// # Errors
    /// `RateLimitExceeded`; nothing is spent then.
    pub fn write(
        &self,
        account: AccountId,
        writes: impl IntoIterator<Item = Points>,
        now: Millis,
    ) -> Result<Option<Rate>> {
        if !self.enabled {
            return Ok(None);
        }
        let cost = writes.into_iter().map(|points| points as u64).sum();
        let hour = self.hour.spend(account, cost, now).map_err(|rate| rate.refuse(now))?;
        let day = self.day.spend(account, cost, now).map_err(|rate| {
            self.hour.refund(&account, cost);
            rate.refuse(now)
        })?;
        Ok(Some(if day.remaining < hour.remaining { day } else { hour }))
    }

    /// One session that an address wants to open under a name.
    /// # Errors
    /// `RateLimitExceeded`.
    pub fn session(&self, address: IpAddr, whom: Whom, now: Millis) -> Result<Option<Rate>> {
        if !self.enabled {
            return Ok(None);
        }
        let key = (network(address), whom);
        let rate = self.sessions.spend(key.clone(), 1, now).map_err(|rate| rate.refuse(now))?;
        self.logins.spend(key.0, 1, now).map_err(|all| {
            self.sessions.refund(&key, 1);
            all.refuse(now)
        })?;
        Ok(Some(rate))
    }
}

impl Limits {
    /// Whether an address may try the administrator's password: it gave fewer wrong ones than it may open sessions.
    /// # Errors
    /// `RateLimitExceeded`.
    pub fn admin_may(&self, address: IpAddr, now: Millis) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        self.sessions.may(&(network(address), Whom::Administrator), now).map_err(|rate| rate.refuse(now))
    }

    /// An address gave a wrong password.
    pub fn admin_failed(&self, address: IpAddr, now: Millis) {
        // Whether that was the last one shows at the next attempt.
        let _rate = self.sessions.spend((network(address), Whom::Administrator), 1, now);
    }
}

/// Who counts as one: an IPv4 address, or a network of 64 bits, which one household or machine has to itself.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        let rates = Rates { requests_per_5_min: 3, points_per_hour: 10, points_per_day: 14, ..Rates::default() };
        Limits::new(rates)
    }

    #[test]
    fn an_address_is_refused_until_its_window_ends() {
        let (limits, address) = (limits(), IpAddr::from([192, 0, 2, 1]));
        let asked =
            |at| limits.request(Party::Address(address), Millis(at)).map(|rate| rate.expect("enabled").remaining).ok();
        assert_eq!([asked(1_000), asked(2_000), asked(3_000), asked(4_000)], [Some(2), Some(1), Some(0), None]);
        assert_eq!(asked(1_000 + FIVE_MINUTES_MS - 1), None);
        assert_eq!(asked(1_000 + FIVE_MINUTES_MS), Some(2));
        assert!(limits.request(Party::Address(IpAddr::from([192, 0, 2, 2])), Millis(4_000)).is_ok(), "another address");
        assert_eq!(asked(0), Some(2), "a clock that was set back");
    }

    #[test]
    fn writes_cost_points_and_what_is_refused_costs_none() {
        let (limits, account) = (limits(), AccountId(1));
        let write = |points: &[Points], at| limits.write(account, points.iter().copied(), Millis(at));
        assert_eq!(write(&[Points::Create, Points::Create, Points::Update], 0).expect("8").expect("on").remaining, 2);
        let refused = write(&[Points::Create], 1_000).expect_err("11 of 10");
        assert_eq!(refused.name(), Name::RateLimitExceeded);
        assert!(write(&[Points::Delete, Points::Delete], 2_000).is_ok());
        assert!(write(&[Points::Create], HOUR_MS).is_ok(), "13 of the day's 14");
        assert!(write(&[Points::Update], HOUR_MS).is_err(), "the day's are spent");
        assert!(write(&[Points::Delete], HOUR_MS).is_ok(), "one was left, and the refused ones cost nothing");
        assert!(write(&[Points::Create], DAY_MS).is_ok(), "another day");
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_and_memory_is_bounded() {
        let address = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:1"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
        let windows = Windows::new(10, 1_000);
        windows.spend(u32::MAX, 5, Millis(0)).expect("fits");
        for key in 0..(KEYS_MAX as u32 * 2) {
            windows.spend(key, 1, Millis(0)).expect("fits");
        }
        let keys = windows.keys.lock().expect("no panic");
        assert!(keys.len() <= KEYS_MAX, "{}", keys.len());
        assert_eq!(keys[&u32::MAX].spent, 5, "whoever asked most is not forgotten");
    }
}

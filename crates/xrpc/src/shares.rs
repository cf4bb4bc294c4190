//! What all callers share, and each one's part of it.

use crate::error::{Error, Name};
use axum::http::{HeaderValue, header};
use highwater_host::share::{self, Full};
use highwater_pds::AccountId;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Seconds after which somebody whose part is used up may come again.
const RETRY_S: u64 = 10;

/// Who counts as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// The administrator, wherever the request comes from: a flood must not keep him from ending it.
    Operator,
    /// An account, once its session was judged.
    Account(AccountId),
    /// An address, or a network of IPv6, of whoever shows nothing.
    Address(IpAddr),
}

/// Something of which there is so much for all.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    shares: Arc<Mutex<share::Shares<Party>>>,
    /// What it is, in a refusal.
    what: &'static str,
}

/// A part of it; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    pool: Pool,
    who: Party,
    amount: usize,
}

impl Pool {
    pub fn new(all_max: usize, what: &'static str) -> Self {
        Self { shares: Arc::new(Mutex::new(share::Shares::new(all_max))), what }
    }

    fn lock(&self) -> MutexGuard<'_, share::Shares<Party>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusal(&self, full: Full) -> Error {
        let what = self.what;
        let error = match full {
            Full::Own => {
                let message = format!("you have as many {what} under way as one may; come back when one has ended");
                Error::new(Name::RateLimitExceeded, message)
            }
            Full::All => {
                Error::new(Name::NotEnoughResources, format!("too many {what} at once; try again in a moment"))
            }
        };
        error.with(header::RETRY_AFTER, HeaderValue::from(RETRY_S))
    }

    /// Takes a part.
    /// # Errors
    /// `RateLimitExceeded` if whoever asks has as much as it may, `NotEnoughResources` if nothing is left.
    pub fn take(&self, who: Party, amount: usize) -> Result<Share, Error> {
        self.lock().take(who, amount).map_err(|full| self.refusal(full))?;
        Ok(Share { pool: self.clone(), who, amount })
    }
}

impl Share {
    /// Makes it as large as this, if it is smaller.
    /// # Errors
    /// As [`Pool::take`]; it stays as it was then.
    pub fn grow(&mut self, amount: usize) -> Result<(), Error> {
        let more = amount.saturating_sub(self.amount);
        self.pool.lock().take(self.who, more).map_err(|full| self.pool.refusal(full))?;
        self.amount += more;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.lock().give(&self.who, self.amount);
    }
}

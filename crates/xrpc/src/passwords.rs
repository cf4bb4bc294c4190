//! Passwords: what is kept of them, and what a guess costs.
//!
//! A password of a person is weak, so its hash is made to cost memory and time: Argon2id. That cost is the server's as well, so only
//! a few are computed at once, away from the threads that serve, and only so many wait, of whom no address has more than its share. An app password is drawn by this server
//! with 80 random bits, which nobody guesses at any speed: a fast keyed digest keeps it, and a program that logs in often costs
//! nothing.
//!
//! Source: RFC 9106; OWASP Password Storage Cheat Sheet (19 MiB, two passes, one lane); PHC string format.

mod phc;
#[cfg(test)]
mod tests;

pub use phc::{Cost, Hash, Memory};

use crate::error::{Error, Name, Result};
use crate::shares::{Party, Pool};
use highwater_pds::Micros;
use highwater_pds::credentials::AppPassword;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;

/// Bytes of a password: what a login reads is bounded before anything is computed.
pub const PASSWORD_BYTES_MAX: usize = 512;
/// Bytes of a new password of an account.
pub const PASSWORD_BYTES_MIN: usize = 8;

/// Hashes that are computed at once: 19 MiB each, on as many processors as a small server has.
const AT_ONCE: usize = 2;
/// Logins that wait for theirs: at 30 ms for each, two at once, the last one waits for about a second.
const WAITING_MAX: usize = 64;

/// Computes hashes of passwords.
#[derive(Clone)]
pub struct Passwords {
    cost: Cost,
    running: Arc<Semaphore>,
    admitted: Pool,
    /// What hashes are computed in: as many as are computed at once.
    memory: Arc<Mutex<Vec<Memory>>>,
    computed: Arc<AtomicU64>,
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords").field("cost", &self.cost).finish_non_exhaustive()
    }
}

impl Passwords {
    /// New hashes cost this much.
    #[must_use]
    pub fn new(cost: Cost) -> Self {
        let admitted = Pool::new(AT_ONCE + WAITING_MAX, "logins");
        Self {
            cost,
            running: Arc::new(Semaphore::new(AT_ONCE)),
            admitted,
            memory: Arc::default(),
            computed: Arc::default(),
        }
    }

    /// How many were computed.
    #[must_use]
    pub fn computed(&self) -> u64 {
        self.computed.load(Ordering::Relaxed)
    }

    /// Runs something that costs a hash on a thread of its own, when it is its turn.
    async fn run<T: Send + 'static>(
        &self,
        who: Party,
        work: impl FnOnce(&mut Memory) -> T + Send + 'static,
    ) -> Result<T> {
        let failed = || Error::new(Name::InternalServerError, "a password could not be checked");
        let admitted = self.admitted.take(who, 1)?;
        let running = Arc::clone(&self.running).acquire_owned().await.map_err(|_| failed())?;
        self.computed.fetch_add(1, Ordering::Relaxed);
        let kept = Arc::clone(&self.memory);
        // The permits go with the thread: whoever hangs up does not make room before the memory is free.
        let work = tokio::task::spawn_blocking(move || {
            let _held = (admitted, running);
            let free = || kept.lock().unwrap_or_else(PoisonError::into_inner);
            let mut memory = free().pop().unwrap_or_default();
            let done = work(&mut memory);
            free().push(memory);
            done
        });
        work.await.map_err(|_| failed())
    }

    /// The hash of a new password, to be kept.
    /// # Errors
    /// `InvalidRequest` for one that is too short or too long; `RateLimitExceeded`, `NotEnoughResources`.
    pub async fn hash(&self, who: Party, password: &str, salt: [u8; 16]) -> Result<String> {
        if !(PASSWORD_BYTES_MIN..=PASSWORD_BYTES_MAX).contains(&password.len()) {
            let message = format!("a password has {PASSWORD_BYTES_MIN} to {PASSWORD_BYTES_MAX} bytes");
            return Err(Error::invalid(message));
        }
        let (password, cost) = (password.to_owned(), self.cost);
        self.run(who, move |memory| Hash::of(password.as_bytes(), salt, cost, memory).to_string()).await
    }

    /// Whether this is the password of which the hash is kept. Without one, or with one that is none, the answer is no, after the
    /// same work: how long an answer takes must not tell which accounts there are.
    /// # Errors
    /// `RateLimitExceeded`, `NotEnoughResources`.
    pub async fn verify(&self, who: Party, password: &str, kept: Option<&str>) -> Result<bool> {
        let kept = kept.and_then(Hash::parse);
        if password.len() > PASSWORD_BYTES_MAX {
            return Ok(false);
        }
        let (password, cost) = (password.to_owned(), self.cost);
        self.run(who, move |memory| {
            let there = kept.is_some();
            let hash = kept.unwrap_or_else(|| Hash::nobodys(cost));
            hash.fits(password.as_bytes(), memory) && there
        })
        .await
    }
}

/// Digits of app passwords: base32 in lower case.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// A new app password from 80 random bits: `xxxx-xxxx-xxxx-xxxx`.
#[must_use]
pub fn app_password(draw: [u64; 2]) -> String {
    let mut bits = u128::from(draw[0]) << 64 | u128::from(draw[1]);
    let mut text = String::with_capacity(19);
    for digit in 0..16 {
        if digit > 0 && digit % 4 == 0 {
            text.push('-');
        }
        text.push(char::from(ALPHABET[(bits & 31) as usize]));
        bits >>= 5;
    }
    text
}

/// Whether text could be an app password; others need not be compared with any.
#[must_use]
pub fn is_app_password(text: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| if at % 5 == 4 { byte == b'-' } else { ALPHABET.contains(&byte) };
    text.len() == 19 && text.bytes().enumerate().all(fits)
}

fn app_digest(password: &str, salt: &[u8; 16]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(salt).expect("HMAC takes keys of any length");
    mac.update(b"highwater app password\0");
    mac.update(password.as_bytes());
    mac.finalize().into_bytes().into()
}

/// What is kept of a new app password.
#[must_use]
pub fn keep_app_password(password: &str, salt: [u8; 16], privileged: bool, created: Micros) -> AppPassword {
    AppPassword { salt, digest: app_digest(password, &salt), privileged, created }
}

/// Whether this is the app password of which the digest is kept.
#[must_use]
pub fn fits_app_password(password: &str, kept: &AppPassword) -> bool {
    app_digest(password, &kept.salt).ct_eq(&kept.digest).into()
}

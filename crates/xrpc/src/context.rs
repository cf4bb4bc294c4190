//! What all methods share.

use crate::auth::Gatekeeper;
use crate::limits::Limits;
use crate::options::Options;
use highwater_base::{Clock, Random};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Where time and entropy come from, and who judges requests.
pub struct Seams {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Entropy, good for secrets.
    pub random: Box<dyn Random>,
    /// Who judges requests.
    pub gatekeeper: Arc<dyn Gatekeeper>,
}

/// What all methods share.
pub struct Context {
    /// Limits and timeouts.
    pub options: Options,
    /// How often was asked.
    pub limits: Limits,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Who judges requests.
    pub gatekeeper: Arc<dyn Gatekeeper>,
    /// Room for bodies that are being read, in KiB.
    pub(crate) bodies: Arc<Semaphore>,
    random: Mutex<Box<dyn Random>>,
}

impl Context {
    /// What all methods share, over a host.
    #[must_use]
    pub fn new(options: Options, seams: Seams) -> Self {
        Self {
            limits: Limits::new(options.rates.clone()),
            bodies: Arc::new(Semaphore::new(options.bodies_bytes_max >> 10)),
            options,
            clock: seams.clock,
            gatekeeper: seams.gatekeeper,
            random: Mutex::new(seams.random),
        }
    }

    /// Random bits, good for secrets.
    pub fn draw(&self) -> u64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }
}

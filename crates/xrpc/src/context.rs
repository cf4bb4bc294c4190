//! What all methods share.

use crate::auth::Gatekeeper;
use crate::firehose::{Followers, Places};
use crate::limits::Limits;
use crate::options::Options;
use crate::shares::Pool;
use highwater_base::{Clock, Random};
use highwater_host::Host;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, watch};

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
    /// The accounts.
    pub host: Host,
    /// Limits and timeouts.
    pub options: Options,
    /// How often was asked.
    pub limits: Limits,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Who judges requests.
    pub gatekeeper: Arc<dyn Gatekeeper>,
    /// Places of the stream's subscribers.
    pub(crate) places: Places,
    /// Where the stream's subscribers come from, as the host numbers them.
    pub(crate) followers: Followers,
    /// Room for bodies that are being read, in KiB.
    pub(crate) bodies: Pool,
    /// Large bodies that may become values now.
    pub(crate) parsing: Arc<Semaphore>,
    /// Reads of what is stored that may go on now.
    pub(crate) reads: Arc<Semaphore>,
    /// Room for answers that wait for their readers, in KiB.
    pub(crate) answers: Pool,
    /// Exports that may be begun now.
    pub(crate) exports: Pool,
    /// Room for uploads.
    pub(crate) uploads: Pool,
    random: Mutex<Box<dyn Random>>,
    closing: watch::Sender<bool>,
}

impl Context {
    /// What all methods share, over a host.
    #[must_use]
    pub fn new(host: Host, options: Options, seams: Seams) -> Self {
        Self {
            host,
            places: Places::new(&options.stream),
            followers: Followers::default(),
            limits: Limits::new(options.rates.clone()),
            uploads: Pool::new(options.uploads_max, "uploads"),
            bodies: Pool::new(options.bodies_bytes_max >> 10, "bodies"),
            parsing: Arc::new(Semaphore::new(options.parsed_at_once_max)),
            reads: Arc::new(Semaphore::new(options.reads_max)),
            answers: Pool::new(options.answers_bytes_max >> 10, "large answers"),
            exports: Pool::new(options.exports_begun_max, "exports"),
            options,
            clock: seams.clock,
            gatekeeper: seams.gatekeeper,
            random: Mutex::new(seams.random),
            closing: watch::Sender::new(false),
        }
    }

    /// Random bits, good for secrets.
    pub fn draw(&self) -> u64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }

    /// Says goodbye to the stream's subscribers, and waits until they have gone: they bound that themselves.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        self.places.wait_empty().await;
    }

    /// Waits for the moment in which [`Self::close`] is called.
    pub(crate) async fn closing(&self) {
        // The sender lives as long as `self`, so the wait ends with the moment and with nothing else.
        let mut closing = self.closing.subscribe();
        let _changed = closing.wait_for(|closing| *closing).await;
    }

    /// How many subscribers the stream has.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        self.places.taken()
    }
}

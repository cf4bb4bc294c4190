//! The moment from which the server stops.

use std::sync::Arc;
use tokio::sync::watch;

/// Tells everything that waits for nothing in particular, long-polls and event streams, that the server stops: they end
/// then at once, so that only requests that do something keep it from stopping. Clones share the moment.
#[derive(Debug, Clone)]
pub struct Closing(Arc<watch::Sender<bool>>);

impl Default for Closing {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Closing {
    /// The moment is now.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Whether it has passed.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for it.
    pub async fn wait(&self) {
        // The sender lives as long as `self`, so the wait ends with the moment and with nothing else.
        let mut begun = self.0.subscribe();
        let _changed = begun.wait_for(|begun| *begun).await;
    }
}

//! What the service manager that started the server is told, if it asked to be.

use highwater_node::Handle;
use sd_notify::NotifyState;
use std::time::Duration;

/// The server answers.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The server stops.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Says for as long as it runs that the server lives, if the service manager wants to hear that (`WatchdogSec`): only
/// while the node's own thread answers, so that a server that hangs is started again.
pub async fn watch(handle: Handle) {
    let Some(patience) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
    loop {
        let asked = handle.clone();
        let answers = tokio::task::spawn_blocking(move || asked.answers(patience / 2)).await;
        if answers.is_ok_and(|answers| answers) {
            tell(&[NotifyState::Watchdog]);
        }
        tokio::time::sleep((patience / 4).max(Duration::from_millis(50))).await;
    }
}

/// Without a service manager this does nothing.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager does not listen");
    }
}

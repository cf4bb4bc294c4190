//! Where the log goes, and in which form.

use crate::config::Settings;
use anyhow::{Context as _, Result};
use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// Sends the log to standard error.
///
/// # Errors
/// If the settings name no filter or no format.
pub fn start(settings: &Settings) -> Result<()> {
    let filter = filter(settings)?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if settings.log_is_json()? {
        lines.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
    } else {
        lines.with_ansi(std::io::stderr().is_terminal()).init();
    }
    Ok(())
}

/// What is logged.
///
/// # Errors
/// If the setting names no filter.
pub fn filter(settings: &Settings) -> Result<EnvFilter> {
    EnvFilter::try_new(settings.log()).with_context(|| format!("log = {:?}", settings.log()))
}

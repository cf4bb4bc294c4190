//! Where the log goes, and in which form.

use crate::config::Settings;
use anyhow::{Context as _, Result, bail};
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
    let text = settings.log();
    // The library takes any other word for a module's name, and logs nothing but that module.
    if let Some(word) = text.split(',').map(str::trim).find(|part| !part.contains(['=', '[']) && !is_level(part)) {
        bail!(
            "log = {text:?}: {word:?} is no level; the levels are {}, and a filter by module is MODULE=LEVEL, such as \
             info,highwater_http=debug",
            LEVELS.join(", ")
        );
    }
    EnvFilter::try_new(text).with_context(|| format!("log = {text:?}"))
}

/// How much is logged, from nothing to everything.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

fn is_level(word: &str) -> bool {
    LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word that is no level used to silence the server.
    #[test]
    fn a_lone_word_that_is_no_level_is_refused() {
        let filtered = |text: &str| {
            let flags = [("log".to_owned(), text.to_owned())].into();
            filter(&Settings::resolve(&flags, |_| None, None).unwrap())
        };
        for right in ["info", "WARN", "off", "info,highwater_http=debug"] {
            assert!(filtered(right).is_ok(), "{right}");
        }
        for wrong in ["verbose", "highwater_http", "info,verbose", "", "infos", "info,"] {
            let error = filtered(wrong).unwrap_err().to_string();
            assert!(error.contains("no level") && error.contains("trace"), "{wrong}: {error}");
        }
    }
}

//! Data goes to standard output, progress to standard error.

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal as _, Write as _};

/// Prints one JSON value and a newline.
pub fn json(value: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// Prints lines of a name and a value, the values aligned.
pub fn table(rows: &[(&str, String)]) -> Result<()> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut out = std::io::stdout().lock();
    for (name, value) in rows {
        writeln!(out, "{name:width$}  {value}")?;
    }
    Ok(())
}

/// A count of bytes for people.
pub fn bytes(count: u64) -> String {
    indicatif::HumanBytes(count).to_string()
}

/// Progress in bytes: a bar on a terminal, a line every few seconds elsewhere, nothing for work that is done at once.
pub struct Progress {
    bar: ProgressBar,
    what: &'static str,
    said: std::time::Instant,
}

/// How often a line is written where there is no terminal.
const LINE_EVERY_S: u64 = 5;

impl Progress {
    /// Progress of `what`, as in "restoring".
    pub fn new(what: &'static str) -> Self {
        let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
        let style = "{msg} {bytes}/{total_bytes} [{bar:30}] {bytes_per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self { bar, what, said: std::time::Instant::now() }
    }

    /// `done` of `total` bytes are through.
    pub fn set(&mut self, done: u64, total: u64) {
        self.bar.set_length(total.max(done));
        self.bar.set_position(done);
        if self.bar.is_hidden() && self.said.elapsed().as_secs() >= LINE_EVERY_S {
            eprintln!("{}: {} of {}", self.what, bytes(done), bytes(total));
            self.said = std::time::Instant::now();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A moment in milliseconds since 1970, as a clock in UTC shows it.
pub fn time(ms: u64) -> String {
    highwater_http::Validity { from: highwater_base::Millis(0), until: highwater_base::Millis(ms) }.end()
}

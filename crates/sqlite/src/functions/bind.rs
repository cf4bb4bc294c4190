//! `highwater_bind(path, url[, options])`.

use crate::bind::{BindOptions, Bound};
use crate::ffi::code;
use crate::host;
use crate::replicator;
use crate::vfs::failure::Failure;
use highwater_client::{Options as ClientOptions, TokenSource};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The options, a JSON object. What is not given is as by default, for tokens and certificates as the environment says.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Bytes of a page of a new database.
    page_size: Option<u32>,
    /// 0 none, 1 full, 2 incremental; for a new database.
    auto_vacuum: Option<u8>,
    /// The token of this call; connections opened later take theirs from the environment or their URI.
    token: Option<String>,
    /// A file with the token.
    token_file: Option<PathBuf>,
    /// A file of certificates that are trusted besides the system's.
    ca_file: Option<PathBuf>,
}

impl Options {
    /// Reads the options; an empty text has none.
    /// # Errors
    /// `SQLITE_ERROR` naming what is wrong.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_str(text).map_err(|error| Failure::new(code::ERROR, format!("usage: the options: {error}")))
    }

    fn bind(&self) -> BindOptions {
        let default = BindOptions::default();
        BindOptions {
            page_size: self.page_size.unwrap_or(default.page_size),
            auto_vacuum: self.auto_vacuum.unwrap_or(default.auto_vacuum),
        }
    }

    fn client(self) -> ClientOptions {
        let mut options = ClientOptions::from_environment();
        if let Some(token) = self.token {
            options.token = TokenSource::fixed(token);
        }
        if let Some(file) = self.token_file {
            options.token = TokenSource::file(file);
        }
        options.ca_file = self.ca_file.or(options.ca_file);
        options
    }
}

/// Binds a file; what was done, in a word.
/// # Errors
/// `SQLITE_ERROR` with the reason; the file is as it was.
pub fn bind(path: &Path, url: &str, options: Options) -> Result<String, Failure> {
    let (disk, bound) = (host::registry().disk(), options.bind());
    let result = replicator::bind(disk, path, url, bound, options.client(), &mut |_, _| {});
    match result.map_err(|error| Failure::new(code::ERROR, error.to_string()))? {
        Bound::Already => Ok("already".into()),
        Bound::Created => Ok("created".into()),
        Bound::Existing { .. } => Ok("existing".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_options_are_refused() {
        assert_eq!(Options::parse(""), Ok(Options::default()));
        let options = Options::parse(r#"{"page_size": 8192, "token": "hw_1_x"}"#).expect("options");
        assert_eq!(options.bind(), BindOptions { page_size: 8192, auto_vacuum: 0 });
        let refused = Options::parse(r#"{"pagesize": 8192}"#).expect_err("refused");
        assert!(refused.text.contains("unknown field `pagesize`"), "{}", refused.text);
    }
}

//! Taking a backup from a running server: what it consists of, and its files by range.

use crate::error_body::ErrorBody;
use crate::exchange::{Client, Reply, Request};
use bytes::Bytes;
use ureq::http::Method;

/// Bytes of a backup's description: room for a million files.
const PLAN_BYTES_MAX: u64 = 128 << 20;
/// Bytes of every other answer that is not a file's.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// A server from which backups are taken.
#[derive(Debug)]
pub struct BackupClient {
    client: Client,
    base: String,
}

/// What did not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupRefused {
    /// The answer's status; 0 if there was none.
    pub status: u16,
    /// Why, for people.
    pub why: String,
}

impl std::fmt::Display for BackupRefused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for BackupRefused {}

impl BackupClient {
    /// The server at `url`, its scheme, host and port.
    #[must_use]
    pub fn new(client: Client, url: &str) -> Self {
        Self { client, base: format!("{}/v1/admin/backups", url.trim_end_matches('/')) }
    }

    /// Begins a backup; its description as the server sends it, in JSON. With `except_damaged` it leaves damaged groups out
    /// and names them.
    /// # Errors
    /// [`BackupRefused`].
    pub fn begin(&self, except_damaged: bool) -> Result<Bytes, BackupRefused> {
        let query = if except_damaged { "?except_damaged=true" } else { "" };
        self.ask(Method::POST, format!("{}{query}", self.base), 201, PLAN_BYTES_MAX)
    }

    /// Up to `length` bytes of a file from `offset` on.
    /// # Errors
    /// [`BackupRefused`].
    pub fn read(&self, id: &str, path: &str, offset: u64, length: u64) -> Result<Bytes, BackupRefused> {
        let url = format!("{}/{id}/files/{path}?offset={offset}&length={length}", self.base);
        self.ask(Method::GET, url, 200, length)
    }

    /// The BLAKE3 digest of a file, in hexadecimal digits.
    /// # Errors
    /// [`BackupRefused`].
    pub fn digest(&self, id: &str, path: &str) -> Result<String, BackupRefused> {
        let answer = self.ask(Method::GET, format!("{}/{id}/digests/{path}", self.base), 200, ANSWER_BYTES_MAX)?;
        Ok(String::from_utf8_lossy(&answer).trim().to_owned())
    }

    /// Ends a backup, so that the server may delete what it kept.
    /// # Errors
    /// [`BackupRefused`]; the backup then ends by itself.
    pub fn end(&self, id: &str) -> Result<(), BackupRefused> {
        self.ask(Method::DELETE, format!("{}/{id}", self.base), 204, ANSWER_BYTES_MAX).map(drop)
    }

    fn ask(&self, method: Method, url: String, expected: u16, answer_bytes_max: u64) -> Result<Bytes, BackupRefused> {
        let answer_bytes_max = answer_bytes_max.max(ANSWER_BYTES_MAX);
        let body = (method == Method::POST).then_some(&[][..]);
        let request = Request { method, url, headers: Vec::new(), body, answer_bytes_max };
        match self.client.exchange(&request).1 {
            Err(why) => Err(BackupRefused { status: 0, why }),
            Ok(Reply { status, body, .. }) if status == expected => Ok(body),
            Ok(Reply { status, body, .. }) => {
                let said = ErrorBody::parse(&body).map(|said| format!("{}: {}", said.code, said.message));
                let why = said.unwrap_or_else(|| format!("the answer has status {status}"));
                Err(BackupRefused { status, why })
            }
        }
    }
}

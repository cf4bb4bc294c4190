//! An error on its way to SQLite.

use crate::ffi::code;
use std::ffi::c_int;
use std::io;

/// SQLite's result code, and what a person is told where SQLite has room for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// SQLite's (extended) result code.
    pub code: c_int,
    /// A code an application can switch on, a colon and an explanation; empty where the result code says it all.
    pub text: String,
}

impl Failure {
    /// A bare result code.
    #[must_use]
    pub fn code(code: c_int) -> Self {
        Self { code, text: String::new() }
    }

    /// A result code with its explanation.
    #[must_use]
    pub fn new(code: c_int, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// The system's error in an operation whose own result code is `code`; a full disk is `SQLITE_FULL`.
    #[must_use]
    pub fn io(code: c_int, what: &str, error: &io::Error) -> Self {
        let code = if error.kind() == io::ErrorKind::StorageFull { code::FULL } else { code };
        Self::new(code, format!("io: {what}: {error}"))
    }
}

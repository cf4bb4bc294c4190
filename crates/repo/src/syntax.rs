//! The texts by which accounts, records and kinds of records are called.
//!
//! Source: atproto specifications of DID, handle, NSID, record key, AT URI, and "String Formats" of the Lexicon.

mod datetime;
mod language;
mod uri;

pub use datetime::{is_datetime, is_datetime_text};
pub use language::{is_language, is_language_text};
pub use uri::{is_at_uri, is_cid_text, is_uri};

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Bytes of a label between the dots of a name.
const LABEL_BYTES_MAX: usize = 63;

/// Text that is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("this is no {0}")]
pub struct SyntaxError(
    /// What it should be.
    pub &'static str,
);

macro_rules! texts {
    ($($(#[$about:meta])* $name:ident, $called:literal, $check:path;)*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// Its text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = SyntaxError;

            fn from_str(text: &str) -> Result<Self, SyntaxError> {
                if $check(text) { Ok(Self(text.into())) } else { Err(SyntaxError($called)) }
            }
        }
    )*};
}

texts! {
    /// An account's lasting identifier, such as `did:web:host.example`.
    Did, "DID", is_did;
    /// An account's name, a host name, such as `some-bot.host.example`.
    Handle, "handle", is_handle;
    /// The name of a kind of record, such as `app.bsky.feed.post`.
    Nsid, "NSID", is_nsid;
    /// A record's key within its collection, such as `self`.
    RecordKey, "record key", is_record_key;
}

/// Whether text is a DID: a method in lower case, and an identifier that ends neither in a colon nor in a percent sign.
#[must_use]
pub fn is_did(text: &str) -> bool {
    let Some((method, identifier)) = text.strip_prefix("did:").and_then(|rest| rest.split_once(':')) else {
        return false;
    };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:%-".contains(&byte);
    text.len() <= 2048
        && !method.is_empty()
        && method.bytes().all(|byte| byte.is_ascii_lowercase())
        && identifier.bytes().all(allowed)
        && identifier.bytes().last().is_some_and(|last| !b":%".contains(&last))
}

fn is_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    (1..=LABEL_BYTES_MAX).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        && bytes[0] != b'-'
        && bytes[bytes.len() - 1] != b'-'
}

fn begins_with_letter(label: &str) -> bool {
    label.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// Whether text is a handle: two labels or more, the last of which begins with a letter.
#[must_use]
pub fn is_handle(text: &str) -> bool {
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= 253 && text.contains('.') && text.split('.').all(is_label) && begins_with_letter(last)
}

/// Whether text is an NSID: an authority of two labels or more, turned around, and a name.
#[must_use]
pub fn is_nsid(text: &str) -> bool {
    let Some((authority, name)) = text.rsplit_once('.') else { return false };
    text.len() <= 317
        && authority.contains('.')
        && authority.split('.').all(is_label)
        && begins_with_letter(authority)
        && begins_with_letter(name)
        && name.len() <= LABEL_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Whether text is a record key.
#[must_use]
pub fn is_record_key(text: &str) -> bool {
    (1..=512).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:~-".contains(&byte))
        && !matches!(text, "." | "..")
}

/// Whether text calls an account: by its DID or by its handle.
#[must_use]
pub fn is_at_identifier(text: &str) -> bool {
    is_did(text) || is_handle(text)
}

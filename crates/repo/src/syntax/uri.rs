//! Addresses.

use super::{is_at_identifier, is_nsid, is_record_key};

const BYTES_MAX: usize = 8192;

/// Whether text addresses an account, a collection of it, or a record: `at://account/collection/key`.
#[must_use]
pub fn is_at_uri(text: &str) -> bool {
    let Some(path) = text.strip_prefix("at://") else { return false };
    let mut parts = path.split('/');
    text.len() <= BYTES_MAX
        && parts.next().is_some_and(is_at_identifier)
        && parts.next().is_none_or(is_nsid)
        && parts.next().is_none_or(is_record_key)
        && parts.next().is_none()
}

/// Whether text is an address of any scheme, as far as a record is asked about it.
#[must_use]
pub fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    text.len() <= BYTES_MAX
        && (1..=81).contains(&scheme.len())
        && scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme.bytes().all(|byte| byte.is_ascii_lowercase() || b".-".contains(&byte))
        && !rest.is_empty()
        && rest.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether text may be a CID of any kind: links of this protocol are narrower, see [`crate::Cid`].
#[must_use]
pub fn is_cid_text(text: &str) -> bool {
    (8..=256).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=".contains(&byte))
        && !text.starts_with("Qmb")
}

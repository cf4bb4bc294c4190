//! How many of what there may be, and the syntax of names.

use highwater_base::limits::PATH_BYTES_MAX;

/// Keys that are kept, revoked ones included. A key costs about 300 bytes of memory, so that these take 6 MiB.
///
/// A new one takes the place of the one that was revoked longest ago; only if none was is it refused.
pub const KEYS_MAX: usize = 20_000;

/// Accounts, and plans. Each costs about 200 bytes and its buckets.
pub const ACCOUNTS_MAX: usize = 20_000;

/// Path prefixes of one key, and buckets of one account: a request looks at each of its key's.
pub const PREFIXES_MAX: usize = 64;

/// Buckets of one account. An account with more groups its streams below fewer.
pub const BUCKETS_MAX: usize = 256;

/// Bytes of the name of an account or a plan.
pub const NAME_BYTES_MAX: usize = 64;

/// Bytes of the note that a key carries for people.
pub const NOTE_BYTES_MAX: usize = 256;

/// Bytes of a request's id.
pub const REQUEST_ID_BYTES_MAX: usize = 64;

/// Whether a text can name an account or a plan: letters of lower case, digits, `-`, `_` and `.`.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.bytes().all(allowed)
}

/// Whether a text is one segment of a stream's path.
#[must_use]
pub fn is_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains('/') && !text.chars().any(char::is_control)
}

/// Whether a text is a path prefix: one or more segments joined by `/`, with none in front and none behind.
#[must_use]
pub fn is_prefix(text: &str) -> bool {
    text.len() <= PATH_BYTES_MAX && text.split('/').all(is_segment)
}

/// Whether `path` is `prefix` or lies below it: `app` covers `app` and `app/db`, and not `apple`.
#[must_use]
pub fn covers(prefix: &str, path: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The bucket of a stream's path: its first segment, if it has two or more.
#[must_use]
pub fn bucket_of(path: &str) -> Option<&str> {
    path.split_once('/').map(|(bucket, _)| bucket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_at_a_segment() {
        for path in ["app", "app/db", "app/db/x", "app/"] {
            assert!(covers("app", path), "{path}");
        }
        for path in ["apple", "ap", "", "xapp", "x/app"] {
            assert!(!covers("app", path), "{path}");
        }
        assert!(covers("app/db", "app/db") && !covers("app/db", "app/db2") && !covers("app/db", "app"));
    }

    #[test]
    fn names_and_prefixes_are_clean() {
        for prefix in ["a", "app/db", "Ä b/c", "a.b"] {
            assert!(is_prefix(prefix), "{prefix}");
        }
        for prefix in ["", "/", "/a", "a/", "a//b", "a/../b", ".", "a\n"] {
            assert!(!is_prefix(prefix), "{prefix:?}");
        }
        assert!(is_name("team-1.eu_x") && !is_name("") && !is_name("Team") && !is_name("a b") && !is_name("a/b"));
        assert_eq!((bucket_of("a"), bucket_of("a/b"), bucket_of("a/b/c")), (None, Some("a"), Some("a")));
    }
}

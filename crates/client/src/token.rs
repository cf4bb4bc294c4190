//! Where the bearer token comes from.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::SystemTime;
use std::{fs, io};

/// Names a token without holding it: equal for equal tokens, 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TokenId(pub u64);

/// A token's source: a file, a fixed text, or nothing.
///
/// A file is read again when its time or length changes, so that a replaced token is used without a restart.
#[derive(Debug, Default)]
pub struct TokenSource {
    file: Option<PathBuf>,
    fixed: Option<String>,
    seen: Mutex<Option<Seen>>,
}

#[derive(Debug, Clone)]
struct Seen {
    modified: Option<SystemTime>,
    length: u64,
    token: Option<String>,
}

impl TokenSource {
    /// No token: requests carry no `Authorization`.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Always this token.
    #[must_use]
    pub fn fixed(token: impl Into<String>) -> Self {
        Self { fixed: Some(token.into()), ..Self::default() }
    }

    /// The token that the file holds at the time of a request.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { file: Some(path.into()), ..Self::default() }
    }

    /// `HIGHWATER_TOKEN_FILE`, else `HIGHWATER_TOKEN`, else none.
    #[must_use]
    pub fn from_environment() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        match (set("HIGHWATER_TOKEN_FILE"), set("HIGHWATER_TOKEN")) {
            (Some(file), _) => Self::file(file),
            (None, Some(token)) => Self::fixed(token.to_string_lossy()),
            (None, None) => Self::none(),
        }
    }

    /// The token to send now, without the line's end.
    /// # Errors
    /// The system's, if the file cannot be read.
    pub fn current(&self) -> io::Result<Option<String>> {
        let Some(path) = &self.file else { return Ok(self.fixed.clone()) };
        let metadata = fs::metadata(path)?;
        let (modified, length) = (metadata.modified().ok(), metadata.len());
        let mut seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(seen) = &*seen
            && (seen.modified, seen.length) == (modified, length)
        {
            return Ok(seen.token.clone());
        }
        let text = fs::read_to_string(path)?;
        let token = Some(text.trim().to_owned()).filter(|token| !token.is_empty());
        *seen = Some(Seen { modified, length, token: token.clone() });
        Ok(token)
    }

    /// Forgets what was read, so that the next request reads the file even if its time and length are unchanged.
    pub fn reread(&self) {
        *self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    }
}

/// The id of a token.
#[must_use]
pub fn token_id(token: Option<&str>) -> TokenId {
    token.map_or(TokenId(0), |token| {
        let mut first = [0; 8];
        first.copy_from_slice(&blake3::hash(token.as_bytes()).as_bytes()[..8]);
        TokenId(u64::from_le_bytes(first) | 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_is_read_again() {
        let path = std::env::temp_dir().join(format!("highwater-token-{}", std::process::id()));
        fs::write(&path, "first\n").expect("a writable directory");
        let source = TokenSource::file(&path);
        assert_eq!(source.current().expect("a file").as_deref(), Some("first"));
        fs::write(&path, "second, and longer\n").expect("a writable directory");
        assert_eq!(source.current().expect("a file").as_deref(), Some("second, and longer"));
        fs::write(&path, "second, but other!\n").expect("a writable directory");
        source.reread();
        assert_eq!(source.current().expect("a file").as_deref(), Some("second, but other!"));
        fs::remove_file(&path).expect("the file is there");
        assert!(source.current().is_err());
    }

    #[test]
    fn a_token_is_named_without_being_shown() {
        assert_eq!(token_id(None), TokenId(0));
        assert_eq!(token_id(Some("a")), token_id(Some("a")));
        assert_ne!(token_id(Some("a")), token_id(Some("b")));
        assert_ne!(token_id(Some("")), TokenId(0));
    }
}

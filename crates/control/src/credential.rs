//! The spelling of a key: `hw_<id>_<secret>`.

use highwater_base::Digest;
use std::fmt;

/// The digits of ids and secrets: Crockford's base 32 in lower case, without the letters that read like digits.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Digits of an id: 60 bits, so that the four above are free for the kind of an object in the store.
const ID_DIGITS: usize = 12;

/// Digits of a secret: 256 bits, and four of padding.
const SECRET_DIGITS: usize = 52;

/// What every key begins with, so that a scanner of source code finds one that leaked.
const MARK: &str = "hw_";

/// Names a key; not a secret. 60 bits, spelled as 12 digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(u64);

impl KeyId {
    /// The largest number of an id.
    pub const NUMBER_MAX: u64 = (1 << 60) - 1;

    /// The id of a drawn number, of which the lower 60 bits count.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number & Self::NUMBER_MAX)
    }

    /// Its number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// The id after this one.
    #[must_use]
    pub fn following(self) -> Self {
        Self::new(self.0 + 1)
    }

    /// Reads the spelling, in lower case only.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != ID_DIGITS {
            return None;
        }
        let mut number = 0;
        for digit in text.bytes() {
            number = number << 5 | DIGITS.iter().position(|known| *known == digit)? as u64;
        }
        Some(Self(number))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digit = |place: usize| char::from(DIGITS[(self.0 >> (5 * place) & 31) as usize]);
        (0..ID_DIGITS).rev().try_for_each(|place| write!(f, "{}", digit(place)))
    }
}

/// What a request presents. Its secret is nowhere printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// Which key.
    pub id: KeyId,
    secret: String,
}

impl Credential {
    /// The key of a drawn id and 256 drawn bits.
    #[must_use]
    pub fn new(id: KeyId, drawn: [u64; 4]) -> Self {
        let bits: Vec<u8> = drawn.iter().flat_map(|word| word.to_be_bytes()).chain([0]).collect();
        let digit = |place: usize| {
            let (byte, shift) = (place * 5 / 8, place * 5 % 8);
            let pair = u16::from(bits[byte]) << 8 | u16::from(bits[byte + 1]);
            char::from(DIGITS[usize::from(pair << shift >> 11)])
        };
        Self { id, secret: (0..SECRET_DIGITS).map(digit).collect() }
    }

    /// The same secret under another id, which the key got because this one was taken.
    #[must_use]
    pub fn with_id(self, id: KeyId) -> Self {
        Self { id, ..self }
    }

    /// Reads what a request presents.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(MARK)?.split_once('_')?;
        let whole = secret.len() == SECRET_DIGITS && secret.bytes().all(|digit| DIGITS.contains(&digit));
        Some(Self { id: KeyId::parse(id)?, secret: whole.then(|| secret.to_owned())? })
    }

    /// The hash under which the secret is kept.
    ///
    /// One round of BLAKE3 without salt: a secret of 256 drawn bits cannot be guessed, so that there is nothing that a
    /// slow hash would slow down.
    #[must_use]
    pub fn hash(&self) -> Digest {
        Digest::of(self.secret.as_bytes())
    }

    /// Whether this is the secret of `hash`, in a time that does not tell how much of it was right.
    #[must_use]
    pub fn matches(&self, hash: Digest) -> bool {
        // The comparison of these is one that takes equal time.
        blake3::hash(self.secret.as_bytes()) == blake3::Hash::from_bytes(hash.0)
    }

    /// The whole spelling, to be shown once.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{MARK}{}_{}", self.id, self.secret)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_reads_back_and_never_prints_its_secret() {
        for drawn in [[0; 4], [u64::MAX; 4], [1, 2, 3, 4], [0x0123_4567_89ab_cdef; 4]] {
            let credential = Credential::new(KeyId::new(drawn[0] ^ 77), drawn);
            let spelled = credential.reveal();
            assert_eq!(spelled.len(), 68);
            assert_eq!(Credential::parse(&spelled), Some(credential.clone()));
            assert!(credential.matches(credential.hash()));
            assert!(!format!("{credential:?}").contains(&spelled[20..]), "{credential:?}");
        }
    }

    #[test]
    fn different_draws_give_different_secrets() {
        for bit in 0..256 {
            let mut drawn = [0; 4];
            drawn[bit / 64] = 1 << (bit % 64);
            let credential = Credential::new(KeyId::new(0), drawn);
            assert!(!credential.matches(Credential::new(KeyId::new(0), [0; 4]).hash()), "bit {bit} does not count");
        }
    }

    #[test]
    fn what_is_not_spelled_like_a_key_is_none() {
        let right = Credential::new(KeyId::new(5), [9; 4]).reveal();
        for wrong in [
            "",
            "hw_",
            &right[1..],
            &right[..67],
            &format!("{right}0"),
            &right.to_uppercase(),
            &right.replace("hw_", "hw-"),
        ] {
            assert_eq!(Credential::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Credential::parse(&right.replace('0', "u")), None, "u is no digit");
    }
}

//! The key file: what encrypts signing keys and the session secret, kept outside the volume.
//!
//! Whoever gets a copy of the volume alone, from a backup or a disk that was thrown away, then has no key of any account. Whoever
//! loses the file has lost the keys: it belongs into a backup of its own. `docs/formats/pds-secrets.md` describes every byte.
//!
//! Source: RFC 8439; XChaCha20-Poly1305, whose nonces are long enough to be drawn.

use crate::files;
use crate::options::Sealer;
use bytes::Bytes;
use chacha20poly1305::aead::Aead;
use chacha20poly1305::{Key, KeyInit, XChaCha20Poly1305, XNonce};
use highwater_base::{Digest, Random};
use highwater_disk::Disk;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
/// The first word of a key file, with its version.
const MAGIC: &str = "highwater-key-1";
/// The version of an encrypted secret.
const SEALED_VERSION: u8 = 1;
/// Bytes of a key file at the most.
const FILE_BYTES_MAX: usize = 256;

/// Why there is no key.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// There is no file.
    #[error(
        "the key file {} is missing. Without it the keys of accounts cannot be read: mount it or restore it from its own backup; \
         a new one does not help", .0.display()
    )]
    Missing(PathBuf),
    /// The file is none, or was changed.
    #[error("{} is no whole key file: a line `highwater-key-1`, 64 digits and 8 digits of a checksum", .0.display())]
    Form(PathBuf),
    /// A file that is there is not replaced.
    #[error("{} exists; a key file is never replaced, since what is encrypted under it could not be read again", .0.display())]
    Exists(PathBuf),
    /// The system failed.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// A key that lies in a file outside the volume.
pub struct KeyFile {
    id: u64,
    cipher: XChaCha20Poly1305,
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyFile {:016x}", self.id)
    }
}

/// A digest of a key for one purpose, from which the key does not follow.
fn digest(purpose: &str, key: &[u8; KEY_BYTES]) -> [u8; KEY_BYTES] {
    Digest::of(&[purpose.as_bytes(), &[0], key.as_slice()].concat()).0
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The text of a key file.
fn encode(key: &[u8; KEY_BYTES]) -> String {
    format!("{MAGIC} {} {}\n", hex(key), hex(&digest("highwater key file, checksum", key)[..4]))
}

/// The key in the text of a key file.
fn decode(text: &[u8]) -> Option<[u8; KEY_BYTES]> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.strip_suffix('\n').unwrap_or(text).split(' ');
    let (magic, digits, checksum) = (words.next()?, words.next()?, words.next()?);
    let key = Digest::parse(digits)?.0;
    let whole =
        magic == MAGIC && words.next().is_none() && checksum == hex(&digest("highwater key file, checksum", &key)[..4]);
    whole.then_some(key)
}

impl KeyFile {
    fn new(key: [u8; KEY_BYTES]) -> Self {
        let id = digest("highwater key file, id", &key);
        let id = id.first_chunk().copied().map_or(0, u64::from_le_bytes);
        Self { id, cipher: XChaCha20Poly1305::new(&Key::from(key)) }
    }

    /// The key in the text of a key file, if it is one.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        (text.len() <= FILE_BYTES_MAX).then(|| decode(text)).flatten().map(Self::new)
    }

    /// The key in a file.
    /// # Errors
    /// [`KeyFileError`].
    pub fn read(disk: &dyn Disk, path: &Path) -> Result<Self, KeyFileError> {
        let io = |error| KeyFileError::Io { path: path.to_path_buf(), error };
        let text = files::read(disk, path).map_err(io)?.ok_or_else(|| KeyFileError::Missing(path.to_path_buf()))?;
        Self::parse(&text).ok_or_else(|| KeyFileError::Form(path.to_path_buf()))
    }

    /// Draws a key and writes it into a new file, durably.
    /// # Errors
    /// [`KeyFileError`]; `Exists` if there is a file.
    pub fn create(disk: &dyn Disk, path: &Path, random: &mut dyn Random) -> Result<Self, KeyFileError> {
        let io = |error| KeyFileError::Io { path: path.to_path_buf(), error };
        if disk.exists(path).map_err(io)? {
            return Err(KeyFileError::Exists(path.to_path_buf()));
        }
        let mut key = [0; KEY_BYTES];
        for part in key.chunks_exact_mut(8) {
            part.copy_from_slice(&random.next_u64().to_le_bytes());
        }
        files::replace(disk, path, encode(&key).as_bytes()).map_err(io)?;
        Ok(Self::new(key))
    }
}

impl Sealer for KeyFile {
    fn id(&self) -> u64 {
        self.id
    }

    fn seal(&self, secret: &[u8], nonce: [u8; NONCE_BYTES]) -> Bytes {
        // Only a secret beyond 256 GiB is refused.
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), secret).unwrap_or_default();
        [&[SEALED_VERSION], nonce.as_slice(), &sealed].concat().into()
    }

    fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (version, rest) = sealed.split_first()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>()?;
        let known = *version == SEALED_VERSION;
        known.then(|| self.cipher.decrypt(&XNonce::from(*nonce), sealed).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_base::random::SplitMix;
    use highwater_disk::{OpenMode, SimDisk};

    const PATH: &str = "/keys/pds.key";

    fn made(seed: u64) -> (SimDisk, KeyFile) {
        let disk = SimDisk::new(1);
        highwater_disk::create_directory_durably(&disk, Path::new("/keys")).expect("made");
        let key = KeyFile::create(&disk, Path::new(PATH), &mut SplitMix::new(seed)).expect("made");
        (disk, key)
    }

    #[test]
    fn a_secret_opens_under_its_key_alone_and_only_whole() {
        let (disk, key) = made(1);
        let sealed = key.seal(b"thirty-two bytes of signing key!", [7; 24]);
        assert!(
            !sealed.windows(8).any(|part| b"thirty-two bytes of signing key!".windows(8).any(|plain| plain == part))
        );
        let read = KeyFile::read(&disk, Path::new(PATH)).expect("read");
        assert_eq!(read.id(), key.id());
        assert_eq!(read.open(&sealed).as_deref(), Some(&b"thirty-two bytes of signing key!"[..]));
        let (_, other) = made(2);
        assert_ne!(other.id(), key.id());
        assert_eq!(other.open(&sealed), None);
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(&flipped), None, "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert_eq!(key.open(&sealed[..length]), None, "{length} bytes");
        }
    }

    /// The vector was made with another implementation (Python's `pycryptodome`, `ChaCha20_Poly1305` with a nonce of 24 bytes).
    #[test]
    fn a_sealed_secret_is_that_of_another_implementation() {
        let key = KeyFile::new([0x42; 32]);
        let sealed = key.seal(b"a secret", [0x24; 24]);
        assert_eq!(
            hex(&sealed),
            "01242424242424242424242424242424242424242424242424c47ea4000d5629d24c2784c9993d270e95d79bba7717cb0c"
        );
    }

    #[test]
    fn a_key_file_reads_as_another_implementation_writes_it() {
        const TEXT: &[u8] =
            b"highwater-key-1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 8b8a07b6\n";
        assert_eq!(KeyFile::parse(TEXT).expect("a key").id(), 0x22832050f603857f);
        let later = [b"highwater-key-2".as_slice(), &TEXT[15..]].concat();
        assert!(KeyFile::parse(&later).is_none(), "a later version is refused");
    }

    #[test]
    fn a_key_file_is_never_replaced_and_a_changed_one_is_none() {
        let (disk, _) = made(1);
        let path = Path::new(PATH);
        assert!(matches!(KeyFile::create(&disk, path, &mut SplitMix::new(2)), Err(KeyFileError::Exists(_))));
        disk.power_loss();
        let text = files::read(&disk, path).expect("read").expect("durable");
        for at in 0..text.len() - 1 {
            let mut changed = text.to_vec();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            files::replace(&disk, path, &changed).expect("written");
            assert!(matches!(KeyFile::read(&disk, path), Err(KeyFileError::Form(_))), "byte {at}");
        }
        let file = disk.open(path, OpenMode::Write).expect("there");
        file.set_length(1 << 20).expect("grown");
        assert!(matches!(KeyFile::read(&disk, path), Err(KeyFileError::Form(_))));
        disk.remove(path).expect("removed");
        assert!(matches!(KeyFile::read(&disk, path), Err(KeyFileError::Missing(_))));
    }
}

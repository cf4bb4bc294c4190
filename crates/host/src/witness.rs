//! Files that remember what this server handed out, where they do not go back together with the directory of accounts.
//!
//! One lies in the data directory beside it, and stays when the accounts alone are put back, lost or mounted wrongly; one outside the
//! volume, if there is one, and stays when the whole volume goes back. Both say the same.

use crate::error::OpenError;
use crate::files;
use crate::layout::{sealed, unsealed};
use crate::options::Options;
use crate::shared::Shared;
use crate::slot::lock;
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader};
use highwater_disk::Disk;
use highwater_pds::Witness;
use highwater_repo::Tid;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The version of a witness file.
pub const WITNESS_VERSION: u16 = 2;
const WITNESS_MAGIC: [u8; 8] = *b"HWPDSWIT";

/// The file's bytes.
#[must_use]
pub fn encode_witness(witness: &Witness) -> Vec<u8> {
    sealed(WITNESS_MAGIC, WITNESS_VERSION, |out| {
        out.u64(witness.nonce).u64(witness.seq).u64(witness.account).option(witness.rev, |out, rev| {
            out.u64(rev.bits());
        });
    })
}

/// Reads it.
/// # Errors
/// What is wrong with it.
pub fn decode_witness(bytes: &Bytes) -> Result<Witness, DecodeError> {
    let mut input: Reader = unsealed(bytes, WITNESS_MAGIC, WITNESS_VERSION)?;
    let (nonce, seq, account) = (input.u64()?, input.u64()?, input.u64()?);
    let rev = input.option(|input| Tid::from_bits(input.u64()?).ok_or(DecodeError::Invalid("revision")))?;
    input.finish()?;
    let witness = Witness { nonce, seq, rev, account };
    if witness.is_possible() { Ok(witness) } else { Err(DecodeError::Invalid("number of the stream")) }
}

/// One of the files, and what it said last: nothing if it is not there, or why nobody knows.
struct Remembering {
    path: PathBuf,
    said: Result<Option<Witness>, String>,
    /// Why it does not say what it should since it was last written.
    failed: Option<String>,
}

impl Remembering {
    fn read(disk: &dyn Disk, path: &Path) -> Self {
        let said = match files::read(disk, path) {
            Ok(None) => Ok(None),
            Ok(Some(bytes)) => match decode_witness(&bytes) {
                Ok(witness) => Ok(Some(witness)),
                Err(DecodeError::Version(version)) => {
                    Err(format!("{} has version {version}, which this program does not know", path.display()))
                }
                Err(error) => Err(format!("{} does not read: {error}", path.display())),
            },
            Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
        };
        Self { path: path.to_path_buf(), said, failed: None }
    }

    fn witness(&self) -> Option<Witness> {
        self.said.as_ref().ok().copied().flatten()
    }

    /// Says it, if it is more than was said.
    fn write(&mut self, disk: &dyn Disk, witness: Witness, is_beside: bool) {
        // A directory in which there never was an account leaves no trace beside itself.
        let nothing = is_beside && witness.account == 0 && witness.seq == 0;
        if nothing || self.witness() == Some(witness) {
            self.failed = None;
            return;
        }
        match files::replace(disk, &self.path, &encode_witness(&witness)) {
            Ok(()) => (self.said, self.failed) = (Ok(Some(witness)), None),
            Err(error) => {
                tracing::warn!(
                    event = "witness_not_written",
                    path = %self.path.display(),
                    %error,
                    "a restore would not know by it which numbers were given out; the next checkpoint tries again"
                );
                self.failed = Some(format!("{}: {error}", self.path.display()));
            }
        }
    }
}

/// The files of a server.
#[derive(Default)]
pub(crate) struct Witnesses {
    outside: Option<Mutex<Remembering>>,
    beside: Option<Mutex<Remembering>>,
    /// There was no account when something was written down last: the first one is, as soon as it is durable.
    is_new: AtomicBool,
}

impl Witnesses {
    /// Reads what there is.
    pub fn read(disk: &dyn Disk, options: &Options) -> Self {
        let read = |path: &Option<PathBuf>| path.as_ref().map(|path| Mutex::new(Remembering::read(disk, path)));
        Self {
            outside: read(&options.witness_path),
            beside: read(&options.witness_beside_path),
            is_new: AtomicBool::new(false),
        }
    }

    fn each(&self) -> impl Iterator<Item = std::sync::MutexGuard<'_, Remembering>> {
        self.outside.iter().chain(&self.beside).map(lock)
    }

    /// What the file outside the volume says.
    pub fn outside(&self) -> Option<Witness> {
        self.outside.as_ref().and_then(|file| lock(file).witness())
    }

    /// What the file beside the directory says.
    pub fn beside(&self) -> Option<Witness> {
        self.beside.as_ref().and_then(|file| lock(file).witness())
    }

    /// Why one of them could not be written when it was tried last.
    pub fn failed(&self) -> Option<String> {
        self.each().find_map(|file| file.failed.clone())
    }

    /// Files that are there and say nothing, with the reason.
    pub fn unread(&self) -> Vec<String> {
        self.each().filter_map(|file| file.said.clone().err()).collect()
    }

    /// Refuses a directory without accounts where there were some.
    /// # Errors
    /// [`OpenError::AccountsGone`].
    pub fn refuse_gone(&self, directory: &Path) -> Result<(), OpenError> {
        let gone = |file: &Remembering| match &file.said {
            Ok(Some(witness)) if witness.account > 0 => Some(format!(
                "{} remembers {} accounts made here, and numbers of the stream up to {}",
                file.path.display(),
                witness.account,
                witness.seq
            )),
            Ok(_) => None,
            Err(why) => Some(format!("{why}, so that nobody knows whether there were accounts here")),
        };
        let found = self.each().find_map(|file| gone(&file));
        found.map_or(Ok(()), |what| Err(OpenError::AccountsGone { directory: directory.to_path_buf(), what }))
    }

    /// Writes down that there are accounts, before anybody is told of the first one.
    pub fn write_first(&self, shared: &Shared) {
        if self.is_new.load(Ordering::Relaxed) && !shared.state().accounts.is_empty() {
            self.write(shared);
        }
    }

    /// Writes down what is durable.
    pub fn write(&self, shared: &Shared) {
        self.is_new.store(shared.state().accounts.is_empty(), Ordering::Relaxed);
        for (file, is_beside) in [(&self.outside, false), (&self.beside, true)] {
            let Some(file) = file else { continue };
            let mut file = lock(file);
            let witness = Witness::of(&shared.state(), file.witness());
            file.write(&*shared.disk, witness, is_beside);
        }
    }
}

//! Backups of a node: every group's checkpoint as files, with a manifest that says what they must be.
//!
//! A backup is taken from a running node ([`session`]), copied by whoever wants it ([`copy`]), checked whenever one likes
//! ([`verify`]) and put back into an empty directory ([`restore`]). It holds what was acknowledged before it began, and of
//! what was written meanwhile nothing or a part; each group is whole in itself. `docs/formats/backup.md` has the bytes.

pub mod copy;
pub mod manifest;
pub mod restore;
pub mod session;
pub mod verify;

pub use copy::{Copied, CopyError, Local, Source, copy};
pub use manifest::{AbsentGroup, Entry, Manifest, ManifestError};
pub use restore::{RestoreError, Restored, restore};
pub use session::{BackupError, BackupFile, BackupPlan};
pub use verify::{BackupFault, Verified, verify};

use highwater_base::{GroupId, OwnerId};

/// Bytes of a file that are read at a time.
pub const PIECE_BYTES: u64 = 4 << 20;

/// Whose store a folder below `store/` is.
fn owner_of(folder: &str) -> Option<OwnerId> {
    if folder == OwnerId::CONTROL.to_string() {
        return Some(OwnerId::CONTROL);
    }
    let group = folder.strip_prefix('g')?.parse().ok().map(GroupId)?;
    Some(OwnerId::group(group)).filter(|owner| owner.to_string() == folder)
}

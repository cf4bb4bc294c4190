//! The data directory, as it is found before it is opened: whose it is, who else reads it, and who has it open.

use crate::exit::{self, Status};
use highwater_disk::{Disk as _, OpenMode, OsDisk};
use highwater_node::OpenError;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// What to tell whoever runs a server on a directory that other users of the machine may enter.
pub fn exposed(data: &Path) -> Option<String> {
    let mode = std::fs::metadata(data).ok()?.mode() & 0o777;
    let shown = data.display();
    (mode & 0o077 != 0).then(|| {
        format!(
            "other users of this machine may enter {shown} (mode {mode:04o}) and read what it holds: chmod 700 {shown}"
        )
    })
}

/// Whether another process has the directory open.
///
/// # Errors
/// If this user could not open it.
pub fn in_use(data: &Path) -> anyhow::Result<bool> {
    if !data.exists() {
        return Ok(false);
    }
    if !data.is_dir() {
        return Err(exit::with(Status::Wrong, format!("{} is a file; the data is a directory", data.display())));
    }
    let disk = OsDisk::new();
    let looked = match disk.open(&data.join("lock"), OpenMode::Write) {
        Ok(lock) => lock.try_lock().map(|free| !free),
        // It was never opened; whether this user may is told by the directory itself.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::READ_OK | rustix::fs::Access::EXEC_OK;
            rustix::fs::access(data, access).map(|()| false).map_err(std::io::Error::from)
        }
        Err(error) => Err(error),
    };
    looked.map_err(|error| {
        let advice = if is_denied(&error) { advice(data) } else { String::new() };
        exit::with(Status::Failed, format!("cannot open {}: {error}{advice}", data.display()))
    })
}

/// Why a directory was not opened, with what to do where the reason does not say it.
pub fn refused(data: &Path, error: OpenError) -> anyhow::Error {
    let shown = data.display();
    match &error {
        OpenError::InUse(_) => exit::with(Status::Later, format!("cannot open {shown}: {error}")),
        OpenError::Io { error: system, .. } if is_denied(system) => {
            exit::with(Status::Failed, format!("cannot open {shown}: {error}{}", advice(data)))
        }
        OpenError::Io { .. } if data.is_file() => {
            exit::with(Status::Wrong, format!("{shown} is a file; the data is a directory"))
        }
        _ => anyhow::Error::new(error).context(format!("cannot open {shown}")),
    }
}

fn is_denied(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied
}

/// What to do about a directory, or files in it, of another user.
fn advice(data: &Path) -> String {
    let (shown, own) = (data.display(), rustix::process::geteuid().as_raw());
    match std::fs::metadata(data).map(|found| found.uid()) {
        Ok(owner) if owner == own => format!(
            ". The directory is this user's ({own}), and something in it is not: as root, chown -R {own} {shown}"
        ),
        Ok(owner) => format!(
            ". The directory is user {owner}'s, and this runs as user {own}: run it as that user, such as with \
             `sudo -u '#{owner}'`, or give this user the directory, as root with chown -R {own} {shown}"
        ),
        Err(_) => format!(". User {own} may not make or enter it there"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_directory_that_others_may_enter_is_told_and_one_of_its_own_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |mode| {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            exposed(folder.path())
        };
        assert_eq!(mode(0o700), None);
        for wide in [0o755, 0o750, 0o701] {
            let told = mode(wide).unwrap();
            assert!(told.contains("chmod 700") && told.contains(&format!("{wide:04o}")), "{told}");
        }
        assert_eq!(exposed(&folder.path().join("none")), None);
    }

    #[test]
    fn a_directory_that_is_open_is_told_from_one_that_is_not_and_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!in_use(folder.path()).unwrap(), "an empty one");
        let lock = OsDisk::new().open(&folder.path().join("lock"), OpenMode::Create).unwrap();
        assert!(!in_use(folder.path()).unwrap());
        assert!(lock.try_lock().unwrap());
        assert!(in_use(folder.path()).unwrap());
        assert!(in_use(&folder.path().join("lock")).unwrap_err().to_string().contains("is a file"));
        assert!(!in_use(&folder.path().join("none")).unwrap());
    }
}

//! Where the files of a bound database lie.

use crate::engine::LogPosition;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The paths of one database: `app.db` and the folder `app.db-highwater/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The database file, symbolic links resolved.
    pub database: PathBuf,
    /// The folder beside it.
    pub folder: PathBuf,
    /// The folder of log segments.
    pub log: PathBuf,
    /// What is remembered beside the log; the database is bound once this file exists.
    pub meta: PathBuf,
    /// `meta` before its first rename.
    pub meta_new: PathBuf,
    /// The lock file with the owner's process id.
    pub lock: PathBuf,
    /// SQLite's `-wal`, as unsynced scratch.
    pub wal: PathBuf,
    /// A database file before its rename to `database`.
    pub database_new: PathBuf,
    /// A record too large for memory, during a restore.
    pub record_new: PathBuf,
    /// The status page.
    pub status: PathBuf,
    /// The status page before its rename.
    pub status_new: PathBuf,
}

impl Layout {
    /// The paths that belong to the database at `path`; symbolic links are resolved first, so that two names of one
    /// file have one folder.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let database = resolve(path);
        let folder = with_suffix(&database, "-highwater");
        Self {
            log: folder.join("log"),
            meta: folder.join("meta"),
            meta_new: folder.join("meta.new"),
            lock: folder.join("lock"),
            wal: folder.join("wal"),
            database_new: folder.join("database.new"),
            record_new: folder.join("record.new"),
            status: folder.join("status.json"),
            status_new: folder.join("status.json.new"),
            folder,
            database,
        }
    }

    /// The segment that starts at `position`.
    #[must_use]
    pub fn segment(&self, position: LogPosition) -> PathBuf {
        self.log.join(format!("{position}.log"))
    }

    /// The file stock SQLite keeps beside the database: `-journal`, `-wal` or `-shm`.
    #[must_use]
    pub fn beside(&self, suffix: &str) -> PathBuf {
        with_suffix(&self.database, suffix)
    }

    /// The directory that holds the database.
    #[must_use]
    pub fn parent(&self) -> PathBuf {
        self.database.parent().map(Path::to_path_buf).unwrap_or_default()
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(suffix);
    name.into()
}

/// The real path of a file that may not exist yet; as given where nothing of it exists.
fn resolve(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (parent.canonicalize(), path.file_name()) {
        (Ok(real), Some(name)) => real.join(name),
        _ => path.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_names_of_one_file_have_one_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = folder.path().join("real.db");
        std::fs::write(&real, b"").expect("write");
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink(&real, &link).expect("link");
        assert_eq!(Layout::of(&link), Layout::of(&real));
        let new = folder.path().join(".").join("new.db");
        assert_eq!(Layout::of(&new).folder, Layout::of(&folder.path().join("new.db")).folder);
    }

    #[test]
    fn segments_sort_by_their_position() {
        let layout = Layout::of(Path::new("/nowhere/app.db"));
        assert_eq!(layout.segment(LogPosition(7)), layout.log.join("00000000000000000007.log"));
        assert_eq!(layout.beside("-wal"), Path::new("/nowhere/app.db-wal"));
    }
}

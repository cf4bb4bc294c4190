//! The VFS: SQLite's files, with every commit of a bound database logged.
//!
//! Files of bound databases are ours ([`MainFile`], [`WalFile`]); everything else (temporary files, journals of other
//! databases) goes to the VFS that was the default before, untouched.

pub mod capture;
pub mod database;
pub mod failure;
pub mod file;
pub mod index;
pub mod locks;
pub mod main_file;
pub mod refused_file;
pub mod registry;
pub mod wal_file;

pub use main_file::MainFile;
pub use wal_file::WalFile;

use crate::engine::Engine;
use crate::ffi::{Api, FileBase, Vfs, code};
use crate::host::upkeep;
use failure::Failure;
use file::VfsFile;
use refused_file::RefusedFile;
use registry::{Registry, Settings, Use};
use std::ffi::{CStr, CString, OsStr, c_char, c_double, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What happens to a database that is not bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unbound {
    /// It is refused: whoever names the VFS wants replication.
    Refused,
    /// It is an ordinary database: as the default VFS, this one meets every file of the process.
    PassedThrough,
}

/// What the callbacks of a registered VFS know.
struct Scope {
    api: Api,
    below: *mut Vfs,
    registry: Arc<Registry>,
    unbound: Unbound,
    name: CString,
}

/// A VFS in one SQLite library's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    api: Api,
    vfs: *mut Vfs,
}

// SAFETY: the structure is never written after its registration, except for SQLite's own list pointer.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    /// Registers a VFS over `below`. It lives as long as the process.
    /// # Errors
    /// SQLite's result code.
    ///
    /// # Safety
    /// `below` is a VFS of the same library that stays registered.
    pub unsafe fn new(
        api: Api,
        below: *mut Vfs,
        name: &CStr,
        unbound: Unbound,
        registry: Arc<Registry>,
    ) -> Result<Self, c_int> {
        let scope: &'static Scope = Box::leak(Box::new(Scope { api, below, registry, unbound, name: name.to_owned() }));
        // SAFETY: the caller's promise.
        let (path_bytes_max, below_file_bytes, below_version) =
            unsafe { ((*below).path_bytes_max, (*below).file_bytes, (*below).version) };
        let own_file_bytes = c_int::try_from(file::SLOT_BYTES).map_err(|_| code::ERROR)?;
        let vfs = Box::into_raw(Box::new(Vfs {
            version: below_version.min(3),
            // A file that is passed through is the other VFS's altogether, in the memory that SQLite gave for it.
            file_bytes: own_file_bytes.max(below_file_bytes),
            path_bytes_max,
            next: std::ptr::null_mut(),
            name: scope.name.as_ptr(),
            app_data: std::ptr::from_ref(scope).cast_mut().cast(),
            open: Some(x_open),
            delete: Some(x_delete),
            access: Some(x_access),
            full_pathname: Some(x_full_pathname),
            dl_open: Some(x_dl_open),
            dl_error: Some(x_dl_error),
            dl_sym: Some(x_dl_sym),
            dl_close: Some(x_dl_close),
            randomness: Some(x_randomness),
            sleep: Some(x_sleep),
            current_time: Some(x_current_time),
            last_error: Some(x_last_error),
            current_time_int64: Some(x_current_time_int64),
            set_system_call: Some(x_set_system_call),
            get_system_call: Some(x_get_system_call),
            next_system_call: Some(x_next_system_call),
        }));
        // SAFETY: the structure was leaked and lives for ever.
        match unsafe { api.vfs_register(vfs, false) } {
            code::OK => Ok(Self { api, vfs }),
            result => Err(result),
        }
    }

    /// Makes it the default of its library.
    /// # Errors
    /// SQLite's result code.
    pub fn make_default(self) -> Result<(), c_int> {
        // SAFETY: it is registered and lives for ever.
        match unsafe { self.api.vfs_register(self.vfs, true) } {
            code::OK => Ok(()),
            result => Err(result),
        }
    }

    /// Whether it is the default of its library.
    #[must_use]
    pub fn is_default(self) -> bool {
        std::ptr::eq(self.api.vfs_find(None), self.vfs)
    }

    /// Takes it out of its library's list: no later connection can name it.
    pub fn remove(self) {
        // SAFETY: it was registered; its memory stays for connections that still use it.
        unsafe { self.api.vfs_unregister(self.vfs) };
    }
}

/// The scope of a VFS of ours.
///
/// # Safety
/// `vfs` was registered by [`Registered::new`].
unsafe fn scope(vfs: *mut Vfs) -> &'static Scope {
    // SAFETY: the caller's promise; the scope was leaked.
    unsafe { &*(*vfs).app_data.cast::<Scope>() }
}

/// # Safety
/// `name` ends in NUL.
unsafe fn path(name: *const c_char) -> PathBuf {
    // SAFETY: the caller's promise.
    PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()))
}

/// The database beside which a file of this name would lie.
fn owner(name: &Path, suffix: &str) -> Option<PathBuf> {
    let owner = name.as_os_str().as_bytes().strip_suffix(suffix.as_bytes())?;
    Some(PathBuf::from(OsStr::from_bytes(owner)))
}

/// What `xOpen` of a name is answered with.
enum Opened {
    Ours(Box<dyn VfsFile>),
    Below,
}

impl Scope {
    /// The settings in a database's URI.
    ///
    /// # Safety
    /// `name` is a name that SQLite passed to `xOpen` for a main database.
    unsafe fn settings(&self, name: *const c_char) -> Result<Settings, Failure> {
        // SAFETY: the caller's promise.
        let text = |key: &CStr| unsafe { self.api.uri_parameter(name, key) };
        let number = |key: &CStr| match text(key).map(|text| text.parse::<u64>()) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => {
                let text = format!("usage: the parameter {} must be a whole number", key.to_string_lossy());
                Err(Failure::new(code::CANTOPEN, text))
            }
        };
        Ok(Settings {
            max_pending_bytes: number(c"max_pending_bytes")?,
            sync_close_ms: number(c"sync_close_ms")?,
            token_file: text(c"token_file").map(PathBuf::from),
            ca_file: text(c"ca_file").map(PathBuf::from),
        })
    }

    /// # Safety
    /// `name` is a name that SQLite passed to `xOpen` for a main database.
    unsafe fn open_main(&'static self, name: *const c_char) -> Opened {
        // SAFETY: the caller's promise.
        let (path, upkeep) = unsafe { (path(name), self.api.uri_parameter(name, upkeep::PARAMETER).is_some()) };
        let refused = |failure: Failure| -> Box<dyn VfsFile> { Box::new(RefusedFile::new(self.api, failure)) };
        let usage = if upkeep { Use::Upkeep } else { Use::Application };
        let database = if upkeep {
            let closed = || Failure::new(code::CANTOPEN, "closed: the application closed the database");
            self.registry.join(&path).ok_or_else(closed)
        } else {
            match Engine::is_bound(&**self.registry.disk(), &path) {
                // SAFETY: the caller's promise.
                Ok(true) => unsafe { self.settings(name) }.and_then(|settings| self.registry.open(&path, &settings)),
                Ok(false) if self.unbound == Unbound::PassedThrough => return Opened::Below,
                Ok(false) => Err(not_bound(&path)),
                Err(error) => Err(Failure::io(code::CANTOPEN, "the database's folder cannot be read", &error)),
            }
        };
        Opened::Ours(match database {
            // SAFETY: the pointer is compared, never followed.
            Ok(database) => Box::new(MainFile::new(self.api, &self.name, self.registry.clone(), database, usage, name)),
            Err(failure) => refused(failure),
        })
    }

    /// # Safety
    /// `name` is a name that SQLite passed to `xOpen` for a `-wal`.
    unsafe fn open_wal(&self, name: *const c_char) -> Result<Opened, Failure> {
        // SAFETY: the caller's promise.
        let (path, main) = unsafe { (path(name), self.api.filename_database(name)) };
        let Some(database) = owner(&path, "-wal").and_then(|path| self.registry.find(&path)) else {
            return Ok(Opened::Below);
        };
        let connection = database.connection_of(main as usize).ok_or_else(|| Failure::code(code::CANTOPEN))?;
        Ok(Opened::Ours(Box::new(WalFile::open(self.api, database, connection)?)))
    }

    /// # Safety
    /// `name` is null or a name that SQLite passed to `xOpen` with `flags`.
    unsafe fn open(&'static self, name: *const c_char, flags: c_int) -> Result<Opened, Failure> {
        if name.is_null() {
            return Ok(Opened::Below);
        }
        // SAFETY: the caller's promise.
        unsafe {
            if flags & code::OPEN_MAIN_DB != 0 {
                Ok(self.open_main(name))
            } else if flags & code::OPEN_WAL != 0 {
                self.open_wal(name)
            } else if flags & code::OPEN_MAIN_JOURNAL != 0 && self.owner_of(name, "-journal").is_some() {
                let text = "journal_mode: a bound database stays in WAL mode, because a journal writes past the log";
                Err(Failure::new(code::CANTOPEN, text))
            } else {
                Ok(Opened::Below)
            }
        }
    }

    /// # Safety
    /// `name` ends in NUL.
    unsafe fn owner_of(&self, name: *const c_char, suffix: &str) -> Option<Arc<database::Database>> {
        // SAFETY: the caller's promise.
        owner(&unsafe { path(name) }, suffix).and_then(|path| self.registry.find(&path))
    }

    /// Deletes a file of a bound database; `None` if it is none of ours.
    ///
    /// # Safety
    /// `name` ends in NUL.
    unsafe fn delete(&self, name: *const c_char) -> Option<Result<(), Failure>> {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(database) = self.owner_of(name, "-wal") {
                return Some(if database.is_ours() { database.delete_wal() } else { Ok(()) });
            }
            self.owner_of(name, "-journal").map(|_| Ok(()))
        }
    }

    /// Whether a file of a bound database exists; `None` if it is none of ours.
    ///
    /// # Safety
    /// `name` ends in NUL.
    unsafe fn exists(&self, name: *const c_char) -> Option<bool> {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(database) = self.owner_of(name, "-wal") {
                return Some(database.has_wal());
            }
            // What a journal beside the file says was settled when the file was opened.
            self.owner_of(name, "-journal").map(|_| false)
        }
    }
}

fn not_bound(path: &Path) -> Failure {
    let path = path.display();
    let text = format!(
        "not_bound: {path} is not bound to a stream, so the VFS \"highwater\" does not open it; bind it with `highwater \
         db bind {path} URL` or SELECT highwater_bind('{path}', 'URL'), or open it without vfs=highwater"
    );
    Failure::new(code::CANTOPEN, text)
}

/// Runs a callback's body; a panic is the answer `or`.
fn guarded(or: c_int, body: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(or)
}

// SAFETY of all below: SQLite calls them with a VFS that `Registered::new` made, names that end in NUL and places for
// the answers; `below` has all the members that the unix VFS of 3.40.1 has.

unsafe extern "C" fn x_open(
    vfs: *mut Vfs,
    name: *const c_char,
    slot: *mut FileBase,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    unsafe {
        // SQLite closes a file whose methods are set even if its open failed.
        (*slot).methods = std::ptr::null();
        let scope = scope(vfs);
        guarded(code::CANTOPEN, || match scope.open(name, flags) {
            Ok(Opened::Ours(file)) => {
                file::install(slot, file);
                if !flags_out.is_null() {
                    *flags_out = flags;
                }
                code::OK
            }
            Ok(Opened::Below) => match (*scope.below).open {
                Some(open) => open(scope.below, name, slot, flags, flags_out),
                None => code::CANTOPEN,
            },
            Err(failure) => {
                scope.api.log(failure.code, &format!("highwater: {}", failure.text));
                failure.code
            }
        })
    }
}

unsafe extern "C" fn x_delete(vfs: *mut Vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    unsafe {
        let scope = scope(vfs);
        guarded(code::IOERR_DELETE, || match (scope.delete(name), (*scope.below).delete) {
            (Some(Ok(())), _) => code::OK,
            (Some(Err(failure)), _) => {
                scope.api.log(failure.code, &format!("highwater: {}", failure.text));
                failure.code
            }
            (None, Some(delete)) => delete(scope.below, name, sync_directory),
            (None, None) => code::IOERR_DELETE,
        })
    }
}

unsafe extern "C" fn x_access(vfs: *mut Vfs, name: *const c_char, flags: c_int, answer: *mut c_int) -> c_int {
    unsafe {
        let scope = scope(vfs);
        guarded(code::IOERR, || match (scope.exists(name), (*scope.below).access) {
            (Some(exists), _) => {
                *answer = c_int::from(exists);
                code::OK
            }
            (None, Some(access)) => access(scope.below, name, flags, answer),
            (None, None) => code::IOERR,
        })
    }
}

/// Defines a callback that hands its call to the VFS below.
macro_rules! below {
    ($name:ident, $member:ident, ($($argument:ident: $type:ty),*) -> $result:ty, $absent:expr) => {
        unsafe extern "C" fn $name(vfs: *mut Vfs, $($argument: $type),*) -> $result {
            unsafe {
                let below = scope(vfs).below;
                match (*below).$member {
                    Some(function) => function(below, $($argument),*),
                    None => $absent,
                }
            }
        }
    };
}

below!(x_full_pathname, full_pathname, (name: *const c_char, bytes: c_int, path: *mut c_char) -> c_int, code::CANTOPEN);
below!(x_dl_open, dl_open, (name: *const c_char) -> *mut c_void, std::ptr::null_mut());
below!(x_dl_error, dl_error, (bytes: c_int, text: *mut c_char) -> (), ());
below!(x_dl_sym, dl_sym, (library: *mut c_void, name: *const c_char) -> Option<unsafe extern "C" fn()>, None);
below!(x_dl_close, dl_close, (library: *mut c_void) -> (), ());
below!(x_randomness, randomness, (bytes: c_int, buffer: *mut c_char) -> c_int, 0);
below!(x_sleep, sleep, (microseconds: c_int) -> c_int, 0);
below!(x_current_time, current_time, (days: *mut c_double) -> c_int, code::ERROR);
below!(x_last_error, last_error, (bytes: c_int, text: *mut c_char) -> c_int, 0);
below!(x_current_time_int64, current_time_int64, (milliseconds: *mut i64) -> c_int, code::ERROR);
below!(x_set_system_call, set_system_call, (name: *const c_char, call: *const c_void) -> c_int, code::NOTFOUND);
below!(x_get_system_call, get_system_call, (name: *const c_char) -> *const c_void, std::ptr::null());
below!(x_next_system_call, next_system_call, (name: *const c_char) -> *const c_char, std::ptr::null());

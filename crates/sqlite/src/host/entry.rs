//! The symbols that SQLite looks for, and the entry point for hosts written in Rust.

use crate::ffi::{Api, ApiRoutines, Connection, code};
use crate::functions;
use crate::host::{DEFAULT_VFS_VARIABLE, Host};
use crate::vfs::failure::Failure;
use crate::vfs::{file, refused_file};
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The entry point SQLite tries first.
///
/// # Safety
/// Called by SQLite with an open connection, a place for an error text, and its routines.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    connection: *mut Connection,
    error: *mut *mut c_char,
    routines: *const ApiRoutines,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { load(connection, error, routines) }
}

/// The entry point that SQLite derives from the file's name, `libhighwater_sqlite`.
///
/// # Safety
/// As [`sqlite3_extension_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_highwatersqlite_init(
    connection: *mut Connection,
    error: *mut *mut c_char,
    routines: *const ApiRoutines,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { load(connection, error, routines) }
}

/// The entry point for a host that links SQLite statically, such as a Rust program with `rusqlite`: given to
/// `sqlite3_auto_extension` once, before the first connection.
///
/// SQLite looks a connection's VFS up before it runs entry points, so the VFS exists from the second connection on:
/// open one in memory first.
///
/// ```
/// use highwater_sqlite::ffi::api::EntryPoint;
/// use rusqlite::auto_extension::{RawAutoExtension, register_auto_extension};
///
/// // SAFETY: both types are SQLite's entry point, with its structures under different names.
/// let entry = unsafe {
///     std::mem::transmute::<EntryPoint, RawAutoExtension>(highwater_sqlite::host::entry::auto_extension)
/// };
/// unsafe { register_auto_extension(entry) }?;
/// rusqlite::Connection::open_in_memory()?;
///
/// let refused = rusqlite::Connection::open_with_flags_and_vfs(
///     "/nowhere/app.db",
///     rusqlite::OpenFlags::default(),
///     c"highwater",
/// );
/// assert!(refused.is_err_and(|error| error.to_string().contains("not_bound")));
/// # Ok::<(), rusqlite::Error>(())
/// ```
///
/// # Safety
/// As [`sqlite3_extension_init`].
pub unsafe extern "C" fn auto_extension(
    connection: *mut Connection,
    error: *mut *mut c_char,
    routines: *const ApiRoutines,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { guarded(error, routines, |host| connected(host, connection)) }
}

/// What SQLite runs for every connection that is opened after the extension was loaded.
unsafe extern "C" fn later_connection(
    connection: *mut Connection,
    error: *mut *mut c_char,
    routines: *const ApiRoutines,
) -> c_int {
    // SAFETY: as SQLite's other entry points.
    unsafe { guarded(error, routines, |host| connected(host, connection)) }
}

/// # Safety
/// As [`sqlite3_extension_init`].
unsafe fn load(connection: *mut Connection, error: *mut *mut c_char, routines: *const ApiRoutines) -> c_int {
    let body = |host: &'static Host| {
        let result = |code: c_int, what: &str| match code {
            code::OK => Ok(()),
            code => Err(Failure::new(code, format!("internal: {what} failed"))),
        };
        if std::env::var_os(DEFAULT_VFS_VARIABLE).is_some_and(|value| value == "1") {
            result(host.set_default(true).err().unwrap_or(code::OK), "making the VFS the default")?;
        }
        result(host.api.auto_extension(later_connection), "sqlite3_auto_extension")?;
        connected(host, connection)
    };
    // SAFETY: the caller's promise.
    match unsafe { guarded(error, routines, body) } {
        code::OK => code::OK_LOAD_PERMANENTLY,
        result => result,
    }
}

/// Prepares a new connection: its functions, and the reason if its database was refused.
fn connected(host: &'static Host, connection: *mut Connection) -> Result<(), Failure> {
    // SAFETY: SQLite runs entry points on an open connection.
    unsafe {
        let main = host.api.main_file(connection);
        if file::is_ours(main) {
            let mut reason: *const Failure = std::ptr::null();
            let asked = file::file_of(main).control(refused_file::FCNTL_REASON, (&raw mut reason).cast());
            if asked.is_ok() && !reason.is_null() {
                return Err((*reason).clone());
            }
        }
        functions::define(host, connection)
    }
}

/// Runs an entry point's body with the host behind `routines`; errors and panics become a result code and a text.
///
/// # Safety
/// `error` is null or a place for a text, `routines` null or SQLite's.
unsafe fn guarded(
    error: *mut *mut c_char,
    routines: *const ApiRoutines,
    body: impl FnOnce(&'static Host) -> Result<(), Failure>,
) -> c_int {
    // SAFETY: the caller's promise.
    let api = match unsafe { Api::new(routines) } {
        Ok(api) => api,
        Err(text) => {
            if !error.is_null() {
                // SAFETY: the caller's promise; SQLite frees the text.
                unsafe { *error = text };
            }
            return code::ERROR;
        }
    };
    let answer = catch_unwind(AssertUnwindSafe(|| {
        let host = Host::of(api).map_err(|code| Failure::new(code, "internal: the VFS could not be registered"))?;
        body(host)
    }));
    let failure = match answer {
        Ok(Ok(())) => return code::OK,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(code::ERROR, "internal: a fault in the extension"),
    };
    if !error.is_null() {
        // SAFETY: the caller's promise; SQLite frees the text.
        unsafe { *error = api.allocate_text(&format!("highwater: {}", failure.text)) };
    }
    failure.code
}

//! The SQL functions.
//!
//! All are `SQLITE_DIRECTONLY`: a schema that came from elsewhere cannot bind or wait by being read.

mod bind;

use crate::engine::{Engine, Layout};
use crate::ffi::{Api, Connection, Context, ScalarFunction, Value, code};
use crate::host::{self, Host};
use crate::vfs::failure::Failure;
use crate::vfs::registry::{Settings, Use};
use highwater_disk::OpenMode;
use std::ffi::{CStr, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

/// A function's answer.
enum Answer {
    Text(String),
    Integer(c_int),
}

/// The arguments of a running function.
struct Arguments<'a> {
    api: Api,
    values: &'a [*mut Value],
}

impl Arguments<'_> {
    fn text(&self, at: usize) -> Option<String> {
        // SAFETY: the values are those of the running function.
        self.values.get(at).and_then(|value| unsafe { self.api.value_text(*value) })
    }

    fn integer(&self, at: usize) -> Option<i64> {
        // SAFETY: as above.
        self.values.get(at).and_then(|value| unsafe { self.api.value_integer(*value) })
    }

    fn required(&self, at: usize, what: &str) -> Result<String, Failure> {
        let missing = || Failure::new(code::ERROR, format!("usage: {what} must not be NULL"));
        self.text(at).filter(|text| !text.is_empty()).ok_or_else(missing)
    }
}

/// SQL functions: name, number of arguments, implementation.
type Functions = [(&'static CStr, c_int, ScalarFunction); 6];

/// The functions of the host with the number `HOST`.
///
/// A function learns its host from its own address: `sqlite3_user_data` would have to be called through that very
/// host's routines.
fn functions_of<const HOST: usize>() -> Functions {
    [
        (c"highwater_bind", 2, x_bind::<HOST>),
        (c"highwater_bind", 3, x_bind::<HOST>),
        (c"highwater_status", 1, x_status::<HOST>),
        (c"highwater_synced", 1, x_synced::<HOST>),
        (c"highwater_synced", 2, x_synced::<HOST>),
        (c"highwater_default_vfs", 1, x_default_vfs::<HOST>),
    ]
}

/// The functions of each host.
const FUNCTIONS: [fn() -> Functions; host::HOSTS_MAX] = [
    functions_of::<0>,
    functions_of::<1>,
    functions_of::<2>,
    functions_of::<3>,
    functions_of::<4>,
    functions_of::<5>,
    functions_of::<6>,
    functions_of::<7>,
];

/// Defines the functions on a new connection.
///
/// # Errors
/// SQLite's result code.
///
/// # Safety
/// `connection` is open.
pub unsafe fn define(host: &'static Host, connection: *mut Connection) -> Result<(), Failure> {
    let functions = FUNCTIONS.get(host.number).map(|functions| functions()).into_iter().flatten();
    for (name, arguments, function) in functions {
        // SAFETY: the caller's promise.
        let defined = unsafe { host.api.create_function(connection, name, arguments, function) };
        if defined != code::OK {
            return Err(Failure::new(defined, format!("internal: {} could not be defined", name.to_string_lossy())));
        }
    }
    Ok(())
}

/// Runs a function's body and hands SQLite its answer, error or panic.
///
/// # Safety
/// As SQLite calls a function: `context` is its context, and `values` points to `count` arguments.
unsafe fn answer<const HOST: usize>(
    context: *mut Context,
    count: c_int,
    values: *mut *mut Value,
    body: impl FnOnce(&'static Host, &Arguments<'_>) -> Result<Answer, Failure>,
) {
    let Some(host) = Host::numbered(HOST) else { return };
    let api = host.api;
    // SAFETY: the caller's promise.
    let values = unsafe { std::slice::from_raw_parts(values, usize::try_from(count).unwrap_or(0)) };
    let result = catch_unwind(AssertUnwindSafe(|| body(host, &Arguments { api, values })));
    // SAFETY: the caller's promise.
    unsafe {
        match result {
            Ok(Ok(Answer::Text(text))) => api.result_text(context, &text),
            Ok(Ok(Answer::Integer(number))) => api.result_integer(context, number),
            Ok(Err(failure)) => api.result_error(context, failure.code, &failure.text),
            Err(_) => api.result_error(context, code::ERROR, "internal: a fault in the extension"),
        }
    }
}

// SAFETY of all below: SQLite calls them as it calls functions.

unsafe extern "C" fn x_bind<const HOST: usize>(context: *mut Context, count: c_int, values: *mut *mut Value) {
    unsafe {
        answer::<HOST>(context, count, values, |_, arguments| {
            let (path, url) = (arguments.required(0, "the path")?, arguments.required(1, "the URL")?);
            let options = bind::Options::parse(&arguments.text(2).unwrap_or_default())?;
            bind::bind(Path::new(&path), &url, options).map(Answer::Text)
        });
    }
}

unsafe extern "C" fn x_synced<const HOST: usize>(context: *mut Context, count: c_int, values: *mut *mut Value) {
    unsafe {
        answer::<HOST>(context, count, values, |_, arguments| {
            let path = arguments.required(0, "the path")?;
            let timeout = match arguments.integer(1) {
                None => None,
                Some(ms) => {
                    let negative = |_| Failure::new(code::ERROR, "usage: the timeout must not be negative");
                    Some(Duration::from_millis(u64::try_from(ms).map_err(negative)?))
                }
            };
            synced(Path::new(&path), timeout).map(|()| Answer::Integer(1))
        });
    }
}

unsafe extern "C" fn x_status<const HOST: usize>(context: *mut Context, count: c_int, values: *mut *mut Value) {
    unsafe {
        answer::<HOST>(context, count, values, |host, arguments| {
            status(host, Path::new(&arguments.required(0, "the path")?)).map(Answer::Text)
        });
    }
}

unsafe extern "C" fn x_default_vfs<const HOST: usize>(context: *mut Context, count: c_int, values: *mut *mut Value) {
    unsafe {
        answer::<HOST>(context, count, values, |host, arguments| {
            let default = arguments.integer(0).unwrap_or(0) != 0;
            let failed = |code| Failure::new(code, "internal: the default VFS could not be changed");
            host.set_default(default).map_err(failed)?;
            Ok(Answer::Integer(c_int::from(default)))
        });
    }
}

/// Waits until the stream holds every commit of a database, which need not be open otherwise.
fn synced(path: &Path, timeout: Option<Duration>) -> Result<(), Failure> {
    let registry = host::registry();
    let path = Layout::of(path).database;
    let database = registry.open(&path, &Settings::default())?;
    let result = match registry.replication(&path) {
        Some(replication) => replication.synced(timeout).map_err(|error| Failure::new(code::ERROR, error.to_string())),
        None => Err(Failure::new(code::ERROR, "closed: the database does not replicate")),
    };
    registry.close(&database, Use::Application);
    result
}

/// The status page of a database: its own words if it is open here, else what its owner published last.
fn status(host: &Host, path: &Path) -> Result<String, Failure> {
    let layout = Layout::of(path);
    if let Some(database) = host::registry().find(&layout.database) {
        return Ok(host::status(host.api, &database.engine));
    }
    let disk = &**host::registry().disk();
    let failed = |error: io::Error| Failure::io(code::ERROR, "the status cannot be read", &error);
    if !Engine::is_bound(disk, path).map_err(failed)? {
        let text = format!("not_bound: {} is not bound to a stream", layout.database.display());
        return Err(Failure::new(code::ERROR, text));
    }
    let file = disk.open(&layout.status, OpenMode::Read).map_err(failed)?;
    let mut page = vec![0; usize::try_from(file.length().map_err(failed)?).unwrap_or(0)];
    file.read_exact_at(&mut page, 0).map_err(failed)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

//! The host's SQLite routines (`sqlite3_api_routines`).
//!
//! The table only ever grows at its end, so a routine is known by its index. Only indices that SQLite 3.40.1 has may
//! be used here: an older table simply ends before a newer one's members.

use crate::ffi::{Connection, Context, Destructor, FileBase, ScalarFunction, Value, Vfs, code};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// The oldest SQLite whose table holds every routine used here.
pub const VERSION_MIN: c_int = 3_040_001;
/// The oldest whose table holds what telling so takes.
const VERSION_TELL_MIN: c_int = 3_008_007;

/// The table as the host passes it: pointers to functions of many types.
#[repr(C)]
pub struct ApiRoutines {
    opaque: [u8; 0],
}

/// Indices of the routines used, in the table of 3.40.1.
mod index {
    pub const BUSY_TIMEOUT: usize = 14;
    pub const ERRMSG: usize = 53;
    pub const EXEC: usize = 55;
    pub const FREE: usize = 58;
    pub const LIBVERSION_NUMBER: usize = 67;
    pub const RESULT_ERROR: usize = 80;
    pub const RESULT_INT: usize = 82;
    pub const RESULT_TEXT: usize = 85;
    pub const VALUE_BYTES: usize = 103;
    pub const VALUE_INT64: usize = 107;
    pub const VALUE_TEXT: usize = 109;
    pub const VALUE_TYPE: usize = 113;
    pub const FILE_CONTROL: usize = 127;
    pub const OPEN_V2: usize = 135;
    pub const VFS_FIND: usize = 141;
    pub const VFS_REGISTER: usize = 142;
    pub const VFS_UNREGISTER: usize = 143;
    pub const THREADSAFE: usize = 144;
    pub const RESULT_ERROR_CODE: usize = 146;
    pub const CREATE_FUNCTION_V2: usize = 162;
    pub const LOG: usize = 167;
    pub const CLOSE_V2: usize = 179;
    pub const URI_PARAMETER: usize = 189;
    pub const WAL_CHECKPOINT_V2: usize = 191;
    pub const AUTO_EXTENSION: usize = 192;
    pub const MALLOC64: usize = 197;
    pub const FILENAME_DATABASE: usize = 246;
}

/// One SQLite library's routines. Copies share the host's table, which lives as long as the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Api(*const ApiRoutines);

// SAFETY: the table is never written after the library was loaded, and every routine reached through it here may be
// called from any thread as SQLite's threading mode allows.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

/// Reads the routine at an index as a function of the given type. Unsafe: the table of every library from
/// `VERSION_MIN` on must hold a function of this type there.
macro_rules! routine {
    ($self:expr, $index:expr, fn($($argument:ty),* $(,)?) $(-> $result:ty)?) => {
        std::mem::transmute::<*const c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>($self.entry($index))
    };
}

impl Api {
    /// The routines behind the pointer that an extension's entry point is given.
    /// # Errors
    /// An error text in the host's memory, or null where that cannot be had, if the pointer is null or the library
    /// older than [`VERSION_MIN`].
    ///
    /// # Safety
    /// `routines` is null or the host's table.
    pub unsafe fn new(routines: *const ApiRoutines) -> Result<Self, *mut c_char> {
        let api = Self(routines);
        match if routines.is_null() { 0 } else { api.version() } {
            VERSION_MIN.. => Ok(api),
            version @ VERSION_TELL_MIN.. => {
                let (major, minor, patch) = (version / 1_000_000, version / 1_000 % 1_000, version % 1_000);
                let text = format!("highwater: SQLite {major}.{minor}.{patch} is too old, 3.40.1 or later is needed");
                Err(api.allocate_text(&text))
            }
            _ => Err(std::ptr::null_mut()),
        }
    }

    fn entry(self, index: usize) -> *const c_void {
        // SAFETY: `new` saw a table that is long enough.
        unsafe { *self.0.cast::<*const c_void>().add(index) }
    }

    /// The library's version, such as 3040001.
    #[must_use]
    pub fn version(self) -> c_int {
        // SAFETY: takes nothing and reads a constant.
        unsafe { routine!(self, index::LIBVERSION_NUMBER, fn() -> c_int)() }
    }

    /// Whether connections may be used from several threads at once.
    #[must_use]
    pub fn is_threadsafe(self) -> bool {
        // SAFETY: takes nothing and reads a constant.
        unsafe { routine!(self, index::THREADSAFE, fn() -> c_int)() != 0 }
    }

    /// A copy of `text` in the host's memory, null if there is none left. The host frees it.
    #[must_use]
    pub fn allocate_text(self, text: &str) -> *mut c_char {
        let bytes = clean(text).into_bytes_with_nul();
        // SAFETY: the routine returns null or that many bytes of fresh memory.
        unsafe {
            let memory = routine!(self, index::MALLOC64, fn(u64) -> *mut c_void)(bytes.len() as u64).cast::<c_char>();
            if !memory.is_null() {
                std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), memory, bytes.len());
            }
            memory
        }
    }

    /// Frees memory of the host's.
    ///
    /// # Safety
    /// `memory` is null or came from the host's allocator and is not used afterwards.
    pub unsafe fn free(self, memory: *mut c_void) {
        // SAFETY: the caller's promise.
        unsafe { routine!(self, index::FREE, fn(*mut c_void))(memory) }
    }

    /// Writes a line to the host's error log, if it keeps one.
    pub fn log(self, result: c_int, text: &str) {
        let text = clean(text);
        // SAFETY: the format takes exactly one string.
        unsafe {
            let log = std::mem::transmute::<*const c_void, unsafe extern "C" fn(c_int, *const c_char, ...)>(
                self.entry(index::LOG),
            );
            log(result, c"%s".as_ptr(), text.as_ptr());
        }
    }

    /// The VFS of this name, or the default one; null if there is none.
    #[must_use]
    pub fn vfs_find(self, name: Option<&CStr>) -> *mut Vfs {
        // SAFETY: the name is null or ends in NUL.
        unsafe {
            routine!(self, index::VFS_FIND, fn(*const c_char) -> *mut Vfs)(name.map_or(std::ptr::null(), CStr::as_ptr))
        }
    }

    /// Registers a VFS.
    ///
    /// # Safety
    /// `vfs` lives until it is unregistered and no connection uses it.
    #[must_use]
    pub unsafe fn vfs_register(self, vfs: *mut Vfs, default: bool) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { routine!(self, index::VFS_REGISTER, fn(*mut Vfs, c_int) -> c_int)(vfs, c_int::from(default)) }
    }

    /// Takes a VFS out of the library's list.
    ///
    /// # Safety
    /// `vfs` was registered.
    pub unsafe fn vfs_unregister(self, vfs: *mut Vfs) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { routine!(self, index::VFS_UNREGISTER, fn(*mut Vfs) -> c_int)(vfs) }
    }

    /// Calls `entry` for every connection opened from now on.
    #[must_use]
    pub fn auto_extension(self, entry: EntryPoint) -> c_int {
        // SAFETY: SQLite calls what it is given here with the arguments of an entry point.
        unsafe {
            let entry = std::mem::transmute::<EntryPoint, unsafe extern "C" fn()>(entry);
            routine!(self, index::AUTO_EXTENSION, fn(unsafe extern "C" fn()) -> c_int)(entry)
        }
    }

    /// Defines an SQL function that schemas may not call.
    ///
    /// # Safety
    /// `connection` is open.
    #[must_use]
    pub unsafe fn create_function(
        self,
        connection: *mut Connection,
        name: &CStr,
        arguments: c_int,
        function: ScalarFunction,
    ) -> c_int {
        type Create = unsafe extern "C" fn(
            *mut Connection,
            *const c_char,
            c_int,
            c_int,
            *const c_void,
            Option<ScalarFunction>,
            *const c_void,
            *const c_void,
            *const c_void,
        ) -> c_int;
        let null = std::ptr::null();
        // SAFETY: the caller's promise; the other callbacks are absent.
        unsafe {
            let create = std::mem::transmute::<*const c_void, Create>(self.entry(index::CREATE_FUNCTION_V2));
            create(connection, name.as_ptr(), arguments, code::UTF8_DIRECTONLY, null, Some(function), null, null, null)
        }
    }

    /// The text of a value, `None` for NULL.
    ///
    /// # Safety
    /// `value` is an argument of a running function.
    #[must_use]
    pub unsafe fn value_text(self, value: *mut Value) -> Option<String> {
        // SAFETY: the caller's promise; the text stays until the value is next converted, and is copied here.
        unsafe {
            if routine!(self, index::VALUE_TYPE, fn(*mut Value) -> c_int)(value) == code::TYPE_NULL {
                return None;
            }
            let text = routine!(self, index::VALUE_TEXT, fn(*mut Value) -> *const u8)(value);
            let bytes = routine!(self, index::VALUE_BYTES, fn(*mut Value) -> c_int)(value);
            let bytes = usize::try_from(bytes).unwrap_or(0);
            (!text.is_null()).then(|| String::from_utf8_lossy(std::slice::from_raw_parts(text, bytes)).into_owned())
        }
    }

    /// The whole number in a value, `None` for NULL.
    ///
    /// # Safety
    /// `value` is an argument of a running function.
    #[must_use]
    pub unsafe fn value_integer(self, value: *mut Value) -> Option<i64> {
        // SAFETY: the caller's promise.
        unsafe {
            if routine!(self, index::VALUE_TYPE, fn(*mut Value) -> c_int)(value) == code::TYPE_NULL {
                return None;
            }
            Some(routine!(self, index::VALUE_INT64, fn(*mut Value) -> i64)(value))
        }
    }

    /// Answers a function with text.
    ///
    /// # Safety
    /// `context` is that of a running function.
    pub unsafe fn result_text(self, context: *mut Context, text: &str) {
        let length = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
        // SAFETY: the caller's promise; SQLite copies that many bytes.
        unsafe {
            routine!(self, index::RESULT_TEXT, fn(*mut Context, *const c_char, c_int, Destructor))(
                context,
                text.as_ptr().cast(),
                length,
                crate::ffi::transient(),
            );
        }
    }

    /// Answers a function with a whole number.
    ///
    /// # Safety
    /// `context` is that of a running function.
    pub unsafe fn result_integer(self, context: *mut Context, number: c_int) {
        // SAFETY: the caller's promise.
        unsafe { routine!(self, index::RESULT_INT, fn(*mut Context, c_int))(context, number) }
    }

    /// Answers a function with an error.
    ///
    /// # Safety
    /// `context` is that of a running function.
    pub unsafe fn result_error(self, context: *mut Context, result: c_int, text: &str) {
        let text = clean(text);
        // SAFETY: the caller's promise; SQLite copies the text.
        unsafe {
            routine!(self, index::RESULT_ERROR, fn(*mut Context, *const c_char, c_int))(context, text.as_ptr(), -1);
            routine!(self, index::RESULT_ERROR_CODE, fn(*mut Context, c_int))(context, result);
        }
    }

    /// `sqlite3_file_control` on the main database of a connection.
    ///
    /// # Safety
    /// `connection` is open and `argument` is what the operation takes.
    pub unsafe fn file_control(self, connection: *mut Connection, operation: c_int, argument: *mut c_void) -> c_int {
        // SAFETY: the caller's promise.
        unsafe {
            routine!(self, index::FILE_CONTROL, fn(*mut Connection, *const c_char, c_int, *mut c_void) -> c_int)(
                connection,
                c"main".as_ptr(),
                operation,
                argument,
            )
        }
    }

    /// The file object of the main database of a connection; null for one without a file.
    ///
    /// # Safety
    /// `connection` is open.
    #[must_use]
    pub unsafe fn main_file(self, connection: *mut Connection) -> *mut FileBase {
        let mut file: *mut FileBase = std::ptr::null_mut();
        // SAFETY: the operation stores one pointer.
        unsafe {
            self.file_control(connection, code::FCNTL_FILE_POINTER, (&raw mut file).cast());
        }
        file
    }

    /// The value of a parameter of a database's URI.
    ///
    /// # Safety
    /// `name` is a name that SQLite passed to `xOpen` for a main database.
    #[must_use]
    pub unsafe fn uri_parameter(self, name: *const c_char, key: &CStr) -> Option<String> {
        // SAFETY: the caller's promise; the text lies behind the name.
        unsafe {
            let value = routine!(self, index::URI_PARAMETER, fn(*const c_char, *const c_char) -> *const c_char)(
                name,
                key.as_ptr(),
            );
            (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy().into_owned())
        }
    }

    /// The name of the main database that a journal or `-wal` name belongs to: the very pointer that its `xOpen` got.
    ///
    /// # Safety
    /// `name` is a name that SQLite passed to `xOpen` for a database, journal or `-wal`.
    #[must_use]
    pub unsafe fn filename_database(self, name: *const c_char) -> *const c_char {
        // SAFETY: the caller's promise.
        unsafe { routine!(self, index::FILENAME_DATABASE, fn(*const c_char) -> *const c_char)(name) }
    }

    /// Opens a connection of our own.
    /// # Errors
    /// SQLite's result code and message.
    pub fn open(self, name: &CStr, vfs: &CStr) -> Result<OwnConnection, (c_int, String)> {
        let mut connection: *mut Connection = std::ptr::null_mut();
        let flags = code::OPEN_READWRITE | code::OPEN_URI | code::OPEN_PRIVATE_CACHE;
        // SAFETY: the names end in NUL and the result is stored in `connection`, which is closed in either case.
        let result = unsafe {
            routine!(self, index::OPEN_V2, fn(*const c_char, *mut *mut Connection, c_int, *const c_char) -> c_int)(
                name.as_ptr(),
                &raw mut connection,
                flags,
                vfs.as_ptr(),
            )
        };
        let own = OwnConnection { api: self, connection };
        if result == code::OK { Ok(own) } else { Err((result, own.error())) }
    }
}

/// An extension's entry point.
pub type EntryPoint = unsafe extern "C" fn(*mut Connection, *mut *mut c_char, *const ApiRoutines) -> c_int;

/// A connection that the extension itself opened; closed when dropped. Used by one thread only.
pub struct OwnConnection {
    api: Api,
    connection: *mut Connection,
}

impl OwnConnection {
    /// Runs a checkpoint of the main database, waiting at most `wait_ms` for locks; the result code.
    #[must_use]
    pub fn checkpoint(&self, mode: c_int, wait_ms: c_int) -> c_int {
        let null: *mut c_int = std::ptr::null_mut();
        // SAFETY: the connection is open and the counts are not asked for.
        unsafe {
            routine!(self.api, index::BUSY_TIMEOUT, fn(*mut Connection, c_int) -> c_int)(self.connection, wait_ms);
            routine!(
                self.api,
                index::WAL_CHECKPOINT_V2,
                fn(*mut Connection, *const c_char, c_int, *mut c_int, *mut c_int) -> c_int
            )(self.connection, c"main".as_ptr(), mode, null, null)
        }
    }

    /// Runs a statement whose rows nobody wants; the result code.
    #[must_use]
    pub fn run(&self, sql: &CStr) -> c_int {
        let null: *const c_void = std::ptr::null();
        // SAFETY: the connection is open, and no callback, argument or error text is asked for.
        unsafe {
            routine!(
                self.api,
                index::EXEC,
                fn(*mut Connection, *const c_char, *const c_void, *const c_void, *const c_void) -> c_int
            )(self.connection, sql.as_ptr(), null, null, null)
        }
    }

    fn error(&self) -> String {
        if self.connection.is_null() {
            return "no memory".to_owned();
        }
        // SAFETY: the connection exists, and the text is copied before the next call.
        unsafe {
            let text = routine!(self.api, index::ERRMSG, fn(*mut Connection) -> *const c_char)(self.connection);
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

impl Drop for OwnConnection {
    fn drop(&mut self) {
        // SAFETY: the connection came from `open_v2` and is not used afterwards.
        unsafe {
            routine!(self.api, index::CLOSE_V2, fn(*mut Connection) -> c_int)(self.connection);
        }
    }
}

/// The text up to its first NUL.
fn clean(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

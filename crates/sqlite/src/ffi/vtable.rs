//! The tables of functions between SQLite and a VFS (`sqlite3_vfs` and `sqlite3_io_methods`, both version 3).

use std::ffi::{c_char, c_double, c_int, c_void};

/// `sqlite3_vfs`.
#[repr(C)]
#[expect(missing_docs, reason = "SQLite's manual describes the members under these names")]
pub struct Vfs {
    pub version: c_int,
    pub file_bytes: c_int,
    pub path_bytes_max: c_int,
    pub next: *mut Vfs,
    pub name: *const c_char,
    pub app_data: *mut c_void,
    pub open: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, *mut FileBase, c_int, *mut c_int) -> c_int>,
    pub delete: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int) -> c_int>,
    pub access: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_int) -> c_int>,
    pub full_pathname: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_char) -> c_int>,
    pub dl_open: Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> *mut c_void>,
    pub dl_error: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char)>,
    pub dl_sym: Option<unsafe extern "C" fn(*mut Vfs, *mut c_void, *const c_char) -> Option<unsafe extern "C" fn()>>,
    pub dl_close: Option<unsafe extern "C" fn(*mut Vfs, *mut c_void)>,
    pub randomness: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int>,
    pub sleep: Option<unsafe extern "C" fn(*mut Vfs, c_int) -> c_int>,
    pub current_time: Option<unsafe extern "C" fn(*mut Vfs, *mut c_double) -> c_int>,
    pub last_error: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int>,
    pub current_time_int64: Option<unsafe extern "C" fn(*mut Vfs, *mut i64) -> c_int>,
    pub set_system_call: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, *const c_void) -> c_int>,
    pub get_system_call: Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> *const c_void>,
    pub next_system_call: Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> *const c_char>,
}

/// `sqlite3_file`: the head of every open file.
#[repr(C)]
pub struct FileBase {
    /// Null while the file is not open.
    pub methods: *const IoMethods,
}

/// `sqlite3_io_methods`.
#[repr(C)]
#[expect(missing_docs, reason = "SQLite's manual describes the members under these names")]
pub struct IoMethods {
    pub version: c_int,
    pub close: Option<unsafe extern "C" fn(*mut FileBase) -> c_int>,
    pub read: Option<unsafe extern "C" fn(*mut FileBase, *mut c_void, c_int, i64) -> c_int>,
    pub write: Option<unsafe extern "C" fn(*mut FileBase, *const c_void, c_int, i64) -> c_int>,
    pub truncate: Option<unsafe extern "C" fn(*mut FileBase, i64) -> c_int>,
    pub sync: Option<unsafe extern "C" fn(*mut FileBase, c_int) -> c_int>,
    pub file_size: Option<unsafe extern "C" fn(*mut FileBase, *mut i64) -> c_int>,
    pub lock: Option<unsafe extern "C" fn(*mut FileBase, c_int) -> c_int>,
    pub unlock: Option<unsafe extern "C" fn(*mut FileBase, c_int) -> c_int>,
    pub check_reserved_lock: Option<unsafe extern "C" fn(*mut FileBase, *mut c_int) -> c_int>,
    pub file_control: Option<unsafe extern "C" fn(*mut FileBase, c_int, *mut c_void) -> c_int>,
    pub sector_size: Option<unsafe extern "C" fn(*mut FileBase) -> c_int>,
    pub device_characteristics: Option<unsafe extern "C" fn(*mut FileBase) -> c_int>,
    pub shm_map: Option<unsafe extern "C" fn(*mut FileBase, c_int, c_int, c_int, *mut *mut c_void) -> c_int>,
    pub shm_lock: Option<unsafe extern "C" fn(*mut FileBase, c_int, c_int, c_int) -> c_int>,
    pub shm_barrier: Option<unsafe extern "C" fn(*mut FileBase)>,
    pub shm_unmap: Option<unsafe extern "C" fn(*mut FileBase, c_int) -> c_int>,
    pub fetch: Option<unsafe extern "C" fn(*mut FileBase, i64, c_int, *mut *mut c_void) -> c_int>,
    pub unfetch: Option<unsafe extern "C" fn(*mut FileBase, i64, *mut c_void) -> c_int>,
}

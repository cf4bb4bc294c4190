//! SQLite's C interface, as far as the extension uses it.
//!
//! Written by hand, because the extension must load into SQLite libraries older than any generated bindings: the
//! structures below have had this shape since SQLite 3.8, and [`api`] reaches only routines that 3.40.1 has.

pub mod api;
pub mod code;
pub mod vtable;

pub use api::{Api, ApiRoutines};
pub use vtable::{FileBase, IoMethods, Vfs};

use std::ffi::c_void;

/// A database connection (`sqlite3`).
#[repr(C)]
pub struct Connection {
    opaque: [u8; 0],
}

/// The context of a running SQL function (`sqlite3_context`).
#[repr(C)]
pub struct Context {
    opaque: [u8; 0],
}

/// An SQL value (`sqlite3_value`).
#[repr(C)]
pub struct Value {
    opaque: [u8; 0],
}

/// The implementation of an SQL function.
pub type ScalarFunction = unsafe extern "C" fn(*mut Context, std::ffi::c_int, *mut *mut Value);

/// A destructor; null for none, or [`transient`].
pub type Destructor = *const c_void;

/// `SQLITE_TRANSIENT`: SQLite copies the bytes before the call returns.
#[must_use]
pub fn transient() -> Destructor {
    std::ptr::without_provenance(usize::MAX)
}

//! The only way to a file.
//!
//! # Purpose
//! One trait between everything that stores bytes and the place where they lie: [`OsDisk`] is the operating system,
//! [`SimDisk`] a disk in memory that forgets, tears, reorders and flips what was not synced, and runs full.
//!
//! # Modules
//! - [`traits`]: [`Disk`], [`File`] and what each call promises
//! - [`system`]: the machine's clocks and entropy, which are no files and have the same two lives
//! - [`os`]: the operating system's files
//! - [`sim`]: the simulated disk and its faults
//! - [`overlay`]: any disk, read alone: what is changed stays in memory
//! - [`watched`]: any disk with somebody who watches its calls, for tests
//!
//! # Invariants
//! A byte is durable once `sync_data` or `sync_all` returned for its file after the write, and a name once
//! `sync_directory` returned for its directory after the change. Nothing else is promised, and the simulated disk
//! takes away everything that is not.
//!
//! # Must not depend on
//! Any crate of the workspace but `base`; it knows no format.

pub mod os;
pub mod overlay;
pub mod sim;
pub mod system;
pub mod traits;
pub mod watched;

pub use os::OsDisk;
pub use overlay::OverlayDisk;
pub use sim::SimDisk;
pub use system::{SystemClock, SystemRandom};
pub use traits::{Disk, File, OpenMode, create_directory_durably};

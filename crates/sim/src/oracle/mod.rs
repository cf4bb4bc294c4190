//! What the simulator knows to be true, and holds against everything that the server and the databases say.
//!
//! The oracle sees every request arrive and every answer leave, and looks at the streams itself after each step that
//! can have changed them. It never looks at a machine's insides.

pub mod batches;
pub mod control;
pub mod history;
mod kept;
pub mod lifetime;
pub mod paths;
pub mod register;
pub mod snapshots;

pub use batches::Batches;
pub use history::History;
pub use paths::{Memory, Oracle};
pub use register::{Fact, Key, Register};

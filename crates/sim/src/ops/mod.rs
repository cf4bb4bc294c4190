//! What clients of raw streams do: one file for each kind of operation. Each makes a request and enters what it would
//! do into the register; the oracle holds the answers and the streams against that.

mod append;
mod close;
mod create;
mod delete;
mod head;
mod keyed;
mod read;

pub use append::append;
pub use close::close;
pub use create::create;
pub use delete::delete;
pub use head::head;
pub use keyed::keyed;
pub use read::read;

use crate::message::WriteId;
use crate::oracle::Oracle;
use crate::oracle::register::body;
use bytes::Bytes;
use highwater_base::Random;
use highwater_base::random::SplitMix;

/// What every raw stream holds.
const CONTENT_TYPE: &str = "application/octet-stream";

/// What an operation is drawn from.
pub struct Draft<'a> {
    /// The oracle.
    pub oracle: &'a mut Oracle,
    /// Chance.
    pub random: &'a mut SplitMix,
    /// Bytes of the largest body.
    pub body_bytes_max: u64,
}

impl Draft<'_> {
    /// A body that no other write has, for the next write of the register.
    fn body(&mut self) -> (WriteId, Bytes) {
        let id = self.oracle.register.next();
        let bytes = if self.random.below(8) == 0 { self.body_bytes_max } else { self.body_bytes_max.min(200) };
        (id, body(id, self.random.below(bytes) as usize))
    }
}

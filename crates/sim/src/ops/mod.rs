//! What clients of raw streams do: one file for each kind of operation. Each makes a request and enters what it would
//! do into the register; the oracle holds the answers and the streams against that.

mod append;
mod close;
mod commit;
mod control;
mod create;
mod delete;
mod discard;
mod head;
mod keyed;
mod publish;
mod read;
mod retain;
mod snapshot;
mod stage;

pub use append::append;
pub use close::close;
pub use commit::commit;
pub use control::control;
pub use create::create;
pub use delete::delete;
pub use discard::discard;
pub use head::head;
pub use keyed::keyed;
pub use publish::publish;
pub use read::read;
pub use retain::retain;
pub use snapshot::snapshot;
pub use stage::stage;

use crate::message::WriteId;
use crate::oracle::Oracle;
use crate::oracle::register::body;
use bytes::Bytes;
use highwater_base::random::SplitMix;
use highwater_base::{Millis, Random};

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
    /// Whether some streams end by themselves.
    pub expires: bool,
    /// The wall clock.
    pub wall: Millis,
}

impl Draft<'_> {
    /// A body that no other write has, for the next write of the register.
    fn body(&mut self) -> (WriteId, Bytes) {
        let id = self.oracle.register.next();
        let bytes = if self.random.below(8) == 0 { self.body_bytes_max } else { self.body_bytes_max.min(200) };
        (id, body(id, self.random.below(bytes) as usize))
    }
}

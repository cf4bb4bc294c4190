//! What leaves mostly dead files although nobody has its object in memory.
//!
//! The files' live payload belongs to objects of which most are on disk alone. The checkpoint's thread goes through the base,
//! which says the newest of them, and moves what lies in the victims. The records go into a new base, so that it still does:
//! such a checkpoint costs a pass over the base and a new one, for up to as many bytes as a compaction may move. A pass by
//! the victims' blocks instead would read the whole files, the dead parts too, and look up an object for each block.
//!
//! An object that is admitted while this runs has the places of before; [`crate::Store::finish_checkpoint`] gives it the new
//! ones, as it does for those that were in memory from the beginning.

use crate::checkpoint::{Checkpoint, Placed, scan_fault};
use crate::compaction::Plan;
use crate::index::Record;
use crate::moving::{Failure, Moved};
use crate::runs::RunWriter;

/// Objects of one sweep at the most. A record and a place of each are in memory until the checkpoint ends, about 200 bytes.
const OBJECTS_MAX: usize = 32 << 10;

/// What a checkpoint looks for in the base.
pub(crate) struct Sweep {
    /// The victims, and the bytes that may still move.
    pub plan: Plan,
    /// Objects of which memory says something newer, in order; what is to move of them is work of its own.
    pub except: Vec<u64>,
}

impl Checkpoint {
    /// Moves what the sweep finds.
    ///
    /// # Errors
    /// A damaged base fails the checkpoint: what is not found could not be moved, and its file would be tried for ever.
    pub(crate) fn sweep(&self, writer: &mut RunWriter<'_>, moved: &mut Moved) -> Result<(), Failure> {
        let Some(Sweep { plan, except }) = self.sweep.as_deref() else { return Ok(()) };
        let (mut plan, mut objects) = (plan.clone(), 0);
        for object in self.index.base.objects_from(0) {
            let (key, image) = object.map_err(|error| (scan_fault(self.index.base.path.clone(), error), true))?;
            if except.binary_search(&key).is_ok() {
                continue;
            }
            let room = plan.choose(key, &image.extents);
            let relaid = plan.relaid(key, &image.extents);
            if !relaid.is_empty() {
                let replaced = image.extents[image.extents.len() - relaid.len()..].to_vec();
                let added = self.relay(key, &relaid, writer, moved)?;
                // What is damaged stays where it is.
                if added != replaced {
                    moved.records.push(Record::Object { key, state: None, front: 0, added: added.clone() });
                    moved.placed.push(Placed { key, added, replaced: Some(replaced) });
                    moved.swept = true;
                }
                objects += 1;
            }
            if !room || objects == OBJECTS_MAX {
                break;
            }
        }
        Ok(())
    }
}

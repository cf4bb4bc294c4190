//! The thread that moves bytes from the log into data files.

use super::{Loud, Mail, Shard, Shared};
use crate::restored::Mark;
use crate::shard::Input;
use highwater_base::GroupId;
use highwater_store::{Checkpoint, Reclaim};
use highwater_wal::LogReader;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// What is done away from the shard's thread.
pub(crate) enum Work {
    Checkpoint(GroupId, Checkpoint),
    Reclaim(Reclaim),
    /// Remove the mark of a restored directory.
    Unmark,
}

/// A mark that cannot be removed does nothing at the next start: its history is recorded.
fn unmark(shared: &Shared) {
    if let Err(error) = Mark::remove(shared.disk.as_ref(), &shared.data) {
        tracing::warn!(%error, "the mark of the restore could not be removed; the next start tries again");
    }
}

/// Starts the thread. It ends when the last sender of its work is gone.
pub(crate) fn checkpointer(
    log: LogReader,
    queue: mpsc::Receiver<Work>,
    shard: Arc<Shard>,
) -> io::Result<JoinHandle<()>> {
    let run = move || {
        let _loud = Loud { shard: Arc::clone(&shard), name: "checkpointer" };
        while let Ok(work) = queue.recv() {
            match work {
                Work::Reclaim(reclaim) => drop(reclaim),
                Work::Unmark => unmark(shard.shared()),
                Work::Checkpoint(group, checkpoint) => {
                    let result = checkpoint.run(&log);
                    shard.post(Mail::Input(Input::Checkpointed { group, result }));
                }
            }
        }
    };
    std::thread::Builder::new().name("checkpointer".to_owned()).spawn(run)
}

//! The thread that moves bytes from the log into data files.

use super::{Loud, Mail, Shard, Shared};
use crate::restored::Mark;
use crate::shard::Input;
use crate::storage::StorageFault;
use highwater_base::GroupId;
use highwater_store::{Checkpoint, CheckpointError, Reclaim};
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

/// Puts damage that a checkpoint met on the list of what is known.
fn note(shared: &Shared, group: GroupId, error: &CheckpointError) {
    if error.is_damage() {
        let file = shared.data.join(if error.is_log_damage() { "wal" } else { "store" }).display().to_string();
        let what = error.fault.to_string();
        shared.storage.note(StorageFault {
            group: group.0,
            file,
            position: 0,
            what,
            stream: None,
            snapshot: false,
            from: None,
            to: None,
        });
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
                    if let Err(error) = result.as_ref() {
                        note(shard.shared(), group, error);
                    }
                    shard.post(Mail::Input(Input::Checkpointed { group, result }));
                }
            }
        }
    };
    std::thread::Builder::new().name("checkpointer".to_owned()).spawn(run)
}

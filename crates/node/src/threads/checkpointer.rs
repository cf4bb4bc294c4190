//! The thread that moves bytes from the log into data files.

use super::{Loud, Mail, Shared};
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
}

/// The thread. It ends when the last sender of its work is gone.
pub(crate) struct Checkpointer {
    pub work: mpsc::Sender<Work>,
    pub thread: JoinHandle<()>,
}

impl Checkpointer {
    pub fn spawn(log: LogReader, mail: mpsc::Sender<Mail>, shared: Arc<Shared>) -> io::Result<Self> {
        let (work, queue) = mpsc::channel();
        let run = move || {
            let _loud = Loud { shared, mail: mail.clone(), name: "checkpointer" };
            while let Ok(work) = queue.recv() {
                match work {
                    Work::Reclaim(reclaim) => drop(reclaim),
                    Work::Checkpoint(group, checkpoint) => {
                        let result = checkpoint.run(&log);
                        if mail.send(Mail::Input(Input::Checkpointed { group, result })).is_err() {
                            return;
                        }
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("checkpointer".to_owned()).spawn(run)?;
        Ok(Self { work, thread })
    }
}

//! The threads that look up in the indexes what is not in memory.

use super::{Loud, Mail, Shard};
use crate::shard::{Input, Load};
use highwater_base::GroupId;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

/// How many there are: a group has one trip under way at a time, and a disk answers several reads together.
const LOADERS: usize = 4;

/// Starts the threads. They end when the last sender of their work is gone.
pub(crate) fn loaders(queue: mpsc::Receiver<(GroupId, Load)>, shard: &Arc<Shard>) -> io::Result<Vec<JoinHandle<()>>> {
    let queue = Arc::new(Mutex::new(queue));
    let start = |_| {
        let (queue, shard) = (Arc::clone(&queue), Arc::clone(shard));
        let run = move || {
            let _loud = Loud { shard: Arc::clone(&shard), name: "loader" };
            while let Some((group, load)) = next(&queue) {
                let begun = Instant::now();
                let result = load.run();
                let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                shard.post(Mail::Input(Input::Loaded { group, result, took_us }));
            }
        };
        std::thread::Builder::new().name("loader".to_owned()).spawn(run)
    };
    (0..LOADERS).map(start).collect()
}

/// The next trip; one thread waits for it, the others for that one.
fn next(queue: &Mutex<mpsc::Receiver<(GroupId, Load)>>) -> Option<(GroupId, Load)> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

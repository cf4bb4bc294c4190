//! The store against a naive model: in good times, through crashes and with failing disks.

mod cold;
mod cold_crash;
mod compaction;
mod crash;
mod damage;
mod failure;
mod front;
mod golden;
mod memory;
mod model;
mod moved;
mod pinned;
mod residence;
mod restart;
mod scrub;
mod tier;
mod with_log;
mod world;

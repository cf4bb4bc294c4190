//! The store against a naive model: in good times, through crashes and with failing disks.

mod crash;
mod damage;
mod failure;
mod golden;
mod memory;
mod model;
mod moved;
mod restart;
mod with_log;
mod world;

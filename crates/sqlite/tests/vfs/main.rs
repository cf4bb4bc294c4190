//! The VFS and the engine under a real SQLite, on disks that lie and on one that does not.

mod bed;
mod checkpoints;
mod connections;
mod counting;
mod crashes;
mod hosts;
mod mirror;
mod model;
mod refusals;
mod reports;
mod script;

//! The node on a simulated disk: what it promises, and what remains of it after a crash.

mod control;
mod crash;
mod directory;
mod expiry;
mod faults;
mod harness;
mod history;
mod hot;
mod random;
mod reads;
mod reports;
mod snapshots;
mod storage;
mod writes;

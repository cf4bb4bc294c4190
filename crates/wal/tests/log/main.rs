//! The log from outside: crashes, faults, damage, old files.

mod common;
mod crash;
mod damage;
mod faults;
mod golden;
mod reclaim;
mod writer;

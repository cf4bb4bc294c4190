//! The machine of the PDS from outside: a host in memory, stories and transcripts, and what may never happen whatever is done.

mod cursors;
mod floors;
mod formats;
mod frames;
mod lifecycle;
mod model;
mod reports;
mod restores;
mod seed;
mod served;
mod server;
mod transcripts;

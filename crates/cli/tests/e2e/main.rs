//! Real processes on the real disk: the server, the tools, and SQLite hosts with the extension, killed and cut off.

mod backup;
mod bed;
mod cold;
mod commands;
mod content;
mod crash;
mod database;
mod edge;
mod existing;
mod fencing;
mod hosts;
mod keyed;
mod load;
mod packaging;
mod pds;
mod reference;
mod reports;
mod restored;
mod server;
mod session;
mod stress;
mod switched;
mod unreachable;

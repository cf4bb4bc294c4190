//! The HTTP interface, asked over real connections.
//!
//! `fake` is a node in memory around the real stream machine; it plays the faults that a healthy node never shows.

mod backups;
mod bodies;
mod browsers;
mod encrypted;
mod events;
mod fake;
mod floods;
mod http2;
mod inventory;
mod json;
mod keys;
mod lifetime;
mod mounted;
mod node;
mod operations;
mod order;
mod random;
mod reads;
mod revoked;
mod snapshots;
mod sse;
mod upgrades;
mod wire;
mod writes;

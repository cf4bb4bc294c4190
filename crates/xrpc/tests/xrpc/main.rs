//! The surface of the PDS, asked over real sockets, over a host with its files in a temporary directory.

mod administration;
mod blobs;
mod bodies;
mod damage;
mod followed;
mod home;
mod inventory;
mod limits;
mod meanwhile;
mod names;
mod positions;
mod records;
mod reference;
mod repositories;
mod server;
mod sessions;
mod stream;
mod tokens;
mod wire;

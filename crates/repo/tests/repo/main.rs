//! The published vectors of the protocol, and whole repositories.

mod crypto;
mod data_model;
mod mst;
mod repositories;
mod syntax;
mod vectors;

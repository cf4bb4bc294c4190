//! The published vectors of the protocol, and whole repositories.

mod crypto;
mod data_model;
mod mst;
mod reads;
mod repositories;
mod repository;
mod syntax;
mod vectors;

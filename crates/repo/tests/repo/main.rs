//! The published vectors of the protocol, and whole repositories.

mod crosscheck;
mod crypto;
mod data_model;
mod edges;
mod golden;
mod lexicon;
mod mst;
mod plain;
mod reads;
mod repositories;
mod repository;
mod syntax;
mod vectors;

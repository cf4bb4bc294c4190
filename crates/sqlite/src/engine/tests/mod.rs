//! The engine on a disk that dies, fills up and forgets.

mod crash;
mod golden;
mod hooked;
mod host;
mod races;
mod stories;
mod watching;

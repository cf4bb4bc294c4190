//! Streams that are right, and streams with one mistake, each found and named.

mod following;
mod frames;
mod held;
mod machine;
mod mistakes;
mod network;
mod relaying;
mod stream;

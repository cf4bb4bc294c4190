//! The control plane's machine: against a naive model, its formats, and the stories of keys.

mod formats;
mod model;
mod stories;

//! What the stream machine promises, as transcripts, models and exhaustive small cases.

mod decoding;
mod exhaustive;
mod model;
mod reports;
mod residence;
mod script;
mod transcripts;

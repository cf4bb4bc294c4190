//! Lands with the engine.

//! The layer that touches PostgreSQL's memory directly: one concept of the server a file.
//!
//! Everything here runs on the backend's own thread.

pub mod array;
pub mod block_scan;
pub mod disk_probe;
pub mod explain;
pub mod fill;
pub mod full_shuffle;
pub mod list;
pub mod memory;
pub mod node;
mod numeric;
pub mod parser;
pub mod progress;
pub mod raw;
pub mod relation;
pub mod thread;
pub mod types;
pub mod values;

//! The three nodes of the chain, one a file, and what they share.
//!
//! ```text
//! Custom Scan (SGD)                trains, returns one row
//!   Custom Scan (TupleShuffle)     fills buffers with decoded tuples
//!     Custom Scan (BlockShuffle)   reads blocks of pages in random order
//! ```

pub mod block_shuffle;
pub mod read_thread;
pub mod sgd;
pub mod tuple_shuffle;

use serde::{Deserialize, Serialize};

/// Names of the aggregate's arguments, carried by the plan for messages and for the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnNames {
    /// The target; empty for an expression.
    pub target: String,
    /// Indices (if sparse) and values; empty for expressions.
    pub features: Vec<String>,
}

/// Registers the nodes, once a process, so that plans can be read back by name.
pub fn register() {
    // SAFETY: called from _PG_init with tables that live for ever.
    unsafe {
        pgrx::pg_sys::RegisterCustomScanMethods(&block_shuffle::SCAN_METHODS.0);
        pgrx::pg_sys::RegisterCustomScanMethods(&tuple_shuffle::SCAN_METHODS.0);
        pgrx::pg_sys::RegisterCustomScanMethods(&sgd::SCAN_METHODS.0);
    }
}

//! The three nodes of the chain, one a file, and what they share.
//!
//! ```text
//! Custom Scan (SGD)                trains, returns one row
//!   Custom Scan (TupleShuffle)     fills buffers with decoded tuples
//!     Custom Scan (BlockShuffle)   reads blocks of pages in random order
//! ```

pub mod auto_shuffle;
pub mod block_shuffle;
pub mod disk;
pub mod read_thread;
pub mod sgd;
mod survey;
pub mod tuple_shuffle;
pub mod warm_start;

/// Registers the nodes, once a process, so that plans can be read back by name.
pub fn register() {
    // SAFETY: called from _PG_init with tables that live for ever.
    unsafe {
        pgrx::pg_sys::RegisterCustomScanMethods(&block_shuffle::SCAN_METHODS.0);
        pgrx::pg_sys::RegisterCustomScanMethods(&tuple_shuffle::SCAN_METHODS.0);
        pgrx::pg_sys::RegisterCustomScanMethods(&sgd::SCAN_METHODS.0);
    }
}

//! How a table is cut into blocks, and how large blocks and buffers are when nobody says.
//!
//! What decides convergence is the number of *blocks per buffer* (CorgiPile's report: the error
//! falls with α = (n−1)/(N−1) for n of N blocks in the buffer): 3–6 leave the accuracy of a
//! label-clustered table jumping from epoch to epoch, about 50 are safe. So the block shrinks with
//! the buffer, and never below a page.

use serde::{Deserialize, Serialize};

/// Blocks that a buffer should hold, with room to spare over the 50 that are safe.
pub const BLOCKS_PER_BUFFER: usize = 64;
/// The largest block that is chosen unasked: as good as a sequential scan, also on a hard disk.
pub const MAX_BLOCK_BYTES: usize = 10 << 20;
/// A buffer is this part of the table when nobody says: half of the paper's setting, since its blocks are
/// smaller than the paper's, and a buffer much larger than the processor's caches is slower.
pub const BUFFER_PART_OF_TABLE: usize = 20;
/// Below this a buffer is not worth cutting: the whole table is shuffled at once.
pub const MIN_BUFFER_BYTES: usize = 16 << 20;

/// A table of `pages` pages cut into runs of `pages_per_block`; the last block may be short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockLayout {
    /// Pages of the table.
    pub pages: u32,
    /// Pages of a block, at least 1.
    pub pages_per_block: u32,
}

impl BlockLayout {
    /// BN, the number of blocks.
    pub fn blocks(&self) -> u32 {
        self.pages.div_ceil(self.pages_per_block.max(1))
    }

    /// The pages of block `block`.
    pub fn pages_of(&self, block: u32) -> std::ops::Range<u32> {
        let size = self.pages_per_block.max(1);
        let start = block.saturating_mul(size).min(self.pages);
        start..start.saturating_add(size).min(self.pages)
    }
}

/// Bytes of one buffer when the user gave none: a twentieth of the table, at least
/// [`MIN_BUFFER_BYTES`], at most `cap` (half of what the memory limit leaves for two buffers).
pub fn auto_buffer_bytes(table_bytes: usize, cap: usize) -> usize {
    (table_bytes / BUFFER_PART_OF_TABLE).max(MIN_BUFFER_BYTES).min(cap)
}

/// Pages of a block when the user gave none: [`BLOCKS_PER_BUFFER`] blocks fill a buffer,
/// at least one page, at most [`MAX_BLOCK_BYTES`].
pub fn auto_pages_per_block(table_bytes: usize, buffer_bytes: usize, page_bytes: usize) -> u32 {
    let share = buffer_bytes.min(table_bytes.max(page_bytes)) / BLOCKS_PER_BUFFER;
    (share.min(MAX_BLOCK_BYTES) / page_bytes).max(1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_cover_every_page_once(pages in 0u32..5000, size in 1u32..700) {
            let layout = BlockLayout { pages, pages_per_block: size };
            let seen: Vec<u32> = (0..layout.blocks()).flat_map(|b| layout.pages_of(b)).collect();
            prop_assert_eq!(seen, (0..pages).collect::<Vec<_>>());
        }

        #[test]
        fn auto_sizes_stay_in_bounds(table in 0usize..1 << 42, cap in 1usize << 16..1 << 34) {
            let buffer = auto_buffer_bytes(table, cap);
            prop_assert!(buffer <= cap);
            let pages = auto_pages_per_block(table, buffer, 8192) as usize;
            prop_assert!(pages >= 1 && pages * 8192 <= MAX_BLOCK_BYTES);
            prop_assert!(pages == 1 || pages * 8192 * BLOCKS_PER_BUFFER <= buffer);
        }
    }

    #[test]
    fn a_large_table_gets_ten_megabytes() {
        let buffer = auto_buffer_bytes(50 << 30, 1 << 30);
        assert_eq!(buffer, 1 << 30);
        assert_eq!(auto_pages_per_block(50 << 30, buffer, 8192), 1280);
        assert_eq!(BlockLayout { pages: u32::MAX, pages_per_block: 7 }.pages_of(u32::MAX / 7), u32::MAX - 3..u32::MAX);
    }
}

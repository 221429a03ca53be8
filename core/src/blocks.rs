//! How a table is cut into blocks, and how large blocks and buffers are when nobody says.
//!
//! What decides convergence is the number of *blocks per buffer* (CorgiPile's report: the error
//! falls with α = (n−1)/(N−1) for n of N blocks in the buffer): 3–6 leave the accuracy of a
//! label-clustered table jumping from epoch to epoch, about 50 are safe. So the block shrinks with
//! the buffer, and never below a page.

/// Blocks that a buffer should hold, with room to spare over the 50 that are safe.
pub const BLOCKS_PER_BUFFER: usize = 64;
/// The largest block that is chosen unasked: as good as a sequential scan, also on a hard disk.
pub const MAX_BLOCK_BYTES: usize = 10 << 20;
/// A buffer is this part of the table when nobody says: half of the paper's setting, since its blocks are
/// smaller than the paper's, and a buffer much larger than the processor's caches is slower.
pub const BUFFER_PART_OF_TABLE: usize = 20;
/// Below this a buffer is not worth cutting: the whole table is shuffled at once.
pub const MIN_BUFFER_BYTES: usize = 16 << 20;

/// A table, or the partitions of one, cut into runs of pages. A block never reaches from one partition into the next,
/// so the last block of each may be short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockLayout {
    parts: Vec<Part>,
    pages_per_block: u32,
}

/// A partition: its pages, and the number of its first page and block among those of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    pages: u32,
    first_page: u64,
    first_block: u64,
}

/// Pages of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Which partition, from 0.
    pub part: usize,
    /// Its pages.
    pub pages: std::ops::Range<u32>,
}

impl BlockLayout {
    /// Partitions of so many pages each, in this order, in blocks of `pages_per_block`.
    pub fn new(pages: impl IntoIterator<Item = u32>, pages_per_block: u32) -> Self {
        let pages_per_block = pages_per_block.max(1);
        let (mut first_page, mut first_block) = (0, 0);
        let parts = pages.into_iter().map(|pages| {
            let part = Part { pages, first_page, first_block };
            first_page += u64::from(pages);
            first_block += u64::from(pages.div_ceil(pages_per_block));
            part
        });
        Self { parts: parts.collect(), pages_per_block }
    }

    /// The same partitions in blocks of another size.
    pub fn cut(&self, pages_per_block: u32) -> Self {
        Self::new(self.parts.iter().map(|part| part.pages), pages_per_block)
    }

    /// Pages of a block, at least 1.
    pub fn pages_per_block(&self) -> u32 {
        self.pages_per_block
    }

    /// Number of partitions.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Pages of all partitions, `u32::MAX` for more.
    pub fn pages(&self) -> u32 {
        let all = self.parts.last().map_or(0, |part| part.first_page + u64::from(part.pages));
        all.min(u64::from(u32::MAX)) as u32
    }

    /// BN, the number of blocks, `u32::MAX` for more.
    pub fn blocks(&self) -> u32 {
        let of = |part: &Part| u64::from(part.pages.div_ceil(self.pages_per_block));
        let all = self.parts.last().map_or(0, |part| part.first_block + of(part));
        all.min(u64::from(u32::MAX)) as u32
    }

    /// The pages of block `block`; none past the last one.
    pub fn block(&self, block: u32) -> Run {
        let block = u64::from(block);
        let part = self.parts.partition_point(|part| part.first_block <= block).saturating_sub(1);
        let Some(Part { pages, first_block, .. }) = self.parts.get(part).copied() else {
            return Run { part, pages: 0..0 };
        };
        let start = ((block - first_block) * u64::from(self.pages_per_block)).min(u64::from(pages)) as u32;
        Run { part, pages: start..start.saturating_add(self.pages_per_block).min(pages) }
    }

    /// The number among all pages of the first one of a partition.
    pub fn first_page(&self, part: usize) -> u64 {
        self.parts.get(part).map_or(0, |part| part.first_page)
    }

    /// Partition and page there of the page with this number among all.
    pub fn page(&self, number: u64) -> (usize, u32) {
        let part = self.parts.partition_point(|part| part.first_page <= number).saturating_sub(1);
        (part, (number - self.first_page(part)) as u32)
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
        fn blocks_cover_every_page_once(parts in prop::collection::vec(0u32..900, 0..6), size in 1u32..700) {
            let layout = BlockLayout::new(parts.iter().copied(), 1).cut(size);
            let pages = |run: Run| run.pages.map(move |page| (run.part, page));
            let seen: Vec<(usize, u32)> = (0..layout.blocks()).flat_map(|b| pages(layout.block(b))).collect();
            let all: Vec<(usize, u32)> =
                parts.iter().enumerate().flat_map(|(part, pages)| (0..*pages).map(move |page| (part, page))).collect();
            prop_assert_eq!(&seen, &all);
            prop_assert!((0..layout.blocks()).all(|b| !layout.block(b).pages.is_empty()));
            prop_assert_eq!(layout.pages() as usize, all.len());
            prop_assert!((0u64..).zip(&all).all(|(number, place)| layout.page(number) == *place));
            prop_assert!(all.is_empty() || layout.first_page(all[all.len() - 1].0) <= all.len() as u64);
        }

        #[test]
        fn whole_blocks_of_partitions_are_the_blocks_of_one_table(blocks in prop::collection::vec(0u32..9, 1..6), size in 1u32..50) {
            let parts = BlockLayout::new(blocks.iter().map(|n| n * size), size);
            let one = BlockLayout::new([blocks.iter().sum::<u32>() * size], size);
            prop_assert_eq!(parts.blocks(), one.blocks());
            for block in 0..one.blocks() {
                let run = parts.block(block);
                let first = parts.first_page(run.part) as u32;
                prop_assert_eq!(one.block(block).pages, run.pages.start + first..run.pages.end + first);
            }
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
        let pages = BlockLayout::new([u32::MAX], 7).block(u32::MAX / 7).pages;
        assert_eq!(pages, u32::MAX - 3..u32::MAX);
        assert!(BlockLayout::new([], 7).block(3).pages.is_empty());
    }
}

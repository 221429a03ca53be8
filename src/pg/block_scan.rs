//! Reading a table, or the partitions of one, block by block in an order of our own, through the table access
//! method only.
//!
//! The sampling interface does exactly this: it asks a `TsmRoutine` which page comes next and which
//! tuples of it, and leaves visibility, locking, serializable conflicts and the buffer strategy to
//! the access method (tableam.h, heapam_handler.c). Our routine names the page that we stand at, and
//! every tuple of it; each partition has a scan of its own.
//!
//! `next` and the two callbacks run inside the guard of whoever drives the scan: they own nothing to
//! drop and cannot panic.

#![allow(ffi_unwind_calls, reason = "called inside a pg_guard_ffi_boundary, as the module says")]

use super::{raw, thread};
use corgipile_core::blocks::BlockLayout;
use pgrx::pg_sys;
use std::ffi::CString;

/// The scan and where it stands. Boxed: the sampler's callbacks hold its address.
pub struct BlockScan {
    sampler: pg_sys::SampleScanState,
    routine: pg_sys::TsmRoutine,
    parts: Vec<Part>,
    /// The one that is being read.
    part: usize,
    position: Position,
    page_open: bool,
    /// Are there too many pages to be left in shared buffers?
    ring: bool,
    /// Columns that are wanted, from the first.
    attributes: usize,
    /// For rows of partitions whose columns stand elsewhere.
    mapped: *mut pg_sys::TupleTableSlot,
}

/// The scan of a table, or of one partition.
struct Part {
    scan: pg_sys::TableScanDesc,
    slot: *mut pg_sys::TupleTableSlot,
    /// Columns to deform, from the first.
    attributes: i32,
    /// Where the wanted columns stand in the partition, from 0 (negative: nowhere); `None` if in their own places.
    map: Option<Vec<i32>>,
}

/// Where the scan stands in the order of the blocks.
struct Position {
    order: Vec<u32>,
    layout: BlockLayout,
    next_block: usize,
    /// The partition of the block.
    part: usize,
    page: u32,
    end: u32,
    /// The page that the sampler is to name next.
    wanted: u32,
    next_offset: u32,
    blocks_done: u64,
    pages_read: u64,
    ahead: Ahead,
}

impl Position {
    /// Goes to the next page; false at the end.
    ///
    /// # Safety
    /// Inside a guard.
    #[inline]
    unsafe fn advance(&mut self) -> bool {
        loop {
            if self.page < self.end {
                self.wanted = self.page;
                self.page += 1;
                return true;
            }
            if self.next_block > 0 && self.next_block <= self.order.len() && self.end > 0 {
                self.blocks_done += 1;
                self.end = 0;
                self.page = 0;
            }
            let Some(block) = self.order.get(self.next_block) else { return false };
            self.next_block += 1;
            let run = self.layout.block(*block);
            (self.part, self.page, self.end) = (run.part, run.pages.start, run.pages.end);
            // SAFETY: by contract.
            unsafe { self.ahead.follow(&self.order, self.next_block, &self.layout) };
        }
    }
}

/// Blocks asked for before they are needed, so that the disk works while tuples are decoded.
///
/// As many as the scan was idle for: of the most that the tablespace allows, the part of the last block's
/// wall time in which the backend had no work. A table in memory is never asked for. A block is asked for
/// as a whole, by one advice to the system on the table's file: asked for page by page (PrefetchBuffer),
/// it would be read in as many small requests, and the system would no longer read ahead inside it.
struct Ahead {
    /// Paths of the files of each partition, 1 GB each.
    files: Vec<Vec<CString>>,
    /// effective_io_concurrency of the tablespace.
    most: usize,
    /// Blocks of the order that were asked for.
    asked: usize,
    /// Pages asked for.
    prefetched: u64,
    /// Pages since the last look at the clock.
    pages: u32,
    /// Blocks to be ahead.
    distance: usize,
    /// CPU time, wall time, and pages read into shared buffers and found there, at that look.
    before: (u64, u64, i64, i64),
}

/// Pages between two looks at the clock, which cost as much as a few tuples.
const LOOK_PAGES: u32 = 16;
/// Bytes to be ahead at most.
const MOST_AHEAD: u32 = 32 << 20;

/// Paths of a relation's files.
///
/// # Safety
/// It is open.
unsafe fn files_of(relation: pg_sys::Relation, pages: u32) -> Vec<CString> {
    // SAFETY: by contract; the SQL function pg_relation_filepath(regclass), NULL where there is no file.
    let path = unsafe {
        let oid = Some((*relation).rd_id.into());
        pgrx::direct_function_call::<String>(pg_sys::pg_relation_filepath, &[oid])
    };
    let Some(path) = path else { return Vec::new() };
    let name = |i: u32| if i == 0 { path.clone() } else { format!("{path}.{i}") };
    (0..pages.div_ceil(pg_sys::RELSEG_SIZE)).filter_map(|i| CString::new(name(i)).ok()).collect()
}

impl Ahead {
    /// # Safety
    /// The relations, with the pages of each, are open.
    unsafe fn new(relations: &[(pg_sys::Relation, u32)]) -> Self {
        // SAFETY: by contract; a look-up by oid.
        let (files, most) = unsafe {
            let space = relations.first().map(|(relation, _)| (*(**relation).rd_rel).reltablespace);
            let most = space.map_or(0, |space| pg_sys::get_tablespace_io_concurrency(space));
            (relations.iter().map(|(relation, pages)| files_of(*relation, *pages)).collect(), most)
        };
        Self { files, most: most.max(0) as usize, asked: 0, prefetched: 0, pages: 0, distance: 0, before: Self::now() }
    }

    fn restart(&mut self) {
        (self.asked, self.pages, self.before) = (0, 0, Self::now());
    }

    #[inline]
    fn now() -> (u64, u64, i64, i64) {
        // SAFETY: plain counters of the backend, read on its own thread.
        let usage = unsafe { pg_sys::pgBufferUsage };
        (thread::cpu_ns(), thread::wall_ns(), usage.shared_blks_read, usage.shared_blks_hit)
    }

    /// A block is begun, the `next`th to come after it: asks for those that will be needed soon.
    ///
    /// # Safety
    /// Inside a guard.
    #[inline]
    unsafe fn follow(&mut self, order: &[u32], next: usize, layout: &BlockLayout) {
        if self.most == 0 {
            return;
        }
        let pages_per_block = layout.pages_per_block();
        self.pages += pages_per_block;
        if self.pages >= LOOK_PAGES {
            let now = Self::now();
            let (cpu, wall) = (now.0 - self.before.0, now.1 - self.before.1);
            let (read, hit) = (now.2 - self.before.2, now.3 - self.before.3);
            (self.before, self.pages) = (now, 0);
            let idle = 1.0 - cpu as f64 / wall.max(1) as f64;
            let waits = read > hit && idle > 0.05;
            self.distance = if waits { (self.most as f64 * idle).ceil() as usize } else { 0 };
            let affordable = MOST_AHEAD / pg_sys::BLCKSZ / pages_per_block;
            self.distance = self.distance.min(affordable.max(1) as usize);
        }
        self.asked = self.asked.max(next);
        while self.asked < next + self.distance {
            let Some(block) = order.get(self.asked) else { return };
            self.asked += 1;
            let run = layout.block(*block);
            // SAFETY: by contract.
            unsafe { self.ask(run.part, run.pages) };
        }
    }

    /// Asks for pages of a partition; what fails is merely not ahead.
    ///
    /// # Safety
    /// Inside a guard.
    unsafe fn ask(&mut self, part: usize, pages: std::ops::Range<u32>) {
        let (mut from, to) = (pages.start, pages.end);
        while from < to {
            let file = from / pg_sys::RELSEG_SIZE;
            let end = to.min((file + 1).saturating_mul(pg_sys::RELSEG_SIZE));
            let Some(path) = self.files.get(part).and_then(|files| files.get(file as usize)) else { return };
            let bytes = |pages: u32| libc::off_t::from(pages) * libc::off_t::from(pg_sys::BLCKSZ);
            // SAFETY: a file that the server closes itself where an error ends the transaction.
            unsafe {
                let fd = raw::OpenTransientFile(path.as_ptr(), libc::O_RDONLY);
                if fd < 0 {
                    return;
                }
                let start = bytes(from % pg_sys::RELSEG_SIZE);
                libc::posix_fadvise(fd, start, bytes(end - from), libc::POSIX_FADV_WILLNEED);
                raw::CloseTransientFile(fd);
            }
            self.prefetched += u64::from(end - from);
            from = end;
        }
    }
}

/// "Returns the block number of the next page to be scanned."
unsafe extern "C-unwind" fn next_sample_block(
    sampler: *mut pg_sys::SampleScanState,
    nblocks: pg_sys::BlockNumber,
) -> pg_sys::BlockNumber {
    // SAFETY: `tsm_state` was set to the position beside the sampler in the same box.
    let at = unsafe { &mut *(*sampler).tsm_state.cast::<Position>() };
    at.next_offset = 1;
    let page = std::mem::replace(&mut at.wanted, pg_sys::InvalidBlockNumber);
    // The relation cannot shrink under our lock; a page past its end would be a read error.
    if page >= nblocks {
        return pg_sys::InvalidBlockNumber;
    }
    at.pages_read += 1;
    page
}

/// "Returns the offset number of the next tuple to be sampled on the specified page."
unsafe extern "C-unwind" fn next_sample_tuple(
    sampler: *mut pg_sys::SampleScanState,
    _page: pg_sys::BlockNumber,
    max_offset: pg_sys::OffsetNumber,
) -> pg_sys::OffsetNumber {
    // SAFETY: as in `next_sample_block`.
    let at = unsafe { &mut *(*sampler).tsm_state.cast::<Position>() };
    if at.next_offset > u32::from(max_offset) {
        return 0;
    }
    let offset = at.next_offset as pg_sys::OffsetNumber;
    at.next_offset += 1;
    offset
}

/// Where the first `attributes` columns of rows of `parent` stand in rows of `relation`; `None` if in their own places.
///
/// # Safety
/// Both are open; the one is a partition or a child of the other, or itself.
unsafe fn column_map(relation: pg_sys::Relation, parent: pg_sys::Relation, attributes: usize) -> Option<Vec<i32>> {
    if relation == parent {
        return None;
    }
    // SAFETY: by contract; the map is in the current memory context.
    unsafe {
        #[cfg(feature = "pg15")]
        let map = pg_sys::build_attrmap_by_name_if_req((*relation).rd_att, (*parent).rd_att);
        #[cfg(not(feature = "pg15"))]
        let map = pg_sys::build_attrmap_by_name_if_req((*relation).rd_att, (*parent).rd_att, false);
        if map.is_null() {
            return None;
        }
        let places = (0..attributes).map(|i| i32::from(*(*map).attnums.add(i)) - 1).collect();
        pg_sys::free_attrmap(map);
        Some(places)
    }
}

/// Has a scan of a heap read into a ring of buffers, which it does by itself only where its own table is large.
///
/// # Safety
/// An unread scan; not inside an unguarded section.
unsafe fn use_ring(scan: pg_sys::TableScanDesc) {
    // SAFETY: a heap's scan begins with what it has in common with others, as its access method says which it is. The ring
    // lives as long as the scan, which frees it.
    unsafe {
        let scan = scan.cast::<pg_sys::HeapScanDescData>();
        if (*(*(*scan).rs_base.rs_rd).rd_rel).relam != pg_sys::HEAP_TABLE_AM_OID || !(*scan).rs_strategy.is_null() {
            return;
        }
        let old = pg_sys::MemoryContextSwitchTo(pg_sys::GetMemoryChunkContext(scan.cast()));
        (*scan).rs_strategy = pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD);
        pg_sys::MemoryContextSwitchTo(old);
    }
}

impl BlockScan {
    /// A scan of `relations`, with the pages of each: a table, or partitions of `parent`, whose rows it gives. It will
    /// deform the first `attributes` columns of each. Nothing is read yet.
    ///
    /// # Safety
    /// The relations are open and locked for as long as the scan lives; `snapshot` is registered or active.
    pub unsafe fn new(
        parent: pg_sys::Relation,
        relations: &[(pg_sys::Relation, u32)],
        snapshot: pg_sys::Snapshot,
        attributes: usize,
    ) -> Box<Self> {
        // SAFETY: by contract; zeroed nodes are what makeNode gives. The strategy ring keeps a table
        // that cannot stay in shared buffers from evicting others; a table that can is left there
        // for the next epoch.
        unsafe {
            let pages: u64 = relations.iter().map(|(_, pages)| u64::from(*pages)).sum();
            let ring = pages > pg_sys::NBuffers as u64 / 2;
            let part = |(relation, _): &(pg_sys::Relation, u32)| {
                let map = column_map(*relation, parent, attributes);
                let highest = map.as_ref().map(|map| map.iter().max().map_or(0, |highest| highest + 1));
                Part {
                    scan: pg_sys::table_beginscan_sampling(
                        *relation,
                        snapshot,
                        0,
                        std::ptr::null_mut(),
                        ring,
                        false,
                        true,
                    ),
                    slot: pg_sys::table_slot_create(*relation, std::ptr::null_mut()),
                    attributes: highest.unwrap_or(attributes as i32),
                    map,
                }
            };
            let parts: Vec<Part> = relations.iter().map(part).collect();
            let mapped = if parts.iter().any(|part| part.map.is_some()) {
                pg_sys::MakeSingleTupleTableSlot((*parent).rd_att, &raw const pg_sys::TTSOpsVirtual)
            } else {
                std::ptr::null_mut()
            };
            let mut this = Box::new(Self {
                sampler: std::mem::zeroed(),
                routine: std::mem::zeroed(),
                parts,
                part: 0,
                position: Position {
                    order: Vec::new(),
                    layout: BlockLayout::new([], 1),
                    next_block: 0,
                    part: 0,
                    page: 0,
                    end: 0,
                    wanted: pg_sys::InvalidBlockNumber,
                    next_offset: 1,
                    blocks_done: 0,
                    pages_read: 0,
                    ahead: Ahead::new(relations),
                },
                page_open: false,
                ring,
                attributes,
                mapped,
            });
            this.routine.type_ = pg_sys::NodeTag::T_TsmRoutine;
            this.routine.NextSampleBlock = Some(next_sample_block);
            this.routine.NextSampleTuple = Some(next_sample_tuple);
            this.sampler.ss.ps.type_ = pg_sys::NodeTag::T_SampleScanState;
            this.sampler.tsmroutine = &raw mut this.routine;
            this.sampler.tsm_state = (&raw mut this.position).cast();
            this
        }
    }

    /// Starts (again) with this order of the blocks of `layout`, whose partitions are the scan's.
    ///
    /// # Safety
    /// The relations are still open; not inside an unguarded section.
    pub unsafe fn start(&mut self, order: Vec<u32>, layout: BlockLayout) {
        // SAFETY: by contract; rescanning an unread scan is harmless.
        unsafe {
            for part in &self.parts {
                pg_sys::ExecClearTuple(part.slot);
                pg_sys::table_rescan(part.scan, std::ptr::null_mut());
                if self.ring {
                    use_ring(part.scan);
                }
            }
        }
        let at = &mut self.position;
        at.order = order;
        at.layout = layout;
        at.next_block = 0;
        at.page = 0;
        at.end = 0;
        at.ahead.restart();
        self.page_open = false;
    }

    /// Goes to the next visible tuple, and deforms it; the partition that it is in, `None` at the end.
    ///
    /// # Safety
    /// Inside a guard.
    #[inline]
    unsafe fn advance(&mut self) -> Option<&Part> {
        // SAFETY: the scans' methods are those of their relations' access methods.
        unsafe {
            loop {
                let part = self.parts.get(self.part)?;
                let table_am = (*(*part.scan).rs_rd).rd_tableam;
                let (next_page, next_tuple) =
                    ((*table_am).scan_sample_next_block?, (*table_am).scan_sample_next_tuple?);
                if self.page_open {
                    if next_tuple(part.scan, &raw mut self.sampler, part.slot) {
                        if i32::from((*part.slot).tts_nvalid) < part.attributes {
                            raw::slot_getsomeattrs_int(part.slot, part.attributes);
                        }
                        return self.parts.get(self.part);
                    }
                    self.page_open = false;
                }
                if !self.position.advance() {
                    return None;
                }
                if self.position.part != self.part {
                    // No pin is left behind in the partition before: no tuple, and no page.
                    let page = std::mem::replace(&mut self.position.wanted, pg_sys::InvalidBlockNumber);
                    raw::clear_slot(part.slot);
                    next_page(part.scan, &raw mut self.sampler);
                    self.position.wanted = page;
                    self.part = self.position.part;
                }
                let part = self.parts.get(self.part)?;
                let table_am = (*(*part.scan).rs_rd).rd_tableam;
                self.page_open = (*table_am).scan_sample_next_block?(part.scan, &raw mut self.sampler);
            }
        }
    }

    /// The next visible tuple, with the wanted columns deformed, in a slot of the scan's own; null at the end.
    ///
    /// # Safety
    /// Inside a guard.
    #[inline]
    pub unsafe fn next_table_slot(&mut self) -> *mut pg_sys::TupleTableSlot {
        let (mapped, attributes) = (self.mapped, self.attributes);
        // SAFETY: by contract; where a partition has a map there is a slot for its rows.
        unsafe {
            match self.advance() {
                None => core::ptr::null_mut(),
                Some(part) if part.map.is_none() => part.slot,
                Some(part) => {
                    part.copy(mapped, attributes);
                    mapped
                }
            }
        }
    }

    /// Puts the next visible tuple into `slot` (virtual); false at the end.
    ///
    /// # Safety
    /// Inside a guard; `slot` is a virtual slot of the parent's row type.
    #[inline]
    pub unsafe fn next(&mut self, slot: *mut pg_sys::TupleTableSlot) -> bool {
        let attributes = self.attributes;
        // SAFETY: by contract.
        unsafe {
            let part = self.advance();
            if let Some(part) = part {
                part.copy(slot, attributes);
            }
            part.is_some()
        }
    }

    /// Partition, page there and line of the tuple returned last.
    #[inline(always)]
    pub fn current_row(&self) -> (usize, u32, u16) {
        // SAFETY: slots live as long as the scan.
        let (page, line) = self.parts.get(self.part).map_or((0, 0), |part| unsafe {
            let tid = (*part.slot).tts_tid;
            ((u32::from(tid.ip_blkid.bi_hi) << 16) | u32::from(tid.ip_blkid.bi_lo), tid.ip_posid)
        });
        (self.part, page, line)
    }

    /// Where the tuple returned last lies, as a number: its page among those of all partitions, and its line.
    #[inline(always)]
    pub fn current_place(&self) -> u64 {
        let (part, page, line) = self.current_row();
        ((self.position.layout.first_page(part) + u64::from(page)) << 16) | u64::from(line)
    }

    /// Blocks read to their end since the scan was made.
    pub fn blocks_done(&self) -> u64 {
        self.position.blocks_done
    }

    /// Blocks of this pass that reading has begun with.
    #[inline(always)]
    pub fn blocks_begun(&self) -> usize {
        self.position.next_block
    }

    /// Counts blocks and pages from here on.
    pub fn forget_counts(&mut self) {
        self.position.blocks_done = 0;
        self.position.pages_read = 0;
        self.position.ahead.prefetched = 0;
    }

    /// Pages whose reading was begun before they were needed, since the scan was made.
    pub fn pages_prefetched(&self) -> u64 {
        self.position.ahead.prefetched
    }

    /// Pages read since the scan was made.
    pub fn pages_read(&self) -> u64 {
        self.position.pages_read
    }

    /// Releases pins, slots and scans.
    ///
    /// # Safety
    /// The relations are still open. Called at the normal end; after an ERROR the server releases them itself.
    pub unsafe fn end(self: Box<Self>) {
        // SAFETY: by contract.
        unsafe {
            if !self.mapped.is_null() {
                pg_sys::ExecDropSingleTupleTableSlot(self.mapped);
            }
            for part in &self.parts {
                pg_sys::ExecDropSingleTupleTableSlot(part.slot);
                pg_sys::table_endscan(part.scan);
            }
        }
    }
}

impl Part {
    /// Puts the tuple just read into `slot` (virtual), the first `attributes` columns in the parent's order.
    ///
    /// # Safety
    /// Inside a guard; the tuple is deformed; `slot` has at least that many columns.
    #[inline(always)]
    unsafe fn copy(&self, slot: *mut pg_sys::TupleTableSlot, attributes: usize) {
        // SAFETY: by contract; a map has `attributes` entries, all below what was deformed.
        unsafe {
            let (source, target) = (&*self.slot, &mut *slot);
            let mut i = 0;
            while i < attributes {
                let from = match &self.map {
                    None => i as i32,
                    Some(map) => *map.get_unchecked(i),
                };
                if from < 0 {
                    *target.tts_isnull.add(i) = true;
                } else {
                    *target.tts_values.add(i) = *source.tts_values.add(from as usize);
                    *target.tts_isnull.add(i) = *source.tts_isnull.add(from as usize);
                }
                i += 1;
            }
            target.tts_flags &= !(pg_sys::TTS_FLAG_EMPTY as u16);
            target.tts_nvalid = (*target.tts_tupleDescriptor).natts as pg_sys::AttrNumber;
            target.tts_tid = source.tts_tid;
            target.tts_tableOid = source.tts_tableOid;
        }
    }
}

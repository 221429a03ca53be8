//! Reading a table block by block in an order of our own, through the table access method only.
//!
//! The sampling interface does exactly this: it asks a `TsmRoutine` which page comes next and which
//! tuples of it, and leaves visibility, locking, serializable conflicts and the buffer strategy to
//! the access method (tableam.h, heapam_handler.c). Our routine names every page of the block order
//! once, and every tuple of the page.
//!
//! `next` and the two callbacks run inside the guard of whoever drives the scan: they own nothing to
//! drop and cannot panic.

#![allow(ffi_unwind_calls, reason = "called inside a pg_guard_ffi_boundary, as the module says")]

use pgrx::pg_sys;

use super::{raw, thread};

/// The scan and where it stands. Boxed: the sampler's callbacks hold its address.
pub struct BlockScan {
    sampler: pg_sys::SampleScanState,
    routine: pg_sys::TsmRoutine,
    scan: pg_sys::TableScanDesc,
    table_slot: *mut pg_sys::TupleTableSlot,
    position: Position,
    page_open: bool,
    attributes: i32,
}

/// Where the scan stands in the order of the blocks.
struct Position {
    order: Vec<u32>,
    pages: u32,
    pages_per_block: u32,
    next_block: usize,
    page: u32,
    end: u32,
    next_offset: u32,
    blocks_done: u64,
    pages_read: u64,
    ahead: Ahead,
}

/// Pages asked for before they are needed, so that the disk works while tuples are decoded.
///
/// As many as the scan was idle for: of the most that the tablespace allows, the part of the last block's
/// wall time in which the backend had no work. A table in memory is never asked for.
struct Ahead {
    relation: pg_sys::Relation,
    /// effective_io_concurrency of the tablespace.
    most: u32,
    /// How far to be ahead now.
    distance: u32,
    /// Pages asked for of the page order since it began, and given out.
    asked: u64,
    given: u64,
    block: usize,
    page: u32,
    end: u32,
    /// Pages whose reading was begun by it.
    prefetched: u64,
    /// CPU time, wall time and pages read into shared buffers when the block began.
    before: (u64, u64, i64),
}

impl Ahead {
    fn restart(&mut self) {
        (self.asked, self.given, self.block, self.page, self.end) = (0, 0, 0, 0, 0);
        self.before = Self::now();
    }

    #[inline]
    fn now() -> (u64, u64, i64) {
        // SAFETY: a plain counter of the backend, read on its own thread.
        let read = unsafe { pg_sys::pgBufferUsage.shared_blks_read };
        (thread::cpu_ns(), thread::wall_ns(), read)
    }

    /// A block begins: how far to look ahead while it is read.
    #[inline]
    fn adapt(&mut self) {
        if self.most == 0 {
            return;
        }
        let now = Self::now();
        let (cpu, wall, read) = (now.0 - self.before.0, now.1 - self.before.1, now.2 - self.before.2);
        self.before = now;
        let idle = 1.0 - cpu as f64 / wall.max(1) as f64;
        self.distance = if read > 0 && idle > 0.05 { (f64::from(self.most) * idle).ceil() as u32 } else { 0 };
    }

    /// A page is given out: asks for those behind it.
    ///
    /// # Safety
    /// Inside a guard; the relation is open.
    #[inline]
    unsafe fn follow(&mut self, order: &[u32], pages: u32, pages_per_block: u32) {
        self.given += 1;
        if self.distance == 0 {
            return;
        }
        while self.asked < self.given + u64::from(self.distance) {
            if self.page >= self.end {
                let Some(block) = order.get(self.block) else { return };
                self.block += 1;
                self.page = block.saturating_mul(pages_per_block).min(pages);
                self.end = self.page.saturating_add(pages_per_block).min(pages);
                continue;
            }
            self.asked += 1;
            if self.asked > self.given {
                // SAFETY: by contract.
                let result = unsafe { raw::PrefetchBuffer(self.relation, pg_sys::ForkNumber::MAIN_FORKNUM, self.page) };
                self.prefetched += u64::from(result.initiated_io);
            }
            self.page += 1;
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
    loop {
        if at.page < at.end {
            let page = at.page;
            at.page += 1;
            // The relation cannot shrink under our lock; a page past its end would be a read error.
            if page < nblocks {
                at.pages_read += 1;
                // SAFETY: called by the scan, inside its caller's guard.
                unsafe { at.ahead.follow(&at.order, at.pages, at.pages_per_block) };
                return page;
            }
            continue;
        }
        if at.next_block > 0 && at.next_block <= at.order.len() && at.end > 0 {
            at.blocks_done += 1;
            at.end = 0;
            at.page = 0;
        }
        let Some(block) = at.order.get(at.next_block) else {
            return pg_sys::InvalidBlockNumber;
        };
        at.next_block += 1;
        at.page = block.saturating_mul(at.pages_per_block).min(at.pages);
        at.end = at.page.saturating_add(at.pages_per_block).min(at.pages);
        at.ahead.adapt();
    }
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

impl BlockScan {
    /// A scan of `relation` that will deform the first `attributes` columns of each tuple. Nothing
    /// is read yet.
    ///
    /// # Safety
    /// `relation` is open and locked for as long as the scan lives; `snapshot` is registered or active.
    pub unsafe fn new(
        relation: pg_sys::Relation,
        snapshot: pg_sys::Snapshot,
        pages: u32,
        attributes: i32,
    ) -> Box<Self> {
        // SAFETY: by contract; zeroed nodes are what makeNode gives. The strategy ring keeps a table
        // that cannot stay in shared buffers from evicting others; a table that can is left there
        // for the next epoch.
        unsafe {
            let ring = u64::from(pages) > pg_sys::NBuffers as u64 / 2;
            let scan = pg_sys::table_beginscan_sampling(relation, snapshot, 0, std::ptr::null_mut(), ring, false, true);
            let mut this = Box::new(Self {
                sampler: std::mem::zeroed(),
                routine: std::mem::zeroed(),
                scan,
                table_slot: pg_sys::table_slot_create(relation, std::ptr::null_mut()),
                position: Position {
                    order: Vec::new(),
                    pages,
                    pages_per_block: 1,
                    next_block: 0,
                    page: 0,
                    end: 0,
                    next_offset: 1,
                    blocks_done: 0,
                    pages_read: 0,
                    ahead: Ahead {
                        relation,
                        most: pg_sys::get_tablespace_io_concurrency((*(*relation).rd_rel).reltablespace).max(0) as u32,
                        distance: 0,
                        asked: 0,
                        given: 0,
                        block: 0,
                        page: 0,
                        end: 0,
                        prefetched: 0,
                        before: (0, 0, 0),
                    },
                },
                page_open: false,
                attributes,
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

    /// Starts (again) with this order of blocks.
    ///
    /// # Safety
    /// The relation is still open; not inside an unguarded section.
    pub unsafe fn start(&mut self, order: Vec<u32>, pages_per_block: u32) {
        // SAFETY: by contract; rescanning an unread scan is harmless.
        unsafe {
            pg_sys::ExecClearTuple(self.table_slot);
            pg_sys::table_rescan(self.scan, std::ptr::null_mut());
        }
        let at = &mut self.position;
        at.order = order;
        at.pages_per_block = pages_per_block.max(1);
        at.next_block = 0;
        at.page = 0;
        at.end = 0;
        at.ahead.restart();
        self.page_open = false;
    }

    /// The next visible tuple in the scan's own slot, with the first columns deformed; null at the end.
    ///
    /// # Safety
    /// Inside a guard.
    #[inline]
    pub unsafe fn next_table_slot(&mut self) -> *mut pg_sys::TupleTableSlot {
        // SAFETY: the scan's methods are those of its relation's access method.
        unsafe {
            let table_am = (*(*self.scan).rs_rd).rd_tableam;
            let (Some(next_page), Some(next_tuple)) =
                ((*table_am).scan_sample_next_block, (*table_am).scan_sample_next_tuple)
            else {
                return core::ptr::null_mut();
            };
            loop {
                if self.page_open {
                    if next_tuple(self.scan, &raw mut self.sampler, self.table_slot) {
                        break;
                    }
                    self.page_open = false;
                }
                if !next_page(self.scan, &raw mut self.sampler) {
                    return core::ptr::null_mut();
                }
                self.page_open = true;
            }
            if i32::from((*self.table_slot).tts_nvalid) < self.attributes {
                raw::slot_getsomeattrs_int(self.table_slot, self.attributes);
            }
            self.table_slot
        }
    }

    /// Puts the next visible tuple into `slot` (virtual); false at the end.
    ///
    /// # Safety
    /// Inside a guard; `slot` is a virtual slot of the relation's row type.
    #[inline]
    pub unsafe fn next(&mut self, slot: *mut pg_sys::TupleTableSlot) -> bool {
        // SAFETY: by contract.
        unsafe {
            let source = self.next_table_slot();
            if source.is_null() {
                return false;
            }
            let (source, target) = (&*source, &mut *slot);
            let mut i = 0;
            while i < self.attributes as usize {
                *target.tts_values.add(i) = *source.tts_values.add(i);
                *target.tts_isnull.add(i) = *source.tts_isnull.add(i);
                i += 1;
            }
            target.tts_flags &= !(pg_sys::TTS_FLAG_EMPTY as u16);
            target.tts_nvalid = (*target.tts_tupleDescriptor).natts as pg_sys::AttrNumber;
            target.tts_tid = source.tts_tid;
            target.tts_tableOid = source.tts_tableOid;
            true
        }
    }

    /// Page and line of the tuple returned last.
    #[inline(always)]
    pub fn current_ctid(&self) -> (u32, u16) {
        // SAFETY: the slot lives as long as the scan.
        let tid = unsafe { (*self.table_slot).tts_tid };
        ((u32::from(tid.ip_blkid.bi_hi) << 16) | u32::from(tid.ip_blkid.bi_lo), tid.ip_posid)
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

    /// Releases pin, slot and scan.
    ///
    /// # Safety
    /// The relation is still open. Called at the normal end; after an ERROR the server releases them itself.
    pub unsafe fn end(self: Box<Self>) {
        // SAFETY: by contract.
        unsafe {
            pg_sys::ExecDropSingleTupleTableSlot(self.table_slot);
            pg_sys::table_endscan(self.scan);
        }
    }
}

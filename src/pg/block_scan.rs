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

use super::{raw, thread};
use pgrx::pg_sys;
use std::ffi::CString;

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

/// Blocks asked for before they are needed, so that the disk works while tuples are decoded.
///
/// As many as the scan was idle for: of the most that the tablespace allows, the part of the last block's
/// wall time in which the backend had no work. A table in memory is never asked for. A block is asked for
/// as a whole, by one advice to the system on the table's file: asked for page by page (PrefetchBuffer),
/// it would be read in as many small requests, and the system would no longer read ahead inside it.
struct Ahead {
    /// Paths of the table's files, 1 GB each.
    files: Vec<CString>,
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

impl Ahead {
    /// # Safety
    /// `relation` is open.
    unsafe fn new(relation: pg_sys::Relation, pages: u32) -> Self {
        // SAFETY: by contract; the SQL function pg_relation_filepath(regclass), NULL where there is no file.
        let (most, path) = unsafe {
            let most = pg_sys::get_tablespace_io_concurrency((*(*relation).rd_rel).reltablespace);
            let oid = Some((*relation).rd_id.into());
            (most, pgrx::direct_function_call::<String>(pg_sys::pg_relation_filepath, &[oid]))
        };
        let name = |path: &String, i: u32| if i == 0 { path.clone() } else { format!("{path}.{i}") };
        let files = path.map(|path| (0..pages.div_ceil(pg_sys::RELSEG_SIZE)).map(|i| name(&path, i)).collect());
        let files: Vec<String> = files.unwrap_or_default();
        Self {
            files: files.into_iter().filter_map(|name| CString::new(name).ok()).collect(),
            most: most.max(0) as usize,
            asked: 0,
            prefetched: 0,
            pages: 0,
            distance: 0,
            before: Self::now(),
        }
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
    unsafe fn follow(&mut self, order: &[u32], next: usize, pages: u32, pages_per_block: u32) {
        if self.most == 0 {
            return;
        }
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
            let from = block.saturating_mul(pages_per_block).min(pages);
            let to = from.saturating_add(pages_per_block).min(pages);
            // SAFETY: by contract.
            unsafe { self.ask(from, to) };
        }
    }

    /// Asks for pages `from..to`; what fails is merely not ahead.
    ///
    /// # Safety
    /// Inside a guard.
    unsafe fn ask(&mut self, mut from: u32, to: u32) {
        while from < to {
            let file = from / pg_sys::RELSEG_SIZE;
            let end = to.min((file + 1).saturating_mul(pg_sys::RELSEG_SIZE));
            let Some(path) = self.files.get(file as usize) else { return };
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
    loop {
        if at.page < at.end {
            let page = at.page;
            at.page += 1;
            // The relation cannot shrink under our lock; a page past its end would be a read error.
            if page < nblocks {
                at.pages_read += 1;
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
        // SAFETY: called by the scan, inside its caller's guard.
        unsafe { at.ahead.follow(&at.order, at.next_block, at.pages, at.pages_per_block) };
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
                    ahead: Ahead::new(relation, pages),
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

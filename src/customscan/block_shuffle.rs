//! BlockShuffle: a scan node that reads the blocks of a table in random order; those of all partitions of a
//! partitioned table, or of all children of a table, in one order.
//!
//! Filter and projection are core's (ExecScan); the tuples come through the table access method
//! (`pg::block_scan`). ReScan starts the next epoch with a new order.

use crate::pg::block_scan::BlockScan;
use crate::pg::explain::{Explainer, pretty_bytes};
use crate::pg::node::{CustomNode, Methods, Node, exec_methods, scan_methods};
use crate::pg::{list, raw, relation};
use corgipile_core::blocks::BlockLayout;
use corgipile_core::permute::block_order;
use pgrx::pg_sys;

/// State of the node.
pub struct BlockShuffle {
    scan: Option<Box<BlockScan>>,
    /// The partitions to read; `None`: the table itself.
    children: Option<Vec<pg_sys::Oid>>,
    /// What is read: open relations, with the pages that each has.
    relations: Vec<(pg_sys::Relation, u32)>,
    layout: BlockLayout,
    random: bool,
    /// Blocks to read in place of all, and how they are cut: a look at a sample.
    only: Option<(Vec<u32>, BlockLayout)>,
    seed: i64,
    epoch: u32,
    started: bool,
    attributes: usize,
}

pub static SCAN_METHODS: Methods<pg_sys::CustomScanMethods> = Methods(scan_methods::<BlockShuffle>());
static EXEC_METHODS: Methods<pg_sys::CustomExecMethods> = Methods(exec_methods::<BlockShuffle>(exec));

/// Pages of an open relation.
unsafe fn pages_of(relation: pg_sys::Relation) -> u32 {
    // SAFETY: by contract.
    unsafe { pg_sys::RelationGetNumberOfBlocksInFork(relation, pg_sys::ForkNumber::MAIN_FORKNUM) }
}

/// Highest column that the node's filter and projection need.
unsafe fn needed_attributes(css: &pg_sys::CustomScanState) -> usize {
    // SAFETY: the plan and the open relation of a node that is being begun.
    unsafe {
        let plan = css.ss.ps.plan.cast::<pg_sys::CustomScan>();
        let natts = (*(*css.ss.ss_currentRelation).rd_att).natts;
        let mut used: *mut pg_sys::Bitmapset = std::ptr::null_mut();
        let scanrelid = (*plan).scan.scanrelid;
        pg_sys::pull_varattnos((*plan).scan.plan.targetlist.cast(), scanrelid, &mut used);
        pg_sys::pull_varattnos((*plan).scan.plan.qual.cast(), scanrelid, &mut used);
        let mut highest = 0;
        let mut member = -1;
        loop {
            member = pg_sys::bms_next_member(used, member);
            if member < 0 {
                return highest as usize;
            }
            let attribute = member + pg_sys::FirstLowInvalidHeapAttributeNumber;
            if attribute == 0 {
                return natts as usize;
            }
            highest = highest.max(attribute);
        }
    }
}

impl BlockShuffle {
    /// Sets what the training above decided, and goes back to the first epoch.
    ///
    /// # Safety
    /// `node` is a begun node.
    pub unsafe fn configure(node: *mut Node<Self>, pages_per_block: u32, random: bool, seed: i64) {
        // SAFETY: by contract.
        let state = unsafe { &mut (*node).state };
        state.layout = state.layout.cut(pages_per_block);
        state.random = random;
        state.seed = seed;
        state.epoch = 0;
        state.started = false;
        if let (Some(scan), Some(_)) = (&mut state.scan, state.only.take()) {
            scan.forget_counts();
        }
    }

    /// Sets blocks to be read by the next scan in place of all, until `configure`.
    ///
    /// # Safety
    /// `node` is a begun node.
    pub unsafe fn look_at(node: *mut Node<Self>, blocks: Vec<u32>, pages_per_block: u32) {
        // SAFETY: by contract.
        let state = unsafe { &mut (*node).state };
        state.only = Some((blocks, state.layout.cut(pages_per_block)));
        state.started = false;
    }

    /// The blocks in the order in which an epoch reads them.
    pub fn order_of(&self, epoch: u32) -> Vec<u32> {
        if self.random {
            block_order(self.seed, epoch, self.layout.blocks())
        } else {
            (0..self.layout.blocks()).collect()
        }
    }

    /// The table cut into blocks.
    pub fn layout(&self) -> &BlockLayout {
        &self.layout
    }

    /// The table, or the first of its partitions.
    pub fn first_relation(&self) -> pg_sys::Oid {
        // SAFETY: open from Begin to End.
        self.relations.first().map_or(pg_sys::InvalidOid, |(relation, _)| unsafe { (**relation).rd_id })
    }

    /// Bytes of the table, with its values out of line.
    ///
    /// # Safety
    /// `node` is a begun node.
    pub unsafe fn table_bytes(node: *mut Node<Self>) -> u64 {
        // SAFETY: by contract; the relations are open, and so locked that their toast tables stay.
        unsafe {
            let mut all = 0;
            for (relation, pages) in &(*node).state.relations {
                all += u64::from(*pages);
                let toast = (*(**relation).rd_rel).reltoastrelid;
                if toast != pg_sys::InvalidOid {
                    let toast = pg_sys::relation_open(toast, pg_sys::AccessShareLock as i32);
                    all += u64::from(pages_of(toast));
                    pg_sys::relation_close(toast, pg_sys::AccessShareLock as i32);
                }
            }
            all * u64::from(pg_sys::BLCKSZ)
        }
    }

    /// Blocks read so far, over all epochs.
    pub fn blocks_done(&self) -> u64 {
        self.scan.as_ref().map_or(0, |scan| scan.blocks_done())
    }

    /// The scan, whose position is that of the row returned last; null before it has started.
    pub fn position(&self) -> *const BlockScan {
        self.scan.as_ref().map_or(core::ptr::null(), |scan| &raw const **scan)
    }

    /// The row returned last, or the one at `place` (see [`BlockScan::current_place`]), in words.
    pub fn row_in_words(&self, place: Option<u64>) -> String {
        let (part, page, line) = match (place, &self.scan) {
            (Some(place), _) => {
                let (part, page) = self.layout.page(place >> 16);
                (part, page, place as u16)
            }
            (None, Some(scan)) => scan.current_row(),
            (None, None) => (0, 0, 0),
        };
        // SAFETY: open from Begin to End.
        let relation =
            self.relations.get(part).and_then(|(relation, _)| unsafe { relation::qualified_name((**relation).rd_id) });
        format!("in the row with ctid ({page},{line}) of table {}", relation.unwrap_or_default())
    }

    /// Makes the scan if need be and puts it at the start of the current epoch.
    unsafe fn start(node: *mut Node<Self>) {
        // SAFETY: the relation is open and locked from Begin to End; the snapshot is the query's.
        unsafe {
            let css = &mut (*node).css;
            let state = &mut (*node).state;
            let all = || (state.order_of(state.epoch), state.layout.clone());
            let (order, layout) = state.only.clone().unwrap_or_else(all);
            let snapshot = (*css.ss.ps.state).es_snapshot;
            let scan = match state.scan.take() {
                Some(scan) => scan,
                None => BlockScan::new(css.ss.ss_currentRelation, &state.relations, snapshot, state.attributes),
            };
            state.scan.insert(scan).start(order, layout);
        }
    }

    /// The scan itself and the table columns behind the node's output, if the node has neither a
    /// filter nor a computed column, so that its parent may read the table's slot directly. Not when
    /// EXPLAIN ANALYZE times the node, which needs a call of the executor for each tuple.
    ///
    /// # Safety
    /// `node` is a begun node, prepared for this epoch.
    pub unsafe fn direct(node: *mut Node<Self>) -> Option<(*mut BlockScan, Vec<usize>)> {
        // SAFETY: by contract.
        unsafe {
            let ps = &(*node).css.ss.ps;
            let timed = !ps.instrument.is_null() && (*ps.instrument).need_timer;
            if !ps.qual.is_null() || timed {
                return None;
            }
            let columns = list::pointers::<pg_sys::TargetEntry>((*ps.plan).targetlist)
                .into_iter()
                .map(|entry| {
                    let expr = (*entry).expr;
                    let var = expr.cast::<pg_sys::Var>();
                    let plain = (*expr).type_ == pg_sys::NodeTag::T_Var && (*var).varattno > 0;
                    plain.then(|| (*var).varattno as usize - 1)
                })
                .collect::<Option<Vec<usize>>>()?;
            (*node).state.scan.as_mut().map(|scan| (&raw mut **scan, columns))
        }
    }

    /// Prepares the first pull of an epoch, outside of any unguarded section.
    ///
    /// # Safety
    /// `node` is a begun node.
    pub unsafe fn prepare(node: *mut Node<Self>) {
        // SAFETY: by contract.
        unsafe {
            if !(*node).state.started {
                Self::start(node);
                (*node).state.started = true;
            }
        }
    }
}

/// "Fetch the next scan tuple." Unguarded: see `pg::raw`.
unsafe extern "C-unwind" fn exec(css: *mut pg_sys::CustomScanState) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: called by the executor with our node, inside the guard of whoever called it; the
    // guarded work of starting is done before, or here under its own guard.
    unsafe {
        let node = css.cast::<Node<BlockShuffle>>();
        if !(*node).state.started {
            start_guarded(node);
        }
        #[allow(ffi_unwind_calls, reason = "inside the caller's pg_guard_ffi_boundary")]
        let slot = raw::ExecScan(css.cast(), Some(access), Some(recheck));
        slot
    }
}

/// Starts an epoch from the unguarded path (the parent is not TupleShuffle).
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn start_guarded(node: *mut Node<BlockShuffle>) {
    // SAFETY: as in `exec`.
    unsafe { BlockShuffle::prepare(node) }
}

/// ExecScan's access method.
unsafe extern "C-unwind" fn access(ss: *mut pg_sys::ScanState) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: `exec` passed its own node; `prepare` made the scan.
    unsafe {
        let node = ss.cast::<Node<BlockShuffle>>();
        let slot = (*ss).ss_ScanTupleSlot;
        let found = match &mut (*node).state.scan {
            Some(scan) => scan.next(slot),
            None => false,
        };
        if found { slot } else { core::ptr::null_mut() }
    }
}

/// ExecScan's recheck method: no condition was pushed into the scan.
unsafe extern "C-unwind" fn recheck(_: *mut pg_sys::ScanState, _: *mut pg_sys::TupleTableSlot) -> bool {
    true
}

impl CustomNode for BlockShuffle {
    const NAME: &'static std::ffi::CStr = c"BlockShuffle";

    fn exec_methods() -> &'static pg_sys::CustomExecMethods {
        &EXEC_METHODS.0
    }

    unsafe fn create(plan: *mut pg_sys::CustomScan) -> Self {
        // SAFETY: a plan made by the planner module.
        let children = unsafe { list::read_private_data::<Vec<u32>>((*plan).custom_private) };
        Self {
            scan: None,
            children: children.map(|oids| oids.into_iter().map(pg_sys::Oid::from).collect()),
            relations: Vec::new(),
            layout: BlockLayout::new([], 1),
            random: true,
            only: None,
            seed: 1,
            epoch: 0,
            started: false,
            attributes: 0,
        }
    }

    unsafe fn begin(node: *mut Node<Self>, _estate: *mut pg_sys::EState, _eflags: i32) {
        // SAFETY: ExecInitCustomScan has opened and locked the relation.
        unsafe {
            let table = (*node).css.ss.ss_currentRelation;
            let state = &mut (*node).state;
            let relations = match &state.children {
                None => vec![table],
                // The planner has locked them; the lock is the transaction's.
                Some(children) => {
                    children.iter().map(|oid| pg_sys::table_open(*oid, pg_sys::AccessShareLock as i32)).collect()
                }
            };
            state.relations = relations.into_iter().map(|relation| (relation, pages_of(relation))).collect();
            state.layout = BlockLayout::new(state.relations.iter().map(|(_, pages)| *pages), 1);
            (*node).state.attributes = needed_attributes(&(*node).css);
        }
    }

    unsafe fn rescan(node: *mut Node<Self>) {
        // SAFETY: called by the executor with a begun node.
        unsafe {
            if (*node).state.started {
                (*node).state.epoch += 1;
                (*node).state.started = false;
            }
            pg_sys::ExecScanReScan(&raw mut (*node).css.ss);
        }
    }

    unsafe fn end(node: *mut Node<Self>) {
        // SAFETY: the table is closed by the executor after this, partitions here.
        unsafe {
            if let Some(scan) = (*node).state.scan.take() {
                scan.end();
            }
            let relations = std::mem::take(&mut (*node).state.relations);
            if (*node).state.children.is_some() {
                for (relation, _) in relations {
                    pg_sys::table_close(relation, pg_sys::NoLock as i32);
                }
            }
        }
    }

    unsafe fn explain(node: *mut Node<Self>, es: *mut pg_sys::ExplainState) {
        // SAFETY: by contract.
        let (state, out) = unsafe { (&(*node).state, Explainer::new(es)) };
        if state.children.is_some() {
            out.integer("Partitions", state.relations.len() as i64);
        }
        out.text("Block Order", if state.random { "random" } else { "sequential" });
        out.text(
            "Blocks",
            &format!(
                "{} of {}",
                state.layout.blocks(),
                pretty_bytes(state.layout.pages_per_block() as usize * pg_sys::BLCKSZ as usize)
            ),
        );
        if out.is_analyze() {
            out.integer("Blocks Read", state.blocks_done() as i64);
            out.integer("Pages Read", state.scan.as_ref().map_or(0, |scan| scan.pages_read()) as i64);
            let prefetched = state.scan.as_ref().map_or(0, |scan| scan.pages_prefetched());
            if prefetched > 0 {
                out.integer("Pages Prefetched", prefetched as i64);
            }
        }
    }
}

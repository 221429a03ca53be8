//! A custom scan node's executor state: PostgreSQL's struct first, our Rust state behind it.
//!
//! The state belongs to the executor's memory context and is dropped when that context goes away:
//! at the normal end, and also after an ERROR, a cancel or a FATAL, where EndCustomScan is not
//! called (measured: STYLE of the project, "A pure-Rust thread beside a backend"). A drop must touch
//! nothing of PostgreSQL.

use pgrx::{PgMemoryContexts, pg_guard, pg_sys};
use std::ffi::CStr;

/// Executor state of one node.
#[repr(C)]
pub struct Node<S> {
    /// PostgreSQL's part. Must be first: the server sees a pointer to it.
    pub css: pg_sys::CustomScanState,
    /// Ours.
    pub state: S,
}

/// What a node does; the thunks below call these.
pub trait CustomNode: Sized {
    /// The name in EXPLAIN, and of the registered methods.
    const NAME: &'static CStr;
    /// The node's table of executor callbacks.
    fn exec_methods() -> &'static pg_sys::CustomExecMethods;
    /// Makes the state for a plan.
    ///
    /// # Safety
    /// `plan` is a valid plan of this node.
    unsafe fn create(plan: *mut pg_sys::CustomScan) -> Self;
    /// Prepares the node; does nothing costly (plain EXPLAIN comes here too).
    ///
    /// # Safety
    /// Called by the executor with a valid node.
    unsafe fn begin(node: *mut Node<Self>, estate: *mut pg_sys::EState, eflags: i32);
    /// Prepares to return the tuples again.
    ///
    /// # Safety
    /// As for `begin`.
    unsafe fn rescan(node: *mut Node<Self>);
    /// Ends the node; not called after an ERROR.
    ///
    /// # Safety
    /// As for `begin`.
    unsafe fn end(node: *mut Node<Self>);
    /// Says more about the node.
    ///
    /// # Safety
    /// As for `begin`; `es` is the state of the running EXPLAIN.
    unsafe fn explain(node: *mut Node<Self>, es: *mut pg_sys::ExplainState);
}

/// A table of callbacks that may be a `static`: it holds pointers to statics and functions only.
#[repr(transparent)]
pub struct Methods<T>(pub T);
// SAFETY: the tables are never changed, and point to immutable statics and functions.
unsafe impl<T> Sync for Methods<T> {}

/// The executor callbacks of a node; the tuple callback is passed in since BlockShuffle's must not be guarded.
pub const fn exec_methods<N: CustomNode>(
    exec: unsafe extern "C-unwind" fn(*mut pg_sys::CustomScanState) -> *mut pg_sys::TupleTableSlot,
) -> pg_sys::CustomExecMethods {
    pg_sys::CustomExecMethods {
        CustomName: N::NAME.as_ptr(),
        BeginCustomScan: Some(begin::<N>),
        ExecCustomScan: Some(exec),
        EndCustomScan: Some(end::<N>),
        ReScanCustomScan: Some(rescan::<N>),
        MarkPosCustomScan: None,
        RestrPosCustomScan: None,
        EstimateDSMCustomScan: None,
        InitializeDSMCustomScan: None,
        ReInitializeDSMCustomScan: None,
        InitializeWorkerCustomScan: None,
        ShutdownCustomScan: None,
        ExplainCustomScan: Some(explain::<N>),
    }
}

/// The plan callbacks of a node.
pub const fn scan_methods<N: CustomNode>() -> pg_sys::CustomScanMethods {
    pg_sys::CustomScanMethods { CustomName: N::NAME.as_ptr(), CreateCustomScanState: Some(create::<N>) }
}

/// "Allocate a CustomScanState for this CustomScan."
#[pg_guard]
unsafe extern "C-unwind" fn create<N: CustomNode>(plan: *mut pg_sys::CustomScan) -> *mut pg_sys::Node {
    // SAFETY: the server passes a plan of the node whose methods these are; an all-zero
    // CustomScanState is what makeNode would give. The executor's context is current.
    unsafe {
        let mut css: pg_sys::CustomScanState = std::mem::zeroed();
        css.ss.ps.type_ = pg_sys::NodeTag::T_CustomScanState;
        css.methods = N::exec_methods();
        let node = Node { css, state: N::create(plan) };
        PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(node).cast()
    }
}

/// "Complete initialization of the supplied CustomScanState."
#[pg_guard]
unsafe extern "C-unwind" fn begin<N: CustomNode>(
    css: *mut pg_sys::CustomScanState,
    estate: *mut pg_sys::EState,
    eflags: core::ffi::c_int,
) {
    // SAFETY: `create` made this node, its first field is the CustomScanState.
    unsafe { N::begin(css.cast(), estate, eflags) }
}

/// "Clean up any private data associated with the CustomScanState."
#[pg_guard]
unsafe extern "C-unwind" fn end<N: CustomNode>(css: *mut pg_sys::CustomScanState) {
    // SAFETY: as for `begin`.
    unsafe { N::end(css.cast()) }
}

/// "Rewind the current scan to the beginning and prepare to rescan the relation."
#[pg_guard]
unsafe extern "C-unwind" fn rescan<N: CustomNode>(css: *mut pg_sys::CustomScanState) {
    // SAFETY: as for `begin`.
    unsafe { N::rescan(css.cast()) }
}

/// "Output additional information for EXPLAIN of a custom-scan plan node."
#[pg_guard]
unsafe extern "C-unwind" fn explain<N: CustomNode>(
    css: *mut pg_sys::CustomScanState,
    _ancestors: *mut pg_sys::List,
    es: *mut pg_sys::ExplainState,
) {
    // SAFETY: as for `begin`.
    unsafe { N::explain(css.cast(), es) }
}

/// The node behind a plan state, if it is of this kind.
///
/// # Safety
/// `ps` is null or a valid plan state.
pub unsafe fn downcast<N: CustomNode>(ps: *mut pg_sys::PlanState) -> Option<*mut Node<N>> {
    // SAFETY: by contract; the tag says that it is a CustomScanState, the methods' address whose.
    unsafe {
        if ps.is_null() || (*ps).type_ != pg_sys::NodeTag::T_CustomScanState {
            return None;
        }
        let css = ps.cast::<pg_sys::CustomScanState>();
        std::ptr::eq((*css).methods, N::exec_methods()).then(|| css.cast())
    }
}

/// Starts the only child of a node, to be rescanned once an epoch.
///
/// # Safety
/// `node` is being begun; its plan has one child in `custom_plans`.
pub unsafe fn begin_child<N>(node: *mut Node<N>, estate: *mut pg_sys::EState, eflags: i32) -> *mut pg_sys::PlanState {
    // SAFETY: by contract.
    unsafe {
        let plan = (*node).css.ss.ps.plan.cast::<pg_sys::CustomScan>();
        let children = super::list::pointers::<pg_sys::Plan>((*plan).custom_plans);
        let child = children.first().copied().unwrap_or(std::ptr::null_mut());
        let state = pg_sys::ExecInitNode(child, estate, eflags | pg_sys::EXEC_FLAG_REWIND as i32);
        (*node).css.custom_ps = super::list::from_pointers(&[state]);
        state
    }
}

/// Rescans the child as core's nodes do: at once, or at its next call if its parameters changed.
///
/// # Safety
/// `node` and `child` are valid.
pub unsafe fn rescan_child<N>(node: *mut Node<N>, child: *mut pg_sys::PlanState) {
    // SAFETY: by contract.
    unsafe {
        let changed = (*node).css.ss.ps.chgParam;
        if !changed.is_null() {
            pg_sys::UpdateChangedParamSet(child, changed);
        }
        if (*child).chgParam.is_null() {
            pg_sys::ExecReScan(child);
        }
    }
}

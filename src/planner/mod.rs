//! The two planner hooks: one offers BlockShuffle for a table, one replaces the aggregate
//! `corgipile.sgd` by SGD over TupleShuffle (and reads a partitioned table by BlockShuffle).
//!
//! They act only on a query level whose one aggregate is ours, alone over its input: no GROUP BY,
//! HAVING, FILTER, DISTINCT or ORDER BY inside it. Everything else is left to PostgreSQL, where the
//! plain aggregate gives the same result. The result of `set_rel_pathlist_hook` depends on what the
//! upper hook will do, so both ask the same question, `training_of`.

mod paths;

use crate::guc;
use crate::pg::list;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{pg_guard, pg_sys};
use std::sync::OnceLock;

static PREVIOUS_REL_PATHLIST: OnceLock<pg_sys::set_rel_pathlist_hook_type> = OnceLock::new();
static PREVIOUS_UPPER_PATHS: OnceLock<pg_sys::create_upper_paths_hook_type> = OnceLock::new();

/// Installs the hooks.
pub fn init() {
    // SAFETY: called once from _PG_init on the backend's thread.
    unsafe {
        let _ = PREVIOUS_REL_PATHLIST.set(pg_sys::set_rel_pathlist_hook);
        let _ = PREVIOUS_UPPER_PATHS.set(pg_sys::create_upper_paths_hook);
        pg_sys::set_rel_pathlist_hook = Some(rel_pathlist);
        pg_sys::create_upper_paths_hook = Some(upper_paths);
    }
}

/// The arguments of `corgipile.sgd(target, [indices,] values [, options [, weight]])` by role.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// Are there feature numbers beside the values?
    pub sparse: bool,
    /// Place of the options.
    pub options: Option<usize>,
    /// Place of the weight.
    pub weight: Option<usize>,
}

impl Roles {
    /// From the arguments' types; `None` for none of the aggregate's forms.
    pub fn of(types: &[pg_sys::Oid]) -> Option<Self> {
        let options = types.iter().skip(2).position(|oid| *oid == pg_sys::JSONBOID).map(|i| i + 2);
        let weight = options.map(|i| i + 1).filter(|i| *i < types.len());
        let rest = types.len() - usize::from(options.is_some()) - usize::from(weight.is_some());
        matches!(rest, 2 | 3).then_some(Self { sparse: rest == 3, options, weight })
    }

    /// Places of the columns that are read: target, indices, values, weight.
    pub fn columns(self) -> impl Iterator<Item = usize> {
        (0..if self.sparse { 3 } else { 2 }).chain(self.weight)
    }
}

/// The aggregate call of a query level that trains, and its arguments by role.
#[derive(Clone, Copy)]
pub struct TrainingCall {
    aggref: *mut pg_sys::Aggref,
    roles: Roles,
    /// The options, free of columns and volatile functions; null for none.
    options: *mut pg_sys::Expr,
    /// The query has volatile functions: its rows must be computed once, not once an epoch.
    volatile: bool,
}

/// Whether a function is our aggregate: by name, schema, and membership of the extension.
fn is_our_aggregate(oid: pg_sys::Oid) -> bool {
    // SAFETY: look-ups by oid; names are compared before the dearer membership.
    unsafe {
        let name = pg_sys::get_func_name(oid);
        if name.is_null() || !matches!(std::ffi::CStr::from_ptr(name).to_bytes(), b"sgd" | b"sgd_vectors") {
            return false;
        }
        let extension = pg_sys::get_extension_oid(c"corgipile".as_ptr(), true);
        extension != pg_sys::InvalidOid && pg_sys::getExtensionOfObject(pg_sys::ProcedureRelationId, oid) == extension
    }
}

/// The training of this query level, if the nodes can do it.
///
/// # Safety
/// `root` is the planner's state, at or after the planning of its base relations.
unsafe fn training_of(root: *mut pg_sys::PlannerInfo) -> Option<TrainingCall> {
    // SAFETY: by contract; the processed target list holds valid expressions.
    unsafe {
        let query = (*root).parse;
        if !(*query).hasAggs
            || (*query).commandType == pg_sys::CmdType::CMD_UTILITY
            || !(*query).groupClause.is_null()
            || !(*query).groupingSets.is_null()
            || !(*query).havingQual.is_null()
            || !guc::enable_sgd_node()
        {
            return None;
        }
        let flags = pg_sys::PVC_INCLUDE_AGGREGATES | pg_sys::PVC_RECURSE_WINDOWFUNCS | pg_sys::PVC_INCLUDE_PLACEHOLDERS;
        let found = pg_sys::pull_var_clause((*root).processed_tlist.cast(), flags as i32);
        let mut call: Option<*mut pg_sys::Aggref> = None;
        for node in list::pointers::<pg_sys::Node>(found) {
            if (*node).type_ != pg_sys::NodeTag::T_Aggref {
                return None;
            }
            match call {
                None => call = Some(node.cast()),
                Some(first) if pg_sys::equal(first.cast(), node.cast()) => {}
                Some(_) => return None,
            }
        }
        let aggref = call?;
        let plain = (*aggref).aggorder.is_null()
            && (*aggref).aggdistinct.is_null()
            && (*aggref).aggfilter.is_null()
            && (*aggref).agglevelsup == 0;
        if !plain || !is_our_aggregate((*aggref).aggfnoid) {
            return None;
        }
        let args = list::pointers::<pg_sys::TargetEntry>((*aggref).args);
        let types: Vec<pg_sys::Oid> = args.iter().map(|arg| pg_sys::exprType((**arg).expr.cast())).collect();
        let roles = Roles::of(&types)?;
        let options = roles.options.map_or(std::ptr::null_mut(), |i| (*args[i]).expr);
        let constant = options.is_null()
            || !(pg_sys::contain_var_clause(options.cast())
                || pg_sys::contain_volatile_functions(options.cast())
                || pg_sys::contain_subplans(options.cast()));
        let volatile = pg_sys::contain_volatile_functions(query.cast());
        constant.then_some(TrainingCall { aggref, roles, options, volatile })
    }
}

/// Offers BlockShuffle for the only table of a query level that trains.
#[pg_guard]
unsafe extern "C-unwind" fn rel_pathlist(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    rti: pg_sys::Index,
    rte: *mut pg_sys::RangeTblEntry,
) {
    // SAFETY: the planner's own arguments; the previous hook is a C function, called under a guard.
    unsafe {
        if let Some(Some(previous)) = PREVIOUS_REL_PATHLIST.get() {
            #[allow(ffi_unwind_calls, reason = "protected by pg_guard_ffi_boundary")]
            pg_guard_ffi_boundary(|| previous(root, rel, rti, rte));
        }
        if (*(*root).parse).hasAggs
            && guc::enable_block_shuffle()
            && training_of(root).is_some_and(|call| !call.volatile)
        {
            paths::offer_block_shuffle(root, rel, rte);
        }
    }
}

/// Replaces the aggregate by the chain.
#[pg_guard]
unsafe extern "C-unwind" fn upper_paths(
    root: *mut pg_sys::PlannerInfo,
    stage: pg_sys::UpperRelationKind::Type,
    input_rel: *mut pg_sys::RelOptInfo,
    output_rel: *mut pg_sys::RelOptInfo,
    extra: *mut core::ffi::c_void,
) {
    // SAFETY: as for `rel_pathlist`.
    unsafe {
        if let Some(Some(previous)) = PREVIOUS_UPPER_PATHS.get() {
            #[allow(ffi_unwind_calls, reason = "protected by pg_guard_ffi_boundary")]
            pg_guard_ffi_boundary(|| previous(root, stage, input_rel, output_rel, extra));
        }
        if stage == pg_sys::UpperRelationKind::UPPERREL_GROUP_AGG
            && let Some(call) = training_of(root)
        {
            paths::replace_aggregate(root, input_rel, output_rel, call);
        }
    }
}

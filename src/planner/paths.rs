//! Paths and plans of the three nodes.

use super::TrainingCall;
use crate::customscan::{block_shuffle, sgd, tuple_shuffle};
use crate::error::ColumnNames;
use crate::guc::{self, Settings};
use crate::pg::list;
use crate::pg::node::Methods;
use crate::pg::relation::{is_heap, string};
use pgrx::{pg_guard, pg_sys};

static BLOCK_SHUFFLE: Methods<pg_sys::CustomPathMethods> = Methods(methods(c"BlockShuffle", plan_block_shuffle));
static TUPLE_SHUFFLE: Methods<pg_sys::CustomPathMethods> = Methods(methods(c"TupleShuffle", plan_tuple_shuffle));
static SGD: Methods<pg_sys::CustomPathMethods> = Methods(methods(c"SGD", plan_sgd));

type PlanCallback = unsafe extern "C-unwind" fn(
    *mut pg_sys::PlannerInfo,
    *mut pg_sys::RelOptInfo,
    *mut pg_sys::CustomPath,
    *mut pg_sys::List,
    *mut pg_sys::List,
    *mut pg_sys::List,
) -> *mut pg_sys::Plan;

const fn methods(name: &'static std::ffi::CStr, plan: PlanCallback) -> pg_sys::CustomPathMethods {
    pg_sys::CustomPathMethods {
        CustomName: name.as_ptr(),
        PlanCustomPath: Some(plan),
        ReparameterizeCustomPathByChild: None,
    }
}

/// An empty node in the planner's context.
unsafe fn make<T>(tag: pg_sys::NodeTag) -> *mut T {
    // SAFETY: palloc0 gives zeroed memory of that size; every node starts with its tag.
    unsafe {
        let node = pg_sys::palloc0(size_of::<T>()).cast::<T>();
        node.cast::<pg_sys::Node>().write(pg_sys::Node { type_: tag });
        node
    }
}

/// A path of ours with the shape that all three share.
unsafe fn custom_path(
    parent: *mut pg_sys::RelOptInfo,
    target: *mut pg_sys::PathTarget,
    methods: &'static pg_sys::CustomPathMethods,
    child: *mut pg_sys::Path,
) -> *mut pg_sys::CustomPath {
    // SAFETY: the planner's own structures.
    unsafe {
        let path = make::<pg_sys::CustomPath>(pg_sys::NodeTag::T_CustomPath);
        (*path).path.pathtype = pg_sys::NodeTag::T_CustomScan;
        (*path).path.parent = parent;
        (*path).path.pathtarget = target;
        (*path).methods = methods;
        if !child.is_null() {
            (*path).custom_paths = list::from_pointers(&[child]);
            (*path).path.rows = (*child).rows;
            (*path).path.startup_cost = (*child).startup_cost;
            (*path).path.total_cost = (*child).total_cost;
        }
        path
    }
}

/// How many tables, subqueries and functions the query level reads.
unsafe fn count_base_relations(root: *mut pg_sys::PlannerInfo) -> usize {
    // SAFETY: the array has `simple_rel_array_size` entries, null where there is no relation.
    unsafe {
        (1..(*root).simple_rel_array_size)
            .filter(|i| {
                let rel = *(*root).simple_rel_array.add(*i as usize);
                !rel.is_null() && (*rel).reloptkind == pg_sys::RelOptKind::RELOPT_BASEREL
            })
            .count()
    }
}

/// Whether the query needs system columns that a virtual slot cannot give (all but ctid, tableoid).
unsafe fn needs_system_columns(rel: *mut pg_sys::RelOptInfo) -> bool {
    // SAFETY: attr_needed runs from min_attr to max_attr; restrictions are RestrictInfos.
    unsafe {
        let mut used: *mut pg_sys::Bitmapset = std::ptr::null_mut();
        pg_sys::pull_varattnos((*(*rel).reltarget).exprs.cast(), (*rel).relid, &mut used);
        for restriction in list::pointers::<pg_sys::RestrictInfo>((*rel).baserestrictinfo) {
            pg_sys::pull_varattnos((*restriction).clause.cast(), (*rel).relid, &mut used);
        }
        let mut member = -1;
        loop {
            member = pg_sys::bms_next_member(used, member);
            let attribute = member + pg_sys::FirstLowInvalidHeapAttributeNumber;
            if member < 0 || attribute >= 0 {
                return false;
            }
            let available =
                attribute == pg_sys::SelfItemPointerAttributeNumber || attribute == pg_sys::TableOidAttributeNumber;
            if !available {
                return true;
            }
        }
    }
}

/// The tables that a partitioned table, or one with children, is read from: those that planning has not excluded, in
/// the order in which they are read. `None` if BlockShuffle cannot read one of them.
///
/// # Safety
/// Called from the planner's hook for a relation whose children have been planned.
unsafe fn leaves(root: *mut pg_sys::PlannerInfo, relid: pg_sys::Index) -> Option<Vec<*mut pg_sys::RelOptInfo>> {
    // SAFETY: by contract; children are in the array of relations, and of the range table.
    unsafe {
        let mut leaves = Vec::new();
        for child in list::pointers::<pg_sys::AppendRelInfo>((*root).append_rel_list) {
            if (*child).parent_relid != relid {
                continue;
            }
            let rel = *(*root).simple_rel_array.add((*child).child_relid as usize);
            let rte = *(*root).simple_rte_array.add((*child).child_relid as usize);
            if rel.is_null() || (*rel).pathlist.is_null() || pg_sys::is_dummy_rel(rel) {
                continue;
            }
            if (*rte).inh {
                leaves.extend(self::leaves(root, (*child).child_relid)?);
            } else if is_table(rte) && is_heap((*rte).relid) {
                leaves.push(rel);
            } else {
                return None;
            }
        }
        Some(leaves)
    }
}

/// Whether it is a partitioned table.
unsafe fn is_partitioned(rte: *mut pg_sys::RangeTblEntry) -> bool {
    // SAFETY: a valid entry.
    unsafe {
        (*rte).rtekind == pg_sys::RTEKind::RTE_RELATION && (*rte).relkind as u8 == pg_sys::RELKIND_PARTITIONED_TABLE
    }
}

/// Whether a path reads a table, or all of its partitions, in the order in which they lie.
unsafe fn is_sequential(path: *mut pg_sys::Path) -> bool {
    // SAFETY: a valid path; the type tells what it is.
    unsafe {
        match (*path).pathtype {
            pg_sys::NodeTag::T_SeqScan => true,
            pg_sys::NodeTag::T_Append => list::pointers::<pg_sys::Path>((*path.cast::<pg_sys::AppendPath>()).subpaths)
                .into_iter()
                .all(|path| is_sequential(path)),
            _ => false,
        }
    }
}

/// Whether it is a table that holds rows itself.
unsafe fn is_table(rte: *mut pg_sys::RangeTblEntry) -> bool {
    // SAFETY: a valid entry.
    unsafe {
        (*rte).rtekind == pg_sys::RTEKind::RTE_RELATION
            && matches!((*rte).relkind as u8, pg_sys::RELKIND_RELATION | pg_sys::RELKIND_MATVIEW)
    }
}

/// BlockShuffle for a relation of which all rows are to be read, once as good as by a sequential scan.
struct Offer {
    path: *mut pg_sys::CustomPath,
    /// Paths that do not read the rows as they lie.
    others: Vec<*mut pg_sys::Path>,
    /// All rows fit into a buffer.
    fits: bool,
}

/// BlockShuffle for a table, or for all partitions of one; `None` where it cannot read the relation.
///
/// # Safety
/// Called from a planner's hook, for a relation whose paths there are.
unsafe fn block_shuffle(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    rte: *mut pg_sys::RangeTblEntry,
) -> Option<Offer> {
    // SAFETY: by contract.
    unsafe {
        if !(is_table(rte) || is_partitioned(rte))
            || !(*rte).tablesample.is_null()
            || (*rel).reloptkind != pg_sys::RelOptKind::RELOPT_BASEREL
            || !(*rel).lateral_relids.is_null()
            || count_base_relations(root) != 1
            || needs_system_columns(rel)
        {
            return None;
        }
        let seq_scan_cost = |rel| {
            let model = pg_sys::create_seqscan_path(root, rel, std::ptr::null_mut(), 0);
            ((*model).startup_cost, (*model).total_cost)
        };
        let (mut seq_scan, mut others) = (None, Vec::new());
        for path in list::pointers::<pg_sys::Path>((*rel).pathlist) {
            if is_sequential(path) {
                seq_scan = Some(path);
            } else if (*path).pathtype == pg_sys::NodeTag::T_Result {
                return None; // proven empty
            } else {
                others.push(path);
            }
        }
        // It does what sequential scans do, in another order.
        let (children, cost) = if (*rte).inh {
            let leaves = leaves(root, (*rel).relid).filter(|leaves| !leaves.is_empty())?;
            let cost = leaves.iter().map(|leaf| seq_scan_cost(*leaf)).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
            let oid = |leaf: &*mut pg_sys::RelOptInfo| {
                let rte: *mut pg_sys::RangeTblEntry = *(*root).simple_rte_array.add((**leaf).relid as usize);
                (*rte).relid.to_u32()
            };
            (Some(leaves.iter().map(oid).collect::<Vec<u32>>()), cost)
        } else if is_heap((*rte).relid) {
            (None, seq_scan.map_or_else(|| seq_scan_cost(rel), |seq| ((*seq).startup_cost, (*seq).total_cost)))
        } else {
            return None;
        };
        let path = custom_path(rel, (*rel).reltarget, &BLOCK_SHUFFLE.0, std::ptr::null_mut());
        (*path).flags = pg_sys::CUSTOMPATH_SUPPORT_PROJECTION;
        (*path).path.rows = (*rel).rows;
        (*path).path.startup_cost = cost.0;
        (*path).path.total_cost = cost.1;
        if let Some(children) = children {
            (*path).custom_private = list::private_data(&children);
        }
        let width = f64::from((*(*rel).reltarget).width) + 32.0;
        let fits = (*rel).rows * width < Settings::read().memory_limit as f64 / 4.0;
        Some(Offer { path, others, fits })
    }
}

/// Puts BlockShuffle in place of the sequential scan, or of the scans of all children.
///
/// # Safety
/// Called from the planner's hook with its arguments.
pub unsafe fn offer_block_shuffle(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    rte: *mut pg_sys::RangeTblEntry,
) {
    // SAFETY: by contract.
    unsafe {
        let Some(Offer { path, others, fits }) = block_shuffle(root, rel, rte) else { return };
        // An index gives its own order. Where all rows fit into one buffer they are shuffled whole
        // and any order will do; where they do not, only random blocks make up for it.
        (*rel).pathlist = if fits { list::from_pointers(&others) } else { std::ptr::null_mut() };
        (*rel).partial_pathlist = std::ptr::null_mut();
        pg_sys::add_path(rel, path.cast());
    }
}

/// The path to train on: the cheapest one, or BlockShuffle over the partitions of a partitioned table, whose paths
/// the server makes anew after the hook for base relations (planner.c, apply_scanjoin_target_to_paths).
unsafe fn input_path(root: *mut pg_sys::PlannerInfo, rel: *mut pg_sys::RelOptInfo) -> *mut pg_sys::Path {
    // SAFETY: the planner's own structures.
    unsafe {
        let cheapest = (*rel).cheapest_total_path;
        if (*rel).reloptkind != pg_sys::RelOptKind::RELOPT_BASEREL || !guc::enable_block_shuffle() {
            return cheapest;
        }
        let rte = *(*root).simple_rte_array.add((*rel).relid as usize);
        if !is_partitioned(rte) {
            return cheapest;
        }
        match block_shuffle(root, rel, rte) {
            // As in `offer_block_shuffle`.
            Some(Offer { path, fits, .. })
                if !fits || is_sequential(cheapest) || (*path).path.total_cost < (*cheapest).total_cost =>
            {
                path.cast()
            }
            _ => cheapest,
        }
    }
}

/// Names of the target and feature columns, where they are plain columns.
unsafe fn column_names(root: *mut pg_sys::PlannerInfo, call: &TrainingCall) -> ColumnNames {
    // SAFETY: Vars of this level refer to its range table.
    unsafe {
        let name = |entry: *mut pg_sys::TargetEntry| {
            let expr = (*entry).expr;
            if (*expr).type_ != pg_sys::NodeTag::T_Var {
                return String::new();
            }
            let var = expr.cast::<pg_sys::Var>();
            let table = (*(*root).parse).rtable;
            let entries = list::pointers::<pg_sys::RangeTblEntry>(table);
            match entries.get(((*var).varno as usize).wrapping_sub(1)) {
                Some(rte) if (**rte).rtekind == pg_sys::RTEKind::RTE_RELATION && (*var).varattno > 0 => {
                    string(pg_sys::get_attname((**rte).relid, (*var).varattno, true))
                }
                _ => String::new(),
            }
        };
        let args = list::pointers::<pg_sys::TargetEntry>((*call.aggref).args);
        let features = if call.roles.sparse { 1..3 } else { 1..2 };
        ColumnNames {
            target: name(args[0]),
            features: features.map(|i| name(args[i])).collect(),
            weight: call.roles.weight.map(|i| name(args[i])),
        }
    }
}

/// Makes SGD over TupleShuffle the only way to compute the aggregate.
///
/// # Safety
/// Called from the planner's hook with its arguments; `call` is of this level.
pub unsafe fn replace_aggregate(
    root: *mut pg_sys::PlannerInfo,
    input_rel: *mut pg_sys::RelOptInfo,
    output_rel: *mut pg_sys::RelOptInfo,
    call: TrainingCall,
) {
    // SAFETY: by contract.
    unsafe {
        let mut input = (*input_rel).cheapest_total_path;
        if input.is_null() || !(*input).param_info.is_null() {
            return;
        }
        if !call.volatile {
            input = input_path(root, input_rel);
        }
        // The child computes exactly the target, the features and the weight, in this order.
        let args = list::pointers::<pg_sys::TargetEntry>((*call.aggref).args);
        let target = pg_sys::create_empty_pathtarget();
        for i in call.roles.columns() {
            pg_sys::add_column_to_pathtarget(target, (*args[i]).expr, 0);
        }
        let target = pg_sys::set_pathtarget_cost_width(root, target);
        let mut projected = pg_sys::create_projection_path(root, input_rel, input, target).cast::<pg_sys::Path>();
        if call.volatile {
            projected = pg_sys::create_material_path(input_rel, projected).cast();
        }
        // Its parent is the upper relation: a path of the table itself would get the table's filter.
        let shuffle = custom_path(output_rel, target, &TUPLE_SHUFFLE.0, projected);
        (*shuffle).custom_private = list::private_data(&column_names(root, &call));

        let path = custom_path(output_rel, (*output_rel).reltarget, &SGD.0, shuffle.cast());
        (*path).flags = pg_sys::CUSTOMPATH_SUPPORT_PROJECTION;
        (*path).path.rows = 1.0;
        (*path).path.total_cost += (*shuffle).path.rows * pg_sys::cpu_operator_cost;
        (*path).path.startup_cost = (*path).path.total_cost;
        (*path).path.total_cost += pg_sys::cpu_tuple_cost;
        (*path).custom_private = list::from_pointers(&[call.aggref.cast::<pg_sys::Node>(), call.options.cast()]);
        (*output_rel).pathlist = std::ptr::null_mut();
        (*output_rel).partial_pathlist = std::ptr::null_mut();
        pg_sys::add_path(output_rel, path.cast());
    }
}

/// A plan with what all three share; costs are filled in by the server from the path.
unsafe fn custom_plan(
    path: *mut pg_sys::CustomPath,
    tlist: *mut pg_sys::List,
    children: *mut pg_sys::List,
    methods: &'static pg_sys::CustomScanMethods,
) -> *mut pg_sys::CustomScan {
    // SAFETY: the planner's own structures.
    unsafe {
        let plan = make::<pg_sys::CustomScan>(pg_sys::NodeTag::T_CustomScan);
        (*plan).scan.plan.targetlist = tlist;
        (*plan).flags = (*path).flags;
        (*plan).custom_plans = children;
        (*plan).methods = methods;
        plan
    }
}

/// "Convert a custom path to a finished plan."
#[pg_guard]
unsafe extern "C-unwind" fn plan_block_shuffle(
    _root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    path: *mut pg_sys::CustomPath,
    tlist: *mut pg_sys::List,
    clauses: *mut pg_sys::List,
    children: *mut pg_sys::List,
) -> *mut pg_sys::Plan {
    // SAFETY: called by createplan.c with a path of ours; clauses are in the order that row security needs.
    unsafe {
        let plan = custom_plan(path, tlist, children, &block_shuffle::SCAN_METHODS.0);
        (*plan).scan.scanrelid = (*rel).relid;
        (*plan).custom_private = (*path).custom_private;
        (*plan).scan.plan.qual = pg_sys::extract_actual_clauses(clauses, false);
        plan.cast()
    }
}

/// "Convert a custom path to a finished plan."
#[pg_guard]
unsafe extern "C-unwind" fn plan_tuple_shuffle(
    _root: *mut pg_sys::PlannerInfo,
    _rel: *mut pg_sys::RelOptInfo,
    path: *mut pg_sys::CustomPath,
    tlist: *mut pg_sys::List,
    _clauses: *mut pg_sys::List,
    children: *mut pg_sys::List,
) -> *mut pg_sys::Plan {
    // SAFETY: as above. The node's columns are the child's, so its own list refers to them one by one.
    unsafe {
        let plan = custom_plan(path, tlist, children, &tuple_shuffle::SCAN_METHODS.0);
        (*plan).custom_scan_tlist = pg_sys::copyObjectImpl(tlist.cast()).cast();
        (*plan).custom_private = (*path).custom_private;
        plan.cast()
    }
}

/// "Convert a custom path to a finished plan."
#[pg_guard]
unsafe extern "C-unwind" fn plan_sgd(
    _root: *mut pg_sys::PlannerInfo,
    _rel: *mut pg_sys::RelOptInfo,
    path: *mut pg_sys::CustomPath,
    tlist: *mut pg_sys::List,
    _clauses: *mut pg_sys::List,
    children: *mut pg_sys::List,
) -> *mut pg_sys::Plan {
    // SAFETY: as above. The scan tuple's one column is the aggregate's value; setrefs.c turns the
    // Aggref in the target list into a reference to it.
    unsafe {
        let private = list::pointers::<pg_sys::Node>((*path).custom_private);
        let plan = custom_plan(path, tlist, children, &sgd::SCAN_METHODS.0);
        let aggref = pg_sys::copyObjectImpl(private[0].cast());
        let entry = pg_sys::makeTargetEntry(aggref.cast(), 1, std::ptr::null_mut(), false);
        (*plan).custom_scan_tlist = list::from_pointers(&[entry]);
        if !private[1].is_null() {
            (*plan).custom_exprs = list::from_pointers(&[private[1]]);
        }
        plan.cast()
    }
}

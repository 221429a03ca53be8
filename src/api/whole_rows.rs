//! The planner support function of predict and the like: a whole row becomes its columns.
//!
//! For `predict(model, t)` the server would put every row together, values kept out of line fetched and copied, only to
//! have it taken apart again. The call becomes one of a function that takes the columns one by one, as they lie, and
//! finds those that the model needs by the row's type when it runs: which model a name means is not settled here.

use super::arguments::Call;
use crate::pg::list;
use crate::pg_function;
use pgrx::pg_sys;

/// Columns of a row at most: a function has no more than 100 arguments.
const MOST_COLUMNS: usize = 90;

pg_function!(
    /// corgipile.row_support(internal) → internal: see supportnodes.h.
    corgipile_row_support,
    pg_finfo_corgipile_row_support,
    row_support
);

unsafe fn row_support(call: Call) -> pg_sys::Datum {
    // SAFETY: the planner passes a node; its tag says which.
    unsafe {
        let simpler = call.get(0).and_then(|datum| {
            let request = datum.cast_mut_ptr::<pg_sys::Node>();
            let simplify = (*request).type_ == pg_sys::NodeTag::T_SupportRequestSimplify;
            simplify.then(|| simplify_call(request.cast())).flatten()
        });
        pg_sys::Datum::from(simpler.unwrap_or(core::ptr::null_mut()))
    }
}

/// The function of a row taken apart for one of a row, and whether a class is its second argument.
fn counterpart(name: &[u8], arguments: usize) -> Option<(&'static core::ffi::CStr, bool)> {
    Some(match (name, arguments) {
        (b"predict", 2) => (c"row_predict", false),
        (b"predict_score", 2) => (c"row_score", false),
        (b"predict_value", 2) => (c"row_value", false),
        (b"prediction_probability", 2) => (c"row_probability", false),
        (b"predict_proba", 2) => (c"row_proba", false),
        (b"predict_proba", 3) => (c"row_proba_of", true),
        _ => return None,
    })
}

/// # Safety
/// A request of the planner.
unsafe fn simplify_call(request: *mut pg_sys::SupportRequestSimplify) -> Option<*mut pg_sys::FuncExpr> {
    // SAFETY: by contract; nodes are read by their tags, new ones are in the planner's context.
    unsafe {
        let call = (*request).fcall;
        let arguments = list::pointers::<pg_sys::Node>((*call).args);
        let name = pg_sys::get_func_name((*call).funcid);
        if name.is_null() || (*request).root.is_null() || (*(*request).root).parse.is_null() {
            return None;
        }
        let (function, with_class) = counterpart(core::ffi::CStr::from_ptr(name).to_bytes(), arguments.len())?;
        let model_type = pg_sys::exprType(arguments[0]);
        if !matches!(model_type, pg_sys::TEXTOID | pg_sys::INT8OID) {
            return None;
        }
        let (row_type, columns) = take_apart((*request).root, arguments[1])?;
        if columns.len() > MOST_COLUMNS {
            return None;
        }
        let row = pg_sys::makeNullConst(row_type, -1, pg_sys::InvalidOid).cast::<pg_sys::Node>();
        let class = with_class.then(|| arguments[2]);
        let mut types = vec![model_type];
        types.extend(class.map(|_| pg_sys::TEXTOID));
        types.extend([pg_sys::ANYOID, pg_sys::ANYOID]);
        // Who may call the one may call the other, or it is left to the server to say so.
        let user = pg_sys::GetUserId();
        let schema = pg_sys::get_namespace_oid(c"corgipile".as_ptr(), true);
        let allowed = pg_sys::AclResult::ACLCHECK_OK;
        if schema == pg_sys::InvalidOid || pg_sys::pg_namespace_aclcheck(schema, user, pg_sys::ACL_USAGE) != allowed {
            return None;
        }
        let name = [c"corgipile", function].map(|part| pg_sys::makeString(part.as_ptr().cast_mut()));
        let oid = pg_sys::LookupFuncName(list::from_pointers(&name), types.len() as i32, types.as_ptr(), true);
        let may_call = |oid| pg_sys::pg_proc_aclcheck(oid, user, pg_sys::ACL_EXECUTE) == allowed;
        if oid == pg_sys::InvalidOid || !may_call(oid) || !may_call((*call).funcid) {
            return None;
        }
        let arguments: Vec<*mut pg_sys::Node> =
            [arguments[0]].into_iter().chain(class).chain([row]).chain(columns).collect();
        let simpler = pg_sys::makeFuncExpr(
            oid,
            (*call).funcresulttype,
            list::from_pointers(&arguments),
            (*call).funccollid,
            (*call).inputcollid,
            pg_sys::CoercionForm::COERCE_EXPLICIT_CALL,
        );
        (*simpler).location = (*call).location;
        Some(simpler)
    }
}

/// A row's type and its columns, where the row is a table's as it is read, or is put together in the query.
///
/// # Safety
/// An expression of the query that `root` plans.
unsafe fn take_apart(
    root: *mut pg_sys::PlannerInfo,
    row: *mut pg_sys::Node,
) -> Option<(pg_sys::Oid, Vec<*mut pg_sys::Node>)> {
    // SAFETY: by contract; the tag says what the node is, and its range table entry is of this level.
    unsafe {
        if (*row).type_ == pg_sys::NodeTag::T_RowExpr {
            let row = row.cast::<pg_sys::RowExpr>();
            let named = (*row).row_typeid != pg_sys::RECORDOID;
            return named.then(|| ((*row).row_typeid, list::pointers((*row).args)));
        }
        if (*row).type_ != pg_sys::NodeTag::T_Var {
            return None;
        }
        let var = row.cast::<pg_sys::Var>();
        let query = (*root).parse;
        let entries = list::pointers::<pg_sys::RangeTblEntry>((*query).rtable);
        // Beyond an outer join a row may be NULL as a whole, which columns do not tell.
        let outer = |rte: &*mut pg_sys::RangeTblEntry| {
            (**rte).rtekind == pg_sys::RTEKind::RTE_JOIN && (**rte).jointype != pg_sys::JoinType::JOIN_INNER
        };
        if (*var).varattno != 0
            || (*var).varlevelsup != 0
            || !(*query).groupingSets.is_null()
            || entries.iter().any(outer)
        {
            return None;
        }
        let rte = *entries.get(((*var).varno as usize).wrapping_sub(1))?;
        let table = (*rte).relid;
        if (*rte).rtekind != pg_sys::RTEKind::RTE_RELATION || pg_sys::get_typ_typrelid((*var).vartype) != table {
            return None;
        }
        // The planner holds a lock on it.
        let relation = pg_sys::relation_open(table, pg_sys::NoLock as i32);
        let count = (*(*relation).rd_att).natts;
        pg_sys::relation_close(relation, pg_sys::NoLock as i32);
        let columns = (1..=count as i16).map(|number| {
            let (mut oid, mut modifier, mut collation) = (pg_sys::InvalidOid, -1, pg_sys::InvalidOid);
            pg_sys::get_atttypetypmodcoll(table, number, &mut oid, &mut modifier, &mut collation);
            if oid == pg_sys::InvalidOid {
                // A column that was dropped.
                return pg_sys::makeNullConst(pg_sys::INT4OID, -1, pg_sys::InvalidOid).cast();
            }
            pg_sys::makeVar((*var).varno as _, number, oid, modifier, collation, 0).cast()
        });
        Some(((*var).vartype, columns.collect()))
    }
}

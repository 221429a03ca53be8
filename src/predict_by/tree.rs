//! Surgery on the raw parse tree: a table becomes a subselect with the extra columns.

use crate::catalog::{self, ModelKey};
use crate::pg::relation::string;
use crate::pg::{list, parser, types, values};
use corgipile_core::clauses::{Clause, Model};
use pgrx::spi::{quote_identifier, quote_literal};
use pgrx::{pg_guard, pg_sys};
use std::ffi::{CString, c_void};

/// Statements that hold a query without being walked by the server's raw tree walker.
unsafe fn inner_queries(stmt: *mut pg_sys::Node) -> Vec<*mut pg_sys::Node> {
    use pg_sys::NodeTag::*;
    // SAFETY: the tag says what the node is.
    unsafe {
        match (*stmt).type_ {
            T_ExplainStmt => vec![(*stmt.cast::<pg_sys::ExplainStmt>()).query],
            T_CreateTableAsStmt => vec![(*stmt.cast::<pg_sys::CreateTableAsStmt>()).query],
            T_PrepareStmt => vec![(*stmt.cast::<pg_sys::PrepareStmt>()).query],
            T_DeclareCursorStmt => vec![(*stmt.cast::<pg_sys::DeclareCursorStmt>()).query],
            T_CopyStmt => vec![(*stmt.cast::<pg_sys::CopyStmt>()).query],
            T_ViewStmt => vec![(*stmt.cast::<pg_sys::ViewStmt>()).query],
            T_CreateFunctionStmt => vec![(*stmt.cast::<pg_sys::CreateFunctionStmt>()).sql_body],
            T_RuleStmt => list::pointers((*stmt.cast::<pg_sys::RuleStmt>()).actions),
            T_CreateSchemaStmt => list::pointers((*stmt.cast::<pg_sys::CreateSchemaStmt>()).schemaElts),
            T_RawStmt => vec![(*stmt.cast::<pg_sys::RawStmt>()).stmt],
            // A function body in SQL-standard form is a list of lists.
            T_List => list::pointers(stmt.cast()),
            _ => Vec::new(),
        }
    }
}

/// What the walk knows.
struct Walk<'a> {
    clauses: &'a [Clause],
    done: Vec<bool>,
}

/// Rewrites every clause's table; false if one of them follows no table.
///
/// # Safety
/// `trees` is what raw_parser returned.
pub unsafe fn rewrite(trees: *mut pg_sys::List, clauses: &[Clause]) -> bool {
    let mut walk = Walk { clauses, done: vec![false; clauses.len()] };
    // SAFETY: by contract.
    unsafe {
        for tree in list::pointers::<pg_sys::Node>(trees) {
            visit_statement(tree, &mut walk);
        }
    }
    walk.done.iter().all(|done| *done)
}

unsafe fn visit_statement(stmt: *mut pg_sys::Node, walk: &mut Walk) {
    use pg_sys::NodeTag::*;
    if stmt.is_null() {
        return;
    }
    // SAFETY: a statement of the raw tree.
    unsafe {
        match (*stmt).type_ {
            T_SelectStmt | T_InsertStmt | T_UpdateStmt | T_DeleteStmt | T_MergeStmt | T_PLAssignStmt | T_ReturnStmt => {
                visit(stmt, std::ptr::from_mut(walk).cast());
            }
            _ => {
                for query in inner_queries(stmt) {
                    visit_statement(query, walk);
                }
            }
        }
    }
}

/// Looks at the FROM of each query, then goes on below it.
#[pg_guard]
unsafe extern "C-unwind" fn visit(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    use pg_sys::NodeTag::*;
    if node.is_null() {
        return false;
    }
    // SAFETY: the walker passes nodes of the tree, and the context that `visit_statement` gave it.
    unsafe {
        let walk = &mut *context.cast::<Walk>();
        match (*node).type_ {
            T_SelectStmt => visit_list((*node.cast::<pg_sys::SelectStmt>()).fromClause, walk),
            T_UpdateStmt => visit_list((*node.cast::<pg_sys::UpdateStmt>()).fromClause, walk),
            T_DeleteStmt => visit_list((*node.cast::<pg_sys::DeleteStmt>()).usingClause, walk),
            T_MergeStmt => visit_from(&raw mut (*node.cast::<pg_sys::MergeStmt>()).sourceRelation, walk),
            _ => {}
        }
        pg_sys::raw_expression_tree_walker(node, Some(visit), context)
    }
}

unsafe fn visit_list(from: *mut pg_sys::List, walk: &mut Walk) {
    // SAFETY: a list of nodes; cells are written in place.
    unsafe {
        for i in 0..pg_sys::list_length(from) {
            let cell = pg_sys::list_nth_cell(from, i);
            visit_from((&raw mut (*cell).ptr_value).cast(), walk);
        }
    }
}

/// One item of FROM: a table, or a join of such.
unsafe fn visit_from(item: *mut *mut pg_sys::Node, walk: &mut Walk) {
    // SAFETY: the tag says what the node is.
    unsafe {
        let node = *item;
        if node.is_null() {
            return;
        }
        match (*node).type_ {
            pg_sys::NodeTag::T_JoinExpr => {
                let join = node.cast::<pg_sys::JoinExpr>();
                visit_from(&raw mut (*join).larg, walk);
                visit_from(&raw mut (*join).rarg, walk);
            }
            pg_sys::NodeTag::T_RangeVar => {
                let table = node.cast::<pg_sys::RangeVar>();
                let at = (*table).location as usize;
                let found = walk.clauses.iter().position(|clause| clause.tables.contains(&at));
                if let Some(i) = found
                    && !std::mem::replace(&mut walk.done[i], true)
                {
                    *item = subselect(table, &walk.clauses[i].model).cast();
                }
            }
            _ => {}
        }
    }
}

/// The model behind a constant, where that can be known while a statement is parsed: in a live
/// transaction, by a catalog snapshot, which leaves the transaction's own snapshot untaken.
fn known_model(key: &ModelKey) -> Option<catalog::Stored> {
    // SAFETY: IsTransactionState says that the catalogs can be read.
    unsafe { if pg_sys::IsTransactionState() { catalog::find_usable(key) } else { None } }
}

/// The columns that a clause adds, as SQL over the table's alias.
fn extra_columns(alias: &str, model: &Model) -> String {
    let alias = quote_identifier(alias);
    let constant = &match model {
        Model::Parameter(number) => {
            return format!(
                "corgipile.predict(${number}, {alias}.*) AS prediction, \
                 corgipile.prediction_probability(${number}, {alias}.*) AS probability"
            );
        }
        Model::Id(id) => ModelKey::Id(i64::from(*id)),
        Model::Text(name) => ModelKey::Name(name.clone()),
    };
    let Some(stored) = known_model(constant) else {
        let key = match constant {
            ModelKey::Id(id) => format!("CAST({id} AS bigint)"),
            ModelKey::Name(name) => format!("CAST({} AS pg_catalog.text)", quote_literal(name)),
        };
        // It may come to be before the statement runs; if not, running it says that there is none.
        return format!(
            "corgipile.predict({key}, {alias}.*) AS prediction, \
             corgipile.prediction_probability({key}, {alias}.*) AS probability"
        );
    };
    // Columns and types below are this model's. A name may mean another one when the statement runs: which, is found
    // out once for each execution, and whether that one goes with them.
    let header = &stored.model.header;
    let key = match constant {
        ModelKey::Name(name) if stored.name.as_ref() == Some(name) => {
            let names: Vec<String> = header.features.iter().map(quote_literal).collect();
            format!(
                "(SELECT corgipile.current_model({}, ARRAY[{}]::pg_catalog.text[], {}))",
                quote_literal(name),
                names.join(", "),
                quote_literal(header.prediction_type()),
            )
        }
        _ => format!("CAST({} AS bigint)", stored.id),
    };
    let features: Vec<String> =
        header.features.iter().map(|name| format!("{alias}.{}", quote_identifier(name))).collect();
    // Vectors are columns of any type, too: functions with types of their own take arrays.
    if header.encoding.is_some() || header.vectors {
        let features = values::spread(&features);
        // NULLs among the columns are the model's to judge.
        return if header.loss.is_classification() {
            let class = types::castable(&header.target_type).unwrap_or_else(|| "pg_catalog.text".into());
            format!(
                "corgipile.columns_class({key}, CAST(NULL AS {class}), {features}) AS prediction, \
                 corgipile.columns_probability({key}, {features}) AS probability"
            )
        } else {
            format!("corgipile.columns_value({key}, {features}) AS prediction")
        };
    }
    let features = features.join(", ");
    if header.loss.is_classification() {
        let class = types::castable(&header.target_type).unwrap_or_else(|| "pg_catalog.text".into());
        format!(
            "corgipile.predicted_class({key}, {features}, CAST(NULL AS {class})) AS prediction, \
             corgipile.prediction_probability({key}, {features}) AS probability"
        )
    } else {
        format!("corgipile.predict_value({key}, {features}) AS prediction")
    }
}

/// `(SELECT alias.*, … FROM table AS alias) AS alias(columns)` for `table AS alias(columns)`.
unsafe fn subselect(table: *mut pg_sys::RangeVar, model: &Model) -> *mut pg_sys::RangeSubselect {
    // SAFETY: a table of the raw tree; what is generated parses, and has one table in its FROM.
    unsafe {
        let outer = if (*table).alias.is_null() {
            pg_sys::makeAlias((*table).relname, std::ptr::null_mut())
        } else {
            (*table).alias
        };
        let alias = string((*outer).aliasname);
        let sql = format!("SELECT {}.*, {} FROM corgipile", quote_identifier(&alias), extra_columns(&alias, model));
        let sql = CString::new(sql).unwrap_or_default();
        let parsed = parser::original(&sql, pg_sys::RawParseMode::RAW_PARSE_DEFAULT);
        let raw = list::pointers::<pg_sys::RawStmt>(parsed);
        let query = (*raw[0]).stmt.cast::<pg_sys::SelectStmt>();
        // Positions of the generated text mean nothing to the user: point at the table.
        let mut location = (*table).location;
        place(query.cast(), (&raw mut location).cast());
        (*table).alias = pg_sys::makeAlias((*outer).aliasname, std::ptr::null_mut());
        (*query).fromClause = list::from_pointers(&[table]);
        let node = pg_sys::palloc0(size_of::<pg_sys::RangeSubselect>()).cast::<pg_sys::RangeSubselect>();
        (*node).type_ = pg_sys::NodeTag::T_RangeSubselect;
        (*node).subquery = query.cast();
        (*node).alias = outer;
        node
    }
}

/// Sets the location of everything generated.
#[pg_guard]
unsafe extern "C-unwind" fn place(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    use pg_sys::NodeTag::*;
    if node.is_null() {
        return false;
    }
    // SAFETY: nodes of the generated tree; the context is the location.
    unsafe {
        let location = *context.cast::<i32>();
        match (*node).type_ {
            T_ColumnRef => (*node.cast::<pg_sys::ColumnRef>()).location = location,
            T_FuncCall => (*node.cast::<pg_sys::FuncCall>()).location = location,
            // Unknown: pg_stat_statements would replace the text there by a parameter's number.
            T_A_Const => (*node.cast::<pg_sys::A_Const>()).location = -1,
            T_TypeCast => (*node.cast::<pg_sys::TypeCast>()).location = location,
            T_TypeName => (*node.cast::<pg_sys::TypeName>()).location = location,
            T_ParamRef => (*node.cast::<pg_sys::ParamRef>()).location = location,
            T_ResTarget => (*node.cast::<pg_sys::ResTarget>()).location = location,
            _ => {}
        }
        pg_sys::raw_expression_tree_walker(node, Some(place), context)
    }
}

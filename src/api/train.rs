//! `train_sgd`: finds the columns, runs the aggregate query as the caller, stores the model.

use super::arguments::Call;
use super::encode::unusable;
use super::models::{check_new_name, require_writable};
use crate::catalog;
use crate::customscan::tuple_shuffle::element_of;
use crate::error;
use crate::guc::Settings;
use crate::pg::array::Element;
use crate::pg::explain::pretty_bytes;
use crate::pg::{relation, types, values};
use crate::pg_function;
use corgipile_core::Error;
use corgipile_core::encoding::{Encoding, OnNull, Wish};
use corgipile_core::labels::TargetKind;
use corgipile_core::model::Model;
use corgipile_core::params::Params;
use pgrx::{JsonB, PgLogLevel, PgSqlErrorCode, Spi, ereport, pg_extern, pg_sys};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::ffi::CString;

/// A relation to train on: open to look at, locked until the end of the transaction.
pub struct Source {
    oid: pg_sys::Oid,
    /// The name to write in a query.
    pub name: String,
    /// Whether its rows have places (ctid).
    stored: bool,
}

/// What a training reads.
pub struct Columns {
    target: String,
    features: Vec<String>,
    weight: Option<String>,
    /// A condition on the rows, as the user wrote it.
    filter: Option<String>,
    /// How the features are made of columns; `None` where they are arrays.
    encoding: Option<Encoding>,
    /// Are they pgvector's vectors?
    vectors: bool,
    /// Columns that are not used, with the reason.
    left_out: Vec<(String, String)>,
}

/// What a user says of the columns.
#[derive(Default)]
pub struct Asked {
    /// The target.
    pub target: Option<String>,
    /// The features: arrays, or columns of any type.
    pub features: Option<Vec<Option<String>>>,
    /// The weight.
    pub weight: Option<String>,
    /// Columns not to use.
    pub exclude: Vec<String>,
    /// How columns are encoded.
    pub encode: Option<Value>,
    /// A condition on the rows.
    pub filter: Option<String>,
    /// What NULL means.
    pub on_null: Option<String>,
    /// The model to start from.
    pub warm_start: Option<String>,
}

impl Columns {
    /// The training as a query over `source`: `$1` are the options, `$2` is the encoding if there is one.
    pub fn query(&self, source: &Source, result: &str) -> String {
        let quote = |name: &String| pgrx::spi::quote_identifier(name);
        let features: Vec<String> = self.features.iter().map(quote).collect();
        let mut features = if self.encoding.is_some() { values::spread(&features) } else { features.join(", ") };
        if let Some(encoding) = &self.encoding {
            let form = if encoding.sparse { "encode_sparse" } else { "encode_dense" };
            features = format!("corgipile.{form}($2, {features})");
        }
        let weight = self.weight.as_ref().map(|weight| format!(", {}", quote(weight))).unwrap_or_default();
        let aggregate = if self.vectors { "sgd_vectors" } else { "sgd" };
        let call = format!("corgipile.{aggregate}({}, {features}, $1{weight})", quote(&self.target));
        format!("SELECT {} FROM {}{}", result.replace("{}", &call), source.name, condition(self.filter.as_deref()))
    }

    /// The arguments of the query.
    pub fn arguments(&self, mut options: Value) -> Vec<pgrx::datum::DatumWithOid<'_>> {
        // Most of what the encoding gives is scaled already.
        if let Some(encoding) = self.encoding.as_ref().filter(|encoding| encoding.sparse) {
            options["scaled_features"] = serde_json::to_value(encoding.scaled()).unwrap_or_default();
        }
        let encoding = self.encoding.as_ref().map(|encoding| serde_json::to_value(encoding).unwrap_or_default());
        std::iter::once(JsonB(options).into()).chain(encoding.map(|encoding| JsonB(encoding).into())).collect()
    }

    /// What the aggregate is told of NULL: a row that is left out has no features for it.
    pub fn on_null(&self, asked: Option<String>) -> Option<String> {
        match &self.encoding {
            None => asked,
            Some(encoding) if encoding.columns.iter().any(|column| column.on_null == OnNull::Skip) => {
                Some("skip".into())
            }
            Some(_) => asked.filter(|on_null| on_null == "skip"),
        }
    }
}

/// WHERE and the condition, if there is one.
fn condition(filter: Option<&str>) -> String {
    filter.map(|filter| format!(" WHERE ({filter}\n)")).unwrap_or_default()
}

impl Source {
    /// A relation and its columns to train on, checked; where features are made of columns, how is learnt.
    pub fn with_columns(oid: pg_sys::Oid, asked: Asked) -> (Self, Columns) {
        let source = Self::open(oid);
        let target = source.target(asked.target.clone());
        if let Some(weight) = &asked.weight {
            source.check_weight(weight);
        }
        for name in &asked.exclude {
            source.check_column(name, "columns to exclude");
        }
        let filter = asked.filter.clone();
        let weight = asked.weight.clone();
        if let Some(features) = source.arrays(&asked) {
            let vectors = features.iter().all(|name| types::vector(types::base_type(source.type_of(name))).is_some());
            let columns = Columns { target, features, weight, filter, encoding: None, vectors, left_out: Vec::new() };
            return (source, columns);
        }
        let (features, left_out) = source.usable(&target, &asked);
        let mut columns = Columns { target, features, weight, filter, encoding: None, vectors: false, left_out };
        source.learn(&mut columns, &asked);
        (source, columns)
    }

    /// The features where they are arrays as they stand: one, or numbers and values.
    fn arrays(&self, asked: &Asked) -> Option<Vec<String>> {
        if asked.encode.is_some()
            || !asked.exclude.is_empty()
            || asked.on_null.as_deref().is_some_and(|on_null| on_null == "mean" || on_null == "zero")
        {
            return None;
        }
        // Training that goes on from a model of columns encodes as that does.
        let encoded = asked.warm_start.as_ref().is_some_and(|model| {
            let stored = catalog::lookup(&catalog::ModelKey::Name(model.clone()));
            stored.is_some_and(|stored| stored.model.header.encoding.is_some())
        });
        if encoded {
            return None;
        }
        let vector = |name: &str| types::vector(types::base_type(self.type_of(name)));
        let is_array = |name: &str| types::element(self.type_of(name)).is_some();
        match &asked.features {
            None if self.has_column("features_v")
                && vector("features_v").is_none_or(|kind| {
                    // A vector has no numbers beside it.
                    kind != types::Vector::Sparse && !self.has_column("features_k")
                }) =>
            {
                Some(self.features(None))
            }
            None => None,
            Some(given) => {
                let names: Vec<&String> = given.iter().flatten().collect();
                names.iter().for_each(|name| self.check_column(name, "features"));
                // Two arrays are numbers and values if the first are integers.
                let arrays = match names.as_slice() {
                    [one] => is_array(one),
                    [numbers, values] => {
                        types::element(self.type_of(numbers)).is_some_and(Element::is_integer)
                            && is_array(values)
                            && vector(values).is_none()
                    }
                    _ => false,
                };
                // Nothing at all is for the one place that refuses it.
                (arrays || names.is_empty()).then(|| self.features(asked.features.clone()))
            }
        }
    }

    /// The columns to make features of, and those that are left out, with the reason.
    fn usable(&self, target: &str, asked: &Asked) -> (Vec<String>, Vec<(String, String)>) {
        if let Some(given) = &asked.features {
            let names: Vec<String> = given.iter().flatten().cloned().collect();
            for (i, name) in names.iter().enumerate() {
                self.check_column(name, "features");
                let oid = self.type_of(name);
                if values::nature(oid).is_none() {
                    unusable(name, oid);
                }
                let reason = if name == target {
                    "is the target"
                } else if asked.weight.as_ref() == Some(name) {
                    "is the weight"
                } else if asked.exclude.contains(name) {
                    "is to be excluded"
                } else if names[..i].contains(name) {
                    "is named twice"
                } else {
                    continue;
                };
                error::fail(
                    PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                    format!("column \"{name}\" cannot be a feature: it {reason}"),
                    None,
                );
            }
            return (names, Vec::new());
        }
        let (mut features, mut left_out) = (Vec::new(), Vec::new());
        // A table made for arrays, of which something is asked that is asked of columns.
        let arrays = self.has_column("features_v") && asked.exclude.is_empty();
        for (name, key) in self.keys() {
            let oid = self.type_of(&name);
            if arrays && name != "features_k" && name != "features_v" {
                continue;
            }
            if name == target || asked.weight.as_ref() == Some(&name) || asked.exclude.contains(&name) {
                continue;
            }
            match key {
                Some(reason) => left_out.push((name, reason)),
                None if values::nature(oid).is_none() => {
                    left_out.push((name, format!("has type {}", types::type_name(oid))));
                }
                None => features.push(name),
            }
        }
        if features.is_empty() {
            error::fail(
                PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN,
                format!("{} has no column to make features of", self.name),
                Some(&format!(
                    "Name them: train_sgd('{}', '{target}', '{{column,…}}'). Features are {}.",
                    self.name,
                    values::ACCEPTED
                )),
            );
        }
        (features, left_out)
    }

    /// All columns; with the reason, those that only tell one row from another.
    fn keys(&self) -> Vec<(String, Option<String>)> {
        let query = "SELECT a.attname::pg_catalog.text, CASE
                WHEN NOT pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT') THEN 'may not be read'
                WHEN EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid OPERATOR(pg_catalog.=) a.attrelid AND i.indisprimary
                     AND i.indnkeyatts OPERATOR(pg_catalog.=) 1 AND i.indkey[0] OPERATOR(pg_catalog.=) a.attnum) THEN 'is the primary key'
                -- Of several columns, as partitioned tables must have it, those that are numbers of something.
                WHEN a.atttypid OPERATOR(pg_catalog.=) ANY ('{smallint,integer,bigint,uuid}'::pg_catalog.regtype[]::pg_catalog.oid[]) AND EXISTS (
                     SELECT FROM pg_catalog.pg_index i WHERE i.indrelid OPERATOR(pg_catalog.=) a.attrelid AND i.indisprimary
                     AND a.attnum OPERATOR(pg_catalog.=) ANY (i.indkey)) THEN 'is in the primary key'
                WHEN a.attidentity OPERATOR(pg_catalog.<>) '' OR EXISTS (SELECT FROM pg_catalog.pg_attrdef d
                     WHERE d.adrelid OPERATOR(pg_catalog.=) a.attrelid AND d.adnum OPERATOR(pg_catalog.=) a.attnum
                     AND pg_catalog.starts_with(pg_catalog.pg_get_expr(d.adbin, d.adrelid), 'nextval(')) THEN 'is numbered' END
            FROM pg_catalog.pg_attribute a
            WHERE a.attrelid OPERATOR(pg_catalog.=) $1 AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped ORDER BY a.attnum";
        let found = Spi::connect(|client| {
            let rows = client.select(query, None, &[self.oid.into()])?;
            rows.map(|row| Ok((row.get::<String>(1)?.unwrap_or_default(), row.get::<String>(2)?)))
                .collect::<Result<Vec<_>, pgrx::spi::Error>>()
        });
        found.unwrap_or_else(|e| error::internal(&format!("the columns could not be looked up: {e}")))
    }

    /// The labels of an enum, in their order; none for other types.
    fn labels(&self, name: &str) -> Vec<String> {
        let query = "SELECT e.enumlabel::pg_catalog.text FROM pg_catalog.pg_enum e WHERE e.enumtypid OPERATOR(pg_catalog.=) $1 ORDER BY e.enumsortorder";
        let base = types::base_type(self.type_of(name));
        let found = Spi::connect(|client| {
            let rows = client.select(query, None, &[base.into()])?;
            rows.map(|row| row.get::<String>(1)).collect::<Result<Vec<_>, pgrx::spi::Error>>()
        });
        found.unwrap_or_default().into_iter().flatten().collect()
    }

    /// Learns how the columns become features, in one pass over the rows, or takes that from the model to start from.
    fn learn(&self, columns: &mut Columns, asked: &Asked) {
        let on_null = asked.on_null.as_deref();
        if !matches!(on_null, None | Some("error" | "skip" | "mean" | "zero")) {
            let value = on_null.unwrap_or_default().to_string();
            error::raise(Error::BadOption { name: "on_null", value, expected: "error, skip, mean or zero".into() });
        }
        let wishes = asked.encode.as_ref().map(Wish::parse_all).transpose().unwrap_or_else(|e| error::raise(e));
        for name in wishes.iter().flat_map(|wishes| wishes.keys()) {
            self.check_column(name, "columns to encode");
            if !columns.features.contains(name) {
                error::fail(
                    PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                    format!("column \"{name}\" is to be encoded, but is not a feature"),
                    Some(&format!("The features are: {}.", columns.features.join(", "))),
                );
            }
        }
        if let Some(model) = &asked.warm_start {
            let key = catalog::ModelKey::Name(model.clone());
            let stored = catalog::required(&key);
            if stored.model.header.encoding.is_none() {
                error::raise(Error::WarmStart("its features are arrays, these are columns that are encoded".into()));
            }
            if let Some(encoding) = &stored.model.header.encoding {
                let theirs: Vec<String> = encoding.columns.iter().map(|column| column.name.clone()).collect();
                if let Some(missing) = theirs.iter().find(|name| !self.has_column(name)) {
                    self.check_column(missing, "features of the model to start from");
                }
                // In any order: the model's is what counts.
                let sorted = |names: &[String]| {
                    let mut names = names.to_vec();
                    names.sort();
                    names
                };
                if asked.features.is_some() && sorted(&columns.features) != sorted(&theirs) {
                    let (theirs, ours) = (theirs.join(", "), columns.features.join(", "));
                    error::raise(Error::WarmStart(format!("its features are {theirs}, not {ours}")));
                }
                if asked.encode.is_some() {
                    error::raise(Error::WarmStart(
                        "its columns are encoded as they were: encode cannot be given".into(),
                    ));
                }
                columns.features = theirs;
                columns.left_out.clear();
                columns.encoding = Some(encoding.clone());
                return;
            }
        }
        let numbers = self.pair(columns, &wishes.unwrap_or_default(), asked.features.is_some());
        let described: Vec<Value> = columns
            .features
            .iter()
            .map(|name| json!({ "name": name, "labels": self.labels(name), "numbers": numbers.contains(name) }))
            .collect();
        let request = json!({
            "columns": described, "encode": asked.encode, "on_null": on_null, "named": asked.features.is_some(),
        });
        let names: Vec<String> = columns.features.iter().map(pgrx::spi::quote_identifier).collect();
        // A row has a place where it is stored, which only who may read the whole row may know.
        // SAFETY: a look-up by oid.
        let whole = unsafe {
            pg_sys::pg_class_aclcheck(self.oid, pg_sys::GetUserId(), pg_sys::ACL_SELECT)
                == pg_sys::AclResult::ACLCHECK_OK
        };
        let place = if self.stored && whole { "ctid, tableoid" } else { "NULL::pg_catalog.tid, NULL::pg_catalog.oid" };
        let query = format!(
            "SELECT corgipile.learn_encoding($1, {place}, {}) FROM {}{}",
            values::spread(&names),
            self.name,
            condition(columns.filter.as_deref())
        );
        let learnt = Spi::connect(|client| {
            let rows = client.select(&query, None, &[JsonB(request).into()])?;
            rows.first().get_one::<JsonB>()
        });
        let learnt = match learnt {
            Ok(Some(JsonB(learnt))) => learnt,
            Ok(None) => self.no_rows(),
            Err(e) => error::internal(&format!("the columns could not be looked at: {e}")),
        };
        let encoding = serde_json::from_value(learnt["encoding"].clone());
        let encoding: Encoding = encoding.unwrap_or_else(|e| error::internal(&format!("not an encoding: {e}")));
        let left_out: Vec<(String, String)> = serde_json::from_value(learnt["left_out"].clone()).unwrap_or_default();
        // One output at least: what cannot be kept in the end need not be trained.
        Model::check_size(encoding.width(), 1, Settings::read().memory_limit).unwrap_or_else(|e| error::raise(e));
        encoding.check().unwrap_or_else(|e| error::raise(e));
        columns.left_out.extend(left_out);
        columns.features = encoding.columns.iter().map(|column| column.name.clone()).collect();
        if columns.features.is_empty() {
            let reasons: Vec<String> =
                columns.left_out.iter().map(|(name, reason)| format!("{name} {reason}")).collect();
            error::fail(
                PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN,
                format!("{} has no column to make features of: {}", self.name, reasons.join(", ")),
                Some("Name the columns to use them all the same."),
            );
        }
        columns.encoding = Some(encoding);
    }

    /// Finds the arrays whose elements another array numbers, and puts that in front of them; gives those others. They are
    /// asked for by `encode`, or have the names that such columns have by default; with `named`, the features are the user's.
    fn pair(&self, columns: &mut Columns, wishes: &HashMap<String, Wish>, named: bool) -> Vec<String> {
        let fail = |what: String| -> ! { error::fail(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE, what, None) };
        let is_array = |name: &str| {
            types::element(self.type_of(name)).filter(|_| types::vector(types::base_type(self.type_of(name))).is_none())
        };
        let mut pairs: Vec<(String, String)> =
            wishes.iter().filter_map(|(values, wish)| Some((wish.indices()?.to_string(), values.clone()))).collect();
        pairs.sort();
        let [k, v] = ["features_k", "features_v"].map(String::from);
        if [&k, &v]
            .iter()
            .all(|name| columns.features.contains(name) && !wishes.get(*name).is_some_and(Wish::asks_for_kind))
            && !pairs.iter().flat_map(|(k, v)| [k, v]).any(|name| [&k, &v].contains(&name))
            && is_array(&k).is_some_and(Element::is_integer)
            && is_array(&v).is_some()
        {
            if self.any_numbers(&k, columns.filter.as_deref()) {
                pairs.push((k, v));
            } else if !named && !wishes.contains_key(&k) {
                columns.features.retain(|name| *name != k);
                columns.left_out.push((k, "has no value".into()));
            }
        }
        let features = &mut columns.features;
        for (i, (k, v)) in pairs.iter().enumerate() {
            if !features.contains(k) {
                fail(format!("column \"{k}\" is to number the elements of \"{v}\", but is not a feature"));
            }
            if wishes.get(k).is_some_and(Wish::asks_for_more) {
                fail(format!(
                    "column \"{k}\" numbers the elements of \"{v}\": what is asked of it must be asked of \"{v}\""
                ));
            }
            if k == v || pairs[..i].iter().any(|(other, _)| other == k) || pairs.iter().any(|(_, other)| other == k) {
                fail(format!("column \"{k}\" cannot number the elements of \"{v}\" and be something else as well"));
            }
            if !is_array(k).is_some_and(Element::is_integer) || is_array(v).is_none() {
                fail(format!(
                    "column \"{k}\" must be an array of whole numbers to number the elements of \"{v}\", an array of numbers"
                ));
            }
            features.retain(|name| name != k);
            let at = features.iter().position(|name| name == v).unwrap_or(features.len());
            features.insert(at, k.clone());
        }
        pairs.into_iter().map(|(k, _)| k).collect()
    }

    /// Whether a row has such numbers: dense tables of the usual form have the column, and leave it NULL.
    fn any_numbers(&self, column: &str, filter: Option<&str>) -> bool {
        let column = pgrx::spi::quote_identifier(column);
        let and = filter.map(|filter| format!(" AND ({filter}\n)")).unwrap_or_default();
        let query = format!("SELECT true FROM {} WHERE {column} IS NOT NULL{and} LIMIT 1", self.name);
        matches!(Spi::get_one::<bool>(&query), Ok(Some(true)))
    }

    /// The error for a table without rows.
    fn no_rows(&self) -> ! {
        error::fail(
            PgSqlErrorCode::ERRCODE_NO_DATA_FOUND,
            format!("there are no rows to train on in {}", self.name),
            Some("The table is empty, or row security, filter, on_null => 'skip' or weights of 0 leave nothing."),
        )
    }

    /// Locks the relation and checks that rows can be read from it.
    fn open(oid: pg_sys::Oid) -> Self {
        // SAFETY: relation_open raises an error for an oid that is gone.
        let kind = unsafe {
            let relation = pg_sys::relation_open(oid, pg_sys::AccessShareLock as i32);
            let kind = (*(*relation).rd_rel).relkind as u8;
            pg_sys::relation_close(relation, pg_sys::NoLock as i32);
            kind
        };
        let name = relation::qualified_name(oid).unwrap_or_default();
        if !matches!(kind, b'r' | b'm' | b'v' | b'p' | b'f') {
            error::fail(
                PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE,
                format!("{name} is not a table"),
                Some("Train on a table, a materialized view, a view, a partitioned or a foreign table."),
            );
        }
        Self { oid, name, stored: matches!(kind, b'r' | b'm' | b'p') }
    }

    fn has_column(&self, name: &str) -> bool {
        let Ok(name) = CString::new(name) else { return false };
        // SAFETY: a catalog look-up by name.
        unsafe { pg_sys::get_attnum(self.oid, name.as_ptr()) > 0 }
    }

    /// The type of an existing column.
    fn type_of(&self, name: &str) -> pg_sys::Oid {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: catalog look-ups by name and number.
        unsafe { pg_sys::get_atttype(self.oid, pg_sys::get_attnum(self.oid, name.as_ptr())) }
    }

    /// Features must be arrays of numbers, feature numbers of small enough integers.
    fn check_type(&self, name: &str, indices: bool) {
        let oid = self.type_of(name);
        let element = element_of(oid, name, indices);
        if indices && element == Element::Int8 {
            error::unusable_features(name, &types::type_name(oid), indices, "");
        }
    }

    /// The weight must be a number.
    fn check_weight(&self, name: &str) {
        self.check_column(name, "weight");
        let oid = self.type_of(name);
        if types::target_kind(oid) != TargetKind::Numeric {
            error::fail(
                PgSqlErrorCode::ERRCODE_DATATYPE_MISMATCH,
                format!("\"{name}\" has type {}, which cannot be used as a weight", types::type_name(oid)),
                Some("A weight is a number, 0 or larger."),
            );
        }
    }

    /// Names of the columns, for hints.
    fn columns(&self) -> Vec<String> {
        (1..=1600)
            // SAFETY: a catalog look-up; null where there is no such column.
            .map(|i| unsafe { relation::string(pg_sys::get_attname(self.oid, i, true)) })
            .take_while(|name| !name.is_empty())
            .filter(|name| !name.starts_with("........pg.dropped."))
            .collect()
    }

    fn check_column(&self, name: &str, role: &str) {
        if !self.has_column(name) {
            let columns: Vec<String> = self.columns().into_iter().take(30).collect();
            error::fail(
                PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN,
                format!("column \"{name}\" of {} does not exist", self.name),
                Some(&format!("The {role} must be one of the columns {}.", columns.join(", "))),
            );
        }
    }

    /// The target: as given, or the column `label`.
    fn target(&self, given: Option<String>) -> String {
        let target = match given {
            Some(target) => target,
            None if self.has_column("label") => "label".into(),
            None => error::fail(
                PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN,
                format!("{} has no column \"label\" and no target was given", self.name),
                Some(&format!("Name the target: train_sgd('{}', 'column').", self.name)),
            ),
        };
        self.check_column(&target, "target");
        target
    }

    /// Whether the column `features_k` is in use: dense tables of the usual form leave it NULL.
    fn is_sparse(&self) -> bool {
        let query = format!("SELECT features_k IS NOT NULL FROM {} LIMIT 1", self.name);
        matches!(Spi::get_one::<bool>(&query), Ok(Some(true)))
    }

    /// The features: as given, or `features_v` with `features_k` where it exists.
    fn features(&self, given: Option<Vec<Option<String>>>) -> Vec<String> {
        let features: Vec<String> = match given {
            Some(given) => given.into_iter().flatten().collect(),
            None if !self.has_column("features_v") => error::fail(
                PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN,
                format!("{} has no column \"features_v\" and no features were given", self.name),
                Some(&format!(
                    "Name an array column, train_sgd('{0}', 'target', '{{features}}'), or indices and values, '{{features_k,features_v}}'.",
                    self.name
                )),
            ),
            None if self.has_column("features_k") && self.is_sparse() => {
                vec!["features_k".into(), "features_v".into()]
            }
            None => vec!["features_v".into()],
        };
        if !(1..=2).contains(&features.len()) {
            error::fail(
                PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                format!("{} feature columns were given", features.len()),
                Some("Features are one array column, or two: feature numbers and values."),
            );
        }
        for (i, feature) in features.iter().enumerate() {
            self.check_column(feature, "features");
            self.check_type(feature, features.len() == 2 && i == 0);
        }
        features
    }
}

/// Options that were given, under the names of the arguments.
struct Given(Map<String, Value>);

impl Given {
    fn set<T: Into<Value>>(&mut self, name: &str, value: Option<T>) {
        if let Some(value) = value {
            self.0.insert(name.into(), value.into());
        }
    }
}

/// Says that a table was read by its own scan: its rows were shuffled in the buffer only.
fn tell_order(source: &Source, model: &Model) {
    let parts = relation::leaves_of(source.oid);
    let other = parts.into_iter().find(|oid| !relation::is_heap(*oid));
    let (Some(other), true, false) = (other, model.header.blocks == 0, model.header.params.shuffle.sorts()) else {
        return;
    };
    let message = format!("{} was read by its own scan, and shuffled in the buffer only", source.name);
    let what = relation::qualified_name(other).unwrap_or_default();
    ereport!(
        PgLogLevel::NOTICE,
        PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        message,
        format!(
            "{what} is not a table of this server's own storage (heap), which is read in random blocks. If its rows lie ordered, train with a buffer_size that holds all of them, or with shuffle => 'once'."
        )
    );
}

/// Numbers that JSON has no word for (NaN, infinity) are kept as text, to be refused by name.
fn number(x: f64) -> Value {
    serde_json::Number::from_f64(x).map_or_else(|| json!(x.to_string()), Value::Number)
}

pg_function!(
    /// train_sgd as it was declared by version 0.1.0, with fewer arguments.
    train_sgd_wrapper,
    pg_finfo_train_sgd_wrapper,
    train_sgd_of_before
);

unsafe fn train_sgd_of_before(call: Call) -> pg_sys::Datum {
    require_writable(c"train_sgd()");
    call.null()
}

/// train_sgd(source, target, features, …) → id of the stored model.
#[pg_extern]
#[allow(clippy::too_many_arguments, reason = "the arguments of the SQL function, by name there")]
fn train_model(
    source: Option<pg_sys::Oid>,
    target: Option<String>,
    features: Option<Vec<Option<String>>>,
    loss: Option<String>,
    model_name: Option<String>,
    l2_reg: Option<f64>,
    l1_reg: Option<f64>,
    optimizer: Option<String>,
    learning_rate: Option<f64>,
    schedule: Option<String>,
    decay: Option<f64>,
    average: Option<bool>,
    standardize: Option<bool>,
    epsilon: Option<f64>,
    class_weight: Option<String>,
    max_epochs: Option<i32>,
    tolerance: Option<f64>,
    max_seconds: Option<f64>,
    batch_size: Option<i32>,
    seed: Option<i64>,
    fit_intercept: Option<bool>,
    on_null: Option<String>,
    weight: Option<String>,
    eval_fraction: Option<f64>,
    final_loss: Option<bool>,
    warm_start: Option<String>,
    shuffle: Option<String>,
    mrs_ratio: Option<i32>,
    block_size: Option<String>,
    buffer_size: Option<String>,
    cache: Option<bool>,
    verbose: Option<bool>,
    exclude: Option<Vec<Option<String>>>,
    encode: Option<JsonB>,
    filter: Option<String>,
) -> i64 {
    require_writable(c"train_sgd()");
    let Some(source) = source else {
        error::fail(PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED, "the source of train_sgd is NULL", None)
    };
    let mut given = Given(Map::new());
    given.set("loss", loss);
    given.set("l2_reg", l2_reg.map(number));
    given.set("l1_reg", l1_reg.map(number));
    given.set("optimizer", optimizer);
    given.set("average", average);
    given.set("standardize", standardize);
    given.set("epsilon", epsilon.map(number));
    given.set("class_weight", class_weight.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text))));
    given.set("learning_rate", learning_rate.map(number));
    given.set("schedule", schedule);
    given.set("decay", decay.map(number));
    given.set("max_epochs", max_epochs);
    given.set("tolerance", tolerance.map(number));
    given.set("max_seconds", max_seconds.map(number));
    given.set("batch_size", batch_size);
    given.set("seed", seed);
    given.set("fit_intercept", fit_intercept);
    given.set("eval_fraction", eval_fraction.map(number));
    given.set("final_loss", final_loss);
    given.set("warm_start", warm_start.clone());
    given.set("shuffle", shuffle);
    given.set("mrs_ratio", mrs_ratio);
    given.set("block_size", block_size);
    given.set("buffer_size", buffer_size);
    given.set("cache", cache);
    given.set("verbose", verbose);
    // All that can be refused is refused before the table is read.
    Params::from_json(&Value::Object(given.0.clone())).unwrap_or_else(|e| error::raise(e));
    if let Some(name) = &model_name {
        check_new_name(name);
    }
    let asked = Asked {
        target,
        features,
        weight,
        exclude: exclude.into_iter().flatten().flatten().collect(),
        encode: encode.map(|JsonB(encode)| encode),
        filter,
        on_null: on_null.clone(),
        warm_start,
    };
    let (source, columns) = Source::with_columns(source, asked);
    given.set("on_null", columns.on_null(on_null));
    let options = Value::Object(given.0);
    Params::from_json(&options).unwrap_or_else(|e| error::raise(e));
    let query = columns.query(&source, "corgipile.model_send({})");
    let bytes = match Spi::get_one_with_args::<Vec<u8>>(&query, &columns.arguments(options)) {
        Ok(Some(bytes)) => bytes,
        Ok(None) | Err(pgrx::spi::Error::InvalidPosition) => source.no_rows(),
        Err(e) => error::internal(&format!("training failed: {e}")),
    };
    let mut model = Model::decode(&bytes).unwrap_or_else(|e| error::raise(e));
    drop(bytes);
    let Columns { target, features, weight, encoding, vectors, left_out, .. } = columns;
    if let Some(encoding) = encoding {
        // Features that no row had are features all the same.
        model.widen(encoding.width(), Settings::read().memory_limit).unwrap_or_else(|e| error::raise(e));
        model.header.encoding = Some(encoding);
    }
    model.header.target = target;
    model.header.features = features;
    model.header.weight = weight;
    model.header.vectors = vectors;
    let (id, version) = catalog::insert(model_name.as_deref(), &source.name, &model);
    tell(id, model_name.as_deref(), version, &model, &left_out);
    tell_order(&source, &model);
    id
}

/// What became of the training, in one NOTICE.
fn tell(id: i64, name: Option<&str>, version: i32, model: &Model, left_out: &[(String, String)]) {
    let header = &model.header;
    let name = match (name, version) {
        (None, _) => String::new(),
        (Some(name), 1) => format!(" \"{name}\""),
        (Some(name), version) => format!(" \"{name}\" version {version}"),
    };
    let skipped = match header.rows_skipped {
        0 => String::new(),
        n => format!(" ({n} skipped for NULL)"),
    };
    let last = header.history.last();
    let blocks = if header.blocks > 0 {
        format!("{} blocks, {:.1} per buffer", header.blocks, header.blocks_per_buffer)
    } else {
        "input not readable in blocks, shuffled in the buffer only".into()
    };
    let held_out = match header.rows_held_out {
        0 => String::new(),
        n => format!(" ({n} held out)"),
    };
    let held_out_loss = last.and_then(|report| report.eval).map(|eval| {
        let accuracy = eval.accuracy.map(|accuracy| format!(", accuracy {accuracy:.5}")).unwrap_or_default();
        format!(", held out: loss {:.6}{accuracy}", eval.loss)
    });
    let final_loss = match (header.measured, last.and_then(|report| report.loss)) {
        (Some(measured), _) => format!("loss of the final weights {:.6}", measured.loss),
        (None, Some(loss)) => format!("final loss {loss:.6}"),
        (None, None) => "no loss in the last epoch".into(),
    };
    let message = format!(
        "model {id}{name}: {}, {} tuples{skipped}{held_out}, {} features, {} epoch{}, {final_loss}{}",
        header.loss.name(),
        header.rows,
        header.n_features,
        header.history.len(),
        if header.history.len() == 1 { "" } else { "s" },
        held_out_loss.unwrap_or_default(),
    );
    // SAFETY: a plain query of the transaction's state.
    let in_block = unsafe { pg_sys::IsTransactionBlock() };
    let visible = if in_block { " Other sessions see the model after COMMIT." } else { "" };
    let constant = match header.constant_columns {
        0 => String::new(),
        n => format!("; {n} features have one value only"),
    };
    let reason = header.shuffle_reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let plan = header.tuning.as_ref().and_then(|tuning| Some((tuning, tuning.plan?)));
    let plan = plan.map(|(tuning, plan)| {
        format!(
            " Blocks of {}, buffers of {}, {}: {:.2} million minibatches/s expected, {:.2} measured, held down by {}.",
            pretty_bytes(plan.block as usize),
            pretty_bytes(plan.buffer as usize),
            if header.cache_bytes > 0 { "decoded tuples kept" } else { "nothing kept" },
            tuning.predicted / 1e6,
            tuning.measured / 1e6,
            plan.limit.words(),
        )
    });
    let plan = plan.unwrap_or_default();
    let encoded = header.encoding.as_ref().map(|encoding| {
        let mut columns: Vec<String> =
            encoding.columns.iter().map(|c| format!("{} ({})", c.name, c.description())).collect();
        // Of very many, the first.
        const MOST: usize = 40;
        if columns.len() > MOST {
            let more = columns.len() - MOST;
            columns.truncate(MOST);
            columns.push(format!("and {more} more, all of which corgipile.model_encoding shows"));
        }
        let without: Vec<String> = left_out.iter().map(|(name, reason)| format!("{name} {reason}")).collect();
        let without = if without.is_empty() { String::new() } else { format!(" Left out: {}.", without.join(", ")) };
        format!(" Features of {}.{without}", columns.join(", "))
    });
    let encoded = encoded.unwrap_or_default();
    let detail = format!(
        "Shuffle {}{reason}: {blocks}; learning rate {:.2e}{constant}; peak memory {}; {:.0} ms.{plan}{encoded}{visible}",
        header.params.shuffle.name(),
        header.params.learning_rate.unwrap_or(f64::NAN),
        pretty_bytes(header.peak_memory as usize),
        header.duration_ms
    );
    ereport!(PgLogLevel::NOTICE, PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION, message, detail);
}

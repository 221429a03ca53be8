//! `train_sgd`: finds the columns, runs the aggregate query as the caller, stores the model.

use super::models::{check_new_name, require_writable};
use crate::catalog;
use crate::customscan::tuple_shuffle::element_of;
use crate::error;
use crate::pg::array::Element;
use crate::pg::explain::pretty_bytes;
use crate::pg::{relation, types};
use corgipile_core::labels::TargetKind;
use corgipile_core::model::Model;
use corgipile_core::params::Params;
use pgrx::{JsonB, PgLogLevel, PgSqlErrorCode, Spi, ereport, pg_extern, pg_sys};
use serde_json::{Map, Value, json};
use std::ffi::CString;

/// A relation to train on: open to look at, locked until the end of the transaction.
pub struct Source {
    oid: pg_sys::Oid,
    /// The name to write in a query.
    pub name: String,
}

/// The columns of a training.
pub struct Columns {
    target: String,
    features: Vec<String>,
    weight: Option<String>,
}

impl Columns {
    /// Arguments of the aggregate, with the options as `options`.
    pub fn arguments(&self, options: &str) -> String {
        let quote = |name: &String| pgrx::spi::quote_identifier(name);
        let columns: Vec<String> = std::iter::once(&self.target).chain(&self.features).map(quote).collect();
        let weight = self.weight.as_ref().map(|weight| format!(", {}", quote(weight))).unwrap_or_default();
        format!("{}, {options}{weight}", columns.join(", "))
    }
}

impl Source {
    /// A relation and its columns to train on, checked.
    pub fn with_columns(
        oid: pg_sys::Oid,
        target: Option<String>,
        features: Option<Vec<Option<String>>>,
        weight: Option<String>,
    ) -> (Self, Columns) {
        let source = Self::open(oid);
        let target = source.target(target);
        let features = source.features(features);
        if let Some(weight) = &weight {
            source.check_weight(weight);
        }
        (source, Columns { target, features, weight })
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
        if matches!(kind, b'v' | b'p' | b'f') {
            pgrx::debug1!("{name} may not be readable in blocks; tuples are then shuffled in the buffer only");
        }
        Self { oid, name }
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

/// Numbers that JSON has no word for (NaN, infinity) are kept as text, to be refused by name.
fn number(x: f64) -> Value {
    serde_json::Number::from_f64(x).map_or_else(|| json!(x.to_string()), Value::Number)
}

/// train_sgd(source, target, features, …) → id of the stored model.
#[pg_extern]
#[allow(clippy::too_many_arguments, reason = "the arguments of the SQL function, by name there")]
fn train_sgd(
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
    given.set("on_null", on_null);
    given.set("eval_fraction", eval_fraction.map(number));
    given.set("final_loss", final_loss);
    given.set("warm_start", warm_start);
    given.set("shuffle", shuffle);
    given.set("mrs_ratio", mrs_ratio);
    given.set("block_size", block_size);
    given.set("buffer_size", buffer_size);
    given.set("cache", cache);
    given.set("verbose", verbose);
    let options = Value::Object(given.0);
    // All that can be refused is refused before the table is read.
    Params::from_json(&options).unwrap_or_else(|e| error::raise(e));
    if let Some(name) = &model_name {
        check_new_name(name);
    }
    let (source, columns) = Source::with_columns(source, target, features, weight);
    let query = format!("SELECT corgipile.model_send(corgipile.sgd({})) FROM {}", columns.arguments("$1"), source.name);
    let bytes = match Spi::get_one_with_args::<Vec<u8>>(&query, &[JsonB(options).into()]) {
        Ok(Some(bytes)) => bytes,
        Ok(None) | Err(pgrx::spi::Error::InvalidPosition) => error::fail(
            PgSqlErrorCode::ERRCODE_NO_DATA_FOUND,
            format!("there are no rows to train on in {}", source.name),
            Some("The table is empty, or row security on_null => 'skip' or weights of 0 leave nothing."),
        ),
        Err(e) => error::internal(&format!("training failed: {e}")),
    };
    let mut model = Model::decode(&bytes).unwrap_or_else(|e| error::raise(e));
    drop(bytes);
    let Columns { target, features, weight } = columns;
    model.header.target = target;
    model.header.features = features;
    model.header.weight = weight;
    let (id, version) = catalog::insert(model_name.as_deref(), &source.name, &model);
    tell(id, model_name.as_deref(), version, &model);
    id
}

/// What became of the training, in one NOTICE.
fn tell(id: i64, name: Option<&str>, version: i32, model: &Model) {
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
    let detail = format!(
        "Shuffle {}{reason}: {blocks}; learning rate {:.2e}{constant}; peak memory {}; {:.0} ms.{plan}{visible}",
        header.params.shuffle.name(),
        header.params.learning_rate.unwrap_or(f64::NAN),
        pretty_bytes(header.peak_memory as usize),
        header.duration_ms
    );
    ereport!(PgLogLevel::NOTICE, PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION, message, detail);
}

//! Every error a user can see: the one table of SQLSTATEs, messages and hints.

use crate::pg::array::{ACCEPTED, Unusable};
use crate::pg::fill::{Column, Stop};
use corgipile_core::Error;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};
use serde::{Deserialize, Serialize};

/// Names of the aggregate's arguments: for messages, and (carried by the plan) for the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnNames {
    /// The target; empty for an expression.
    pub target: String,
    /// Indices (if sparse) and values; empty for expressions.
    pub features: Vec<String>,
    /// The weight, if there is one; empty for an expression.
    pub weight: Option<String>,
}

/// Something is wrong with one row of the training data.
#[derive(Debug, Clone, PartialEq)]
pub enum RowError {
    /// A column is NULL.
    Null(Column),
    /// One element of an array is NULL.
    NullElement(Column, usize),
    /// An array has more than one dimension.
    Dimensions(Column, i32),
    /// An array's bytes make no sense.
    Corrupt(Column),
    /// A feature value is NaN or infinite.
    NotFinite(usize),
    /// The target is NaN or infinite.
    TargetNotFinite,
    /// A dense array of another length.
    Length(usize),
    /// Indices and values of different length.
    Unpaired(usize, usize),
    /// A bad feature number.
    Index(usize, i64),
    /// A bad weight.
    Weight(f64),
    /// The target's value does not fit the loss.
    Core(Error),
}

impl From<Error> for RowError {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

impl From<Stop> for RowError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Null(column) => Self::Null(column),
            Stop::Unusable(column, Unusable::NullAt(i)) => Self::NullElement(column, i),
            Stop::Unusable(column, Unusable::Dimensions(n)) => Self::Dimensions(column, n),
            Stop::Unusable(column, Unusable::Corrupt) => Self::Corrupt(column),
            Stop::NotFinite(Column::Target, _) => Self::TargetNotFinite,
            Stop::NotFinite(_, i) => Self::NotFinite(i),
            Stop::Length(n) => Self::Length(n),
            Stop::Unpaired(k, v) => Self::Unpaired(k, v),
            Stop::Index(i, number) => Self::Index(i, number),
            Stop::Weight(weight) => Self::Weight(weight),
            Stop::Quota | Stop::End | Stop::Full | Stop::Room(_) | Stop::UnknownLabel => {
                Self::Core(Error::BadModel("internal: not an error".into()))
            }
        }
    }
}

/// Ends the statement with this error. Rust frames unwind; nothing is held across it.
pub fn raise_report(report: ErrorReport) -> ! {
    report.report(PgLogLevel::ERROR);
    unreachable!("an ERROR does not return")
}

/// A plain error.
pub fn fail(code: PgSqlErrorCode, message: impl Into<String>, hint: Option<&str>) -> ! {
    let report = ErrorReport::new(code, message.into(), "corgipile");
    raise_report(match hint {
        Some(hint) => report.set_hint(hint),
        None => report,
    })
}

/// Something that cannot happen did.
pub fn internal(message: &str) -> ! {
    fail(PgSqlErrorCode::ERRCODE_INTERNAL_ERROR, message, None)
}

/// An error of the core.
pub fn raise(error: Error) -> ! {
    raise_report(report(error))
}

/// The report of an error of the core.
fn report(error: Error) -> ErrorReport {
    let message = error.to_string();
    let new = |code| ErrorReport::new(code, message.clone(), "corgipile");
    match error {
        Error::UnknownOption { valid, .. } => {
            new(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE).set_hint(format!("Valid options are: {valid}."))
        }
        Error::BadOption { expected, .. } => {
            new(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE).set_hint(format!("Expected {expected}."))
        }
        Error::OutOfMemory { .. } => new(PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY)
            .set_hint("Lower corgipile.memory_limit or the option buffer_size."),
        Error::NoValue { .. } => new(PgSqlErrorCode::ERRCODE_DATA_EXCEPTION)
            .set_hint("It is NULL in all rows: leave it out of the features."),
        Error::WrongEncoding { .. } => new(PgSqlErrorCode::ERRCODE_DATATYPE_MISMATCH).set_hint(
            "number is for numbers, ordinal for text and enums, seconds and cyclic for dates and times; one_hot and hash are for all types.",
        ),
        Error::ModelTooLarge { .. } => new(PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED)
            .set_hint("Take the model along in a dump, or read its weights by model_vector."),
        Error::MemoryLimit { .. } => new(PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED)
            .set_hint("Raise corgipile.memory_limit, or lower block_size and buffer_size."),
        Error::Diverged { learning_rate, .. } => {
            new(PgSqlErrorCode::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE).set_hint(format!(
                "Try a smaller learning_rate, for example {}, or scale the features to about -1 to 1.",
                short(learning_rate / 10.0)
            ))
        }
        Error::TooManyClasses { .. } => new(PgSqlErrorCode::ERRCODE_DATA_EXCEPTION)
            .set_hint("Use loss => 'softmax' for more than two classes, or 'squared_error' for a quantity."),
        Error::OneClass { .. } => {
            new(PgSqlErrorCode::ERRCODE_DATA_EXCEPTION).set_hint("Train on rows of both classes.")
        }
        Error::NotNumeric { .. } => new(PgSqlErrorCode::ERRCODE_DATATYPE_MISMATCH)
            .set_hint("Choose loss => 'log_loss' or 'hinge' for a target of classes, or cast the target to a number."),
        Error::UnknownClass { known, .. } => new(PgSqlErrorCode::ERRCODE_DATA_EXCEPTION)
            .set_hint(format!("Its classes are {known}. Train a new model, or leave rows of other classes out.")),
        Error::WarmStart(_) => new(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE)
            .set_hint("Start from a model of the same loss, features and type of target, or leave warm_start out."),
        Error::BadModel(_) => new(PgSqlErrorCode::ERRCODE_INVALID_BINARY_REPRESENTATION),
        Error::FeatureCount { .. } => new(PgSqlErrorCode::ERRCODE_ARRAY_ELEMENT_ERROR),
        Error::Stopped => new(PgSqlErrorCode::ERRCODE_INTERNAL_ERROR),
    }
}

/// A rate in as few digits as it needs.
fn short(x: f64) -> String {
    if (0.001..1e6).contains(&x) { format!("{}", (x * 1e4).round() / 1e4) } else { format!("{x:.0e}") }
}

/// A column's name in quotes, or what it is if it has none.
fn quoted(name: &str, what: &str) -> String {
    if name.is_empty() { format!("the expression of the {what}") } else { format!("\"{name}\"") }
}

/// A feature column of a type that cannot be read.
pub fn unusable_features(name: &str, type_name: &str, indices: bool, accepted: &str) -> ! {
    let (what, accepted) =
        if indices { ("feature numbers", "smallint[] or integer[]") } else { ("features", accepted) };
    let name = quoted(name, what);
    fail(
        PgSqlErrorCode::ERRCODE_DATATYPE_MISMATCH,
        format!("{name} has type {type_name}, which cannot be used as {what}"),
        Some(&format!("Accepted types are {accepted}; cast the column in a view.")),
    )
}

/// An error about one row, with its place ("in the row with ctid …").
pub fn raise_row(what: RowError, names: &ColumnNames, place: &str, expected: usize, most: i64) -> ! {
    let name = |column: Column| match column {
        Column::Target => quoted(&names.target, "target"),
        Column::Indices => quoted(names.features.first().map_or("", String::as_str), "feature numbers"),
        Column::Values => quoted(names.features.last().map_or("", String::as_str), "features"),
        Column::Weight => quoted(names.weight.as_deref().unwrap_or_default(), "weight"),
    };
    let values = name(Column::Values);
    let skip = "Use on_null => 'skip' to leave such rows out.";
    let (code, message, hint) = match what {
        RowError::Core(error) => {
            raise_report(report(error).set_detail(format!("It was found {place}.")));
        }
        RowError::Null(column) => (
            PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
            format!("{} is NULL {place}", name(column)),
            skip.to_string(),
        ),
        RowError::NullElement(column, i) => (
            PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
            format!("element {i} of {} is NULL {place}", name(column)),
            skip.to_string(),
        ),
        RowError::Dimensions(column, n) => (
            PgSqlErrorCode::ERRCODE_ARRAY_ELEMENT_ERROR,
            format!("{} has {n} dimensions {place}", name(column)),
            "Features must be one-dimensional arrays.".into(),
        ),
        RowError::Corrupt(column) => (
            PgSqlErrorCode::ERRCODE_DATA_CORRUPTED,
            format!("{} is not a valid array {place}", name(column)),
            format!("Accepted types are {ACCEPTED}."),
        ),
        RowError::Weight(weight) => (
            PgSqlErrorCode::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
            format!("{} is {weight} {place}", name(Column::Weight)),
            "A weight must be 0 (the row is left out) or larger, and finite.".into(),
        ),
        RowError::NotFinite(i) => (
            PgSqlErrorCode::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
            format!("element {i} of {values} is NaN, infinite or too large for real {place}"),
            "Filter such rows out in a view, or replace the value.".into(),
        ),
        RowError::TargetNotFinite => (
            PgSqlErrorCode::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
            format!("{} is NaN, infinite or too large for real {place}", name(Column::Target)),
            "Filter such rows out in a view.".into(),
        ),
        RowError::Length(0) => (
            PgSqlErrorCode::ERRCODE_ARRAY_ELEMENT_ERROR,
            format!("{values} is an empty array {place}"),
            "Dense features need at least one value.".into(),
        ),
        RowError::Length(found) => (
            PgSqlErrorCode::ERRCODE_ARRAY_ELEMENT_ERROR,
            format!("{values} has {found} values, but {expected} were expected, {place}"),
            "All dense feature arrays must have the length of the first one read.".into(),
        ),
        RowError::Unpaired(k, v) => (
            PgSqlErrorCode::ERRCODE_ARRAY_ELEMENT_ERROR,
            format!("{} has {k} feature numbers but {values} has {v} values {place}", name(Column::Indices)),
            "Both arrays must have the same length.".into(),
        ),
        RowError::Index(i, number) if number < 1 => (
            PgSqlErrorCode::ERRCODE_ARRAY_ELEMENT_ERROR,
            format!("element {i} of {} is {number} {place}", name(Column::Indices)),
            "Feature numbers start at 1.".into(),
        ),
        RowError::Index(i, number) if number > most => (
            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            format!(
                "element {i} of {} is {number} {place}, but corgipile.memory_limit leaves room for {most} weights",
                name(Column::Indices)
            ),
            "Raise corgipile.memory_limit, or renumber the features.".into(),
        ),
        RowError::Index(i, number) => (
            PgSqlErrorCode::ERRCODE_ARRAY_ELEMENT_ERROR,
            format!("element {i} of {} is {number}, not larger than the one before it, {place}", name(Column::Indices)),
            "Feature numbers must be sorted and distinct.".into(),
        ),
    };
    fail(code, message, Some(&hint))
}

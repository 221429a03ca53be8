//! The score of a model of columns as an SQL expression over the columns: what `export_model_sql` gives.

use crate::catalog::{self, ModelKey};
use crate::error;
use crate::pg::types;
use corgipile_core::encoding::{Column, Encoding, Kind, OnNull, Scale};
use pgrx::spi::{quote_identifier, quote_literal};
use pgrx::{PgSqlErrorCode, pg_extern, pg_sys};
use std::f64::consts::TAU;

/// Seconds from 1970, where SQL's epoch begins, to 2000, where the server's moments do.
const EPOCH: f64 = 946_684_800.0;

/// A number as SQL reads it back, bit for bit.
fn number(x: f64) -> String {
    format!("'{x:?}'::float8")
}

/// Numbers as an array.
fn numbers(all: impl Iterator<Item = f64>) -> String {
    let all: Vec<String> = all.map(|x| format!("{x:?}")).collect();
    format!("'{{{}}}'::float8[]", all.join(","))
}

/// Whether a number is one that a double holds: NaN is above all others.
fn finite(x: &str) -> String {
    format!("{x} BETWEEN -1e300 AND 1e300")
}

/// What a value adds: weight · (x − mean) / deviation, as factor and mean.
fn line(weight: f64, scale: &Scale) -> (f64, f64) {
    if scale.deviation > 0.0 { (weight / scale.deviation, scale.mean) } else { (0.0, 0.0) }
}

fn scaled(weight: f64, scale: &Scale, x: &str) -> String {
    let (factor, mean) = line(weight, scale);
    format!("{} * ({x} - {})", number(factor), number(mean))
}

/// What a text form adds: by its value, or `other`.
fn by_text<'a>(pairs: impl Iterator<Item = (&'a String, f64)>, other: f64, text: &str) -> String {
    let map: serde_json::Map<String, serde_json::Value> = pairs.map(|(k, w)| (k.clone(), w.into())).collect();
    let map = quote_literal(serde_json::Value::Object(map).to_string());
    format!("coalesce(({map}::jsonb ->> {text})::float8, {})", number(other))
}

/// A column in a query.
struct Source {
    /// Its name, quoted.
    name: String,
    /// The type under its domain, if there is such a type here.
    base: Option<pg_sys::Oid>,
}

impl Source {
    fn of(column: &Column) -> Self {
        Self { name: quote_identifier(&column.name), base: types::named(&column.sql_type).map(types::base_type) }
    }

    /// The value as a number; times in seconds. NULL where it is not finite.
    fn number(&self) -> String {
        let name = &self.name;
        match self.base {
            Some(pg_sys::FLOAT4OID | pg_sys::FLOAT8OID | pg_sys::NUMERICOID) => {
                format!("CASE WHEN {} THEN {name}::float8 END", finite(name))
            }
            Some(pg_sys::DATEOID | pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID) => {
                format!("CASE WHEN isfinite({name}) THEN {} END", self.any_number())
            }
            _ => self.any_number(),
        }
    }

    fn any_number(&self) -> String {
        let name = &self.name;
        let part = |part: &str| format!("extract({part} FROM {name})");
        let seconds = match self.base {
            Some(pg_sys::BOOLOID) => return format!("{name}::int::float8"),
            Some(pg_sys::DATEOID | pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID) => {
                format!("{} - {EPOCH}", part("epoch"))
            }
            Some(pg_sys::TIMEOID) => part("epoch"),
            Some(pg_sys::TIMETZOID) => format!("mod({} + 86400, 86400)", part("epoch")),
            // A month is 30 days, whichever it is.
            Some(pg_sys::INTERVALOID) => format!(
                "((({} * 12 + {}) * 30 + {}) * 24 + {}) * 3600 + {} * 60 + {}",
                part("year"),
                part("month"),
                part("day"),
                part("hour"),
                part("minute"),
                part("second")
            ),
            _ => return format!("{name}::float8"),
        };
        format!("({seconds})::float8")
    }

    /// The text form by which it was learnt, whatever the session's settings. `None` where SQL has no way to say it.
    fn text(&self) -> Option<String> {
        let name = &self.name;
        Some(match self.base? {
            pg_sys::TEXTOID | pg_sys::VARCHAROID => format!("{name}::text"),
            // JSON's dates are ISO's, but for the letter in the middle.
            pg_sys::DATEOID | pg_sys::TIMESTAMPOID => format!("replace(to_jsonb({name}) #>> '{{}}', 'T', ' ')"),
            // A moment in UTC.
            pg_sys::TIMESTAMPTZOID => format!("replace(to_jsonb({name} AT TIME ZONE 'UTC') #>> '{{}}', 'T', ' ')"),
            // Their form depends on the session.
            pg_sys::INTERVALOID | pg_sys::FLOAT4OID | pg_sys::FLOAT8OID => return None,
            // SAFETY: a catalog look-up by oid.
            base if unsafe { pg_sys::type_is_enum(base) } => format!("format('%s', {name})"),
            // What format gives is the output function's, which a cast need not be.
            _ => format!("rtrim(format('%s', {name}), ' ')"),
        })
    }

    /// Whether a value, or an element, may be NaN.
    fn has_nan(&self) -> bool {
        let Some(base) = self.base else { return false };
        matches!(base, pg_sys::FLOAT4OID | pg_sys::FLOAT8OID | pg_sys::NUMERICOID)
            || types::element(base).is_some_and(|element| !element.is_integer())
    }

    /// The array.
    fn array(&self) -> String {
        match self.base.and_then(types::vector) {
            Some(_) => format!("{}::real[]", self.name),
            None => self.name.clone(),
        }
    }
}

/// What a column adds to the score: `weights` are those of its features. `None` where SQL has no way to say it.
fn term(column: &Column, weights: &[f64]) -> Option<String> {
    let source = Source::of(column);
    let weight = |i: usize| weights.get(i).copied().unwrap_or(0.0);
    // NaN is as NULL where that is no error.
    let nan = column.on_null != OnNull::Error && source.has_nan();
    let mut missing = format!("{} IS NULL", source.name);
    if nan && matches!(column.kind, Kind::Number(_)) {
        missing = format!("({missing} OR {} = 'NaN')", source.name);
    }
    // What a NULL adds where it counts as 0, but for the feature that says so.
    let mut zero = 0.0;
    let own = match &column.kind {
        Kind::Number(scale) => {
            let (factor, mean) = line(weight(0), scale);
            zero = -factor * mean;
            scaled(weight(0), scale, &source.number())
        }
        Kind::OneHot { values, other } => {
            let other = if *other { weight(values.len()) } else { 0.0 };
            by_text(values.iter().zip(weights.iter().copied()), other, &source.text()?)
        }
        Kind::Ordinal { values, scale } => {
            let (factor, mean) = line(weight(0), scale);
            zero = -factor * mean;
            let ranks = values.iter().zip(0u32..).map(|(value, rank)| (value, factor * (f64::from(rank) - mean)));
            by_text(ranks, 0.0, &source.text()?)
        }
        Kind::Time { scale, periods } => {
            let seconds = source.number();
            let mut terms = Vec::new();
            if let Some(scale) = scale {
                let (factor, mean) = line(weight(0), scale);
                zero = -factor * mean;
                terms.push(scaled(weight(0), scale, &seconds));
            }
            for (i, period) in periods.iter().enumerate() {
                let at = usize::from(scale.is_some()) + 2 * i;
                let turn = number(TAU / period.seconds());
                terms.push(format!("{} * sin({seconds} * {turn})", number(weight(at))));
                terms.push(format!("{} * cos({seconds} * {turn})", number(weight(at + 1))));
            }
            terms.join(" + ")
        }
        Kind::Array(scales) => {
            let lines: Vec<(f64, f64)> = scales.iter().enumerate().map(|(i, scale)| line(weight(i), scale)).collect();
            zero = -lines.iter().map(|(factor, mean)| factor * mean).sum::<f64>();
            let array = source.array();
            let or_nan = if nan { format!(" OR array_position({array}, 'NaN') IS NOT NULL") } else { String::new() };
            // Of arrays of more dimensions, which have no score, positions cannot be asked for.
            missing = format!(
                "CASE WHEN {missing} THEN true WHEN array_ndims({array}) = 1 THEN array_position({array}, NULL) IS NOT NULL{or_nan} ELSE false END"
            );
            format!(
                "CASE WHEN array_ndims({array}) = 1 AND cardinality({array}) = {} THEN (SELECT CASE WHEN bool_and({}) THEN sum(u.w * (u.x::float8 - u.m)) END FROM unnest({array}, {}, {}) AS u(x, w, m)) END",
                scales.len(),
                finite("u.x"),
                numbers(lines.iter().map(|line| line.0)),
                numbers(lines.iter().map(|line| line.1)),
            )
        }
        Kind::Hash { .. } | Kind::Sparse { .. } | Kind::Numbers => return None,
    };
    let is_null = if column.has_null_feature() { weight(column.width() - 1) } else { 0.0 };
    let null = match column.on_null {
        OnNull::Error | OnNull::Skip => "NULL".into(),
        OnNull::Zero => number(zero + is_null),
        OnNull::Mean | OnNull::Category => number(is_null),
    };
    Some(format!("CASE WHEN {missing} THEN {null} ELSE {own} END"))
}

/// The expression of one score; the name of a column that SQL has no expression for, if there is one.
fn score(encoding: &Encoding, weights: &[f32]) -> Result<String, String> {
    let (intercept, mut rest) = weights.split_last().map_or((0.0, weights), |(last, rest)| (f64::from(*last), rest));
    let mut terms = vec![number(intercept)];
    for column in &encoding.columns {
        let (own, others) = rest.split_at(column.width().min(rest.len()));
        rest = others;
        let own: Vec<f64> = own.iter().map(|weight| f64::from(*weight)).collect();
        if !matches!(column.kind, Kind::Numbers) {
            terms.push(term(column, &own).ok_or_else(|| column.name.clone())?);
        }
    }
    Ok(terms.join(" + "))
}

/// corgipile.encoded_score_sql(model, output) → the score number `output` (from 0) of a model of columns as an SQL
/// expression.
#[pg_extern]
fn encoded_score_sql(model: &str, output: i32) -> Option<String> {
    let stored = catalog::required(&ModelKey::Name(model.into()));
    let encoding = stored.model.header.encoding.as_ref()?;
    let weights = stored.model.weights.chunks_exact(stored.model.row_len()).nth(usize::try_from(output).ok()?)?;
    let expression = score(encoding, weights).unwrap_or_else(|column| {
        error::fail(
            PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
            format!("column \"{column}\" of model {model} is encoded in a way for which SQL has no expression"),
            Some("Use export_model, which holds the encoding, or another encoding of this column."),
        )
    });
    Some(expression)
}

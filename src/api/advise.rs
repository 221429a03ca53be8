//! corgipile.advise: what a training would do, without training; corgipile.probe_disk.

use super::train::{Asked, Source};
use crate::customscan::disk;
use crate::customscan::sgd::{Advice, take_advice};
use crate::error;
use corgipile_core::params::Params;
use corgipile_core::plumber::{Operator, rates};
use pgrx::iter::TableIterator;
use pgrx::{JsonB, PgSqlErrorCode, Spi, name, pg_extern, pg_sys};
use serde_json::{Value, json};

/// One line of advice: section, item, value, unit, note.
type Line = (&'static str, String, Option<f64>, &'static str, Option<String>);

fn line(section: &'static str, item: &str, value: f64, unit: &'static str) -> Line {
    (section, item.into(), value.is_finite().then_some(value), unit, None)
}

fn note(line: Line, note: impl Into<String>) -> Line {
    (line.0, line.1, line.2, line.3, Some(note.into()))
}

/// The lines: operators, the configuration, what is expected of it, what would change it.
fn lines(advice: &Advice) -> Vec<Line> {
    let Advice { survey, plan, params, reason, memory } = advice;
    let mb = |bytes: f64| bytes / f64::from(1 << 20);
    let found = rates(&survey.trace);
    let mut lines = Vec::new();
    let slowest = found.iter().map(|rate| rate.rate).fold(f64::INFINITY, f64::min);
    for (i, (operator, rate)) in Operator::ALL.iter().zip(&found).enumerate() {
        let said = line("operator", operator.name(), rate.rate, "minibatches per second and core");
        let visits = format!("visit ratio {:.2}, {:.2} cores", rate.visit_ratio, plan.theta[i]);
        let slow = if rate.rate <= slowest && rate.rate.is_finite() { ", the slowest" } else { "" };
        lines.push(note(said, format!("{visits}{slow}")));
    }
    let shuffle = ("configuration", "shuffle".into(), None, "", Some(params.shuffle.name().to_string()));
    lines.push(match reason {
        Some(reason) => note(shuffle, format!("{} ({reason})", params.shuffle.name())),
        None => shuffle,
    });
    let source = if plan.disk { "read from a disk, whose speed was measured" } else { "in memory, as far as was seen" };
    lines.push(note(line("configuration", "block_size", plan.block as f64 / 1024.0, "kB"), source));
    lines.push(line("configuration", "buffer_size", mb(plan.buffer as f64), "MB"));
    let cache = if plan.cache { "decoded tuples are kept from the first epoch on" } else { "nothing is kept" };
    lines.push(("configuration", "cache".into(), None, "", Some(cache.into())));
    lines
        .push(note(line("expected", "rows", plan.rows, ""), format!("{} of {} pages seen", survey.seen, survey.pages)));
    let size = note(line("expected", "decoded tuples", mb(plan.decoded_bytes), "MB"), {
        let buffers = mb(*memory as f64);
        format!("of {buffers:.0} MB for buffers and cache (corgipile.memory_limit)")
    });
    lines.push(size);
    let (first, later) = plan.seconds();
    lines.push(line("expected", "throughput while reading", plan.reading, "minibatches per second"));
    lines.push(note(
        line("expected", "throughput later", plan.throughput, "minibatches per second"),
        plan.limit.words(),
    ));
    lines.push(line("expected", "first epoch", first, "s"));
    lines.push(line("expected", "later epoch", later, "s"));
    for (item, times) in ["one core more", "twice the memory", "twice the bandwidth"].iter().zip(plan.what_if) {
        lines.push(line("what if", item, times, "times the throughput"));
    }
    // Scanning and decoding in several processes is what cores beyond two could do.
    let parallel = 1.0 / (1.0 / found[2].rate + 1.0 / found[3].rate) / plan.reading;
    if !plan.cache && parallel > 1.05 {
        let said = line("what if", "scanning and decoding in parallel", parallel, "times the throughput");
        lines.push(note(said, "at most, with enough cores; not done yet"));
    }
    lines
}

/// corgipile.advise(source, target, features, options, weight)
#[pg_extern]
#[allow(clippy::type_complexity, reason = "the columns of the SQL function")]
fn advise(
    source: Option<pg_sys::Oid>,
    target: Option<String>,
    features: Option<Vec<Option<String>>>,
    options: Option<JsonB>,
    weight: Option<String>,
) -> TableIterator<
    'static,
    (
        name!(section, String),
        name!(item, String),
        name!(value, Option<f64>),
        name!(unit, String),
        name!(note, Option<String>),
    ),
> {
    let Some(source) = source else {
        error::fail(PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED, "the source of advise is NULL", None)
    };
    let mut options = options.map_or_else(|| json!({}), |JsonB(options)| options);
    Params::from_json(&options).unwrap_or_else(|e| error::raise(e));
    if let Value::Object(map) = &mut options {
        map.insert("advise".into(), Value::Bool(true));
    }
    let (source, columns) = Source::with_columns(source, Asked { target, features, weight, ..Asked::default() });
    let query = columns.query(&source, "{}");
    take_advice();
    // Reads only, also on a standby.
    let looked = Spi::connect(|client| client.select(&query, None, &columns.arguments(options)).map(|_| ()));
    if let Err(e) = looked {
        error::internal(&format!("the look at the table failed: {e}"));
    }
    let Some(advice) = take_advice() else {
        error::fail(
            PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
            format!("{} is empty, or cannot be read in blocks", source.name),
            Some("Advice is for tables and materialized views with rows to train on."),
        )
    };
    let rows = lines(&advice).into_iter();
    TableIterator::new(rows.map(|(section, item, value, unit, note)| (section.into(), item, value, unit.into(), note)))
}

/// corgipile.probe_disk_rows(tablespace, seconds): what corgipile.probe_disk keeps.
#[pg_extern]
#[allow(clippy::type_complexity, reason = "the columns of the SQL function")]
fn probe_disk_rows(
    tablespace: Option<String>,
    seconds: Option<f64>,
) -> TableIterator<
    'static,
    (name!(tablespace, String), name!(block_size, i64), name!(parallelism, i32), name!(bytes_per_second, f64)),
> {
    let (name, measured) = disk::measure(tablespace.as_deref(), seconds.unwrap_or(3.0));
    TableIterator::new(
        measured.into_iter().map(move |(block, readers, bandwidth)| (name.clone(), block, readers, bandwidth)),
    )
}

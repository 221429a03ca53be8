//! Columns of any type as features: learning how (`corgipile.learn_encoding`, an aggregate), and doing it
//! (`corgipile.encode`, whose result the aggregate `corgipile.sgd` takes).

use super::arguments::{Call, Spread};
use crate::error;
use crate::guc::Settings;
use crate::pg::values::{self, Reader};
use crate::pg::{relation, types};
use crate::pg_function;
use corgipile_core::encoding::{
    Column, Encoder, Encoding, Fault, Kind, Learner, Learnt, Nature, OnNull, Place, Row, Value, Wish,
};
use pgrx::{FromDatum, IntoDatum, JsonB, PgMemoryContexts, PgSqlErrorCode, check_for_interrupts, pg_sys};
use serde_json::{Value as Json, json};

/// What a column's values must be for it to be encoded so; `numbered`: the column before numbers its elements.
fn nature_of(column: &Column, own: Nature, numbered: bool) -> Nature {
    match &column.kind {
        Kind::Number(_) => Nature::Number,
        Kind::OneHot { .. } | Kind::Hash { .. } => Nature::Category,
        Kind::Ordinal { .. } => Nature::Ordered,
        Kind::Array(_) => Nature::Array,
        Kind::Sparse { .. } if numbered => Nature::Array,
        Kind::Sparse { .. } => Nature::Sparse,
        Kind::Numbers => Nature::Numbers,
        Kind::Time { .. } => match own {
            Nature::Date | Nature::Moment | Nature::TimeOfDay => own,
            _ => Nature::Moment,
        },
    }
}

/// The value of column `i`, with that of the column before where that numbers its elements (`numbered`); `None` for such
/// a one.
///
/// # Safety
/// `datum(i)` gives column `i`, of the type of its reader, and lives as long as the result.
#[inline(always)]
unsafe fn value<'a>(
    readers: &'a mut [Reader],
    i: usize,
    numbered: bool,
    mut datum: impl FnMut(usize) -> Option<pg_sys::Datum>,
) -> Result<Option<Value<'a>>, Fault> {
    if !numbered {
        let Some(reader) = readers.get_mut(i).filter(|reader| !reader.is_numbers()) else { return Ok(None) };
        // SAFETY: by contract.
        return Ok(Some(unsafe { reader.value(datum(i)) }));
    }
    let (before, rest) = readers.split_at_mut(i);
    let (Some(numbers), Some(elements)) = (before.last_mut(), rest.first_mut()) else { return Ok(None) };
    // SAFETY: by contract.
    unsafe { Value::paired(numbers.value(datum(i - 1)), elements.value(datum(i)), i).map(Some) }
}

/// Encodes rows whose columns come one by one.
pub struct RowEncoder {
    encoder: Encoder,
    readers: Vec<Reader>,
    /// For each: does the one before number its elements?
    numbered: Vec<bool>,
    row: Row,
}

impl RowEncoder {
    /// For columns of these types, in the encoding's order; an error for a type that the encoding was not made for.
    pub fn new(encoding: Encoding, types: &[pg_sys::Oid]) -> Self {
        if types.len() != encoding.columns.len() {
            error::fail(
                PgSqlErrorCode::ERRCODE_DATATYPE_MISMATCH,
                format!("the model needs {} columns, but {} were given", encoding.columns.len(), types.len()),
                Some(&format!("Its columns are: {}.", names(&encoding))),
            );
        }
        let numbers = encoding.columns.iter().map(|column| column.kind == Kind::Numbers);
        let numbered: Vec<bool> = std::iter::once(false).chain(numbers).take(types.len()).collect();
        let readers = encoding.columns.iter().zip(&numbered).zip(types).map(|((column, numbered), oid)| {
            let own = values::nature(*oid);
            // Seconds of a day are not those of a moment, nor is an interval a number.
            let alike = |own: Nature| {
                let then = types::named(&column.sql_type).map(types::base_type);
                let was = |kinds: &[pg_sys::Oid]| then.is_none_or(|then| kinds.contains(&then));
                let is_interval = types::base_type(*oid) == pg_sys::INTERVALOID;
                match column.kind {
                    Kind::Time { .. } if own == Nature::TimeOfDay => was(&[pg_sys::TIMEOID, pg_sys::TIMETZOID]),
                    Kind::Time { .. } => was(&[pg_sys::DATEOID, pg_sys::TIMESTAMPOID, pg_sys::TIMESTAMPTZOID]),
                    Kind::Number(_) if is_interval => was(&[pg_sys::INTERVALOID]),
                    Kind::Number(_) => then != Some(pg_sys::INTERVALOID),
                    _ => true,
                }
            };
            own.filter(|own| alike(*own))
                .and_then(|own| Reader::new(*oid, nature_of(column, own, *numbered)))
                .unwrap_or_else(|| {
                    error::fail(
                        PgSqlErrorCode::ERRCODE_DATATYPE_MISMATCH,
                        format!(
                            "column \"{}\" has type {}, but the model was trained on {}",
                            column.name,
                            types::type_name(*oid),
                            column.sql_type
                        ),
                        Some("Cast it to that type, or train again."),
                    )
                })
        });
        let readers = readers.collect();
        Self { encoder: Encoder::new(encoding), readers, numbered, row: Row::default() }
    }

    /// Encodes a row; `None` if it is to be left out.
    ///
    /// # Safety
    /// `datum(i)` gives column `i`, of the type that it was made for, and lives for the call.
    pub unsafe fn encode(&mut self, mut datum: impl FnMut(usize) -> Option<pg_sys::Datum>) -> Option<&Row> {
        let Self { encoder, readers, numbered, row } = self;
        encoder.begin(row);
        for (i, numbered) in numbered.iter().enumerate() {
            // SAFETY: by contract.
            let value = unsafe { value(readers, i, *numbered, &mut datum) };
            match value.and_then(|value| value.map_or(Ok(true), |value| encoder.add(row, i, value))) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(fault) => fail_of(fault, encoder),
            }
        }
        Some(row)
    }

    /// The score of a row by a model's weights, the last of which is the intercept, without encoding it first; `None` if
    /// it is to be left out.
    ///
    /// # Safety
    /// As for `encode`.
    pub unsafe fn score(
        &mut self,
        weights: &[f32],
        mut datum: impl FnMut(usize) -> Option<pg_sys::Datum>,
    ) -> Option<f64> {
        let Self { encoder, readers, numbered, .. } = self;
        let (intercept, weights) = weights.split_last()?;
        let mut sum = f64::from(*intercept);
        for (i, numbered) in numbered.iter().enumerate() {
            // SAFETY: by contract.
            let value =
                unsafe { value(readers, i, *numbered, &mut datum) }.unwrap_or_else(|fault| fail_of(fault, encoder));
            if let Some(value) = value {
                sum += encoder.score(weights, i, value).unwrap_or_else(|fault| fail_of(fault, encoder))?;
            }
        }
        Some(sum)
    }
}

/// Names of the columns.
pub fn names(encoding: &Encoding) -> String {
    encoding.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
}

const CHOICES: &str = "Choose on_null => 'skip', 'mean' or 'zero', or for the column alone encode => '{\"column\": {\"on_null\": \"mean\", \"is_null\": true}}'.";

/// Raises the error of a row at prediction.
#[cold]
fn fail_of(fault: Fault, encoder: &Encoder) -> ! {
    fail(fault, |i| encoder.encoding().columns[i].name.clone(), "", encoder)
}

/// Raises the error of a row.
fn fail(fault: Fault, name: impl Fn(usize) -> String, place: &str, encoder: &Encoder) -> ! {
    match fault {
        Fault::Null(i) => error::fail(
            PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
            format!("column \"{}\" is NULL{place}", name(i)),
            Some("The model was trained with on_null => 'error'. Train it with on_null => 'skip', 'mean' or 'zero'."),
        ),
        Fault::NotFinite(i) => error::fail(
            PgSqlErrorCode::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
            format!("column \"{}\" is NaN, infinite, or too large to be scaled{place}", name(i)),
            Some("Leave such rows out, or make the value NULL."),
        ),
        Fault::Dimensions(i) => error::fail(
            PgSqlErrorCode::ERRCODE_DATA_EXCEPTION,
            format!("the array in column \"{}\" has more than one dimension{place}", name(i)),
            None,
        ),
        Fault::Numbers(i) => error::fail(
            PgSqlErrorCode::ERRCODE_DATA_EXCEPTION,
            format!(
                "the elements of column \"{}\" are not numbered by ascending numbers from 1, one for each{place}",
                name(i)
            ),
            None,
        ),
        Fault::Memory(i) => error::fail(
            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            format!("the array in column \"{}\" has more elements than there is memory for{place}", name(i)),
            Some("Raise corgipile.memory_limit."),
        ),
        Fault::Length(i, len) => {
            let expected = encoder.encoding().columns.get(i).map_or(0, Column::own_width);
            error::fail(
                PgSqlErrorCode::ERRCODE_DATA_EXCEPTION,
                format!("the array in column \"{}\" has {len} elements instead of {expected}{place}", name(i)),
                None,
            )
        }
    }
}

pg_function!(
    /// corgipile.encode_sparse(encoding, columns…) → bytea: the features of a row that are not 0; NULL if it is to be left out.
    corgipile_encode_sparse,
    pg_finfo_corgipile_encode_sparse,
    encode_sparse
);
pg_function!(
    /// corgipile.encode_dense(encoding, columns…) → real[]: all features of a row; NULL if it is to be left out.
    corgipile_encode_dense,
    pg_finfo_corgipile_encode_dense,
    encode_dense
);

unsafe fn encode_sparse(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    unsafe { encode(call, true) }
}

unsafe fn encode_dense(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    unsafe { encode(call, false) }
}

/// The encoding in the first argument, which must be the same for all rows.
unsafe fn encoding_of(call: Call, sparse: bool) -> Option<Encoding> {
    let refuse = |what: &str| -> ! {
        error::fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("the encoding cannot be used: {what}"),
            Some("corgipile.model_info(model) -> 'encoding' is what a training has learnt."),
        )
    };
    // SAFETY: a jsonb argument.
    let JsonB(json) = call.get(0).and_then(|datum| unsafe { JsonB::from_datum(datum, false) })?;
    // SAFETY: a valid call frame.
    if !unsafe { pg_sys::get_fn_expr_arg_stable((*call.0).flinfo, 0) } {
        refuse("it may differ from row to row");
    }
    let encoding: Encoding = serde_json::from_value(json).unwrap_or_else(|e| refuse(&e.to_string()));
    encoding.check().unwrap_or_else(|e| refuse(&e.to_string()));
    if encoding.sparse != sparse {
        refuse(if sparse { "it is dense: use encode_dense" } else { "it is sparse: use encode_sparse" });
    }
    Some(encoding)
}

unsafe fn encode(call: Call, sparse: bool) -> pg_sys::Datum {
    // SAFETY: fn_extra is ours; what it points to lives in the function's memory context and is dropped with it.
    let (encoder, columns) = unsafe {
        let flinfo = (*call.0).flinfo;
        if (*flinfo).fn_extra.is_null() {
            let Some(encoding) = encoding_of(call, sparse) else { return call.null() };
            let Some(columns) = Spread::new(call, 1, (*flinfo).fn_mcxt) else { return call.null() };
            let site = (RowEncoder::new(encoding, columns.types()), columns);
            (*flinfo).fn_extra = PgMemoryContexts::For((*flinfo).fn_mcxt).leak_and_drop_on_delete(site).cast();
        }
        let site = &mut *(*flinfo).fn_extra.cast::<(RowEncoder, Spread)>();
        (&mut site.0, &mut site.1)
    };
    // SAFETY: the columns have the types that the encoder was made for.
    let encoded = unsafe { if columns.read(call) { encoder.encode(|i| columns.get(call, i)) } else { None } };
    let Some(row) = encoded else { return call.null() };
    // SAFETY: palloc gives what is asked for, or raises an error; all of it is written.
    unsafe {
        if sparse {
            // See `Decoder::packed`.
            let n = row.indices.len();
            let bytes = pg_sys::VARHDRSZ + 8 * n;
            let packed = pg_sys::palloc(bytes).cast::<u8>();
            pgrx::set_varsize_4b(packed.cast(), bytes as i32);
            let numbers = packed.add(pg_sys::VARHDRSZ).cast::<u32>();
            for (i, index) in row.indices.iter().enumerate() {
                numbers.add(i).write_unaligned(index + 1);
            }
            numbers.add(n).cast::<f32>().copy_from_nonoverlapping(row.values.as_ptr(), n);
            pg_sys::Datum::from(packed)
        } else {
            let n = row.values.len();
            // Header, dimensions and lower bound of one dimension without NULLs (array.h).
            let bytes = 24 + 4 * n;
            let array = pg_sys::palloc(bytes).cast::<i32>();
            pgrx::set_varsize_4b(array.cast(), bytes as i32);
            let words = [1, 0, pg_sys::FLOAT4OID.to_u32() as i32, n as i32, 1];
            array.add(1).copy_from_nonoverlapping(words.as_ptr(), words.len());
            array.add(6).cast::<f32>().copy_from_nonoverlapping(row.values.as_ptr(), n);
            pg_sys::Datum::from(array)
        }
    }
}

/// What the aggregate is told, as jsonb.
#[derive(serde::Deserialize)]
struct Request {
    /// Names of the columns, types, and labels of enums.
    columns: Vec<Asked>,
    /// The mapping `encode`.
    encode: Option<Json>,
    on_null: Option<OnNull>,
    /// Were the columns named by the user?
    named: bool,
}

#[derive(serde::Deserialize)]
struct Asked {
    name: String,
    #[serde(default)]
    labels: Vec<String>,
    /// Does it number the elements of the next one?
    #[serde(default)]
    numbers: bool,
}

/// The aggregate's state.
struct Learning {
    learner: Learner,
    readers: Vec<Reader>,
    names: Vec<String>,
    rows: u64,
    columns: Spread,
}

impl Learning {
    fn new(call: Call, context: pg_sys::MemoryContext) -> Self {
        types::require_utf8();
        // SAFETY: a jsonb argument.
        let request = call.get(1).and_then(|datum| unsafe { JsonB::from_datum(datum, false) });
        let request: Option<Request> = request.and_then(|JsonB(json)| serde_json::from_value(json).ok());
        // SAFETY: the aggregate's context outlives its state.
        let spread = unsafe { Spread::new(call, 4, context) };
        let spread =
            spread.unwrap_or_else(|| error::internal("corgipile.learn_encoding was called with other arguments"));
        let given = spread.types();
        let Some(request) = request.filter(|request| request.columns.len() == given.len()) else {
            error::internal("corgipile.learn_encoding was called with other arguments")
        };
        let wishes = request.encode.as_ref().map(Wish::parse_all).transpose().unwrap_or_else(|e| error::raise(e));
        let mut wishes = wishes.unwrap_or_default();
        let (mut columns, mut readers, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for (i, Asked { name, labels, numbers }) in request.columns.into_iter().enumerate() {
            let oid = given[i];
            let wish = wishes.remove(&name).unwrap_or_default();
            let own = values::nature(oid).unwrap_or(Nature::Category);
            let read = if numbers { Nature::Numbers } else { wish.nature(own) };
            let Some(reader) = Reader::new(oid, read) else { unusable(&name, oid) };
            let is_numbered = readers.last().is_some_and(Reader::is_numbers);
            let nature = if is_numbered { Nature::Sparse } else { read };
            let sql_type = types::type_name(oid);
            names.push(name.clone());
            readers.push(reader);
            columns.push(Learnt { name, sql_type, nature, labels, wish, named: request.named });
        }
        let learner = Learner::new(columns, Settings::read().memory_limit / 4, request.on_null);
        Self { learner, readers, names, rows: 0, columns: spread }
    }

    unsafe fn add(&mut self, call: Call) {
        self.rows += 1;
        if self.rows.is_multiple_of(1024) {
            check_for_interrupts!();
        }
        self.learner.next_row();
        let place = call.get(2).zip(call.get(3)).map(|(tid, table)| {
            // SAFETY: a tid argument.
            let tid = unsafe { *tid.cast_mut_ptr::<pg_sys::ItemPointerData>() };
            let page = (u32::from(tid.ip_blkid.bi_hi) << 16) | u32::from(tid.ip_blkid.bi_lo);
            Place { table: table.value() as u32, page, line: tid.ip_posid }
        });
        // SAFETY: a call of the same aggregate.
        if !unsafe { self.columns.read(call) } {
            return;
        }
        for i in 0..self.readers.len() {
            let numbered = i > 0 && self.readers[i - 1].is_numbers();
            // SAFETY: columns of the readers' types.
            let value = unsafe { value(&mut self.readers, i, numbered, |i| self.columns.get(call, i)) };
            let learner = &mut self.learner;
            let added = value.and_then(|value| value.map_or(Ok(()), |value| learner.add(i, value, place)));
            if let Err(fault) = added {
                let place = place.map_or_else(String::new, |place| format!(" in the row {}", in_words(place)));
                let nothing = Encoder::new(Encoding { columns: Vec::new(), sparse: false });
                if let Fault::Length(i, len) = fault {
                    error::fail(
                        PgSqlErrorCode::ERRCODE_DATA_EXCEPTION,
                        format!(
                            "the array in column \"{}\" has {len} elements{place}, and others another number",
                            self.names[i]
                        ),
                        Some("Arrays that are features have the same length in every row, and at least one element."),
                    );
                }
                fail(fault, |i| self.names[i].clone(), &place, &nothing);
            }
        }
    }

    fn finish(self) -> Json {
        if let Some(first) = self.learner.nulls().first() {
            let place = first.first.map_or_else(String::new, |place| format!(", first in the row {}", in_words(place)));
            error::fail(
                PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
                format!("column \"{}\" is NULL in {} of {} rows{place}", first.column, first.count, self.rows),
                Some(CHOICES),
            );
        }
        let (encoding, left_out) = self.learner.finish().unwrap_or_else(|e| error::raise(e));
        json!({ "encoding": encoding, "left_out": left_out })
    }
}

/// A row's place, for messages.
fn in_words(Place { table, page, line }: Place) -> String {
    let table = relation::qualified_name(pg_sys::Oid::from(table)).unwrap_or_default();
    format!("with ctid ({page},{line}) of table {table}")
}

/// Refuses a column whose type cannot be a feature.
pub fn unusable(name: &str, oid: pg_sys::Oid) -> ! {
    error::fail(
        PgSqlErrorCode::ERRCODE_DATATYPE_MISMATCH,
        format!("column \"{name}\" has type {}, which cannot be a feature", types::type_name(oid)),
        Some(&format!("Features are {}.", values::ACCEPTED)),
    )
}

pg_function!(
    /// Transition function of corgipile.learn_encoding(request, ctid, tableoid, columns…).
    corgipile_learn_transition,
    pg_finfo_corgipile_learn_transition,
    learn_transition
);
pg_function!(
    /// Its final function → jsonb: the encoding, and columns left out with the reason.
    corgipile_learn_final,
    pg_finfo_corgipile_learn_final,
    learn_final
);

unsafe fn learn_transition(call: Call) -> pg_sys::Datum {
    let context = call.aggregate_context("corgipile.learn_encoding");
    let state: *mut Option<Learning> = match call.get(0) {
        Some(state) => state.cast_mut_ptr(),
        None => PgMemoryContexts::For(context).leak_and_drop_on_delete(Some(Learning::new(call, context))),
    };
    // SAFETY: made here; nothing else holds it meanwhile.
    if let Some(learning) = unsafe { &mut *state } {
        // SAFETY: a call of the aggregate.
        unsafe { learning.add(call) };
    }
    pg_sys::Datum::from(state)
}

unsafe fn learn_final(call: Call) -> pg_sys::Datum {
    call.aggregate_context("corgipile.learn_encoding");
    // SAFETY: the state is made by `learn_transition`; nothing else holds it meanwhile.
    let learning = call.get(0).and_then(|state| unsafe { (*state.cast_mut_ptr::<Option<Learning>>()).take() });
    let Some(learning) = learning else { return call.null() };
    JsonB(learning.finish()).into_datum().unwrap_or_else(|| call.null())
}

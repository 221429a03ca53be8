//! Values of columns of any type as `corgipile_core::encoding` takes them.

use super::array::{self, Element, Unusable};
use super::numeric;
use super::types::{self, Vector};
use corgipile_core::encoding::{Nature, Value};
use pgrx::pg_sys;
use std::collections::HashMap;

/// How values of a type are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    /// In the datum itself.
    Word(Word),
    Numeric,
    /// text and varchar: the bytes.
    Bytes,
    /// A label, by its oid.
    Enum,
    TimeWithZone,
    Interval,
    Array(Element),
    /// Of whole numbers, that number the elements of another.
    Numbers(Element),
    /// pgvector's sparsevec.
    SparseVector,
    /// The text form that the type's output function gives.
    Text,
}

/// Numbers that a datum holds, and times as seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Date,
    Moment,
    Time,
}

impl Word {
    #[inline(always)]
    fn number(self, word: usize) -> f64 {
        match self {
            Self::Bool => f64::from(u8::from(word as u8 != 0)),
            Self::Int2 => f64::from(word as i16),
            Self::Int4 => f64::from(word as i32),
            Self::Int8 => word as i64 as f64,
            Self::Float4 => f64::from(f32::from_bits(word as u32)),
            Self::Float8 => f64::from_bits(word as u64),
            // The two ends of time are not numbers.
            Self::Date => match word as i32 {
                i32::MIN | i32::MAX => f64::INFINITY,
                days => f64::from(days) * DAY,
            },
            Self::Moment => match word as i64 {
                i64::MIN | i64::MAX => f64::INFINITY,
                micros => micros as f64 / 1e6,
            },
            Self::Time => word as i64 as f64 / 1e6,
        }
    }
}

/// Seconds of a day; 30 days are a month, as in a comparison of intervals.
const DAY: f64 = 86_400.0;

/// What a column of a type holds, and how it is read; `None` for a type that cannot be a feature.
fn of_type(oid: pg_sys::Oid) -> Option<(Nature, Read)> {
    let base = types::base_type(oid);
    let element = types::element(base);
    Some(match base {
        pg_sys::BOOLOID => (Nature::Number, Read::Word(Word::Bool)),
        pg_sys::INT2OID => (Nature::Number, Read::Word(Word::Int2)),
        pg_sys::INT4OID => (Nature::Number, Read::Word(Word::Int4)),
        pg_sys::INT8OID => (Nature::Number, Read::Word(Word::Int8)),
        pg_sys::FLOAT4OID => (Nature::Number, Read::Word(Word::Float4)),
        pg_sys::FLOAT8OID => (Nature::Number, Read::Word(Word::Float8)),
        pg_sys::NUMERICOID => (Nature::Number, Read::Numeric),
        pg_sys::INTERVALOID => (Nature::Number, Read::Interval),
        pg_sys::TEXTOID | pg_sys::VARCHAROID => (Nature::Category, Read::Bytes),
        pg_sys::BPCHAROID
        | pg_sys::CHAROID
        | pg_sys::NAMEOID
        | pg_sys::UUIDOID
        | pg_sys::INETOID
        | pg_sys::CIDROID
        | pg_sys::MACADDROID => (Nature::Category, Read::Text),
        pg_sys::DATEOID => (Nature::Date, Read::Word(Word::Date)),
        pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID => (Nature::Moment, Read::Word(Word::Moment)),
        pg_sys::TIMEOID => (Nature::TimeOfDay, Read::Word(Word::Time)),
        pg_sys::TIMETZOID => (Nature::TimeOfDay, Read::TimeWithZone),
        _ if element.is_some() => (Nature::Array, Read::Array(element?)),
        _ if types::vector(base) == Some(Vector::Sparse) => (Nature::Sparse, Read::SparseVector),
        // SAFETY: a catalog look-up by oid.
        _ if unsafe { pg_sys::type_is_enum(base) } => (Nature::Ordered, Read::Enum),
        _ => return None,
    })
}

/// What a column of this type holds; `None` for a type that cannot be a feature.
pub fn nature(oid: pg_sys::Oid) -> Option<Nature> {
    of_type(oid).map(|(nature, _)| nature)
}

/// Types that can be features, for messages.
pub const ACCEPTED: &str = "numbers, boolean, text, varchar, char, name, uuid, inet, enums, date, time, timestamp, interval, arrays of numbers, and pgvector's vector, halfvec and sparsevec";

/// As many columns are passed one by one: a function has at most 100 arguments.
const MOST_APART: usize = 90;

/// Columns as the last arguments of a function that takes any number of them.
pub fn spread(columns: &[String]) -> String {
    let list = columns.join(", ");
    if columns.len() > MOST_APART { format!("ROW({list})") } else { list }
}

/// Reads the values of a column.
#[derive(Debug)]
pub struct Reader {
    oid: pg_sys::Oid,
    read: Read,
    /// Text forms of labels that were met, as they were after so many changes of enums.
    labels: HashMap<u32, String>,
    enum_changes: u64,
    text: String,
    elements: Vec<f32>,
    places: Vec<u32>,
}

impl Reader {
    /// For values of a type that are wanted as `wanted`; `None` where they are not such.
    pub fn new(oid: pg_sys::Oid, wanted: Nature) -> Option<Self> {
        let (nature, read) = of_type(oid)?;
        let read = match wanted {
            _ if nature == wanted => read,
            Nature::Numbers => match read {
                Read::Array(element) if element.is_integer() => Read::Numbers(element),
                _ => return None,
            },
            // Anything has a text form, but of an array nobody wants it.
            Nature::Category | Nature::Ordered if !matches!(nature, Nature::Array | Nature::Sparse) => match read {
                Read::Bytes | Read::Enum => read,
                _ => Read::Text,
            },
            _ => return None,
        };
        Some(Self {
            oid,
            read,
            labels: HashMap::new(),
            enum_changes: types::enum_changes(),
            text: String::new(),
            elements: Vec::new(),
            places: Vec::new(),
        })
    }

    /// Whether values number the elements of the next column.
    pub fn is_numbers(&self) -> bool {
        matches!(self.read, Read::Numbers(_))
    }

    /// A value; `None` for NULL, also of an element of an array.
    ///
    /// # Safety
    /// `datum` is of the reader's type, and lives as long as the result.
    #[inline(always)]
    pub unsafe fn value(&mut self, datum: Option<pg_sys::Datum>) -> Value<'_> {
        let Some(datum) = datum else { return Value::Null };
        match self.read {
            Read::Word(read) => Value::Number(read.number(datum.value())),
            // SAFETY: by contract; what is plain is read where it lies, without a call of the server.
            Read::Bytes if unsafe { !array::is_toasted(datum) } => unsafe {
                let (at, len) = array::content(datum.cast_mut_ptr());
                Value::Text(core::slice::from_raw_parts(at, len))
            },
            // SAFETY: by contract.
            _ => unsafe { self.value_of_other(datum) },
        }
    }

    /// A value of any type; out of line, so that the usual ones are not held up.
    ///
    /// # Safety
    /// As for `value`.
    unsafe fn value_of_other(&mut self, datum: pg_sys::Datum) -> Value<'_> {
        let word = datum.value();
        // SAFETY: by contract, in each arm the type is the one that is read.
        unsafe {
            Value::Number(match self.read {
                Read::Word(read) => read.number(word),
                Read::Numeric => {
                    let plain = (!array::is_toasted(datum)).then(|| {
                        let (at, len) = array::content(datum.cast_mut_ptr());
                        numeric::to_double(core::slice::from_raw_parts(at, len))
                    });
                    plain.flatten().unwrap_or_else(|| {
                        let double = pg_sys::DirectFunctionCall1Coll(
                            Some(numeric_float8_no_overflow),
                            pg_sys::InvalidOid,
                            datum,
                        );
                        f64::from_bits(double.value() as u64)
                    })
                }
                Read::TimeWithZone => {
                    let time = &*datum.cast_mut_ptr::<pg_sys::TimeTzADT>();
                    (time.time as f64 / 1e6 + f64::from(time.zone)).rem_euclid(DAY)
                }
                Read::Interval => {
                    let interval = &*datum.cast_mut_ptr::<pg_sys::Interval>();
                    interval.time as f64 / 1e6 + (f64::from(interval.day) + 30.0 * f64::from(interval.month)) * DAY
                }
                Read::Bytes => return Value::Text(types::varlena_bytes(datum)),
                Read::Enum => {
                    let oid = self.oid;
                    let changes = types::enum_changes();
                    if std::mem::replace(&mut self.enum_changes, changes) != changes {
                        self.labels.clear();
                    }
                    let label = self.labels.entry(word as u32).or_insert_with(|| types::text_of(datum, oid));
                    return Value::Text(label.as_bytes());
                }
                Read::Text => {
                    // A moment in UTC, whatever the session's time zone.
                    let oid = if types::base_type(self.oid) == pg_sys::TIMESTAMPTZOID {
                        pg_sys::TIMESTAMPOID
                    } else {
                        self.oid
                    };
                    self.text = types::text_of(datum, oid);
                    // char(n) is padded.
                    return Value::Text(self.text.trim_end_matches(' ').as_bytes());
                }
                Read::Array(element) | Read::Numbers(element) => {
                    let opened = array::open(
                        pg_sys::Datum::from(pg_sys::pg_detoast_datum(datum.cast_mut_ptr())),
                        element,
                        pg_sys::CurrentMemoryContext,
                    );
                    let opened = match opened {
                        Ok(opened) => opened,
                        Err(Unusable::NullAt(_)) => return Value::Null,
                        Err(Unusable::Dimensions(_) | Unusable::Corrupt) => return Value::Nested,
                    };
                    if self.is_numbers() {
                        resize(&mut self.places, opened.len);
                        for (i, place) in self.places.iter_mut().enumerate() {
                            let number = array::integer_at(opened, element, i);
                            *place = number.checked_sub(1).and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX);
                        }
                        return Value::Numbers(&self.places);
                    }
                    resize(&mut self.elements, opened.len);
                    // What is not finite is found by whoever takes it.
                    array::copy_values(opened, element, self.elements.as_mut_ptr());
                    return Value::Array(&self.elements);
                }
                Read::SparseVector => {
                    let bytes = types::varlena_bytes(datum);
                    return self.sparse_vector(bytes).unwrap_or(Value::Null);
                }
            })
        }
    }

    /// A sparsevec: three words (dimensions, elements that are not 0, nothing), the places of these from 0, ascending,
    /// and their values. `None` for other bytes.
    fn sparse_vector(&mut self, bytes: &[u8]) -> Option<Value<'_>> {
        let (words, rest) = bytes.as_chunks::<4>();
        let word = |i: usize| words.get(i).map(|word| i32::from_le_bytes(*word));
        let (len, filled) = (u32::try_from(word(0)?).ok()?, usize::try_from(word(1)?).ok()?);
        if !rest.is_empty() || words.len() != 3 + 2 * filled {
            return None;
        }
        let (places, values) = words[3..].split_at(filled);
        resize(&mut self.places, filled);
        resize(&mut self.elements, filled);
        for (to, from) in self.places.iter_mut().zip(places) {
            *to = u32::from_le_bytes(*from);
        }
        for (to, from) in self.elements.iter_mut().zip(values) {
            *to = f32::from_le_bytes(*from);
        }
        let ascending = self.places.windows(2).all(|pair| pair[0] < pair[1]);
        let inside = self.places.last().is_none_or(|last| *last < len);
        (ascending && inside).then_some(Value::Sparse(len, &self.places, &self.elements))
    }
}

/// Makes room, or raises an error.
fn resize<T: Copy + Default>(vec: &mut Vec<T>, len: usize) {
    let more = len.saturating_sub(vec.len());
    if vec.try_reserve(more).is_err() {
        crate::error::raise(corgipile_core::Error::OutOfMemory {
            bytes: more * size_of::<T>(),
            purpose: "the elements of an array",
        });
    }
    vec.resize(len, T::default());
}

unsafe extern "C-unwind" {
    fn numeric_float8_no_overflow(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum;
}

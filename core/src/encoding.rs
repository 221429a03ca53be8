//! Columns as people have them, as features: how each column's values become numbers, learnt in one pass over the
//! table and kept in the model.
//!
//! Numbers are centred and scaled, (x − mean) / deviation, in double precision before they are rounded to single.
//! Categories become one feature each, the rare ones one together; where there are too many, the feature is found by
//! a hash. Labels that have an order become their rank. A time becomes seconds, centred and scaled, and sine and cosine
//! of its place in the day, the week and the year. An array becomes a feature for each element.

use crate::circle::on_circle;
use crate::short;
use crate::{Error, Result};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::collections::HashMap;
use std::ops::Range;

/// Categories of a column that get a feature each unless more are asked for; more than that are hashed.
pub const MOST_CATEGORIES: usize = 1000;
/// Buckets of a hash at most.
const MOST_BUCKETS: u32 = 1 << 24;
/// A column of which more than this part of the values occurs once says nothing of other rows.
const DISTINCT: f64 = 0.9;
const FEW_ROWS: u64 = 100;

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// A number.
    Number,
    /// Text, or anything else of which only equality counts.
    Category,
    /// Labels in an order.
    Ordered,
    /// A day, in seconds.
    Date,
    /// A moment, in seconds.
    Moment,
    /// A time of day, in seconds.
    TimeOfDay,
    /// An array of numbers.
    Array,
    /// Numbers of which most are 0.
    Sparse,
    /// An array that numbers the elements, from 1, of the array in the next column.
    Numbers,
}

/// A value of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// A number, or a time in seconds.
    Number(f64),
    /// The text form of a category.
    Text(&'a [u8]),
    /// The elements of an array.
    Array(&'a [f32]),
    /// An array that has not one dimension.
    Nested,
    /// The length, and of the elements that are not 0 the places from 0, ascending, and the values.
    Sparse(u32, &'a [u32], &'a [f32]),
    /// Places from 0; `u32::MAX` for what is none.
    Numbers(&'a [u32]),
    /// As `Sparse`, of any length.
    Pair(&'a [u32], &'a [f32]),
}

impl<'a> Value<'a> {
    /// The array `elements` of column `number`, whose elements are numbered by the array `numbers`.
    pub fn paired(numbers: Self, elements: Self, number: usize) -> std::result::Result<Self, Fault> {
        match (numbers, elements) {
            (Self::Null, _) | (_, Self::Null) => Ok(Self::Null),
            (Self::Nested, _) => Err(Fault::Dimensions(number.saturating_sub(1))),
            (_, Self::Nested) => Ok(Self::Nested),
            (Self::Numbers(places), Self::Array(elements))
                if places.len() == elements.len()
                    && places.windows(2).all(|pair| pair[0] < pair[1])
                    && places.last().is_none_or(|last| *last < u32::MAX) =>
            {
                Ok(Self::Pair(places, elements))
            }
            _ => Err(Fault::Numbers(number)),
        }
    }
}

impl Value<'_> {
    /// NULL for NaN, where NULL is no error.
    #[inline(always)]
    fn or_null(self, on_null: OnNull) -> Self {
        let nan = match self {
            _ if on_null == OnNull::Error => false,
            Self::Number(x) => x.is_nan(),
            Self::Array(elements) | Self::Sparse(_, _, elements) | Self::Pair(_, elements) => {
                elements.iter().any(|x| x.is_nan())
            }
            Self::Null | Self::Text(_) | Self::Nested | Self::Numbers(_) => false,
        };
        if nan { Self::Null } else { self }
    }
}

/// What a NULL means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnNull {
    /// An error.
    Error,
    /// The row is left out, and has no prediction.
    Skip,
    /// The mean of the column.
    Mean,
    /// 0.
    Zero,
    /// A category of its own.
    Category,
}

impl OnNull {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "error" => Self::Error,
            "skip" => Self::Skip,
            "mean" => Self::Mean,
            "zero" => Self::Zero,
            _ => return None,
        })
    }
}

/// Centre and scale of a number; a deviation of 0 means that it had one value only, and says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
}

/// What a scale does: (x − mean) · factor.
#[derive(Debug, Clone, Copy)]
struct Line {
    mean: f64,
    factor: f64,
}

impl Line {
    fn of(scale: &Scale) -> Self {
        let factor = if scale.deviation > 0.0 { scale.deviation.recip().min(f64::MAX) } else { 0.0 };
        Self { mean: scale.mean, factor }
    }

    fn apply(&self, x: f64) -> f64 {
        (x - self.mean) * self.factor
    }
}

/// A period of which sine and cosine are features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// 24 hours.
    Day,
    /// 7 days.
    Week,
    /// 365.2425 days.
    Year,
}

impl Period {
    /// Its length.
    pub fn seconds(self) -> f64 {
        match self {
            Self::Day => 86_400.0,
            Self::Week => 7.0 * 86_400.0,
            Self::Year => 365.2425 * 86_400.0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Year => "year",
        }
    }
}

/// How a column becomes features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One: the number.
    Number(Scale),
    /// One for each of these, sorted, then one for all others if there were any. What was never seen has none.
    OneHot {
        /// Text forms.
        values: Vec<String>,
        /// Did rare ones go together?
        other: bool,
    },
    /// One of so many, found by the hash of the text form: see [`bucket`].
    Hash {
        /// How many.
        buckets: u32,
    },
    /// One: the rank of these labels.
    Ordinal {
        /// Labels in their order.
        values: Vec<String>,
        /// Of the ranks, from 0.
        scale: Scale,
    },
    /// Seconds (where `scale` is there), and two for each period.
    Time {
        /// Of the seconds.
        scale: Option<Scale>,
        /// Periods.
        periods: Vec<Period>,
    },
    /// One for each element.
    Array(Vec<Scale>),
    /// One for each of so many elements, as they are: what is 0 stays 0.
    Sparse {
        /// How many.
        len: u32,
    },
    /// None: an array that numbers the elements of the array in the next column, which is `Sparse`.
    Numbers,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// SQL name of its type.
    #[serde(rename = "type")]
    pub sql_type: String,
    /// How it becomes features.
    pub kind: Kind,
    /// What NULL means.
    pub on_null: OnNull,
    /// Is there one more feature that is 1 for NULL?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_null: bool,
}

impl Column {
    /// Features without the one for NULL.
    pub fn own_width(&self) -> usize {
        match &self.kind {
            Kind::Number(_) | Kind::Ordinal { .. } => 1,
            Kind::OneHot { values, other } => values.len() + usize::from(*other),
            Kind::Hash { buckets } => *buckets as usize,
            Kind::Time { scale, periods } => usize::from(scale.is_some()) + 2 * periods.len(),
            Kind::Array(scales) => scales.len(),
            Kind::Sparse { len } => *len as usize,
            Kind::Numbers => 0,
        }
    }

    /// Whether there is one more feature, the last, for NULL.
    pub fn has_null_feature(&self) -> bool {
        self.is_null || self.on_null == OnNull::Category
    }

    /// Features of the column.
    pub fn width(&self) -> usize {
        self.own_width() + usize::from(self.has_null_feature())
    }

    /// Features of a row that are not 0, at most.
    fn filled(&self) -> usize {
        match &self.kind {
            Kind::OneHot { .. } | Kind::Hash { .. } => 1,
            // Few: that is why they are kept so.
            Kind::Sparse { len } => (*len as usize).div_ceil(16),
            _ => self.width(),
        }
    }

    /// How it becomes features, in words.
    pub fn description(&self) -> String {
        let kind = match &self.kind {
            Kind::Number(scale) | Kind::Ordinal { scale, .. } if scale.deviation == 0.0 => "one value only".into(),
            Kind::Number(_) => "number".into(),
            Kind::OneHot { values, other } => {
                format!("one of {}{}", values.len(), if *other { " or other" } else { "" })
            }
            Kind::Hash { buckets } => format!("hash of {buckets}"),
            Kind::Ordinal { values, .. } => format!("rank of {}", values.len()),
            Kind::Time { scale, periods } => {
                let names = scale.iter().map(|_| "seconds").chain(periods.iter().map(|period| period.name()));
                names.collect::<Vec<_>>().join(" ")
            }
            Kind::Array(scales) => format!("array of {}", scales.len()),
            Kind::Sparse { len } => format!("sparse array of {len}"),
            Kind::Numbers => "numbers of the next column's elements".into(),
        };
        if self.is_null { format!("{kind} and whether NULL") } else { kind }
    }

    /// Name of feature `i` of the column, and the scale of its values.
    fn feature(&self, i: usize) -> (String, Option<Scale>) {
        let name = &self.name;
        if i >= self.own_width() {
            return (format!("{name} is null"), None);
        }
        match &self.kind {
            Kind::Number(scale) | Kind::Ordinal { scale, .. } => (name.clone(), Some(*scale)),
            Kind::OneHot { values, .. } => match values.get(i) {
                Some(value) => (format!("{name}={value}"), None),
                None => (format!("{name}=(other)"), None),
            },
            Kind::Hash { .. } => (format!("{name}#{i}"), None),
            Kind::Time { scale, periods } => {
                let at = i - usize::from(scale.is_some()).min(i);
                match scale {
                    Some(scale) if i == 0 => (format!("{name} in seconds"), Some(*scale)),
                    _ => {
                        let period = periods.get(at / 2).map_or("", |period| period.name());
                        (format!("{name} {} of {period}", if at.is_multiple_of(2) { "sine" } else { "cosine" }), None)
                    }
                }
            }
            Kind::Array(scales) => (format!("{name}[{}]", i + 1), scales.get(i).copied()),
            Kind::Sparse { .. } | Kind::Numbers => (format!("{name}[{}]", i + 1), None),
        }
    }
}

/// How a row becomes features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Encoding {
    /// The columns, in the order of their features.
    pub columns: Vec<Column>,
    /// Are most features of a row 0?
    pub sparse: bool,
}

/// Features of a row at most: numbers of features fit into 31 bits with room for one more column.
const MOST_FEATURES: usize = 1 << 30;
/// And where all of them are written out.
const MOST_DENSE: usize = 1 << 24;

impl Encoding {
    /// Whether it can be used, wherever it comes from.
    pub fn check(&self) -> Result<()> {
        let bad = |what: String| Error::BadModel(what);
        let mut width = 0usize;
        for (i, column) in self.columns.iter().enumerate() {
            let next = self.columns.get(i + 1).map(|next| &next.kind);
            if column.kind == Kind::Numbers && !matches!(next, Some(Kind::Sparse { .. })) {
                return Err(bad(format!("column \"{}\" numbers the elements of none", column.name)));
            }
            if column.kind == Kind::Numbers && column.is_null {
                return Err(bad(format!("column \"{}\" numbers elements, and has no feature for NULL", column.name)));
            }
            let buckets = if let Kind::Hash { buckets } = column.kind { buckets } else { 1 };
            if !(1..=MOST_BUCKETS).contains(&buckets) {
                return Err(bad(format!("column \"{}\" is hashed into {buckets} buckets", column.name)));
            }
            width = width.saturating_add(column.width());
        }
        if width > MOST_FEATURES || (!self.sparse && width > MOST_DENSE) {
            return Err(bad(format!("its columns become {width} features")));
        }
        Ok(())
    }

    /// Features of a row.
    pub fn width(&self) -> usize {
        self.columns.iter().map(Column::width).sum()
    }

    /// The features that are scaled, or need not be, as ranges of their numbers: all but elements that are kept as they are.
    pub fn scaled(&self) -> Vec<Range<u32>> {
        let mut first = 0;
        let ranges = self.columns.iter().filter_map(|column| {
            let (from, own) = (first, column.own_width() as u32);
            first += column.width() as u32;
            let from = if matches!(column.kind, Kind::Sparse { .. }) { from + own } else { from };
            (from < first).then_some(from..first)
        });
        ranges.collect()
    }

    /// Column, name and scale of a feature, counted from 0.
    pub fn feature(&self, feature: usize) -> Option<(&Column, String, Option<Scale>)> {
        let mut at = feature;
        for column in &self.columns {
            if at < column.width() {
                let (name, scale) = column.feature(at);
                return Some((column, name, scale));
            }
            at -= column.width();
        }
        None
    }
}

/// The bucket of a text: FNV-1a of its bytes with 64 bits, both halves together, modulo the number of buckets. This
/// never changes: models depend on it.
pub fn bucket(text: &[u8], buckets: u32) -> u32 {
    let hash = text
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    ((hash >> 32) as u32 ^ hash as u32) % buckets.max(1)
}

/// Why a row cannot be encoded: the column, by number, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// NULL.
    Null(usize),
    /// NaN or infinity.
    NotFinite(usize),
    /// An array of this length, where another was learnt.
    Length(usize, usize),
    /// An array of more than one dimension.
    Dimensions(usize),
    /// More elements than there is memory for.
    Memory(usize),
    /// Numbers of elements that are not ascending from 1, or not one for each element.
    Numbers(usize),
}

/// An encoded row: features that are not 0, by number and value, ascending; all of them where it is dense.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// Numbers from 0; unused where dense.
    pub indices: Vec<u32>,
    /// Values.
    pub values: Vec<f32>,
}

/// Encodes rows.
#[derive(Debug)]
pub struct Encoder {
    encoding: Encoding,
    width: usize,
    /// What is kept ready for each column.
    columns: Vec<Ready>,
}

#[derive(Debug)]
struct Ready {
    /// Number of its first feature, and how many it has but for NULL.
    first: u32,
    own: u32,
    /// The place of each category or label.
    places: Places,
    /// Of a number, ranks or seconds one; of an array one for each element.
    lines: Vec<Line>,
    /// Turns in a second, for each period.
    turns: Vec<f64>,
}

/// Categories or labels by what they are. Most are short.
#[derive(Debug, Default)]
struct Places {
    short: FxHashMap<(usize, [u64; 2]), u32>,
    long: FxHashMap<Box<[u8]>, u32>,
}

impl Places {
    fn of(values: &[String]) -> Self {
        let mut this = Self::default();
        for (i, value) in (0..).zip(values) {
            match short::words(value.as_bytes()) {
                Some(words) => this.short.insert((value.len(), words), i),
                None => this.long.insert(value.as_bytes().into(), i),
            };
        }
        this
    }

    #[inline(always)]
    fn get(&self, value: &[u8]) -> Option<u32> {
        match short::words(value) {
            Some(words) => self.short.get(&(value.len(), words)),
            None => self.long.get(value),
        }
        .copied()
    }
}

impl Encoder {
    /// For an encoding.
    pub fn new(encoding: Encoding) -> Self {
        let mut first = 0;
        let columns = encoding.columns.iter().map(|column| {
            let mut ready = Ready {
                first,
                own: column.own_width() as u32,
                places: Places::default(),
                lines: Vec::new(),
                turns: Vec::new(),
            };
            if let Kind::OneHot { values, .. } | Kind::Ordinal { values, .. } = &column.kind {
                ready.places = Places::of(values);
            }
            match &column.kind {
                Kind::Number(scale) | Kind::Ordinal { scale, .. } => ready.lines.push(Line::of(scale)),
                Kind::Time { scale, periods } => {
                    ready.lines.extend(scale.iter().map(Line::of));
                    ready.turns.extend(periods.iter().map(|period| period.seconds().recip()));
                }
                Kind::Array(scales) => ready.lines.extend(scales.iter().map(Line::of)),
                Kind::OneHot { .. } | Kind::Hash { .. } | Kind::Sparse { .. } | Kind::Numbers => {}
            }
            first += column.width() as u32;
            ready
        });
        let columns = columns.collect();
        Self { width: encoding.width(), encoding, columns }
    }

    /// The encoding.
    pub fn encoding(&self) -> &Encoding {
        &self.encoding
    }

    /// Begins a row.
    pub fn begin(&self, row: &mut Row) {
        row.indices.clear();
        row.values.clear();
        if !self.encoding.sparse {
            row.values.resize(self.width, 0.0);
        }
    }

    /// Encodes one value of a row, the columns in order; false: the row is to be left out.
    #[inline]
    pub fn add(&self, row: &mut Row, number: usize, value: Value<'_>) -> std::result::Result<bool, Fault> {
        let sparse = self.encoding.sparse;
        self.features(number, value, |feature, x| {
            let x = x as f32;
            if sparse {
                if x != 0.0 {
                    row.indices.push(feature);
                    row.values.push(x);
                }
            } else if let Some(place) = row.values.get_mut(feature as usize) {
                *place = x;
            }
        })
    }

    /// What one value adds to a score of which `weights` are the weights; `None`: the row has no score.
    #[inline]
    pub fn score(&self, weights: &[f32], number: usize, value: Value<'_>) -> std::result::Result<Option<f64>, Fault> {
        let mut sum = 0.0;
        let scored = self.features(number, value, |feature, x| {
            sum += weights.get(feature as usize).map_or(0.0, |weight| f64::from(*weight) * x);
        })?;
        Ok(scored.then_some(sum))
    }

    /// Gives the features of a value to `put`, those at least that are not 0, in ascending order; false: the row is to
    /// be left out.
    #[inline(always)]
    fn features(
        &self,
        number: usize,
        value: Value<'_>,
        mut put: impl FnMut(u32, f64),
    ) -> std::result::Result<bool, Fault> {
        let (Some(column), Some(ready)) = (self.encoding.columns.get(number), self.columns.get(number)) else {
            return Ok(true);
        };
        let Ready { first, own, places, lines, turns } = ready;
        let value = value.or_null(column.on_null);
        let finite = |x: f64| if x.is_finite() { Ok(x) } else { Err(Fault::NotFinite(number)) };
        let number_of = |value| if let Value::Number(x) = value { finite(x) } else { Ok(0.0) };
        let text = if let Value::Text(text) = value { text } else { &[] };
        match (&column.kind, value) {
            (Kind::Numbers, _) => {}
            (_, Value::Null) => {
                match column.on_null {
                    OnNull::Error => return Err(Fault::Null(number)),
                    OnNull::Skip => return Ok(false),
                    // A number 0 is one of the user's units; categories and periods have none.
                    OnNull::Zero => (*first..).zip(lines).for_each(|(at, line)| put(at, line.apply(0.0))),
                    // The mean is what is 0.
                    OnNull::Mean | OnNull::Category => {}
                }
                if column.has_null_feature() {
                    put(first + own, 1.0);
                }
            }
            (_, Value::Nested) => return Err(Fault::Dimensions(number)),
            (Kind::Number(_), value) => {
                let x = number_of(value)?;
                if let Some(line) = lines.first() {
                    put(*first, line.apply(x));
                }
            }
            (Kind::OneHot { values, other }, _) => match places.get(text) {
                Some(place) => put(first + place, 1.0),
                None if *other => put(first + values.len() as u32, 1.0),
                None => {}
            },
            (Kind::Hash { buckets }, _) => put(first + bucket(text, *buckets), 1.0),
            // A label that did not exist has no rank: the mean.
            (Kind::Ordinal { .. }, _) => {
                if let (Some(place), Some(line)) = (places.get(text), lines.first()) {
                    put(*first, line.apply(f64::from(place)));
                }
            }
            (Kind::Time { .. }, value) => {
                let seconds = number_of(value)?;
                let mut at = *first;
                if let Some(line) = lines.first() {
                    put(at, line.apply(seconds));
                    at += 1;
                }
                for turns in turns {
                    let (sine, cosine) = on_circle(seconds * turns);
                    put(at, sine);
                    put(at + 1, cosine);
                    at += 2;
                }
            }
            (Kind::Array(_), Value::Array(elements)) => {
                if elements.len() != lines.len() {
                    return Err(Fault::Length(number, elements.len()));
                }
                for ((at, line), x) in (*first..).zip(lines).zip(elements) {
                    put(at, line.apply(finite(f64::from(*x))?));
                }
            }
            (Kind::Sparse { len }, Value::Sparse(own, places, elements)) => {
                if own != *len {
                    return Err(Fault::Length(number, own as usize));
                }
                for (place, x) in places.iter().zip(elements) {
                    put(first + place, finite(f64::from(*x))?);
                }
            }
            // An element that was never seen has weight 0.
            (Kind::Sparse { len }, Value::Pair(places, elements)) => {
                for (place, x) in places.iter().zip(elements) {
                    let x = finite(f64::from(*x))?;
                    if place < len {
                        put(first + place, x);
                    }
                }
            }
            (Kind::Array(_) | Kind::Sparse { .. }, _) => {}
        }
        Ok(true)
    }
}

/// What is asked of a column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    kind: Option<WishedKind>,
    on_null: Option<OnNull>,
    is_null: bool,
    /// The column that numbers the elements of this one.
    indices: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WishedKind {
    Number,
    OneHot(usize),
    Hash(Option<u32>),
    Ordinal,
    Seconds,
    Cyclic,
}

const WISHES: &str = "a mapping of columns to number, one_hot, one_hot:categories, hash, hash:buckets, ordinal, seconds or cyclic, \
     or to {\"encode\": one of these, \"on_null\": error, skip, mean or zero, \"is_null\": true or false, \"indices\": the column that numbers its elements}";

impl Wish {
    /// Whether the text form of the values is needed, whatever their type.
    pub fn nature(&self, own: Nature) -> Nature {
        match self.kind {
            Some(WishedKind::OneHot(_) | WishedKind::Hash(_)) => Nature::Category,
            Some(WishedKind::Ordinal) if own == Nature::Category => Nature::Ordered,
            _ => own,
        }
    }

    /// The column that numbers the elements of this one, if there is one.
    pub fn indices(&self) -> Option<&str> {
        self.indices.as_deref()
    }

    /// Whether anything is asked but what numbers its elements.
    pub fn asks_for_more(&self) -> bool {
        *self != Self { indices: self.indices.clone(), ..Self::default() }
    }

    /// Whether a way to encode it is asked for.
    pub fn asks_for_kind(&self) -> bool {
        self.kind.is_some()
    }

    fn parse(column: &str, json: &Json) -> Result<Self> {
        let bad =
            || Error::BadOption { name: "encode", value: format!("\"{column}\": {json}"), expected: WISHES.into() };
        let kind = |text: &str| -> Result<WishedKind> {
            let (name, parameter) = text.split_once(':').map_or((text, None), |(name, n)| (name, Some(n)));
            let parameter = match parameter {
                None => None,
                Some(n) => Some(n.parse::<u32>().ok().filter(|n| (1..=MOST_BUCKETS).contains(n)).ok_or_else(bad)?),
            };
            Ok(match (name, parameter) {
                ("number", None) => WishedKind::Number,
                ("one_hot", n) => WishedKind::OneHot(n.map_or(usize::MAX, |n| n as usize)),
                ("hash", n) => WishedKind::Hash(n),
                ("ordinal", None) => WishedKind::Ordinal,
                ("seconds", None) => WishedKind::Seconds,
                ("cyclic", None) => WishedKind::Cyclic,
                _ => return Err(bad()),
            })
        };
        match json {
            Json::String(text) => Ok(Self { kind: Some(kind(text)?), ..Self::default() }),
            Json::Object(map) => {
                let mut wish = Self::default();
                for (key, value) in map {
                    match (key.as_str(), value) {
                        ("encode", Json::String(text)) => wish.kind = Some(kind(text)?),
                        ("on_null", Json::String(text)) => wish.on_null = Some(OnNull::parse(text).ok_or_else(bad)?),
                        ("is_null", Json::Bool(is_null)) => wish.is_null = *is_null,
                        ("indices", Json::String(column)) => wish.indices = Some(column.clone()),
                        _ => return Err(bad()),
                    }
                }
                if wish.kind.is_some() && wish.indices.is_some() {
                    return Err(bad());
                }
                Ok(wish)
            }
            _ => Err(bad()),
        }
    }

    /// The wishes of a mapping, by the name of the column.
    pub fn parse_all(json: &Json) -> Result<HashMap<String, Self>> {
        let bad = || Error::BadOption { name: "encode", value: json.to_string(), expected: WISHES.into() };
        let map: &Map<String, Json> = json.as_object().ok_or_else(bad)?;
        map.iter().map(|(column, json)| Ok((column.clone(), Self::parse(column, json)?))).collect()
    }
}

/// A column that is learnt.
#[derive(Debug, Clone)]
pub struct Learnt {
    /// Its name.
    pub name: String,
    /// SQL name of its type.
    pub sql_type: String,
    /// What its values are, as they will be given.
    pub nature: Nature,
    /// The labels of an ordered type.
    pub labels: Vec<String>,
    /// What is asked of it.
    pub wish: Wish,
    /// Is it the user's own choice? Then it is used whatever it holds.
    pub named: bool,
}

/// Running mean and variance (Welford 1962).
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    n: f64,
    mean: f64,
    m2: f64,
}

impl Moments {
    fn add(&mut self, x: f64) {
        self.n += 1.0;
        let delta = x - self.mean;
        self.mean += delta / self.n;
        self.m2 += delta * (x - self.mean);
    }

    fn is_finite(&self) -> bool {
        self.mean.is_finite() && self.m2.is_finite()
    }

    fn scale(&self) -> Scale {
        let deviation = if self.n > 0.0 { (self.m2 / self.n).sqrt() } else { 0.0 };
        // What is left of rounding is no difference between values.
        let varies = deviation > self.mean.abs() * 1e-12 && deviation.is_finite();
        Scale { mean: self.mean, deviation: if varies { deviation } else { 0.0 } }
    }
}

/// Where a row lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The table, by oid: of a partitioned one, the partition.
    pub table: u32,
    /// Its ctid.
    pub page: u32,
    /// Of the page.
    pub line: u16,
}

/// What one column held so far.
#[derive(Debug, Default)]
struct Seen {
    nulls: u64,
    /// Page and line of the first NULL.
    first_null: Option<Place>,
    moments: Moments,
    elements: Vec<Moments>,
    /// Length of sparse arrays.
    sparse: Option<u32>,
    /// Categories, until there is no room for more.
    counts: FxHashMap<Box<[u8]>, u64>,
    crowded: bool,
}

/// Looks at all rows once.
#[derive(Debug)]
pub struct Learner {
    columns: Vec<(Learnt, Seen)>,
    /// What is asked of NULLs in all columns.
    on_null: Option<OnNull>,
    rows: u64,
    bytes: usize,
    limit: usize,
}

/// Bytes of a category beside its text.
const CATEGORY_BYTES: usize = 64;

/// NULLs where they are an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nulls {
    /// The column.
    pub column: String,
    /// How many.
    pub count: u64,
    /// Page and line of the first.
    pub first: Option<Place>,
}

impl Learner {
    /// Of these columns, with at most `limit` bytes for categories. `on_null` is what is asked of all columns.
    pub fn new(columns: Vec<Learnt>, limit: usize, on_null: Option<OnNull>) -> Self {
        let columns = columns.into_iter().map(|column| (column, Seen::default())).collect();
        Self { columns, on_null, rows: 0, bytes: 0, limit }
    }

    /// What column `number` gives its values as.
    pub fn nature(&self, number: usize) -> Nature {
        self.columns.get(number).map_or(Nature::Category, |(column, _)| column.nature)
    }

    /// Another row begins.
    pub fn next_row(&mut self) {
        self.rows += 1;
    }

    /// A value of the row, which is at `place`.
    pub fn add(&mut self, number: usize, value: Value<'_>, place: Option<Place>) -> std::result::Result<(), Fault> {
        let Some((column, seen)) = self.columns.get_mut(number) else { return Ok(()) };
        // Of an enum there are few.
        let enumerated = !column.labels.is_empty();
        match value.or_null(rule(column, self.on_null)) {
            Value::Null => {
                seen.nulls += 1;
                seen.first_null = seen.first_null.or(place);
            }
            Value::Number(x) => {
                if !x.is_finite() {
                    return Err(Fault::NotFinite(number));
                }
                seen.moments.add(x);
                if !seen.moments.is_finite() {
                    return Err(Fault::NotFinite(number));
                }
            }
            Value::Text(text) => {
                if let Some(count) = seen.counts.get_mut(text) {
                    *count += 1;
                } else if !seen.crowded {
                    let bytes = text.len() + CATEGORY_BYTES;
                    // Memory that cannot be had ends the counting as the limit does.
                    let full = !enumerated && self.bytes + bytes > self.limit;
                    if full || seen.counts.try_reserve(1).is_err() {
                        seen.crowded = true;
                    } else {
                        self.bytes += bytes;
                        seen.counts.insert(text.into(), 1);
                    }
                }
            }
            Value::Array(elements) => {
                if seen.elements.is_empty() {
                    let bytes = elements.len().saturating_mul(size_of::<Moments>());
                    if self.bytes.saturating_add(bytes) > self.limit
                        || seen.elements.try_reserve_exact(elements.len()).is_err()
                    {
                        return Err(Fault::Memory(number));
                    }
                    self.bytes += bytes;
                    seen.elements.resize(elements.len(), Moments::default());
                }
                if elements.is_empty() || elements.len() != seen.elements.len() {
                    return Err(Fault::Length(number, elements.len()));
                }
                for (moments, x) in seen.elements.iter_mut().zip(elements) {
                    if !x.is_finite() {
                        return Err(Fault::NotFinite(number));
                    }
                    moments.add(f64::from(*x));
                    if !moments.is_finite() {
                        return Err(Fault::NotFinite(number));
                    }
                }
            }
            Value::Nested => return Err(Fault::Dimensions(number)),
            Value::Sparse(len, _, elements) => {
                if len == 0 || *seen.sparse.get_or_insert(len) != len {
                    return Err(Fault::Length(number, len as usize));
                }
                if !elements.iter().all(|x| x.is_finite()) {
                    return Err(Fault::NotFinite(number));
                }
            }
            Value::Pair(places, elements) => {
                let len = places.last().map_or(0, |last| last + 1);
                seen.sparse = Some(seen.sparse.unwrap_or_default().max(len));
                if !elements.iter().all(|x| x.is_finite()) {
                    return Err(Fault::NotFinite(number));
                }
            }
            Value::Numbers(_) => {}
        }
        Ok(())
    }

    /// NULLs in columns where they are an error.
    pub fn nulls(&self) -> Vec<Nulls> {
        let wrong =
            self.columns.iter().filter(|(column, seen)| seen.nulls > 0 && rule(column, self.on_null) == OnNull::Error);
        wrong
            .map(|(column, seen)| Nulls { column: column.name.clone(), count: seen.nulls, first: seen.first_null })
            .collect()
    }

    /// The encoding, and the columns that are left out because they say nothing, with the reason.
    pub fn finish(self) -> Result<(Encoding, Vec<(String, &'static str)>)> {
        let (mut columns, mut left_out) = (Vec::new(), Vec::new());
        // With a column goes what numbers its elements.
        let mut leave_out = |columns: &mut Vec<Column>, name: String, reason: &'static str| {
            if let Some(numbers) = columns.pop_if(|last| last.kind == Kind::Numbers) {
                left_out.push((numbers.name, "numbers the elements of a column that is left out"));
            }
            left_out.push((name, reason));
        };
        let rows = self.rows;
        for (column, seen) in self.columns {
            let on_null = rule(&column, self.on_null);
            let values = rows - seen.nulls;
            if !column.named {
                let one = column.nature == Nature::Category && seen.counts.len() as f64 > DISTINCT * values as f64;
                if values == 0 {
                    leave_out(&mut columns, column.name, "has no value");
                    continue;
                }
                if values > FEW_ROWS && (one || (seen.crowded && seen.counts.values().all(|n| *n == 1))) {
                    leave_out(&mut columns, column.name, "has nearly as many values as rows");
                    continue;
                }
            } else if values == 0 && matches!(column.nature, Nature::Array | Nature::Sparse) {
                return Err(Error::NoValue { column: column.name });
            }
            let kind = kind(&column, seen, self.limit)?;
            let on_null = if on_null == OnNull::Category && !matches!(kind, Kind::OneHot { .. } | Kind::Hash { .. }) {
                OnNull::Error
            } else {
                on_null
            };
            let Learnt { name, sql_type, wish, .. } = column;
            columns.push(Column { name, sql_type, kind, on_null, is_null: wish.is_null });
        }
        let encoding = Encoding { columns, sparse: false };
        let filled: usize = encoding.columns.iter().map(Column::filled).sum();
        // A feature that is not 0 takes eight bytes where only such are kept, four where all are.
        let sparse = 2 * filled < encoding.width();
        Ok((Encoding { sparse, ..encoding }, left_out))
    }
}

/// What NULL means in a column.
fn rule(column: &Learnt, on_null: Option<OnNull>) -> OnNull {
    let own = if column.nature == Nature::Category { OnNull::Category } else { OnNull::Error };
    let rule = column.wish.on_null.or(on_null).unwrap_or(own);
    // The mean of categories is none of them.
    if column.nature == Nature::Category && rule == OnNull::Mean { OnNull::Category } else { rule }
}

/// How a column is encoded, by what is asked, its type, and what it held.
fn kind(column: &Learnt, seen: Seen, limit: usize) -> Result<Kind> {
    let wrong = |wish: &'static str| Error::WrongEncoding {
        column: column.name.clone(),
        sql_type: column.sql_type.clone(),
        encoding: wish,
    };
    let is_time = matches!(column.nature, Nature::Date | Nature::Moment | Nature::TimeOfDay);
    match column.wish.kind {
        Some(WishedKind::Number) if column.nature != Nature::Number => return Err(wrong("number")),
        Some(WishedKind::Seconds) if !is_time => return Err(wrong("seconds")),
        Some(WishedKind::Cyclic) if !is_time => return Err(wrong("cyclic")),
        Some(WishedKind::Ordinal) if column.nature != Nature::Ordered => return Err(wrong("ordinal")),
        _ => {}
    }
    Ok(match column.nature {
        Nature::Number => Kind::Number(seen.moments.scale()),
        Nature::Array => Kind::Array(seen.elements.iter().map(Moments::scale).collect()),
        Nature::Sparse => Kind::Sparse { len: seen.sparse.unwrap_or_default() },
        Nature::Numbers => Kind::Numbers,
        Nature::Date | Nature::Moment | Nature::TimeOfDay => {
            let periods = match column.nature {
                Nature::TimeOfDay => vec![Period::Day],
                Nature::Date => vec![Period::Week, Period::Year],
                _ => vec![Period::Day, Period::Week, Period::Year],
            };
            match column.wish.kind {
                Some(WishedKind::Seconds) => Kind::Time { scale: Some(seen.moments.scale()), periods: Vec::new() },
                Some(WishedKind::Cyclic) => Kind::Time { scale: None, periods },
                _ => Kind::Time { scale: Some(seen.moments.scale()), periods },
            }
        }
        Nature::Ordered if seen.crowded => {
            return Err(Error::MemoryLimit {
                what: format!("the labels of column \"{}\"", column.name),
                needed: limit + 1,
                limit,
            });
        }
        Nature::Ordered => {
            let mut values = column.labels.clone();
            if values.is_empty() {
                values = seen.counts.keys().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
                values.sort();
            }
            let places: HashMap<&[u8], usize> = values.iter().enumerate().map(|(i, v)| (v.as_bytes(), i)).collect();
            let mut moments = Moments::default();
            // Counts of whole numbers: exact, and without a step for each row.
            let total: f64 = seen.counts.values().map(|n| *n as f64).sum();
            let rank = |text: &[u8]| places.get(text).map_or(0.0, |place| *place as f64);
            moments.n = total;
            moments.mean = seen.counts.iter().map(|(text, n)| rank(text) * *n as f64).sum::<f64>() / total.max(1.0);
            moments.m2 = seen.counts.iter().map(|(text, n)| (rank(text) - moments.mean).powi(2) * *n as f64).sum();
            let scale = moments.scale();
            Kind::Ordinal { values, scale }
        }
        Nature::Category => {
            let most = match column.wish.kind {
                Some(WishedKind::Hash(buckets)) => return Ok(hash(buckets, &seen)),
                Some(WishedKind::OneHot(most)) => most,
                _ if seen.crowded || seen.counts.len() > MOST_CATEGORIES => return Ok(hash(None, &seen)),
                _ => MOST_CATEGORIES,
            };
            if seen.crowded {
                return Err(Error::MemoryLimit {
                    what: format!("the categories of column \"{}\"", column.name),
                    needed: limit + 1,
                    limit,
                });
            }
            let other = seen.counts.len() > most;
            let mut counts: Vec<(Box<[u8]>, u64)> = seen.counts.into_iter().collect();
            // The most frequent ones; of equals, the first in order.
            counts.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            counts.truncate(most);
            let mut values: Vec<String> =
                counts.into_iter().map(|(text, _)| String::from_utf8_lossy(&text).into_owned()).collect();
            values.sort();
            Kind::OneHot { values, other }
        }
    })
}

/// As many buckets as there are categories, at least: few of them share one.
fn hash(buckets: Option<u32>, seen: &Seen) -> Kind {
    let many = (seen.counts.len() as u32).clamp(1024, 1 << 18).next_power_of_two();
    Kind::Hash { buckets: buckets.unwrap_or(many) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn learnt(name: &str, nature: Nature) -> Learnt {
        let wish = Wish::default();
        Learnt { name: name.into(), sql_type: "t".into(), nature, labels: Vec::new(), wish, named: false }
    }

    fn encode(encoder: &Encoder, values: &[Value<'_>]) -> std::result::Result<Option<Row>, Fault> {
        let mut row = Row::default();
        encoder.begin(&mut row);
        for (i, value) in values.iter().enumerate() {
            if !encoder.add(&mut row, i, *value)? {
                return Ok(None);
            }
        }
        Ok(Some(row))
    }

    fn dense(encoder: &Encoder, row: &Row) -> Vec<f32> {
        if !encoder.encoding().sparse {
            return row.values.clone();
        }
        let mut all = vec![0.0; encoder.encoding().width()];
        assert!(row.indices.windows(2).all(|w| w[0] < w[1]), "ascending");
        row.indices.iter().zip(&row.values).for_each(|(k, v)| all[*k as usize] = *v);
        all
    }

    #[test]
    fn elements_that_another_column_numbers() {
        let mut learner = Learner::new(vec![learnt("k", Nature::Numbers), learnt("v", Nature::Sparse)], 1 << 20, None);
        let pair = |k: &'static [u32], v: &'static [f32]| Value::paired(Value::Numbers(k), Value::Array(v), 1);
        for (k, v) in [(&[0u32, 4][..], &[1.0f32, 2.0][..]), (&[], &[]), (&[7], &[-1.0])] {
            learner.next_row();
            learner.add(1, pair(k, v).expect("a pair"), None).expect("finite");
        }
        let (encoding, _) = learner.finish().expect("learns");
        assert_eq!((encoding.columns[0].width(), encoding.columns[1].width()), (0, 8));
        encoding.check().expect("goes together");
        assert!(Encoding { columns: encoding.columns[..1].to_vec(), sparse: false }.check().is_err());
        for sparse in [false, true] {
            let encoder = Encoder::new(Encoding { sparse, ..encoding.clone() });
            // What was never seen has no weight.
            let value = pair(&[1, 7, 90], &[3.0, 4.0, 5.0]).expect("a pair");
            let row = encode(&encoder, &[Value::Null, value]).expect("encodes").expect("is not left out");
            assert_eq!(dense(&encoder, &row), [0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0]);
            assert_eq!(encoder.score(&[1.0; 8], 1, value), Ok(Some(7.0)));
        }
        // Not ascending, not as many, not from 1.
        for (k, v) in [(&[2u32, 1][..], &[1.0f32, 1.0][..]), (&[1, 1], &[1.0, 1.0]), (&[1], &[]), (&[u32::MAX], &[1.0])]
        {
            assert_eq!(pair(k, v), Err(Fault::Numbers(1)));
        }
        assert_eq!(Value::paired(Value::Null, Value::Array(&[1.0]), 1), Ok(Value::Null));
        assert_eq!(Value::paired(Value::Numbers(&[]), Value::Nested, 1), Ok(Value::Nested));
        assert_eq!(Value::paired(Value::Nested, Value::Array(&[]), 1), Err(Fault::Dimensions(0)));
        // An element that was never seen is looked at all the same.
        let encoder = Encoder::new(encoding);
        let infinite = pair(&[1, 90], &[1.0, f32::INFINITY]).expect("a pair");
        assert_eq!(encoder.score(&[1.0; 8], 1, infinite), Err(Fault::NotFinite(1)));
    }

    #[test]
    fn numbers_go_with_their_elements() {
        let columns = || vec![learnt("x", Nature::Number), learnt("k", Nature::Numbers), learnt("v", Nature::Sparse)];
        let mut learner = Learner::new(columns(), 1 << 20, Some(OnNull::Zero));
        for x in [1.0, 2.0] {
            learner.next_row();
            learner.add(0, Value::Number(x), None).expect("finite");
            learner.add(2, Value::Null, None).expect("null");
        }
        let (encoding, left_out) = learner.finish().expect("learns");
        let names: Vec<&str> = encoding.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!((names, left_out.len()), (vec!["x"], 2));
        encoding.check().expect("goes together");
        // Named, they cannot be left out.
        let mut named = columns();
        named.iter_mut().for_each(|column| column.named = true);
        let mut learner = Learner::new(named, 1 << 20, Some(OnNull::Zero));
        learner.next_row();
        learner.add(0, Value::Number(1.0), None).expect("finite");
        learner.add(2, Value::Null, None).expect("null");
        assert_eq!(learner.finish().map(|_| ()), Err(Error::NoValue { column: "v".into() }));
    }

    #[test]
    fn only_elements_that_are_kept_as_they_are_are_not_scaled() {
        let column =
            |kind, is_null| Column { name: "c".into(), sql_type: "t".into(), kind, on_null: OnNull::Zero, is_null };
        let scale = Scale { mean: 0.0, deviation: 1.0 };
        let columns = vec![
            column(Kind::Array(vec![scale; 3]), false),
            column(Kind::Numbers, false),
            column(Kind::Sparse { len: 10 }, true),
            column(Kind::Sparse { len: 5 }, false),
            column(Kind::Number(scale), false),
        ];
        assert_eq!(Encoding { columns, sparse: true }.scaled(), [0..3, 13..14, 19..20]);
    }

    proptest! {
        #[test]
        fn numbers_are_centred_and_scaled_and_categories_are_one(
            rows in prop::collection::vec((-1e6f64..1e6, 0usize..4), 2..60), sparse: bool
        ) {
            let texts: [&[u8]; 4] = [b"red", b"green", b"blue", "\u{e9}".as_bytes()];
            let mut learner = Learner::new(vec![learnt("x", Nature::Number), learnt("c", Nature::Category)], 1 << 20, None);
            for (x, c) in &rows {
                learner.next_row();
                learner.add(0, Value::Number(*x), None).expect("finite");
                learner.add(1, Value::Text(texts[*c]), None).expect("text");
            }
            let (mut encoding, left_out) = learner.finish().expect("learns");
            prop_assert!(left_out.is_empty());
            encoding.sparse = sparse;
            let back: Encoding = serde_json::from_str(&serde_json::to_string(&encoding).expect("writes")).expect("reads");
            prop_assert_eq!(&back, &encoding);
            let encoder = Encoder::new(encoding);
            let all: Vec<Vec<f32>> = rows.iter().map(|(x, c)| {
                let row = encode(&encoder, &[Value::Number(*x), Value::Text(texts[*c])]).expect("encodes").expect("a row");
                dense(&encoder, &row)
            }).collect();
            let n = rows.len() as f64;
            let mean = all.iter().map(|row| f64::from(row[0])).sum::<f64>() / n;
            let square = all.iter().map(|row| f64::from(row[0]).powi(2)).sum::<f64>() / n;
            prop_assert!(mean.abs() < 1e-4, "{}", mean);
            let varies = rows.iter().any(|row| row.0 != rows[0].0);
            prop_assert!(!varies || (square - 1.0).abs() < 1e-3, "{}", square);
            for row in &all {
                // Its own category, the fourth place being of NULL.
                prop_assert_eq!(row[1..].iter().sum::<f32>(), 1.0);
                prop_assert_eq!(row[row.len() - 1], 0.0);
            }
            // What was never seen has no feature.
            let row = encode(&encoder, &[Value::Number(rows[0].0), Value::Text(b"purple")]).expect("encodes").expect("a row");
            prop_assert_eq!(dense(&encoder, &row)[1..].iter().sum::<f32>(), 0.0);
        }
    }

    #[test]
    fn nulls_follow_the_rule() {
        let place = Place { table: 9, page: 7, line: 2 };
        let learn = |on_null: Option<OnNull>, wish: &Json| {
            let wishes = Wish::parse_all(wish).expect("a wish");
            let column = |name: &str, nature: Nature| {
                let wish = wishes.get(name).cloned().unwrap_or_default();
                Learnt { nature: wish.nature(nature), wish, ..learnt(name, nature) }
            };
            let mut learner =
                Learner::new(vec![column("x", Nature::Number), column("c", Nature::Category)], 1 << 20, on_null);
            for (x, c) in [(1.0, "a"), (3.0, "b")] {
                learner.next_row();
                learner.add(0, Value::Number(x), None).expect("adds");
                learner.add(1, Value::Text(c.as_bytes()), None).expect("adds");
            }
            learner.next_row();
            learner.add(0, Value::Null, Some(place)).expect("adds");
            learner.add(1, Value::Null, None).expect("adds");
            let nulls = learner.nulls();
            let (encoding, _) = learner.finish().expect("learns");
            let encoder = Encoder::new(encoding);
            let row = encode(&encoder, &[Value::Null, Value::Null]);
            (nulls, row.map(|row| row.map(|row| dense(&encoder, &row))))
        };
        let none = json!({});
        let first = Nulls { column: "x".into(), count: 1, first: Some(place) };
        assert_eq!(learn(None, &none), (vec![first.clone()], Err(Fault::Null(0))));
        assert_eq!(learn(Some(OnNull::Error), &none).0.len(), 2);
        assert_eq!(learn(Some(OnNull::Skip), &none), (vec![], Ok(None)));
        // Mean 2, deviation 1; NULL is a category of its own.
        assert_eq!(learn(Some(OnNull::Mean), &none), (vec![], Ok(Some(vec![0.0, 0.0, 0.0, 1.0]))));
        assert_eq!(learn(Some(OnNull::Zero), &none), (vec![], Ok(Some(vec![-2.0, 0.0, 0.0]))));
        let wish = json!({"x": {"on_null": "mean", "is_null": true}});
        assert_eq!(learn(None, &wish), (vec![], Ok(Some(vec![0.0, 1.0, 0.0, 0.0, 1.0]))));
    }

    #[test]
    fn wishes_are_checked() {
        for bad in [
            json!([]),
            json!({"a": "onehot"}),
            json!({"a": "hash:0"}),
            json!({"a": {"on_null": "nothing"}}),
            json!({"a": {"x": 1}}),
            json!({"a": "number:3"}),
        ] {
            assert!(Wish::parse_all(&bad).is_err(), "{bad}");
        }
        let wish = |text: &str| Wish::parse_all(&json!({"a": text})).expect("a wish")["a"].clone();
        let column = |nature, text: &str| {
            let wish = wish(text);
            Learnt { nature: wish.nature(nature), wish, ..learnt("a", nature) }
        };
        let mut learner = Learner::new(vec![column(Nature::Category, "one_hot:2")], 1 << 20, None);
        for text in ["a", "b", "b", "c", "c"] {
            learner.next_row();
            learner.add(0, Value::Text(text.as_bytes()), None).expect("adds");
        }
        let (encoding, _) = learner.finish().expect("learns");
        assert_eq!(encoding.columns[0].kind, Kind::OneHot { values: vec!["b".into(), "c".into()], other: true });
        assert_eq!(encoding.feature(2).map(|f| f.1), Some("a=(other)".into()));
        for (nature, text) in [(Nature::Number, "cyclic"), (Nature::Category, "number"), (Nature::Moment, "ordinal")] {
            let learner = Learner::new(vec![Learnt { named: true, ..column(nature, text) }], 1 << 20, None);
            assert!(learner.finish().is_err(), "{nature:?} {text}");
        }
    }

    #[test]
    fn hashes_never_change() {
        let all = [("", 1024), ("a", 1024), ("New York", 1 << 18)].map(|(text, n)| bucket(text.as_bytes(), n));
        assert_eq!(all, [961, 192, 207_794]);
    }

    #[test]
    fn times_have_places_in_their_periods() {
        let mut learner = Learner::new(vec![learnt("at", Nature::Moment)], 1 << 20, None);
        for seconds in [0.0, 86_400.0 * 400.0] {
            learner.next_row();
            learner.add(0, Value::Number(seconds), None).expect("adds");
        }
        let (encoding, _) = learner.finish().expect("learns");
        assert_eq!(encoding.width(), 7);
        let names: Vec<String> = (0..7).filter_map(|i| encoding.feature(i)).map(|f| f.1).collect();
        assert_eq!(names[1..3], ["at sine of day", "at cosine of day"]);
        let encoder = Encoder::new(encoding);
        let row = encode(&encoder, &[Value::Number(86_400.0 / 4.0)]).expect("encodes").expect("a row");
        let row = dense(&encoder, &row);
        assert!((row[1] - 1.0).abs() < 1e-6 && row[2].abs() < 1e-6, "{row:?}");
    }

    #[test]
    fn columns_that_name_rows_are_left_out() {
        let mut learner = Learner::new(
            vec![learnt("name", Nature::Category), learnt("nothing", Nature::Number)],
            1 << 20,
            Some(OnNull::Mean),
        );
        for i in 0..500 {
            learner.next_row();
            learner.add(0, Value::Text(format!("n{i}").as_bytes()), None).expect("adds");
            learner.add(1, Value::Null, None).expect("adds");
        }
        let (encoding, left_out) = learner.finish().expect("learns");
        assert_eq!((encoding.columns.len(), left_out.len()), (0, 2));
    }
}

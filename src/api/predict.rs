//! `predict`, `predict_proba`, `predict_score`, `predict_value`: a model (id, name or value) applied
//! to an array, to indices and values, or to a row whose columns are found by name.
//!
//! The model is looked up once per statement and call site, and again when the visible state of the
//! database may have changed.

use super::arguments::{Call, Spread};
use super::encode::{RowEncoder, names};
use super::last_row;
use crate::catalog::{self, ModelKey};
use crate::customscan::tuple_shuffle::element_of;
use crate::error::{self, ColumnNames, RowError};
use crate::pg::array::{self, Element, RawArray, Unusable};
use crate::pg::fill::{Column, Stop};
use crate::pg::raw::plain;
use crate::pg::types;
use crate::pg_function;
use corgipile_core::encoding::Encoding;
use corgipile_core::model::Model;
use corgipile_core::params::OnNull;
use corgipile_core::tuples::Features;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{FromDatum, IntoDatum, PgMemoryContexts, PgSqlErrorCode, pg_sys};
use std::rc::Rc;

/// What is visible: when none of it has changed, neither has the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Stamp {
    xmin: u32,
    xmax: u32,
    command: u32,
    completions: u64,
    user: u32,
}

/// Where the features are among the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Dense(Element),
    Sparse(Element, Element),
    Row,
    /// Each column an argument, in the order of the model's features, from this one on.
    Columns(usize),
    /// A row taken apart: this argument is NULL, of the row's type, and the columns of that type follow.
    Apart(usize),
}

/// Which arguments are what.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// Arrays or a row, from the second argument on, before this one.
    Features(usize),
    /// See [`Input::Columns`].
    Columns(usize),
    /// See [`Input::Apart`].
    Apart(usize),
}

/// Columns of a row type that a model needs.
struct RowColumns {
    row_type: (pg_sys::Oid, i32),
    descriptor: pg_sys::TupleDesc,
    numbers: Vec<i32>,
    types: Vec<pg_sys::Oid>,
}

/// What a call site remembers.
struct Site {
    input: Input,
    /// Type of the first argument.
    model_type: pg_sys::Oid,
    key: Option<ModelKey>,
    stamp: Stamp,
    model: Option<Rc<Model>>,
    class: Option<(String, usize)>,
    /// The classes as values of the function's result type.
    typed: Vec<pg_sys::Datum>,
    values: Vec<f32>,
    indices: Vec<u32>,
    scores: Vec<f64>,
    /// Where the columns are in a row, of the model that was used last.
    columns: Option<RowColumns>,
    datums: Vec<Option<pg_sys::Datum>>,
    /// Types that were looked up, whether for feature numbers, and their elements.
    elements: Vec<(pg_sys::Oid, bool, Element)>,
    /// Values and NULLs of a whole row.
    row: (Vec<pg_sys::Datum>, Vec<bool>),
    /// The columns among the arguments.
    spread: Option<Spread>,
    /// For the same model, where it encodes columns.
    encoder: Option<RowEncoder>,
    /// Of the same model, where scoring costs more than comparing.
    last_row: Option<last_row::Shared>,
    /// Are the features looked at after they were scored?
    keeps_features: bool,
}

#[allow(ffi_unwind_calls, reason = "what raises nothing does not unwind")]
fn stamp() -> Stamp {
    // SAFETY: reads the active snapshot, if there is one.
    unsafe {
        let user = plain::GetUserId().to_u32();
        if !plain::ActiveSnapshotSet() {
            return Stamp { user, ..Stamp::default() };
        }
        let snapshot = plain::GetActiveSnapshot();
        Stamp {
            xmin: (*snapshot).xmin.into(),
            xmax: (*snapshot).xmax.into(),
            command: (*snapshot).curcid,
            completions: (*snapshot).snapXactCompletionCount,
            user,
        }
    }
}

impl Site {
    /// Works out the roles of the arguments from their types.
    fn new(call: Call, shape: Shape) -> Self {
        types::require_utf8();
        let to = if let Shape::Features(to) = shape { to } else { 0 };
        // SAFETY: a catalog look-up by oid.
        let is_array = |i: usize| i < to && unsafe { pg_sys::get_element_type(call.type_of(i)) != pg_sys::InvalidOid };
        let input = if let Shape::Columns(from) = shape {
            Input::Columns(from)
        } else if let Shape::Apart(row) = shape {
            Input::Apart(row)
        } else if !is_array(1) {
            Input::Row
        } else if is_array(2) {
            Input::Sparse(
                element_of(call.type_of(1), "features_k", true),
                element_of(call.type_of(2), "features_v", false),
            )
        } else {
            Input::Dense(element_of(call.type_of(1), "features", false))
        };
        Self {
            input,
            model_type: call.type_of(0),
            key: None,
            stamp: Stamp::default(),
            model: None,
            class: None,
            typed: Vec::new(),
            values: Vec::new(),
            indices: Vec::new(),
            scores: Vec::new(),
            columns: None,
            datums: Vec::new(),
            elements: Vec::new(),
            row: (Vec::new(), Vec::new()),
            spread: None,
            encoder: None,
            last_row: None,
            keeps_features: false,
        }
    }

    /// The site of this call.
    unsafe fn of<'a>(call: Call, shape: Shape) -> &'a mut Self {
        // SAFETY: fn_extra is ours; the site lives in the function's memory context and is dropped with it.
        unsafe {
            let flinfo = (*call.0).flinfo;
            if (*flinfo).fn_extra.is_null() {
                let site = PgMemoryContexts::For((*flinfo).fn_mcxt).leak_and_drop_on_delete(Self::new(call, shape));
                (*flinfo).fn_extra = site.cast();
            }
            &mut *(*flinfo).fn_extra.cast::<Self>()
        }
    }

    /// The model that the first argument names.
    fn model(&mut self, call: Call, datum: pg_sys::Datum) -> Rc<Model> {
        // The usual case, the same id or name for every row, costs nothing to look up.
        if let (Some(key), Some(model)) = (&self.key, &self.model) {
            let same = match key {
                ModelKey::Id(id) => self.model_type == pg_sys::INT8OID && *id == datum.value() as i64,
                ModelKey::Name(name) => {
                    // SAFETY: a text argument.
                    self.model_type == pg_sys::TEXTOID && name.as_bytes() == unsafe { types::varlena_bytes(datum) }
                }
            };
            if same && self.stamp == stamp() {
                return Rc::clone(model);
            }
        }
        let key = match named(call, datum) {
            Named::Key(key) => key,
            // Decoded anew for each call, since its bytes may change from row to row.
            Named::Value(model) => {
                self.forget_columns();
                return model;
            }
        };
        let now = stamp();
        match &self.model {
            Some(model) if self.stamp == now && self.key.as_ref() == Some(&key) => Rc::clone(model),
            _ => {
                let stored = catalog::required(&key);
                self.key = Some(key);
                self.stamp = now;
                self.class = None;
                self.typed.clear();
                self.forget_columns();
                self.model = Some(Rc::clone(&stored.model));
                stored.model
            }
        }
    }

    /// What is known of columns is for one model.
    fn forget_columns(&mut self) {
        self.encoder = None;
        self.last_row = None;
        if let Some(columns) = self.columns.take() {
            // SAFETY: a copy made by `find_columns`.
            unsafe { pg_sys::FreeTupleDesc(columns.descriptor) };
        }
    }

    /// Finds the model's columns in rows of a type (and its modifier), by name; false if they were known.
    fn find_columns(&mut self, call: Call, row_type: (pg_sys::Oid, i32), model: &Model) -> bool {
        // SAFETY: an error for what is no row type; the copy lives as long as the site.
        unsafe {
            if self.columns.as_ref().is_some_and(|columns| columns.row_type == row_type) {
                return false;
            }
            let wanted = &model.header.features;
            if wanted.is_empty() || wanted.iter().any(String::is_empty) {
                error::fail(
                    PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN,
                    "the model was trained on expressions, so its features cannot be found in a row by name",
                    Some("Pass the features as arrays."),
                );
            }
            self.forget_columns();
            let old = pg_sys::MemoryContextSwitchTo((*(*call.0).flinfo).fn_mcxt);
            let descriptor = pg_sys::lookup_rowtype_tupdesc_copy(row_type.0, row_type.1);
            pg_sys::MemoryContextSwitchTo(old);
            let number_of = |name: &String| {
                let c_name = std::ffi::CString::new(name.as_str()).unwrap_or_default();
                let number = pg_sys::SPI_fnumber(descriptor, c_name.as_ptr());
                if number <= 0 {
                    error::fail(
                        PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN,
                        format!("the row has no column \"{name}\", which the model needs"),
                        Some(&format!("The model's feature columns are: {}.", wanted.join(", "))),
                    );
                }
                number
            };
            let numbers: Vec<i32> = wanted.iter().map(number_of).collect();
            let types = numbers.iter().map(|number| pg_sys::SPI_gettypeid(descriptor, *number)).collect();
            self.columns = Some(RowColumns { row_type, descriptor, numbers, types });
        }
        true
    }

    /// The model's columns of a row or among the arguments, into `self.datums`; their types.
    fn read_columns(&mut self, call: Call, model: &Model) -> Option<Vec<pg_sys::Oid>> {
        self.datums.clear();
        match self.input {
            Input::Columns(from) => {
                if self.spread.is_none() {
                    // SAFETY: the site lives in the function's memory context.
                    self.spread = Some(unsafe { Spread::new(call, from, (*(*call.0).flinfo).fn_mcxt) }?);
                }
                let spread = self.spread.as_mut()?;
                // SAFETY: a call of the same site.
                if !unsafe { spread.read(call) } {
                    return None;
                }
                spread.collect(call, &mut self.datums);
                // Only a first call asks for types.
                Some(if self.encoder.is_some() { Vec::new() } else { spread.types().to_vec() })
            }
            Input::Apart(row) => {
                let found_now = self.find_columns(call, (call.type_of(row), -1), model);
                let columns = self.columns.as_ref()?;
                // A type may have been altered since the row was taken apart, and anyone may call this.
                // SAFETY: a valid call frame; InvalidOid for what is not known or not there.
                let given = |number: i32| unsafe { pg_sys::get_fn_expr_argtype((*call.0).flinfo, row as i32 + number) };
                let mut columns_of_row = columns.numbers.iter().copied().zip(columns.types.iter().copied());
                let wrong = columns_of_row.find(|(number, oid)| found_now && given(*number) != *oid);
                if let Some((number, oid)) = wrong {
                    let given = given(number);
                    self.forget_columns();
                    let given = if given == pg_sys::InvalidOid { "none".to_string() } else { types::type_name(given) };
                    error::fail(
                        PgSqlErrorCode::ERRCODE_DATATYPE_MISMATCH,
                        format!("column {number} of the row has type {given} instead of {}", types::type_name(oid)),
                        None,
                    );
                }
                self.datums.extend(columns.numbers.iter().map(|number| call.get(row + *number as usize)));
                Some(if self.encoder.is_some() { Vec::new() } else { columns.types.clone() })
            }
            Input::Dense(_) | Input::Sparse(..) | Input::Row => {
                let row = call.get(1)?;
                // SAFETY: a composite argument by declaration; the tuple is read while it is there.
                unsafe {
                    let header = pg_sys::pg_detoast_datum(row.cast_mut_ptr()).cast::<pg_sys::HeapTupleHeaderData>();
                    let of = (*header).t_choice.t_datum;
                    self.find_columns(call, (of.datum_typeid, of.datum_typmod), model);
                    let columns = self.columns.as_ref()?;
                    let mut tuple: pg_sys::HeapTupleData = std::mem::zeroed();
                    tuple.t_len = pgrx::varlena::varsize_4b(header.cast()) as u32;
                    tuple.t_data = header;
                    let all = (*columns.descriptor).natts as usize;
                    self.row.0.resize(all, pg_sys::Datum::from(0));
                    self.row.1.resize(all, true);
                    let (values, nulls) = (self.row.0.as_mut_ptr(), self.row.1.as_mut_ptr());
                    pg_sys::heap_deform_tuple(&mut tuple, columns.descriptor, values, nulls);
                    for number in &columns.numbers {
                        let place = *number as usize - 1;
                        self.datums.push((!self.row.1[place]).then_some(self.row.0[place]));
                    }
                    // Only a first call asks for types.
                    Some(if self.encoder.is_some() { Vec::new() } else { columns.types.clone() })
                }
            }
        }
    }

    /// The elements of a column's arrays; what a type's are is looked up once.
    fn element(&mut self, oid: pg_sys::Oid, name: &str, indices: bool) -> Element {
        let known = self.elements.iter().find(|known| (known.0, known.1) == (oid, indices));
        known.map(|known| known.2).unwrap_or_else(|| {
            let element = element_of(oid, name, indices);
            self.elements.push((oid, indices, element));
            element
        })
    }

    /// Scores by `score` the row whose columns are in `self.datums`, unless another call has just done so.
    fn score_once(&mut self, score: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let Some(last) = self.last_row.as_ref().filter(|row| last_row::is_shared(row)).map(Rc::clone) else {
            return score(self);
        };
        {
            let mut known = last.borrow_mut();
            // SAFETY: the datums are of the types that it was made for.
            if let Some(scores) = unsafe { known.scores(&self.datums) } {
                self.scores.clear();
                self.scores.extend_from_slice(scores?);
                return Some(());
            }
        }
        let scored = score(self);
        let scores = scored.map(|()| self.scores.as_slice());
        // SAFETY: as above.
        unsafe { last.borrow_mut().keep(&self.datums, scores) };
        scored
    }

    /// Scores columns that the model encodes.
    fn score_encoded(&mut self, call: Call, model: &Rc<Model>, encoding: &Encoding) -> Option<()> {
        if matches!(self.input, Input::Dense(_) | Input::Sparse(..)) {
            error::fail(
                PgSqlErrorCode::ERRCODE_DATATYPE_MISMATCH,
                "the model was trained on columns, and cannot be given an array",
                Some(&format!(
                    "Pass a row with the columns {}: predict(model, t), or use PREDICT BY.",
                    names(encoding)
                )),
            );
        }
        let types = self.read_columns(call, model)?;
        if self.encoder.is_none() {
            self.encoder = Some(RowEncoder::new(encoding.clone(), &types));
            self.share_rows(model, &types);
        }
        self.score_once(|Self { encoder, datums, scores, .. }| {
            let encoder = encoder.as_mut()?;
            let datum = |i: usize| datums.get(i).copied().flatten();
            // SAFETY: the datums are the model's columns, of the types that the encoder was made for.
            unsafe {
                // One score needs no row of features.
                if model.weights.len() == model.row_len() {
                    scores.clear();
                    scores.push(encoder.score(&model.weights, datum)?);
                } else {
                    let row = encoder.encode(datum)?;
                    let features = if encoding.sparse {
                        Features::Sparse(&row.indices, &row.values)
                    } else {
                        Features::Dense(&row.values)
                    };
                    model.scores(features, scores).unwrap_or_else(|e| error::raise(e));
                }
            }
            Some(())
        })
    }

    /// From now on a row that another call has just scored is not scored again. Not for a model value, which is another
    /// one in each call.
    fn share_rows(&mut self, model: &Rc<Model>, types: &[pg_sys::Oid]) {
        self.last_row = self.model.is_some().then(|| last_row::of(model, types));
    }

    /// Raises the error of an array argument.
    fn fail(&self, column: Column, what: Unusable) -> ! {
        self.fail_row(RowError::from(Stop::Unusable(column, what)))
    }

    fn fail_row(&self, what: RowError) -> ! {
        let names = ColumnNames {
            target: String::new(),
            features: vec!["features_k".into(), "features_v".into()],
            weight: None,
        };
        error::raise_row(what, &names, "in the arguments of the prediction", 0, i64::from(i32::MAX))
    }

    /// Copies values into `self.values`.
    fn read_values(&mut self, datum: pg_sys::Datum, element: Element, model: &Model) -> Option<()> {
        let array = match open(datum, element) {
            // As in training, such a row is left out.
            Err(Unusable::NullAt(_)) if model.header.params.on_null == OnNull::Skip => return None,
            opened => opened.unwrap_or_else(|what| self.fail(Column::Values, what)),
        };
        self.values.resize(array.len, 0.0);
        // SAFETY: `values` has room for all elements.
        if let Some(at) = unsafe { array::copy_values(array, element, self.values.as_mut_ptr()) } {
            let nan = self.values.get(at - 1).is_some_and(|value| value.is_nan());
            if nan && model.header.params.on_null == OnNull::Skip {
                return None;
            }
            self.fail_row(RowError::NotFinite(at));
        }
        Some(())
    }

    /// Scores an array of single precision where it lies; false where it must be copied and looked at: it is not plain
    /// or not aligned, or a score is not finite, as of a value that is not.
    fn score_in_place(&mut self, datum: pg_sys::Datum, element: Element, model: &Model) -> bool {
        // SAFETY: an array by the type of the argument; one that is not toasted lies there for the whole call.
        let Ok(array) = (unsafe {
            let usable = matches!(element, Element::Float4 | Element::Vector) && !array::is_toasted(datum);
            if self.keeps_features || !usable {
                return false;
            }
            array::open(datum, element, pg_sys::CurrentMemoryContext)
        }) else {
            return false;
        };
        if array.len != model.header.n_features || !array.data.cast::<f32>().is_aligned() {
            return false;
        }
        // SAFETY: so many elements of that type, aligned.
        let values = unsafe { core::slice::from_raw_parts(array.data.cast::<f32>(), array.len) };
        model.scores(Features::Dense(values), &mut self.scores).is_ok() && self.scores.iter().all(|s| s.is_finite())
    }

    /// Copies feature numbers into `self.indices`, from 1 to 0-based.
    fn read_indices(&mut self, datum: pg_sys::Datum, element: Element) {
        let array = open(datum, element).unwrap_or_else(|what| self.fail(Column::Indices, what));
        self.indices.clear();
        let mut previous = 0;
        for i in 0..array.len {
            // SAFETY: `i` is below the length.
            let number = unsafe { array::integer_at(array, element, i) };
            if number <= previous {
                self.fail_row(RowError::Index(i + 1, number));
            }
            previous = number;
            self.indices.push(u32::try_from(number - 1).unwrap_or(u32::MAX));
        }
        if self.indices.len() != self.values.len() {
            self.fail_row(RowError::Unpaired(self.indices.len(), self.values.len()));
        }
    }

    /// Scores the features in the call, into `self.scores`; `None` if they are NULL.
    fn score(&mut self, call: Call, model: &Rc<Model>) -> Option<()> {
        if let Some(encoding) = &model.header.encoding {
            return self.score_encoded(call, model, encoding);
        }
        let arrays = match self.input {
            Input::Dense(_) => 1,
            Input::Sparse(..) => 2,
            _ => 0,
        };
        // A single product costs no more than comparing its array.
        if model.outputs() == 1 || arrays == 0 || self.keeps_features {
            return self.score_features(call, model);
        }
        if self.last_row.is_none() {
            let types: Vec<pg_sys::Oid> = (1..=arrays).map(|i| call.type_of(i)).collect();
            self.share_rows(model, &types);
        }
        self.datums.clear();
        self.datums.extend((1..=arrays).map(|i| call.get(i)));
        self.score_once(|site| site.score_features(call, model))
    }

    /// Scores arrays, or a row or columns that hold them.
    fn score_features(&mut self, call: Call, model: &Model) -> Option<()> {
        let sparse = match self.input {
            Input::Dense(element) => {
                let datum = call.get(1)?;
                if self.score_in_place(datum, element, model) {
                    return Some(());
                }
                self.read_values(datum, element, model)?;
                false
            }
            Input::Sparse(index, value) => {
                let (k, v) = (call.get(1)?, call.get(2)?);
                self.read_values(v, value, model)?;
                self.read_indices(k, index);
                true
            }
            Input::Row | Input::Columns(_) | Input::Apart(_) => {
                let types = self.read_columns(call, model)?;
                let wanted = &model.header.features;
                if self.datums.len() != wanted.len() || !matches!(wanted.len(), 1 | 2) {
                    error::fail(
                        PgSqlErrorCode::ERRCODE_DATATYPE_MISMATCH,
                        format!("the model needs {} columns, but {} were given", wanted.len(), self.datums.len()),
                        Some(&format!("Its columns are: {}.", wanted.join(", "))),
                    );
                }
                let last = self.datums.len() - 1;
                let values = self.datums[last]?;
                let element = self.element(types[last], &wanted[last], false);
                if last == 0 && self.score_in_place(values, element, model) {
                    return Some(());
                }
                self.read_values(values, element, model)?;
                if last == 1 {
                    let indices = self.datums[0]?;
                    let element = self.element(types[0], &wanted[0], true);
                    self.read_indices(indices, element);
                }
                last == 1
            }
        };
        let features =
            if sparse { Features::Sparse(&self.indices, &self.values) } else { Features::Dense(&self.values) };
        model.scores(features, &mut self.scores).unwrap_or_else(|e| error::raise(e));
        Some(())
    }
}

/// The number of a class by its text form, or an error that lists the classes.
pub fn class_number(model: &Model, class: &str) -> usize {
    let classes = &model.header.classes;
    classes.iter().position(|known| known == class).unwrap_or_else(|| {
        let list = if classes.is_empty() { "none".into() } else { classes.join(", ") };
        error::fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("the model has no class \"{class}\""),
            Some(&format!("Its classes are: {list}.")),
        )
    })
}

/// Opens an array argument; detoasted copies go to the current context.
fn open(datum: pg_sys::Datum, element: Element) -> Result<RawArray, Unusable> {
    // SAFETY: an array by the type of the argument. Only detoasting calls the server, which needs the guard.
    unsafe {
        if array::is_toasted(datum) {
            pg_guard_ffi_boundary(|| array::open(datum, element, pg_sys::CurrentMemoryContext))
        } else {
            array::open(datum, element, pg_sys::CurrentMemoryContext)
        }
    }
}

pg_function!(
    /// predict(model, features…) → text: the class, or the number of a regression, in text form.
    corgipile_predict,
    pg_finfo_corgipile_predict,
    predict
);
pg_function!(
    /// predict_score(model, features…) → float8: w·x + b; for softmax that of the predicted class.
    corgipile_predict_score,
    pg_finfo_corgipile_predict_score,
    predict_score
);
pg_function!(
    /// predict_value(model, features…) → float8: the number of a regression.
    corgipile_predict_value,
    pg_finfo_corgipile_predict_value,
    predict_value
);
pg_function!(
    /// predict_proba(model, features… [, class]) → float8: probability of the class, by default of
    /// the predicted one; an error where the loss has none.
    corgipile_predict_proba,
    pg_finfo_corgipile_predict_proba,
    predict_proba
);
pg_function!(
    /// prediction_probability(model, features…) → float8: PREDICT BY's column, of the predicted class;
    /// NULL where the loss has none.
    corgipile_prediction_probability,
    pg_finfo_corgipile_prediction_probability,
    prediction_probability
);

pg_function!(
    /// predicted_class(model, features…, class) → the predicted class as a value of the type of `class`, which
    /// is not looked at: PREDICT BY's column. NULL for a model that predicts a number.
    corgipile_predicted_class,
    pg_finfo_corgipile_predicted_class,
    predicted_class
);

pg_function!(
    /// predict, of a model's columns one by one.
    corgipile_columns_predict,
    pg_finfo_corgipile_columns_predict,
    columns_predict
);
pg_function!(
    /// predict_score, of a model's columns one by one.
    corgipile_columns_score,
    pg_finfo_corgipile_columns_score,
    columns_score
);
pg_function!(
    /// predict_value, of a model's columns one by one.
    corgipile_columns_value,
    pg_finfo_corgipile_columns_value,
    columns_value
);
pg_function!(
    /// prediction_probability, of a model's columns one by one.
    corgipile_columns_probability,
    pg_finfo_corgipile_columns_probability,
    columns_probability
);
pg_function!(
    /// predict_proba, of the class that is the second argument, of a model's columns one by one.
    corgipile_columns_proba,
    pg_finfo_corgipile_columns_proba,
    columns_proba
);
pg_function!(
    /// predicted_class, whose type is that of the second argument, of a model's columns one by one.
    corgipile_columns_class,
    pg_finfo_corgipile_columns_class,
    columns_class
);

pg_function!(
    /// predict, of a row taken apart: what the planner makes of a whole row.
    corgipile_row_predict,
    pg_finfo_corgipile_row_predict,
    row_predict
);
pg_function!(
    /// predict_score, of a row taken apart.
    corgipile_row_score,
    pg_finfo_corgipile_row_score,
    row_score
);
pg_function!(
    /// predict_value, of a row taken apart.
    corgipile_row_value,
    pg_finfo_corgipile_row_value,
    row_value
);
pg_function!(
    /// prediction_probability, of a row taken apart.
    corgipile_row_probability,
    pg_finfo_corgipile_row_probability,
    row_probability
);
pg_function!(
    /// predict_proba, of a row taken apart.
    corgipile_row_proba,
    pg_finfo_corgipile_row_proba,
    row_proba
);
pg_function!(
    /// predict_proba, of the class that is the second argument, of a row taken apart.
    corgipile_row_proba_of,
    pg_finfo_corgipile_row_proba_of,
    row_proba_of
);

/// Model and row, whose type is that of argument `row`.
unsafe fn evaluate_row<'a>(call: Call, row: usize) -> Option<(&'a mut Site, Rc<Model>)> {
    // SAFETY: passed on.
    unsafe { evaluate_as(call, Shape::Apart(row)) }
}

unsafe fn row_predict(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    unsafe { evaluate_row(call, 1) }.map_or_else(|| call.null(), |(site, model)| class_text(call, site, &model))
}

unsafe fn row_score(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    unsafe { evaluate_row(call, 1) }.map_or_else(|| call.null(), |(site, model)| score(call, site, &model))
}

unsafe fn row_value(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    unsafe { evaluate_row(call, 1) }.map_or_else(|| call.null(), |(site, model)| quantity(call, site, &model))
}

unsafe fn row_probability(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    unsafe { evaluate_row(call, 1) }.map_or_else(|| call.null(), |(site, model)| own_probability(call, site, &model))
}

unsafe fn row_proba(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    let Some((site, model)) = (unsafe { evaluate_row(call, 1) }) else { return call.null() };
    class_probability(call, site, &model, None)
}

unsafe fn row_proba_of(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    let evaluated = call.get(1).and_then(|_| unsafe { evaluate_row(call, 2) });
    let Some((site, model)) = evaluated else { return call.null() };
    class_probability(call, site, &model, Some(1))
}

pg_function!(
    /// corgipile.encoded_row(model, row) → jsonb: [number from 1, value] of each feature of the row that is not 0.
    corgipile_encoded_row,
    pg_finfo_corgipile_encoded_row,
    encoded_row
);

unsafe fn encoded_row(call: Call) -> pg_sys::Datum {
    // SAFETY: a call of the function above.
    unsafe { Site::of(call, Shape::Features(call.len())).keeps_features = true };
    // SAFETY: passed on.
    let Some((site, model)) = (unsafe { evaluate(call) }) else { return call.null() };
    let Site { encoder, datums, indices, values, .. } = site;
    let row = match (encoder, &model.header.encoding) {
        // SAFETY: the columns that were scored in this call.
        (Some(encoder), Some(_)) => match unsafe { encoder.encode(|i| datums.get(i).copied().flatten()) } {
            Some(row) => (row.indices.as_slice(), row.values.as_slice()),
            None => return call.null(),
        },
        _ => (indices.as_slice(), values.as_slice()),
    };
    let sparse = model.header.encoding.as_ref().map_or(model.header.sparse, |encoding| encoding.sparse);
    let pairs: Vec<serde_json::Value> = if sparse {
        row.0.iter().zip(row.1).map(|(k, v)| serde_json::json!([k + 1, v])).collect()
    } else {
        (1..).zip(row.1).filter(|(_, v)| **v != 0.0).map(|(k, v): (u32, &f32)| serde_json::json!([k, v])).collect()
    };
    pgrx::JsonB(serde_json::Value::Array(pairs)).into_datum().unwrap_or_else(|| call.null())
}

/// Site (with the scores) and model of a call; `None` when an argument is NULL.
unsafe fn evaluate<'a>(call: Call) -> Option<(&'a mut Site, Rc<Model>)> {
    // SAFETY: passed on.
    unsafe { evaluate_as(call, Shape::Features(call.len())) }
}

/// The same where the arguments are others.
unsafe fn evaluate_as<'a>(call: Call, shape: Shape) -> Option<(&'a mut Site, Rc<Model>)> {
    let datum = call.get(0)?;
    // SAFETY: a call of one of the functions above.
    let site = unsafe { Site::of(call, shape) };
    let model = site.model(call, datum);
    site.score(call, &model)?;
    Some((site, model))
}

unsafe fn predict(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    unsafe { evaluate(call) }.map_or_else(|| call.null(), |(site, model)| class_text(call, site, &model))
}

unsafe fn columns_predict(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    unsafe { evaluate_columns(call, 1) }.map_or_else(|| call.null(), |(site, model)| class_text(call, site, &model))
}

/// Model and columns, which are the arguments from `from` on.
unsafe fn evaluate_columns<'a>(call: Call, from: usize) -> Option<(&'a mut Site, Rc<Model>)> {
    // SAFETY: passed on.
    unsafe { evaluate_as(call, Shape::Columns(from)) }
}

fn class_text(call: Call, site: &Site, model: &Model) -> pg_sys::Datum {
    let text = match model.class_of(&site.scores).and_then(|number| model.header.classes.get(number)) {
        Some(class) => class.as_str().into_datum(),
        None => model.score_of(&site.scores).to_string().into_datum(),
    };
    text.unwrap_or_else(|| call.null())
}

unsafe fn predicted_class(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    let evaluated = unsafe { evaluate_as(call, Shape::Features(call.len() - 1)) };
    evaluated.map_or_else(|| call.null(), |(site, model)| typed_class(call, site, &model, call.len() - 1))
}

unsafe fn columns_class(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    unsafe { evaluate_columns(call, 2) }.map_or_else(|| call.null(), |(site, model)| typed_class(call, site, &model, 1))
}

/// The class as a value of the type of argument `like`.
fn typed_class(call: Call, site: &mut Site, model: &Model, like: usize) -> pg_sys::Datum {
    if site.typed.is_empty() {
        let result = call.type_of(like);
        if !types::is_plain(result) {
            error::fail(
                PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE,
                format!("a class cannot be given as {}", types::type_name(result)),
                Some("Use predict, which gives it as text."),
            );
        }
        // SAFETY: a valid call frame; the values live as long as the site that keeps them.
        unsafe {
            let old = pg_sys::MemoryContextSwitchTo((*(*call.0).flinfo).fn_mcxt);
            let (mut input, mut parameter) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
            pg_sys::getTypeInputInfo(result, &mut input, &mut parameter);
            for class in &model.header.classes {
                let text = std::ffi::CString::new(class.as_str()).unwrap_or_default();
                site.typed.push(pg_sys::OidInputFunctionCall(input, text.as_ptr().cast_mut(), parameter, -1));
            }
            pg_sys::MemoryContextSwitchTo(old);
        }
    }
    let class = model.class_of(&site.scores).and_then(|number| site.typed.get(number));
    class.copied().unwrap_or_else(|| call.null())
}

unsafe fn predict_score(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    unsafe { evaluate(call) }.map_or_else(|| call.null(), |(site, model)| score(call, site, &model))
}

unsafe fn columns_score(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    unsafe { evaluate_columns(call, 1) }.map_or_else(|| call.null(), |(site, model)| score(call, site, &model))
}

fn score(call: Call, site: &Site, model: &Model) -> pg_sys::Datum {
    model.score_of(&site.scores).into_datum().unwrap_or_else(|| call.null())
}

unsafe fn predict_value(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    unsafe { evaluate(call) }.map_or_else(|| call.null(), |(site, model)| quantity(call, site, &model))
}

unsafe fn columns_value(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    unsafe { evaluate_columns(call, 1) }.map_or_else(|| call.null(), |(site, model)| quantity(call, site, &model))
}

fn quantity(call: Call, site: &Site, model: &Model) -> pg_sys::Datum {
    if model.header.loss.is_classification() {
        error::fail(
            PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE,
            format!("a model with loss \"{}\" predicts classes, not numbers", model.header.loss.name()),
            Some("Use predict, predict_proba or predict_score."),
        );
    }
    model.score_of(&site.scores).into_datum().unwrap_or_else(|| call.null())
}

unsafe fn prediction_probability(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    unsafe { evaluate(call) }.map_or_else(|| call.null(), |(site, model)| own_probability(call, site, &model))
}

unsafe fn columns_probability(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    unsafe { evaluate_columns(call, 1) }
        .map_or_else(|| call.null(), |(site, model)| own_probability(call, site, &model))
}

fn own_probability(call: Call, site: &Site, model: &Model) -> pg_sys::Datum {
    let probability = model.class_of(&site.scores).and_then(|number| model.probability(&site.scores, number));
    probability.and_then(IntoDatum::into_datum).unwrap_or_else(|| call.null())
}

unsafe fn predict_proba(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    let Some((site, model)) = (unsafe { evaluate(call) }) else { return call.null() };
    let last = call.len() - 1;
    let class = (call.type_of(last) == pg_sys::TEXTOID).then_some(last);
    class_probability(call, site, &model, class)
}

unsafe fn columns_proba(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    let Some((site, model)) = (unsafe { evaluate_columns(call, 2) }) else { return call.null() };
    class_probability(call, site, &model, Some(1))
}

/// The probability of the class that argument `class` names, or of the predicted one.
fn class_probability(call: Call, site: &mut Site, model: &Model, class: Option<usize>) -> pg_sys::Datum {
    if !model.header.loss.has_probability() {
        error::fail(
            PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE,
            format!("a model with loss \"{}\" gives no probabilities", model.header.loss.name()),
            Some("Train with loss => 'log_loss', 'modified_huber' or 'softmax', or use predict_score."),
        );
    }
    let probability = if let Some(argument) = class {
        // SAFETY: a text argument.
        let Some(class) = call.get(argument).and_then(|d| unsafe { String::from_datum(d, false) }) else {
            return call.null();
        };
        let position = match &site.class {
            Some((known, position)) if *known == class => *position,
            _ => {
                let position = class_number(model, &class);
                // A model value may change from row to row: nothing of it is remembered.
                if site.model.is_some() {
                    site.class = Some((class, position));
                }
                position
            }
        };
        model.probability(&site.scores, position)
    } else {
        model.class_of(&site.scores).and_then(|number| model.probability(&site.scores, number))
    };
    probability.and_then(IntoDatum::into_datum).unwrap_or_else(|| call.null())
}

/// What a model argument of any of the three forms is.
enum Named {
    /// An id or a name.
    Key(ModelKey),
    /// A model value.
    Value(Rc<Model>),
}

/// Reads the first argument of a call.
fn named(call: Call, datum: pg_sys::Datum) -> Named {
    match call.type_of(0) {
        pg_sys::INT8OID => Named::Key(ModelKey::Id(datum.value() as i64)),
        pg_sys::TEXTOID => {
            // SAFETY: a text argument.
            let name = unsafe { String::from_utf8_lossy(types::varlena_bytes(datum)).into_owned() };
            Named::Key(ModelKey::Name(name))
        }
        _ => {
            // SAFETY: a corgipile.model argument.
            let bytes = unsafe { types::varlena_bytes(datum) };
            Named::Value(Rc::new(Model::decode(bytes).unwrap_or_else(|e| error::raise(e))))
        }
    }
}

/// The model that the first argument means (for other functions).
pub fn model_argument(call: Call) -> Option<Rc<Model>> {
    Some(match named(call, call.get(0)?) {
        Named::Key(key) => catalog::required(&key).model,
        Named::Value(model) => model,
    })
}

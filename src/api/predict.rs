//! `predict`, `predict_proba`, `predict_score`, `predict_value`: a model (id, name or value) applied
//! to an array, to indices and values, or to a row whose columns are found by name.
//!
//! The model is looked up once per statement and call site, and again when the visible state of the
//! database may have changed.

use super::arguments::Call;
use crate::catalog::{self, ModelKey};
use crate::customscan::tuple_shuffle::element_of;
use crate::error::{self, ColumnNames, RowError};
use crate::pg::array::{self, Element, RawArray, Unusable};
use crate::pg::fill::{Column, Stop};
use crate::pg::raw::plain;
use crate::pg::types;
use crate::pg_function;
use corgipile_core::model::Model;
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
    /// Works out the roles of the first `len` arguments from their types.
    fn new(call: Call, len: usize) -> Self {
        types::require_utf8();
        // SAFETY: a catalog look-up by oid.
        let is_array = |i: usize| i < len && unsafe { pg_sys::get_element_type(call.type_of(i)) != pg_sys::InvalidOid };
        let input = if !is_array(1) {
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
        }
    }

    /// The site of this call, whose model and features are the first `len` arguments.
    unsafe fn of<'a>(call: Call, len: usize) -> &'a mut Self {
        // SAFETY: fn_extra is ours; the site lives in the function's memory context and is dropped with it.
        unsafe {
            let flinfo = (*call.0).flinfo;
            if (*flinfo).fn_extra.is_null() {
                let site = PgMemoryContexts::For((*flinfo).fn_mcxt).leak_and_drop_on_delete(Self::new(call, len));
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
            Named::Value(model) => return model,
        };
        let now = stamp();
        match &self.model {
            Some(model) if self.stamp == now && self.key.as_ref() == Some(&key) => Rc::clone(model),
            _ => {
                let stored = catalog::lookup(&key).unwrap_or_else(|| catalog::no_such_model(&key));
                self.key = Some(key);
                self.stamp = now;
                self.class = None;
                self.typed.clear();
                self.model = Some(Rc::clone(&stored.model));
                stored.model
            }
        }
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
    fn read_values(&mut self, datum: pg_sys::Datum, element: Element) {
        let array = open(datum).unwrap_or_else(|what| self.fail(Column::Values, what));
        self.values.resize(array.len, 0.0);
        // SAFETY: `values` has room for all elements.
        if let Some(at) = unsafe { array::copy_values(array, element, self.values.as_mut_ptr()) } {
            self.fail_row(RowError::NotFinite(at));
        }
    }

    /// Copies feature numbers into `self.indices`, from 1 to 0-based.
    fn read_indices(&mut self, datum: pg_sys::Datum, element: Element) {
        let array = open(datum).unwrap_or_else(|what| self.fail(Column::Indices, what));
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
    fn score(&mut self, call: Call, model: &Model) -> Option<()> {
        let sparse = match self.input {
            Input::Dense(element) => {
                self.read_values(call.get(1)?, element);
                false
            }
            Input::Sparse(index, value) => {
                let (k, v) = (call.get(1)?, call.get(2)?);
                self.read_values(v, value);
                self.read_indices(k, index);
                true
            }
            Input::Row => {
                // SAFETY: a composite argument by declaration.
                let columns = unsafe { row_columns(call.get(1)?, model) }?;
                let (type_oid, datum) = *columns.last()?;
                self.read_values(datum, element_of(type_oid, model.header.features.last()?, false));
                if columns.len() == 2 {
                    let (type_oid, datum) = columns[0];
                    self.read_indices(datum, element_of(type_oid, &model.header.features[0], true));
                }
                columns.len() == 2
            }
        };
        let features =
            if sparse { Features::Sparse(&self.indices, &self.values) } else { Features::Dense(&self.values) };
        model.scores(features, &mut self.scores).unwrap_or_else(|e| error::raise(e));
        Some(())
    }
}

/// Opens an array argument; detoasted copies go to the current context.
fn open(datum: pg_sys::Datum) -> Result<RawArray, Unusable> {
    // SAFETY: an array by the type of the argument. Only detoasting calls the server, which needs the guard.
    unsafe {
        if array::is_toasted(datum) {
            pg_guard_ffi_boundary(|| array::open(datum, pg_sys::CurrentMemoryContext))
        } else {
            array::open(datum, pg_sys::CurrentMemoryContext)
        }
    }
}

/// The model's feature columns in a row, by name; `None` if one is NULL.
unsafe fn row_columns(row: pg_sys::Datum, model: &Model) -> Option<Vec<(pg_sys::Oid, pg_sys::Datum)>> {
    let wanted = &model.header.features;
    if wanted.is_empty() || wanted.iter().any(String::is_empty) {
        error::fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN,
            "the model was trained on expressions, so its features cannot be found in a row by name",
            Some("Pass the features as arrays."),
        );
    }
    // SAFETY: by contract a composite value; its descriptor stays pinned while it is read.
    unsafe {
        let header = pg_sys::pg_detoast_datum(row.cast_mut_ptr()).cast::<pg_sys::HeapTupleHeaderData>();
        let type_oid = (*header).t_choice.t_datum.datum_typeid;
        let typmod = (*header).t_choice.t_datum.datum_typmod;
        let descriptor = pg_sys::lookup_rowtype_tupdesc(type_oid, typmod);
        let mut tuple: pg_sys::HeapTupleData = std::mem::zeroed();
        tuple.t_len = pgrx::varlena::varsize_4b(header.cast()) as u32;
        tuple.t_data = header;
        let mut found = Vec::with_capacity(wanted.len());
        let mut missing = None;
        let mut is_null = false;
        for name in wanted {
            let Ok(c_name) = std::ffi::CString::new(name.as_str()) else { continue };
            let number = pg_sys::SPI_fnumber(descriptor, c_name.as_ptr());
            if number <= 0 {
                missing = Some(name);
                break;
            }
            let mut null = false;
            let datum = pg_sys::heap_getattr(&mut tuple, number, descriptor, &mut null);
            is_null |= null;
            found.push((pg_sys::SPI_gettypeid(descriptor, number), datum));
        }
        if (*descriptor).tdrefcount >= 0 {
            pg_sys::DecrTupleDescRefCount(descriptor);
        }
        if let Some(name) = missing {
            error::fail(
                PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN,
                format!("the row has no column \"{name}\", which the model needs"),
                Some(&format!("The model's feature columns are: {}.", wanted.join(", "))),
            );
        }
        (!is_null).then_some(found)
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

/// Site (with the scores) and model of a call; `None` when an argument is NULL.
unsafe fn evaluate<'a>(call: Call) -> Option<(&'a mut Site, Rc<Model>)> {
    // SAFETY: passed on.
    unsafe { evaluate_first(call, call.len()) }
}

/// The same where not all arguments are model and features.
unsafe fn evaluate_first<'a>(call: Call, len: usize) -> Option<(&'a mut Site, Rc<Model>)> {
    let datum = call.get(0)?;
    // SAFETY: a call of one of the functions above.
    let site = unsafe { Site::of(call, len) };
    let model = site.model(call, datum);
    site.score(call, &model)?;
    Some((site, model))
}

unsafe fn predict(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    let Some((site, model)) = (unsafe { evaluate(call) }) else { return call.null() };
    let text = match model.class_of(&site.scores).and_then(|number| model.header.classes.get(number)) {
        Some(class) => class.as_str().into_datum(),
        None => model.score_of(&site.scores).to_string().into_datum(),
    };
    text.unwrap_or_else(|| call.null())
}

unsafe fn predicted_class(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    let Some((site, model)) = (unsafe { evaluate_first(call, call.len() - 1) }) else { return call.null() };
    if site.typed.is_empty() {
        let result = call.type_of(call.len() - 1);
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
    match unsafe { evaluate(call) } {
        Some((site, model)) => model.score_of(&site.scores).into_datum().unwrap_or_else(|| call.null()),
        None => call.null(),
    }
}

unsafe fn predict_value(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    let Some((site, model)) = (unsafe { evaluate(call) }) else { return call.null() };
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
    let Some((site, model)) = (unsafe { evaluate(call) }) else { return call.null() };
    let probability = model.class_of(&site.scores).and_then(|number| model.probability(&site.scores, number));
    probability.and_then(IntoDatum::into_datum).unwrap_or_else(|| call.null())
}

unsafe fn predict_proba(call: Call) -> pg_sys::Datum {
    // SAFETY: passed on.
    let Some((site, model)) = (unsafe { evaluate(call) }) else { return call.null() };
    if !model.header.loss.has_probability() {
        error::fail(
            PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE,
            format!("a model with loss \"{}\" gives no probabilities", model.header.loss.name()),
            Some("Train with loss => 'log_loss', 'modified_huber' or 'softmax', or use predict_score."),
        );
    }
    let last = call.len() - 1;
    let probability = if call.type_of(last) != pg_sys::TEXTOID {
        model.class_of(&site.scores).and_then(|number| model.probability(&site.scores, number))
    } else {
        // SAFETY: a text argument.
        let Some(class) = call.get(last).and_then(|d| unsafe { String::from_datum(d, false) }) else {
            return call.null();
        };
        let position = match &site.class {
            Some((known, position)) if *known == class => *position,
            _ => {
                let classes = &model.header.classes;
                let Some(position) = classes.iter().position(|c| *c == class) else {
                    let list = if classes.is_empty() { "none".into() } else { classes.join(", ") };
                    error::fail(
                        PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                        format!("the model has no class \"{class}\""),
                        Some(&format!("Its classes are: {list}.")),
                    );
                };
                // A model value may change from row to row: nothing of it is remembered.
                if site.model.is_some() {
                    site.class = Some((class, position));
                }
                position
            }
        };
        model.probability(&site.scores, position)
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
        Named::Key(key) => catalog::lookup(&key).unwrap_or_else(|| catalog::no_such_model(&key)).model,
        Named::Value(model) => model,
    })
}

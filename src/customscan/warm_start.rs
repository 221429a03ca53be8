//! A training that starts from the weights of a stored model (option `warm_start`).

use crate::catalog::{self, ModelKey};
use crate::error;
use crate::pg::types;
use corgipile_core::Error;
use corgipile_core::labels::LabelCoder;
use corgipile_core::model::Model;
use corgipile_core::params::Params;
use corgipile_core::tuples::Density;
use corgipile_core::weights::Rows;
use pgrx::pg_sys;
use std::rc::Rc;

/// The model to start from.
pub struct WarmStart {
    model: Rc<Model>,
    coder: LabelCoder,
    rows: Rows,
}

fn refuse(what: String) -> ! {
    error::raise(Error::WarmStart(what))
}

impl WarmStart {
    /// Finds the model that the options name, if they do, and checks that a target of this type and the
    /// loss asked for continue it.
    pub fn find(params: &Params, target_type: pg_sys::Oid) -> Option<Self> {
        let key = ModelKey::Name(params.warm_start.clone()?);
        let model = catalog::required(&key).model;
        let header = &model.header;
        let type_name = types::type_name(types::base_type(target_type));
        if header.target_type != type_name {
            refuse(format!("its target has the type {}, this one {type_name}", header.target_type));
        }
        if let Some(loss) = params.loss.filter(|loss| *loss != header.loss) {
            refuse(format!("it was trained with the loss {}, not {}", header.loss.name(), loss.name()));
        }
        let classes: Option<Vec<_>> =
            header.classes.iter().map(|text| types::class_of_text(text, target_type)).collect();
        let Some(classes) = classes else { refuse("its classes cannot be read".into()) };
        let coder = LabelCoder::continued(types::target_kind(target_type), header.loss, classes)
            .unwrap_or_else(|e| error::raise(e));
        let row = header.n_features + 1;
        let mut rows = Rows { features: header.n_features, weights: Vec::new(), intercepts: Vec::new() };
        let bytes = model.weights.len() * 4;
        if rows.weights.try_reserve_exact(model.weights.len()).is_err() {
            error::raise(Error::OutOfMemory { bytes, purpose: "the weights to start from" });
        }
        for output in model.weights.chunks_exact(row) {
            rows.weights.extend_from_slice(&output[..row - 1]);
            rows.intercepts.push(output[row - 1]);
        }
        Some(Self { model, coder, rows })
    }

    /// A coder that knows the model's classes, and no others.
    pub fn coder(&self) -> LabelCoder {
        self.coder.clone()
    }

    /// Refuses features of other names. Names of expressions are empty, and not compared.
    pub fn check_names(&self, features: &[String]) {
        let header = &self.model.header;
        if header.encoding.is_some() && features.iter().all(|name| !name.is_empty()) {
            refuse(format!("it encodes its columns, and {} is an array as it stands", features.join(", ")));
        }
        let names = |names: &[String]| Some(names.join(", ")).filter(|_| names.iter().all(|name| !name.is_empty()));
        if let (Some(theirs), Some(ours)) = (names(&header.features), names(features))
            && !ours.is_empty()
            && !theirs.is_empty()
            && theirs != ours
        {
            refuse(format!("its features are {theirs}, not {ours}"));
        }
    }

    /// The weights, if the features have the model's shape.
    pub fn rows(&self, density: Density) -> &Rows {
        let header = &self.model.header;
        match density {
            Density::Sparse if !header.sparse => refuse("its features are dense, these are sparse".into()),
            Density::Dense(_) if header.sparse => refuse("its features are sparse, these are dense".into()),
            Density::Dense(dims) if dims != header.n_features => {
                refuse(format!("it has {} features, these are {dims}", header.n_features))
            }
            _ => &self.rows,
        }
    }
}

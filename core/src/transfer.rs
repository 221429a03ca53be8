//! A model as JSON and back: under the names that scikit-learn uses for a fitted linear model, so that
//! other programs can read it without this one.

use crate::model::{Header, Model};
use crate::{Error, Result};
use serde_json::{Map, Value, json};

/// The version of the form.
const FORMAT: u64 = 1;
/// Numbers of a model, more than which is refused: 1 GB of them.
const MOST: usize = 1 << 28;

fn bad(what: impl Into<String>) -> Error {
    Error::BadModel(what.into())
}

/// JSON has no −0.
fn number(x: f32) -> Value {
    if x == 0.0 && x.is_sign_negative() { json!("-0") } else { json!(f64::from(x)) }
}

fn read_number(value: &Value) -> Result<f32> {
    let x = match value {
        Value::String(text) if text == "-0" => Some(-0.0),
        other => other.as_f64(),
    };
    x.map(|x| x as f32).filter(|x| x.is_finite()).ok_or_else(|| bad(format!("{value} is not a weight")))
}

fn array<'a>(map: &'a Map<String, Value>, name: &str) -> Result<&'a Vec<Value>> {
    map.get(name).and_then(Value::as_array).ok_or_else(|| bad(format!("\"{name}\" is not an array")))
}

impl Model {
    /// The model: `coef_` (a row of weights, softmax one a class), `intercept_`, `classes_`, and the header.
    pub fn to_json(&self) -> Result<Value> {
        let n = self.header.n_features;
        let rows: Vec<&[f32]> = self.weights.chunks_exact(n + 1).collect();
        let coef: Vec<Vec<Value>> = rows.iter().map(|row| row[..n].iter().map(|w| number(*w)).collect()).collect();
        let intercept: Vec<Value> = rows.iter().map(|row| number(row[n])).collect();
        let header = serde_json::to_value(&self.header).map_err(|e| bad(e.to_string()))?;
        Ok(json!({
            "corgipile_model": FORMAT,
            "coef_": coef,
            "intercept_": intercept,
            "classes_": self.header.classes,
            "n_features_in_": n,
            "header": header,
        }))
    }

    /// Reads what [`Model::to_json`] wrote: the same weights to the bit. Anything else is an error.
    pub fn from_json(value: &Value) -> Result<Self> {
        let map = value.as_object().ok_or_else(|| bad("not a JSON object"))?;
        match map.get("corgipile_model").and_then(Value::as_u64) {
            Some(FORMAT) => {}
            Some(other) => {
                return Err(bad(format!("form {other} is not known to this version, which reads up to {FORMAT}")));
            }
            None => return Err(bad("\"corgipile_model\" is missing: this is not an exported model")),
        }
        let header = map.get("header").ok_or_else(|| bad("\"header\" is missing"))?;
        let header: Header = serde_json::from_value(header.clone()).map_err(|e| bad(format!("header: {e}")))?;
        let (coef, intercept) = (array(map, "coef_")?, array(map, "intercept_")?);
        let n = header.n_features;
        if coef.len() != intercept.len() || n.saturating_add(1).saturating_mul(coef.len()) > MOST {
            return Err(bad("\"coef_\", \"intercept_\" and the number of features do not agree"));
        }
        if map.get("classes_") != Some(&json!(header.classes)) {
            return Err(bad("\"classes_\" are not those of the header"));
        }
        let mut weights = Vec::new();
        for (row, intercept) in coef.iter().zip(intercept) {
            let row = row.as_array().filter(|row| row.len() == n);
            let row = row.ok_or_else(|| bad(format!("a row of \"coef_\" has not {n} numbers")))?;
            weights.try_reserve(n + 1).map_err(|_| Error::OutOfMemory { bytes: n * 4, purpose: "the model" })?;
            for value in row.iter().chain([intercept]) {
                weights.push(read_number(value)?);
            }
        }
        // What the store would refuse to read is refused here.
        Model::decode(&Model { header, weights: weights.into() }.encode()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::Loss;
    use crate::model::tests::sample;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn models_come_back_to_the_bit(bits in prop::collection::vec(any::<u32>(), 2..40), softmax: bool) {
            let weights: Vec<f32> = bits.iter().map(|b| f32::from_bits(*b)).map(|w| if w.is_finite() { w } else { -0.0 }).collect();
            let weights = if softmax { weights.repeat(3) } else { weights };
            let model = sample(weights, if softmax { Loss::Softmax } else { Loss::Hinge }, if softmax { 3 } else { 2 });
            // By way of text, as between two servers.
            let text = model.to_json().expect("exports").to_string();
            let back = Model::from_json(&serde_json::from_str(&text).expect("JSON")).expect("imports");
            prop_assert_eq!(back.encode().expect("bytes"), model.encode().expect("bytes"));
        }

        #[test]
        fn changed_exports_are_errors_or_models(at in 0usize..3000, with in "[0-9a-z\\[\\]{},:\"-]{1,3}") {
            let text = sample(vec![1.0, 2.0, 0.5], Loss::LogLoss, 2).to_json().expect("exports").to_string();
            let at = at % text.len();
            let changed = format!("{}{}{}", &text[..at], with, &text[at + 1..]);
            let imported = serde_json::from_str::<Value>(&changed).map(|value| Model::from_json(&value));
            if let Ok(Ok(model)) = imported {
                prop_assert!(model.encode().is_ok());
            }
        }
    }

    #[test]
    fn hostile_exports_say_what_is_wrong() {
        let good = sample(vec![1.0, 2.0, 0.5], Loss::LogLoss, 2).to_json().expect("exports");
        let with = |path: &str, value: Value| {
            let mut changed = good.clone();
            *changed.pointer_mut(path).expect("is there") = value;
            Model::from_json(&changed).expect_err(path).to_string()
        };
        assert!(with("/header/n_features", json!(4_000_000_000_000_000_000u64)).contains("do not agree"));
        assert!(with("/coef_/0/0", json!("NaN")).contains("is not a weight"));
        assert!(with("/coef_/0/0", json!(1e300)).contains("is not a weight"));
        assert!(with("/coef_/0", json!([1.0])).contains("has not 2 numbers"));
        assert!(with("/coef_", json!([])).contains("do not agree"));
        assert!(with("/classes_", json!(["a"])).contains("classes"));
        assert!(with("/header/classes", json!(["a", "b", "c"])).contains("classes"));
        assert!(with("/corgipile_model", json!(2)).contains("form 2"));
        assert!(with("/header", json!(7)).contains("header"));
        assert!(Model::from_json(&json!([])).is_err() && Model::from_json(&json!({})).is_err());
    }
}

//! A model as JSON and back: under the names that scikit-learn uses for a fitted linear model, so that
//! other programs can read it without this one.

use crate::model::{Header, Model};
use crate::{Error, Result};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The version of the form.
const FORMAT: u64 = 1;
/// Weights of a model that is exported or imported: PostgreSQL's jsonb holds 256 MB, at 16 bytes each.
const MOST: usize = 1 << 24;
/// Bytes of a weight as text, with what parts it from the next: a sign, 17 digits, a point, an exponent.
const MOST_DIGITS: usize = 26;

fn bad(what: impl Into<String>) -> Error {
    Error::BadModel(what.into())
}

/// A weight as it stands in JSON, which has no −0.
struct Weight(f32);

impl Weight {
    fn write(&self, out: &mut String) {
        use std::fmt::Write;
        // Writing to a string does not fail.
        let _ = match self.0 {
            x if x == 0.0 && x.is_sign_negative() => write!(out, "\"-0\""),
            x => write!(out, "{:?}", f64::from(x)),
        };
    }
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = f64;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a weight")
            }

            fn visit_f64<E: de::Error>(self, x: f64) -> std::result::Result<f64, E> {
                Ok(x)
            }

            fn visit_i64<E: de::Error>(self, x: i64) -> std::result::Result<f64, E> {
                Ok(x as f64)
            }

            fn visit_u64<E: de::Error>(self, x: u64) -> std::result::Result<f64, E> {
                Ok(x as f64)
            }

            fn visit_str<E: de::Error>(self, x: &str) -> std::result::Result<f64, E> {
                if x == "-0" { Ok(-0.0) } else { Err(E::custom(format!("\"{x}\" is not a weight"))) }
            }
        }
        let x = from.deserialize_any(Reader)? as f32;
        if x.is_finite() {
            Ok(Self(x))
        } else {
            Err(de::Error::custom("a number beyond single precision is not a weight"))
        }
    }
}

/// A row of weights: its memory is asked for, not taken for granted.
struct Row(Vec<f32>);

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Row;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a row of weights")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> std::result::Result<Row, A::Error> {
                let mut row = Vec::new();
                while let Some(Weight(x)) = all.next_element()? {
                    row.try_reserve(1).map_err(|_| de::Error::custom("there is not enough memory for the weights"))?;
                    row.push(x);
                }
                Ok(Row(row))
            }
        }
        from.deserialize_seq(Reader)
    }
}

/// The form as it is read.
#[derive(Deserialize)]
struct Exported {
    corgipile_model: Option<u64>,
    #[serde(default)]
    coef_: Vec<Row>,
    intercept_: Option<Row>,
    classes_: Option<Vec<String>>,
    header: Option<Value>,
}

/// SQL has no unsigned integers: a count beyond its own could not be shown.
fn check_integers(value: &Value) -> Result<()> {
    match value {
        Value::Number(n) if n.as_u64().is_some_and(|n| n > i64::MAX as u64) => {
            Err(bad(format!("{n} is too large a number")))
        }
        Value::Array(all) => all.iter().try_for_each(check_integers),
        Value::Object(map) => map.iter().try_for_each(|(name, value)| match (name.as_str(), value.as_u64()) {
            ("epoch", Some(epoch)) if epoch > i32::MAX as u64 => Err(bad(format!("{epoch} is too large an epoch"))),
            _ => check_integers(value),
        }),
        _ => Ok(()),
    }
}

impl Model {
    /// The model as JSON text: `coef_` (a row of weights, softmax one a class), `intercept_`, `classes_`, and the
    /// header. `interrupts` is called every now and then, and may end it all.
    pub fn to_json(&self, mut interrupts: impl FnMut()) -> Result<String> {
        let n = self.header.n_features;
        if self.weights.len() > MOST {
            return Err(Error::ModelTooLarge { weights: self.weights.len(), limit: MOST });
        }
        let json = |value: serde_json::Result<String>| value.map_err(|e| bad(e.to_string()));
        let (header, classes) =
            (json(serde_json::to_string(&self.header))?, json(serde_json::to_string(&self.header.classes))?);
        let mut out = String::new();
        let bytes = self.weights.len() * MOST_DIGITS + header.len() + 2 * classes.len() + 200;
        out.try_reserve(bytes).map_err(|_| Error::OutOfMemory { bytes, purpose: "the exported model" })?;
        out.push_str(&format!("{{\"corgipile_model\": {FORMAT}, \"n_features_in_\": {n}, \"coef_\": ["));
        let rows = || self.weights.chunks_exact(n + 1);
        for (i, row) in rows().enumerate() {
            out.push_str(if i > 0 { ", [" } else { "[" });
            for (k, weight) in row[..n].iter().enumerate() {
                if k % 4096 == 0 {
                    interrupts();
                }
                out.push_str(if k > 0 { ", " } else { "" });
                Weight(*weight).write(&mut out);
            }
            out.push(']');
        }
        out.push_str("], \"intercept_\": [");
        for (i, row) in rows().enumerate() {
            out.push_str(if i > 0 { ", " } else { "" });
            Weight(row[n]).write(&mut out);
        }
        out.push_str(&format!("], \"classes_\": {classes}, \"header\": {header}}}"));
        Ok(out)
    }

    /// Reads what [`Model::to_json`] wrote: the same weights to the bit. Anything else is an error.
    pub fn from_json(text: &str) -> Result<Self> {
        if !text.trim_start().starts_with('{') {
            return Err(bad("not a JSON object"));
        }
        let form: Exported = serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
        match form.corgipile_model {
            Some(FORMAT) => {}
            Some(other) => {
                return Err(bad(format!("form {other} is not known to this version, which reads up to {FORMAT}")));
            }
            None => return Err(bad("\"corgipile_model\" is missing: this is not an exported model")),
        }
        let header = form.header.ok_or_else(|| bad("\"header\" is missing"))?;
        check_integers(&header)?;
        let header: Header = serde_json::from_value(header).map_err(|e| bad(format!("header: {e}")))?;
        let Row(intercept) = form.intercept_.ok_or_else(|| bad("\"intercept_\" is missing"))?;
        let n = header.n_features;
        let count = n.saturating_add(1).saturating_mul(form.coef_.len());
        if form.coef_.len() != intercept.len() || count > MOST {
            return Err(bad("\"coef_\", \"intercept_\" and the number of features do not agree"));
        }
        if form.classes_.as_ref() != Some(&header.classes) {
            return Err(bad("\"classes_\" are not those of the header"));
        }
        if form.coef_.iter().any(|Row(row)| row.len() != n) {
            return Err(bad(format!("a row of \"coef_\" has not {n} numbers")));
        }
        let mut weights = Vec::new();
        weights.try_reserve(count).map_err(|_| Error::OutOfMemory { bytes: count * 4, purpose: "the model" })?;
        for (Row(row), intercept) in form.coef_.into_iter().zip(intercept) {
            weights.extend(row);
            weights.push(intercept);
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
    use serde_json::json;

    proptest! {
        #[test]
        fn models_come_back_to_the_bit(bits in prop::collection::vec(any::<u32>(), 2..40), softmax: bool) {
            let weights: Vec<f32> = bits.iter().map(|b| f32::from_bits(*b)).map(|w| if w.is_finite() { w } else { -0.0 }).collect();
            let weights = if softmax { weights.repeat(3) } else { weights };
            let model = sample(weights, if softmax { Loss::Softmax } else { Loss::Hinge }, if softmax { 3 } else { 2 });
            // By way of text, as between two servers.
            let text = model.to_json(|| ()).expect("exports");
            let text = serde_json::from_str::<Value>(&text).expect("is JSON").to_string();
            let back = Model::from_json(&text).expect("imports");
            prop_assert_eq!(back.encode().expect("bytes"), model.encode().expect("bytes"));
        }

        #[test]
        fn changed_exports_are_errors_or_models(at in 0usize..3000, with in "[0-9a-z\\[\\]{},:\"-]{1,3}") {
            let text = sample(vec![1.0, 2.0, 0.5], Loss::LogLoss, 2).to_json(|| ()).expect("exports");
            let at = at % text.len();
            let changed = format!("{}{}{}", &text[..at], with, &text[at + 1..]);
            if let Ok(model) = Model::from_json(&changed) {
                prop_assert!(model.encode().is_ok());
            }
        }
    }

    #[test]
    fn hostile_exports_say_what_is_wrong() {
        let good = sample(vec![1.0, 2.0, 0.5], Loss::LogLoss, 2).to_json(|| ()).expect("exports");
        let good: Value = serde_json::from_str(&good).expect("is JSON");
        let with = |path: &str, value: Value| {
            let mut changed = good.clone();
            *changed.pointer_mut(path).expect("is there") = value;
            Model::from_json(&changed.to_string()).expect_err(path).to_string()
        };
        assert!(with("/header/n_features", json!(4_000_000_000_000_000_000u64)).contains("do not agree"));
        assert!(with("/coef_/0/0", json!("NaN")).contains("is not a weight"));
        assert!(with("/coef_/0/0", json!(1e300)).contains("is not a weight"));
        assert!(with("/coef_/0", json!([1.0])).contains("has not 2 numbers"));
        assert!(with("/coef_", json!([])).contains("do not agree"));
        assert!(with("/classes_", json!(["a"])).contains("classes"));
        assert!(with("/header/classes", json!(["a", "b", "c"])).contains("classes"));
        assert!(with("/corgipile_model", json!(2)).contains("form 2"));
        assert!(with("/header/rows", json!(u64::MAX)).contains("too large"));
        assert!(with("/header/history/0/epoch", json!(u32::MAX)).contains("too large"));
        assert!(with("/header", json!(7)).contains("header"));
        assert!(Model::from_json("[]").is_err() && Model::from_json("{}").is_err());
    }
}

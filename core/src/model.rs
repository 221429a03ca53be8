//! The model value: an immutable header (JSON) and packed weights, with a checksum.
//!
//! Layout, little-endian: magic `CGPM`, format u16, reserved u16, header length u32, weight count
//! u64, header bytes, weights as f32 (intercept last), CRC-32 of all that precedes. Any older
//! format stays readable; a newer one is an error that says so.

use crate::loss::{Loss, sigmoid};
use crate::params::Params;
use crate::trainer::{EpochReport, StopReason};
use crate::tuples::Features;
use crate::weights::{dot, sparse_dot};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 4] = b"CGPM";
/// The format written by this version.
pub const FORMAT: u16 = 1;
const PREFIX: usize = 20;

/// What is known about a model beside its weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The loss it was trained with.
    pub loss: Loss,
    /// Number of features, without the intercept.
    pub n_features: usize,
    /// Whether features come as indices and values.
    pub sparse: bool,
    /// Name of the target column; empty for an expression.
    pub target: String,
    /// SQL name of the target's type, qualified where the search path might not have it.
    pub target_type: String,
    /// Names of the feature columns, indices first where there are any; empty for expressions.
    pub features: Vec<String>,
    /// The two classes in their text form, sorted; none for a quantity.
    pub classes: Vec<String>,
    /// The parameters, with what was chosen in place of 'auto'.
    pub params: Params,
    /// Rows trained on in each epoch.
    pub rows: u64,
    /// Rows left out because of NULL.
    pub rows_skipped: u64,
    /// Each epoch.
    pub history: Vec<EpochReport>,
    /// Why training ended.
    pub stop: StopReason,
    /// Number of blocks; 0 where the input could not be read in blocks.
    pub blocks: u32,
    /// Mean number of blocks in a full buffer.
    pub blocks_per_buffer: f64,
    /// Most memory held at a time, in bytes.
    pub peak_memory: u64,
    /// Wall time of training in milliseconds.
    pub duration_ms: f64,
}

/// A model: header and weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The header.
    pub header: Header,
    /// The weights, without the intercept.
    pub weights: Vec<f32>,
    /// The intercept.
    pub intercept: f32,
}

fn bad(what: impl Into<String>) -> Error {
    Error::BadModel(what.into())
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    bytes.get(at..at + N).and_then(|b| b.try_into().ok()).ok_or_else(|| bad("too short"))
}

/// Format, header length, weight count; checks magic, length and checksum.
fn open(bytes: &[u8]) -> Result<(u16, usize, usize)> {
    if word::<4>(bytes, 0)? != *MAGIC {
        return Err(bad("not a model"));
    }
    let format = u16::from_le_bytes(word(bytes, 4)?);
    if format == 0 || format > FORMAT {
        return Err(bad(format!("format {format} is not known to this version, which reads up to {FORMAT}")));
    }
    let header = u32::from_le_bytes(word(bytes, 8)?) as usize;
    let weights = usize::try_from(u64::from_le_bytes(word(bytes, 12)?)).map_err(|_| bad("too large"))?;
    let expected = weights.checked_mul(4).and_then(|w| w.checked_add(header)).and_then(|n| n.checked_add(PREFIX + 4));
    if expected != Some(bytes.len()) || weights == 0 {
        return Err(bad(format!("{} bytes are not what its header says", bytes.len())));
    }
    let body = &bytes[..bytes.len() - 4];
    if crc32fast::hash(body).to_le_bytes() != word(bytes, bytes.len() - 4)? {
        return Err(bad("checksum does not match"));
    }
    Ok((format, header, weights))
}

impl Model {
    /// The bytes of the model.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let header = serde_json::to_vec(&self.header).map_err(|e| bad(e.to_string()))?;
        let length = u32::try_from(header.len()).map_err(|_| bad("header too large"))?;
        let total = PREFIX + header.len() + (self.weights.len() + 1) * 4 + 4;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(total).map_err(|_| Error::OutOfMemory { bytes: total, purpose: "the model" })?;
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&(self.weights.len() as u64 + 1).to_le_bytes());
        bytes.extend_from_slice(&header);
        for weight in self.weights.iter().chain([&self.intercept]) {
            bytes.extend_from_slice(&weight.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        Ok(bytes)
    }

    /// Reads a model back.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (_, header_len, count) = open(bytes)?;
        let header: Header =
            serde_json::from_slice(&bytes[PREFIX..PREFIX + header_len]).map_err(|e| bad(format!("header: {e}")))?;
        let mut weights = Vec::new();
        weights.try_reserve_exact(count).map_err(|_| Error::OutOfMemory { bytes: count * 4, purpose: "the model" })?;
        let packed = &bytes[PREFIX + header_len..bytes.len() - 4];
        weights.extend(packed.chunks_exact(4).map(|w| f32::from_le_bytes([w[0], w[1], w[2], w[3]])));
        if !weights.iter().all(|w| w.is_finite()) {
            return Err(bad("a weight is not finite"));
        }
        let intercept = weights.pop().unwrap_or(0.0);
        let two = if header.loss.is_classification() { 2 } else { 0 };
        if header.n_features != weights.len() || header.classes.len() != two {
            return Err(bad("header and weights do not agree"));
        }
        Ok(Self { header, weights, intercept })
    }

    /// The score w·x + b. A dense vector must have as many values as the model has features; a
    /// sparse index beyond them has weight 0.
    pub fn score(&self, x: Features<'_>) -> Result<f64> {
        let sum = match x {
            Features::Dense(x) if x.len() == self.weights.len() => dot(&self.weights, x),
            Features::Dense(x) => {
                return Err(Error::FeatureCount { expected: self.weights.len(), found: x.len() });
            }
            Features::Sparse(k, x) => sparse_dot(&self.weights, k, x),
        };
        Ok(f64::from(sum + self.intercept))
    }

    /// The class of a score, in text form; `None` for a quantity.
    pub fn class_of(&self, score: f64) -> Option<&str> {
        self.header.classes.get(usize::from(score > 0.0)).map(String::as_str)
    }

    /// The probability of the predicted class; `None` where the loss has none.
    pub fn probability_of_predicted(&self, score: f64) -> Option<f64> {
        self.header.loss.has_probability().then(|| sigmoid(score.abs()))
    }

    /// The probability of class `class` (0 or 1, sorted).
    pub fn probability(&self, score: f64, class: usize) -> Option<f64> {
        self.header.loss.has_probability().then(|| sigmoid(if class == 0 { -score } else { score }))
    }

    /// Bytes that the decoded model takes.
    pub fn bytes(&self) -> usize {
        self.weights.len() * 4 + size_of::<Self>() + self.header.history.len() * size_of::<EpochReport>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(weights: Vec<f32>, intercept: f32) -> Model {
        let header = Header {
            loss: Loss::LogLoss,
            n_features: weights.len(),
            sparse: false,
            target: "label".into(),
            target_type: "integer".into(),
            features: vec!["features_v".into()],
            classes: vec!["-1".into(), "1".into()],
            params: Params::default(),
            rows: 10,
            rows_skipped: 0,
            history: vec![EpochReport {
                epoch: 1,
                rows: 10,
                loss: 0.1 + 0.2,
                accuracy: Some(1.0 / 3.0),
                learning_rate: 0.01,
            }],
            stop: StopReason::MaxEpochs,
            blocks: 3,
            blocks_per_buffer: 1.5,
            peak_memory: 1 << 40,
            duration_ms: 0.1,
        };
        Model { header, weights, intercept }
    }

    proptest! {
        #[test]
        fn models_come_back_to_the_bit(weights in prop::collection::vec(-1e30f32..1e30, 0..50), intercept in -10f32..10.0) {
            let model = sample(weights, intercept);
            prop_assert_eq!(Model::decode(&model.encode().expect("encodes")).expect("decodes"), model);
        }

        #[test]
        fn any_changed_byte_is_an_error(at in 0usize..400, flip in 1u8..=255) {
            let mut bytes = sample(vec![1.0, 2.0], 0.5).encode().expect("encodes");
            let at = at % bytes.len();
            // The two reserved bytes are covered by the checksum as well.
            bytes[at] ^= flip;
            prop_assert!(Model::decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_an_error_not_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Model::decode(&bytes).is_err());
            let mut magic = MAGIC.to_vec();
            magic.extend(bytes);
            prop_assert!(Model::decode(&magic).is_err());
        }

        #[test]
        fn most_probable_class_is_the_predicted_one(x in prop::collection::vec(-5f32..5.0, 3)) {
            let model = sample(vec![0.3, -0.2, 0.9], 0.1);
            let score = model.score(Features::Dense(&x)).expect("scores");
            let p: Vec<f64> = (0..2).map(|c| model.probability(score, c).expect("has one")).collect();
            let predicted = usize::from(model.class_of(score) == Some("1"));
            prop_assert!(p[predicted] >= p[1 - predicted]);
            prop_assert!((p[0] + p[1] - 1.0).abs() < 1e-12);
            prop_assert_eq!(model.probability_of_predicted(score), Some(p[predicted]));
        }
    }

    #[test]
    fn newer_formats_say_so() {
        let mut bytes = sample(vec![1.0], 0.0).encode().expect("encodes");
        bytes[4] = 2;
        assert!(Model::decode(&bytes).expect_err("newer").to_string().contains("format 2"));
    }

    #[test]
    fn feature_count_is_checked() {
        let error = sample(vec![1.0, 2.0], 0.0).score(Features::Dense(&[1.0])).expect_err("short");
        assert_eq!(error, Error::FeatureCount { expected: 2, found: 1 });
    }
}

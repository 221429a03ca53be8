//! The model value: an immutable header (JSON) and packed weights, with a checksum.
//!
//! Layout, little-endian: magic `CGPM`, format u16, reserved u16, header length u32, weight count
//! u64, header bytes, weights as f32 (one row, softmax one a class; a row's intercept last), CRC-32 of all that precedes. Any older
//! format stays readable; a newer one is an error that says so.

use crate::encoding::Encoding;
use crate::loss::{Loss, sigmoid};
use crate::params::Params;
use crate::plumber::{EpochTrace, Tuning};
use crate::trainer::{EpochReport, Measured, StopReason};
use crate::tuples::Features;
use crate::vector::{sparse_dot, wide_dot};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
    /// The classes in their text form, sorted; none for a quantity.
    pub classes: Vec<String>,
    /// The parameters, with what was chosen in place of 'auto'.
    pub params: Params,
    /// Rows trained on in each epoch.
    pub rows: u64,
    /// Rows left out because of NULL.
    pub rows_skipped: u64,
    /// Rows held out of training.
    #[serde(default)]
    pub rows_held_out: u64,
    /// Feature columns that had one value only (where standardised).
    pub constant_columns: usize,
    /// How features are made of the columns, where they are not arrays as they stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// The features are pgvector's vectors, not arrays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub vectors: bool,
    /// The column that says how much a row counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// Each epoch.
    pub history: Vec<EpochReport>,
    /// The finished weights on all tuples trained on, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// Why training ended.
    pub stop: StopReason,
    /// The table's cluster factor, 1 in random order, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clustering: Option<f64>,
    /// Why the order of visits was chosen, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_reason: Option<String>,
    /// Number of blocks; 0 where the input could not be read in blocks.
    pub blocks: u32,
    /// Mean number of blocks in a full buffer.
    pub blocks_per_buffer: f64,
    /// What each operator did, epoch by epoch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<EpochTrace>,
    /// What the trace says about the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuning>,
    /// Bytes of the decoded tuples kept for the epochs after the first; 0: none were.
    #[serde(default)]
    pub cache_bytes: u64,
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
    /// One row of weights (softmax: one a class), each with its intercept last.
    pub weights: Weights,
}

/// The numbers of a model: its own, or a part of bytes that others read too.
#[derive(Clone)]
pub enum Weights {
    /// Its own.
    Own(Vec<f32>),
    /// A part of an encoded model, aligned for f32.
    Shared(SharedBytes, std::ops::Range<usize>),
}

/// Bytes that several hold, such as a file in memory.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

impl std::ops::Deref for Weights {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Own(weights) => weights,
            Self::Shared(bytes, range) => {
                let bytes = (**bytes).as_ref().get(range.clone()).unwrap_or_default();
                bytemuck::try_cast_slice(bytes).unwrap_or_default()
            }
        }
    }
}

impl From<Vec<f32>> for Weights {
    fn from(weights: Vec<f32>) -> Self {
        Self::Own(weights)
    }
}

impl PartialEq for Weights {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl std::fmt::Debug for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// Length and checksum of an encoded model, from its first and its last bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// Length in bytes.
    pub len: usize,
    /// Bytes to put in front of it so that its weights are aligned.
    pub padding: usize,
    /// Its checksum.
    pub checksum: u32,
}

impl Digest {
    /// Bytes at the start of an encoded model that are looked at.
    pub const FIRST: usize = PREFIX;
    /// Bytes at its end that are looked at.
    pub const LAST: usize = 4;

    /// From the first and the last bytes of `len`; what they say is checked when the model is read.
    pub fn new(first: &[u8], last: &[u8], len: usize) -> Result<Self> {
        let header = u32::from_le_bytes(word(first, 8)?) as usize;
        let padding = (PREFIX + header).next_multiple_of(4) - PREFIX - header;
        Ok(Self { len, padding, checksum: u32::from_le_bytes(word(last, 0)?) })
    }
}

impl Header {
    /// What to call a feature, counted from 0: the column and its number in the array, from 1.
    pub fn feature_name(&self, feature: usize) -> String {
        if let Some((_, name, _)) = self.encoding.as_ref().and_then(|encoding| encoding.feature(feature)) {
            return name;
        }
        match self.features.last().map(String::as_str) {
            None | Some("") => format!("[{}]", feature + 1),
            Some(column) => format!("{column}[{}]", feature + 1),
        }
    }

    /// SQL name of the type of a prediction: that of the target's classes, or a number's.
    pub fn prediction_type(&self) -> &str {
        if self.loss.is_classification() { &self.target_type } else { "double precision" }
    }
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

/// The header of an encoded model, and where its weights are.
fn parts(bytes: &[u8]) -> Result<(Header, std::ops::Range<usize>)> {
    let (_, length, _) = open(bytes)?;
    let header = serde_json::from_slice(&bytes[PREFIX..PREFIX + length]).map_err(|e| bad(format!("header: {e}")))?;
    Ok((header, PREFIX + length..bytes.len() - 4))
}

impl Model {
    /// The bytes of the model.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let header = serde_json::to_vec(&self.header).map_err(|e| bad(e.to_string()))?;
        let length = u32::try_from(header.len()).map_err(|_| bad("header too large"))?;
        let total = PREFIX + header.len() + self.weights.len() * 4 + 4;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(total).map_err(|_| Error::OutOfMemory { bytes: total, purpose: "the model" })?;
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&(self.weights.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&header);
        for weight in self.weights.iter() {
            bytes.extend_from_slice(&weight.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        Ok(bytes)
    }

    /// Reads a model back.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (header, range) = parts(bytes)?;
        let mut weights = Vec::new();
        let count = range.len() / 4;
        weights.try_reserve_exact(count).map_err(|_| Error::OutOfMemory { bytes: count * 4, purpose: "the model" })?;
        weights.extend(bytes[range].chunks_exact(4).map(|w| f32::from_le_bytes([w[0], w[1], w[2], w[3]])));
        Self::new(header, Weights::Own(weights))
    }

    /// Reads a model whose bytes follow `padding` others, without a copy of the weights where they can be used in
    /// place.
    pub fn decode_shared(shared: SharedBytes, padding: usize) -> Result<Self> {
        let bytes = (*shared).as_ref().get(padding..).unwrap_or_default();
        let (header, range) = parts(bytes)?;
        if cfg!(target_endian = "big") || bytemuck::try_cast_slice::<u8, f32>(&bytes[range.clone()]).is_err() {
            return Self::decode(bytes);
        }
        let range = range.start + padding..range.end + padding;
        Self::new(header, Weights::Shared(shared, range))
    }

    /// Header and weights, if they go together.
    fn new(header: Header, weights: Weights) -> Result<Self> {
        if !weights.iter().all(|w| w.is_finite()) {
            return Err(bad("a weight is not finite"));
        }
        let model = Self { header, weights };
        if let Some(encoding) = &model.header.encoding {
            encoding.check()?;
        }
        let width = model.header.encoding.as_ref().map(Encoding::width);
        if width.is_some_and(|width| width != model.header.n_features) {
            return Err(bad("encoding and weights do not agree"));
        }
        let classes = model.header.classes.len();
        let agree = match model.header.loss {
            Loss::Softmax => classes >= 2,
            loss if loss.is_classification() => classes == 2,
            _ => classes == 0,
        };
        if !agree || model.row_len().checked_mul(model.outputs()) != Some(model.weights.len()) {
            return Err(bad("header and weights do not agree"));
        }
        Ok(model)
    }

    /// Whether the weights of so many features and outputs, with their intercepts, take at most `limit` bytes.
    pub fn check_size(features: usize, outputs: usize, limit: usize) -> Result<()> {
        let needed = features.saturating_add(1).saturating_mul(outputs).saturating_mul(size_of::<f32>());
        if needed > limit {
            let what = format!("the weights of {features} features and {outputs} outputs");
            return Err(Error::MemoryLimit { what, needed, limit });
        }
        Ok(())
    }

    /// Adds features of weight 0 at the end, up to `features`, if the weights then take at most `limit` bytes.
    pub fn widen(&mut self, features: usize, limit: usize) -> Result<()> {
        let (old, new) = (self.row_len(), features + 1);
        if old >= new {
            return Ok(());
        }
        Self::check_size(features, self.outputs(), limit)?;
        let mut weights = Vec::new();
        let count = new.saturating_mul(self.outputs());
        weights.try_reserve_exact(count).map_err(|_| Error::OutOfMemory { bytes: count * 4, purpose: "the model" })?;
        for row in self.weights.chunks_exact(old) {
            weights.extend_from_slice(&row[..old - 1]);
            weights.resize(weights.len() + new - old, 0.0);
            weights.push(row[old - 1]);
        }
        self.header.n_features = features;
        self.weights = weights.into();
        Ok(())
    }

    /// Scores of a tuple: one, softmax one a class.
    pub fn outputs(&self) -> usize {
        if self.header.loss == Loss::Softmax { self.header.classes.len() } else { 1 }
    }

    /// Weights of a score: one for each feature, and the intercept, last.
    pub fn row_len(&self) -> usize {
        self.header.n_features.saturating_add(1)
    }

    /// The scores w·x + b into `scores`. A dense vector must have as many values as the model has
    /// features; a sparse index beyond them has weight 0.
    pub fn scores(&self, x: Features<'_>, scores: &mut Vec<f64>) -> Result<()> {
        let n = self.header.n_features;
        scores.clear();
        if let Features::Dense(x) = x
            && x.len() != n
        {
            return Err(Error::FeatureCount { expected: n, found: x.len() });
        }
        let mut weights: &[f32] = &self.weights;
        while let Some((row, rest)) = weights.split_at_checked(self.row_len()) {
            let sum = match x {
                Features::Dense(x) => wide_dot(&row[..n], x),
                Features::Sparse(k, x) => sparse_dot(&row[..n], k, x),
            };
            scores.push(f64::from(sum + row[n]));
            weights = rest;
        }
        Ok(())
    }

    /// The number of the predicted class: the one with the largest score; `None` for a quantity.
    pub fn class_of(&self, scores: &[f64]) -> Option<usize> {
        match self.header.loss {
            Loss::Softmax => {
                let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                scores.iter().position(|score| *score == best)
            }
            loss if loss.is_classification() => Some(usize::from(scores.first().is_some_and(|score| *score > 0.0))),
            _ => None,
        }
    }

    /// The score that speaks for a tuple's prediction: of the predicted class for softmax, the only
    /// one else.
    pub fn score_of(&self, scores: &[f64]) -> f64 {
        let number = if self.header.loss == Loss::Softmax { self.class_of(scores) } else { Some(0) };
        number.and_then(|number| scores.get(number)).copied().unwrap_or(f64::NAN)
    }

    /// The probability of class number `class`; `None` where the loss has none.
    pub fn probability(&self, scores: &[f64], class: usize) -> Option<f64> {
        let of_larger = |p: f64| if class == 0 { 1.0 - p } else { p };
        let score = *scores.first()?;
        match self.header.loss {
            Loss::LogLoss => Some(sigmoid(if class == 0 { -score } else { score })),
            // Zhang (2004): the minimiser of modified Huber is a clipped 2p − 1.
            Loss::ModifiedHuber => Some(of_larger((score.clamp(-1.0, 1.0) + 1.0) / 2.0)),
            Loss::Softmax => {
                let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().map(|score| (score - best).exp()).sum();
                scores.get(class).map(|score| (score - best).exp() / sum)
            }
            _ => None,
        }
    }

    /// Bytes that the decoded model takes, without what it shares.
    pub fn bytes(&self) -> usize {
        let own = if let Weights::Own(weights) = &self.weights { weights.len() * 4 } else { 0 };
        own + size_of::<Self>() + self.header.history.len() * size_of::<EpochReport>()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn sample(weights: Vec<f32>, loss: Loss, classes: usize) -> Model {
        let outputs = if loss == Loss::Softmax { classes } else { 1 };
        let header = Header {
            loss,
            n_features: weights.len() / outputs - 1,
            sparse: false,
            target: "label".into(),
            target_type: "integer".into(),
            features: vec!["features_v".into()],
            classes: (0..classes).map(|k| k.to_string()).collect(),
            params: Params::default(),
            rows: 10,
            rows_held_out: 0,
            rows_skipped: 0,
            constant_columns: 0,
            encoding: None,
            vectors: false,
            weight: None,
            measured: None,
            history: vec![EpochReport {
                epoch: 1,
                rows: 10,
                loss: Some(0.1 + 0.2),
                eval: None,
                elapsed_ms: 12.5,
                accuracy: Some(1.0 / 3.0),
                learning_rate: 0.01,
                diverged: false,
            }],
            stop: StopReason::MaxEpochs,
            clustering: None,
            shuffle_reason: None,
            blocks: 3,
            blocks_per_buffer: 1.5,
            trace: Vec::new(),
            tuning: None,
            cache_bytes: 0,
            peak_memory: 1 << 40,
            duration_ms: 0.1,
        };
        Model { header, weights: weights.into() }
    }

    proptest! {
        #[test]
        fn models_come_back_to_the_bit(weights in prop::collection::vec(-1e30f32..1e30, 1..50), softmax: bool) {
            let outputs = if softmax { 3 } else { 1 };
            let weights = weights.repeat(outputs);
            let model = sample(weights, if softmax { Loss::Softmax } else { Loss::LogLoss }, if softmax { 3 } else { 2 });
            let bytes = model.encode().expect("encodes");
            prop_assert_eq!(Model::decode(&bytes).expect("decodes"), model.clone());
            // And in place: padded so that the weights are aligned wherever the bytes are.
            let digest = Digest::new(&bytes[..Digest::FIRST], &bytes[bytes.len() - Digest::LAST..], bytes.len()).expect("digest");
            let mut padded = vec![0; digest.padding];
            padded.extend(&bytes);
            let shared = Model::decode_shared(Arc::new(padded), digest.padding).expect("decodes");
            prop_assert_eq!(&shared, &model);
            prop_assert_eq!(shared.encode().expect("encodes"), bytes);
        }

        #[test]
        fn any_changed_byte_is_an_error(at in 0usize..400, flip in 1u8..=255) {
            let mut bytes = sample(vec![1.0, 2.0, 0.5], Loss::LogLoss, 2).encode().expect("encodes");
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
        fn most_probable_class_is_the_predicted_one(x in prop::collection::vec(-5f32..5.0, 3), loss in 0usize..3) {
            let (loss, classes) = [(Loss::LogLoss, 2), (Loss::ModifiedHuber, 2), (Loss::Softmax, 4)][loss];
            let outputs = if loss == Loss::Softmax { classes } else { 1 };
            let weights: Vec<f32> = (0..4 * outputs).map(|i| ((i * 7919) % 13) as f32 / 6.5 - 1.0).collect();
            let model = sample(weights, loss, classes);
            let mut scores = Vec::new();
            model.scores(Features::Dense(&x), &mut scores).expect("scores");
            let p: Vec<f64> = (0..classes).map(|c| model.probability(&scores, c).expect("has one")).collect();
            let predicted = model.class_of(&scores).expect("a class");
            prop_assert!(p.iter().all(|q| p[predicted] >= *q));
            prop_assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn newer_formats_say_so() {
        let mut bytes = sample(vec![1.0], Loss::LogLoss, 2).encode().expect("encodes");
        bytes[4] = 2;
        assert!(Model::decode(&bytes).expect_err("newer").to_string().contains("format 2"));
    }

    #[test]
    fn feature_count_is_checked() {
        let model = sample(vec![1.0, 2.0, 0.0], Loss::LogLoss, 2);
        let error = model.scores(Features::Dense(&[1.0]), &mut Vec::new()).expect_err("short");
        assert_eq!(error, Error::FeatureCount { expected: 2, found: 1 });
    }
}

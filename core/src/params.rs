//! Training options as users write them, unchecked, and the checked parameters that can be run.
//!
//! An option that is unknown, of another type, out of range or not meant for the loss is an error
//! that names it and lists what is valid, before anything is read.

use crate::loss::Loss;
use crate::weights::Optimizer;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ops::Range;

/// The order in which tuples are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shuffle {
    /// One of `Corgipile`, `BlockOnly` and `None`, by how clustered the table is.
    Auto,
    /// Blocks in random order, tuples shuffled in the buffer.
    Corgipile,
    /// Blocks in random order, tuples in table order.
    BlockOnly,
    /// Blocks in table order, tuples shuffled in the buffer.
    TupleOnly,
    /// Table order.
    None,
    /// All tuples sorted by a random key into temporary storage, once.
    Once,
    /// The same anew before every epoch.
    Epoch,
    /// Table order through a window from which random tuples are taken.
    SlidingWindow,
    /// Multiplexed reservoir sampling.
    Mrs,
}

impl Shuffle {
    /// All of them, as listed to users.
    pub const ALL: [Shuffle; 9] = [
        Shuffle::Auto,
        Shuffle::Corgipile,
        Shuffle::BlockOnly,
        Shuffle::TupleOnly,
        Shuffle::None,
        Shuffle::Once,
        Shuffle::Epoch,
        Shuffle::SlidingWindow,
        Shuffle::Mrs,
    ];

    /// The name in options and EXPLAIN.
    pub fn name(self) -> &'static str {
        match self {
            Shuffle::Auto => "auto",
            Shuffle::Corgipile => "corgipile",
            Shuffle::BlockOnly => "block_only",
            Shuffle::TupleOnly => "tuple_only",
            Shuffle::None => "none",
            Shuffle::Once => "once",
            Shuffle::Epoch => "epoch",
            Shuffle::SlidingWindow => "sliding_window",
            Shuffle::Mrs => "mrs",
        }
    }

    /// Whether blocks are read in random order.
    pub fn blocks(self) -> bool {
        matches!(self, Shuffle::Auto | Shuffle::Corgipile | Shuffle::BlockOnly)
    }

    /// Whether tuples are shuffled inside the buffer.
    pub fn tuples(self) -> bool {
        matches!(self, Shuffle::Auto | Shuffle::Corgipile | Shuffle::TupleOnly)
    }

    /// Whether all tuples are sorted by a random key.
    pub fn sorts(self) -> bool {
        matches!(self, Shuffle::Once | Shuffle::Epoch)
    }

    /// Whether epochs after the first can visit decoded tuples that were kept.
    pub fn caches(self) -> bool {
        matches!(self, Shuffle::Corgipile | Shuffle::BlockOnly | Shuffle::TupleOnly | Shuffle::None | Shuffle::Once)
    }

    /// Parts of a buffer, of which new tuples fill the first; the others hold what a window or a
    /// reservoir carries on.
    pub fn parts(self) -> usize {
        match self {
            Shuffle::SlidingWindow => 2,
            Shuffle::Mrs => 3,
            _ => 1,
        }
    }
}

/// How the rate falls from epoch to epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// η₀·decay^e (the paper's).
    Exponential,
    /// η₀/(1 + e·(1/decay − 1)): the same second epoch, a slower fall later.
    Inverse,
    /// η₀.
    Constant,
}

impl Schedule {
    /// All of them, as listed to users.
    pub const ALL: [Schedule; 3] = [Schedule::Exponential, Schedule::Inverse, Schedule::Constant];

    /// The name in options and EXPLAIN.
    pub fn name(self) -> &'static str {
        match self {
            Schedule::Exponential => "exponential",
            Schedule::Inverse => "inverse",
            Schedule::Constant => "constant",
        }
    }
}

/// How much the tuples of a class count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ClassWeight {
    /// "balanced": every class counts the same in all, n / (classes · n of the class), by the tuples
    /// of the first buffer.
    Balanced(Balanced),
    /// By class, in text form; classes that are not named count 1.
    Each(std::collections::BTreeMap<String, f64>),
}

/// The word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Balanced {
    /// "balanced"
    Balanced,
}

/// What to do with a row whose target or features are NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnNull {
    /// Stop with an error that names column and row.
    Error,
    /// Leave the row out, and count it.
    Skip,
}

/// Checked parameters of one training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Params {
    /// The loss; `None`: from the target.
    pub loss: Option<Loss>,
    /// λ₂ of λ₂/2·‖w‖² beside the mean loss; the intercept is not penalised. `None`: see
    /// [`Params::l2_for`].
    pub l2_reg: Option<f64>,
    /// λ₁ of λ₁·‖w‖₁.
    pub l1_reg: f64,
    /// How a gradient changes a weight.
    pub optimizer: Optimizer,
    /// η₀, the rate of the first epoch; `None`: found on the first buffer.
    pub learning_rate: Option<f64>,
    /// How the rate falls.
    pub schedule: Schedule,
    /// How fast it falls.
    pub decay: f64,
    /// Whether the model is an average over the course of training, late weights counting most.
    pub average: bool,
    /// Whether features are centred and scaled (sparse: scaled where they are above 1).
    pub standardize: bool,
    /// ε of `huber` and `epsilon_insensitive`, in units of the target; `None`: a tenth of its
    /// standard deviation.
    pub epsilon: Option<f64>,
    /// How much the tuples of each class count; `None`: all the same.
    pub class_weight: Option<ClassWeight>,
    /// Most passes over the table.
    pub max_epochs: u32,
    /// Stop when five epochs in a row improve the best loss by less than this part of it; 0: never.
    pub tolerance: f64,
    /// Stop after the epoch in which this many seconds are reached; 0: never.
    pub max_seconds: f64,
    /// Tuples whose gradients are averaged in a step.
    pub batch_size: u32,
    /// Decides every random order.
    pub seed: i64,
    /// Whether there is an intercept.
    pub fit_intercept: bool,
    /// The order of visits.
    pub shuffle: Shuffle,
    /// Multiplexed reservoir sampling: tuples of the last epoch's reservoir trained on for each one that
    /// is dropped.
    #[serde(default)]
    pub mrs_ratio: u32,
    /// Rows with NULL.
    pub on_null: OnNull,
    /// Part of the tuples that are never trained on, but judged after each epoch.
    #[serde(default)]
    pub eval_fraction: f64,
    /// Whether decoded tuples are kept for the epochs after the first; `None`: where they fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<bool>,
    /// Whether the loss of the finished weights is taken, in one more pass.
    #[serde(default)]
    pub final_loss: bool,
    /// The model whose weights training starts from: its name, or its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_start: Option<String>,
    /// Bytes of a block; `None`: chosen.
    pub block_size: Option<usize>,
    /// Bytes of a buffer; `None`: chosen.
    pub buffer_size: Option<usize>,
    /// A message for each epoch.
    pub verbose: bool,
    /// Look and plan only: what corgipile.advise asks for, not an option of users.
    #[serde(skip)]
    pub advise: bool,
    /// Sparse features that are scaled already, as ranges of their numbers: what train_sgd says of columns that it has
    /// encoded, not an option of users.
    #[serde(skip)]
    pub scaled_features: Vec<Range<u32>>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            loss: None,
            l2_reg: None,
            l1_reg: 0.0,
            optimizer: Optimizer::Sgd,
            learning_rate: None,
            schedule: Schedule::Exponential,
            decay: 0.95,
            average: true,
            standardize: true,
            epsilon: None,
            class_weight: None,
            max_epochs: 20,
            tolerance: 1e-3,
            max_seconds: 0.0,
            batch_size: 1,
            seed: 1,
            fit_intercept: true,
            shuffle: Shuffle::Auto,
            mrs_ratio: 1,
            on_null: OnNull::Error,
            eval_fraction: 0.0,
            cache: None,
            final_loss: false,
            warm_start: None,
            block_size: None,
            buffer_size: None,
            verbose: false,
            advise: false,
            scaled_features: Vec::new(),
        }
    }
}

/// Every option's name, in the order of `train_sgd`'s arguments.
pub const OPTIONS: [&str; 27] = [
    "loss",
    "l2_reg",
    "l1_reg",
    "optimizer",
    "learning_rate",
    "schedule",
    "decay",
    "average",
    "standardize",
    "epsilon",
    "class_weight",
    "max_epochs",
    "tolerance",
    "max_seconds",
    "batch_size",
    "seed",
    "fit_intercept",
    "on_null",
    "eval_fraction",
    "final_loss",
    "warm_start",
    "shuffle",
    "mrs_ratio",
    "block_size",
    "buffer_size",
    "cache",
    "verbose",
];

fn bad(name: &'static str, value: &Value, expected: impl Into<String>) -> Error {
    let value = match value {
        Value::String(s) => format!("\"{s}\""),
        other => other.to_string(),
    };
    Error::BadOption { name, value, expected: expected.into() }
}

fn number(name: &'static str, value: &Value, min: f64, max: f64, expected: &str) -> Result<f64> {
    match value.as_f64() {
        Some(x) if x >= min && x <= max => Ok(x),
        _ => Err(bad(name, value, expected)),
    }
}

fn integer(name: &'static str, value: &Value, min: i64, max: i64) -> Result<i64> {
    match value.as_i64() {
        Some(i) if i >= min && i <= max => Ok(i),
        _ => Err(bad(name, value, format!("an integer from {min} to {max}"))),
    }
}

fn boolean(name: &'static str, value: &Value) -> Result<bool> {
    value.as_bool().ok_or_else(|| bad(name, value, "true or false"))
}

fn choice<T: Copy>(name: &'static str, value: &Value, all: &[(&str, T)]) -> Result<T> {
    let found = value.as_str().and_then(|s| all.iter().find(|(name, _)| *name == s));
    found.map(|(_, item)| *item).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        bad(name, value, format!("one of {}", names.join(", ")))
    })
}

/// Reads "10MB", "64 kB", "auto" (`None`).
pub fn memory_size(name: &'static str, text: &str) -> Result<Option<usize>> {
    let error = || Error::BadOption {
        name,
        value: format!("\"{text}\""),
        expected: "'auto' or a size with its unit (B, kB, MB, GB), from 8kB to 1024GB".into(),
    };
    let trimmed = text.trim();
    if trimmed == "auto" {
        return Ok(None);
    }
    let digits = trimmed.len() - trimmed.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (count, unit) = trimmed.split_at(digits);
    let unit: usize = match unit.trim() {
        "B" => 1,
        "kB" => 1 << 10,
        "MB" => 1 << 20,
        "GB" => 1 << 30,
        _ => return Err(error()),
    };
    let bytes = count.parse::<usize>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(error)?;
    if (8192..=1 << 40).contains(&bytes) { Ok(Some(bytes)) } else { Err(error()) }
}

impl Params {
    /// Checks options given as a JSON object; NULL means the default.
    pub fn from_json(options: &Value) -> Result<Self> {
        let mut params = Self::default();
        let Value::Object(map) = options else {
            return Err(Error::BadOption {
                name: "options",
                value: options.to_string(),
                expected: "a JSON object".into(),
            });
        };
        for (key, value) in map {
            if key == "advise" {
                params.advise = boolean("advise", value)?;
                continue;
            }
            if key == "scaled_features" {
                let ranges = serde_json::from_value(value.clone());
                params.scaled_features = ranges.map_err(|_| bad("scaled_features", value, "ranges of features"))?;
                continue;
            }
            let Some(name) = OPTIONS.iter().find(|name| *name == key) else {
                return Err(Error::UnknownOption { name: key.clone(), valid: OPTIONS.join(", ") });
            };
            if !value.is_null() {
                params.set(name, value)?;
            }
        }
        params.check_unused(map)?;
        Ok(params)
    }

    /// An option that would have no effect beside the others is an error, not ignored.
    fn check_unused(&self, given: &serde_json::Map<String, Value>) -> Result<()> {
        let has = |name: &str| given.get(name).filter(|value| !value.is_null());
        if let Some(value) = has("epsilon")
            && !self.loss.is_some_and(Loss::has_epsilon)
        {
            return Err(bad("epsilon", value, "loss 'huber' or 'epsilon_insensitive' beside it"));
        }
        if let Some(value) = has("class_weight")
            && self.loss.is_some_and(|loss| !loss.is_classification())
        {
            return Err(bad("class_weight", value, "a loss for classes beside it"));
        }
        if let Some(value) = has("mrs_ratio")
            && self.shuffle != Shuffle::Mrs
        {
            return Err(bad("mrs_ratio", value, "shuffle 'mrs' beside it"));
        }
        if self.cache == Some(true) && !(self.shuffle.caches() || self.shuffle == Shuffle::Auto) {
            return Err(bad("cache", &Value::Bool(true), "a shuffle that can read from a cache beside it"));
        }
        if let Some(value) = has("decay")
            && self.schedule == Schedule::Constant
        {
            return Err(bad("decay", value, "a schedule that falls, 'exponential' or 'inverse', beside it"));
        }
        Ok(())
    }

    fn set(&mut self, name: &'static str, value: &Value) -> Result<()> {
        const LARGE: f64 = 1e30;
        match name {
            "loss" => {
                let names: Vec<&str> = Loss::ALL.iter().map(|l| l.name()).collect();
                let found = value.as_str().and_then(Loss::by_name);
                self.loss = Some(found.ok_or_else(|| bad(name, value, format!("one of {}", names.join(", "))))?);
            }
            "l2_reg" => self.l2_reg = Some(number(name, value, 0.0, LARGE, "a number, 0 or larger")?),
            "learning_rate" => {
                self.learning_rate = Some(number(name, value, f64::MIN_POSITIVE, LARGE, "a number larger than 0")?);
            }
            "l1_reg" => self.l1_reg = number(name, value, 0.0, LARGE, "a number, 0 or larger")?,
            "optimizer" => self.optimizer = choice(name, value, &Optimizer::ALL.map(|o| (o.name(), o)))?,
            "average" => self.average = boolean(name, value)?,
            "standardize" => self.standardize = boolean(name, value)?,
            "epsilon" => self.epsilon = Some(number(name, value, 0.0, LARGE, "a number, 0 or larger")?),
            "schedule" => self.schedule = choice(name, value, &Schedule::ALL.map(|s| (s.name(), s)))?,
            "decay" => {
                self.decay = number(name, value, f64::MIN_POSITIVE, 1.0, "a number larger than 0, at most 1")?;
            }
            "class_weight" => {
                let weight = serde_json::from_value(value.clone()).ok();
                let sane = |weight: &ClassWeight| match weight {
                    ClassWeight::Balanced(_) => true,
                    ClassWeight::Each(map) => !map.is_empty() && map.values().all(|w| *w > 0.0 && *w <= LARGE),
                };
                self.class_weight = Some(weight.filter(sane).ok_or_else(|| {
                    bad(name, value, "'balanced', or an object of classes and numbers larger than 0, {\"yes\": 5}")
                })?);
            }
            "max_epochs" => self.max_epochs = integer(name, value, 1, 1_000_000)? as u32,
            "tolerance" => self.tolerance = number(name, value, 0.0, LARGE, "a number, 0 or larger")?,
            "max_seconds" => self.max_seconds = number(name, value, 0.0, LARGE, "a number of seconds, 0 or larger")?,
            "batch_size" => self.batch_size = integer(name, value, 1, 1 << 20)? as u32,
            "seed" => self.seed = integer(name, value, i64::MIN, i64::MAX)?,
            "fit_intercept" => self.fit_intercept = boolean(name, value)?,
            "on_null" => self.on_null = choice(name, value, &[("error", OnNull::Error), ("skip", OnNull::Skip)])?,
            "eval_fraction" => self.eval_fraction = number(name, value, 0.0, 0.9, "a number from 0 to 0.9")?,
            "final_loss" => self.final_loss = boolean(name, value)?,
            "warm_start" => {
                let text = match value {
                    Value::String(text) => Some(text.clone()),
                    Value::Number(id) => Some(id.to_string()),
                    _ => None,
                };
                let text = text.filter(|text| !text.is_empty());
                self.warm_start = Some(text.ok_or_else(|| bad(name, value, "the name or the id of a model"))?);
            }
            "shuffle" => self.shuffle = choice(name, value, &Shuffle::ALL.map(|s| (s.name(), s)))?,
            "mrs_ratio" => self.mrs_ratio = integer(name, value, 0, 1000)? as u32,
            "block_size" | "buffer_size" => {
                let text = value.as_str().ok_or_else(|| {
                    bad(name, value, "'auto' or a size with its unit (B, kB, MB, GB), from 8kB to 1024GB")
                })?;
                let size = memory_size(name, text)?;
                if name == "block_size" { self.block_size = size } else { self.buffer_size = size }
            }
            "cache" => self.cache = Some(boolean(name, value)?),
            "verbose" => self.verbose = boolean(name, value)?,
            _ => return Err(Error::UnknownOption { name: name.into(), valid: OPTIONS.join(", ") }),
        }
        Ok(())
    }

    /// λ₂ in force: 1e-3 over standardised features, 1e-5 over features as they are (sparse ones are
    /// often rows of length 1, where 1e-3 would be most of the objective).
    pub fn l2_for(&self, sparse: bool) -> f64 {
        self.l2_reg.unwrap_or(if self.standardize && !sparse { 1e-3 } else { 1e-5 })
    }

    /// What the schedule leaves of the first rate in an epoch (from 0).
    pub fn decayed(&self, epoch: u32) -> f64 {
        let epoch = epoch.min(i32::MAX as u32) as i32;
        match self.schedule {
            Schedule::Exponential => self.decay.powi(epoch),
            Schedule::Inverse => 1.0 / (1.0 + f64::from(epoch) * (1.0 / self.decay - 1.0)),
            Schedule::Constant => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn options_are_read() {
        let params = Params::from_json(&json!({
            "loss": "svm", "l2_reg": 0, "max_epochs": 3, "block_size": "64kB", "buffer_size": "auto",
            "seed": -7, "shuffle": "none", "decay": null, "schedule": "exponential"
        }))
        .expect("valid");
        assert_eq!(params.loss, Some(Loss::Hinge));
        assert_eq!((params.block_size, params.buffer_size), (Some(65536), None));
        assert_eq!((params.max_epochs, params.seed, params.decay), (3, -7, 0.95));
    }

    #[test]
    fn unknown_and_bad_options_say_what_is_valid() {
        let error = Params::from_json(&json!({"epochs": 3})).expect_err("unknown");
        assert!(matches!(&error, Error::UnknownOption { valid, .. } if valid.contains("max_epochs")));
        for (options, word) in [
            (json!({"max_epochs": 0}), "from 1"),
            (json!({"max_epochs": 2.5}), "integer"),
            (json!({"learning_rate": 0}), "larger than 0"),
            (json!({"learning_rate": "fast"}), "number"),
            (json!({"decay": 1.5}), "at most 1"),
            (json!({"loss": "poisson"}), "hinge"),
            (json!({"shuffle": "random"}), "corgipile"),
            (json!({"block_size": "10"}), "unit"),
            (json!({"block_size": 10}), "unit"),
            (json!({"buffer_size": "1kB"}), "8kB"),
            (json!({"schedule": "cosine"}), "exponential, inverse, constant"),
            (json!({"optimizer": "lbfgs"}), "adagrad"),
            (json!({"verbose": 1}), "true or false"),
            (json!([1]), "JSON object"),
            (json!({"class_weight": "equal"}), "balanced"),
            (json!({"class_weight": {"a": 0}}), "larger than 0"),
            (json!({"class_weight": "balanced", "loss": "huber"}), "classes"),
            (json!({"epsilon": 0.1}), "huber"),
            (json!({"epsilon": 0.1, "loss": "hinge"}), "huber"),
            (json!({"decay": 0.5, "schedule": "constant"}), "exponential"),
        ] {
            match Params::from_json(&options) {
                Err(Error::BadOption { expected, .. }) => assert!(expected.contains(word), "{expected}"),
                other => panic!("{options}: {other:?}"),
            }
        }
    }

    #[test]
    fn schedules_fall_as_they_say() {
        let at = |schedule, epoch| Params { decay: 0.5, schedule, ..Params::default() }.decayed(epoch);
        assert_eq!([0, 1, 3].map(|e| at(Schedule::Exponential, e)), [1.0, 0.5, 0.125]);
        assert_eq!([0, 1, 3].map(|e| at(Schedule::Inverse, e)), [1.0, 0.5, 0.25]);
        assert_eq!([0, 1, 3].map(|e| at(Schedule::Constant, e)), [1.0, 1.0, 1.0]);
        assert_eq!(at(Schedule::Exponential, u32::MAX), 0.0);
    }
}

//! What can go wrong in training, with the words a user reads. The extension maps each variant to
//! one SQLSTATE; the messages follow PostgreSQL's style (lower case, no full stop).

use thiserror::Error;

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything the core reports.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Error {
    /// An option that does not exist.
    #[error("unrecognized option \"{name}\"")]
    UnknownOption {
        /// What was given.
        name: String,
        /// The names there are, separated by commas.
        valid: String,
    },
    /// An option with a value outside its range or of another type.
    #[error("invalid value for option \"{name}\": {value}")]
    BadOption {
        /// The option.
        name: &'static str,
        /// What was given, as text.
        value: String,
        /// What would be accepted.
        expected: String,
    },
    /// Memory could not be had from the system.
    #[error("out of memory: could not allocate {bytes} bytes for {purpose}")]
    OutOfMemory {
        /// How much was asked for.
        bytes: usize,
        /// What for.
        purpose: &'static str,
    },
    /// An encoding that does not go with a column's type.
    #[error("column \"{column}\" of type {sql_type} cannot be encoded as {encoding}")]
    WrongEncoding {
        /// The column.
        column: String,
        /// Its type.
        sql_type: String,
        /// What was asked.
        encoding: &'static str,
    },
    /// A feature that the user named, of which nothing can be learnt.
    #[error("column \"{column}\" has no value")]
    NoValue {
        /// The column.
        column: String,
    },
    /// More weights than a form has room for.
    #[error("the model has {weights} weights, of which jsonb holds at most {limit}")]
    ModelTooLarge {
        /// Of the model.
        weights: usize,
        /// Of the form.
        limit: usize,
    },
    /// The configured cap is too small for what must be held.
    #[error("not enough memory for {what}: {needed} bytes are needed, corgipile.memory_limit leaves {limit}")]
    MemoryLimit {
        /// What must be held.
        what: String,
        /// Bytes needed.
        needed: usize,
        /// Bytes that are left.
        limit: usize,
    },
    /// Weights or loss stopped being finite.
    #[error("training diverged in epoch {epoch}: the {what} is not finite at learning rate {learning_rate}")]
    Diverged {
        /// Epoch, counted from 1.
        epoch: u32,
        /// "loss" or "weights".
        what: &'static str,
        /// The rate of that epoch.
        learning_rate: f64,
    },
    /// A binary loss met a third value of the target.
    #[error("loss \"{loss}\" needs a target with two values, but found {found}")]
    TooManyClasses {
        /// The loss.
        loss: &'static str,
        /// The first three values, quoted.
        found: String,
    },
    /// A binary loss met one value of the target only.
    #[error("loss \"{loss}\" needs a target with two values, but every one of the {rows} rows has the value {found}")]
    OneClass {
        /// The loss.
        loss: &'static str,
        /// That value, quoted.
        found: String,
        /// How many rows there were.
        rows: u64,
    },
    /// A regression loss on a target that is not a number.
    #[error("loss \"{loss}\" needs a numeric target")]
    NotNumeric {
        /// The loss.
        loss: &'static str,
    },
    /// A class that the model which training starts from does not have.
    #[error("the model to start from does not know the class {found}")]
    UnknownClass {
        /// The class, quoted.
        found: String,
        /// Classes that it has.
        known: String,
    },
    /// A model that cannot be trained further with these data or options.
    #[error("cannot start from the model: {0}")]
    WarmStart(String),
    /// The bytes of a model are not what they should be.
    #[error("invalid model: {0}")]
    BadModel(String),
    /// A prediction with the wrong number of features.
    #[error("the model expects {expected} features, but {found} were given")]
    FeatureCount {
        /// What the model was trained on.
        expected: usize,
        /// What came.
        found: usize,
    },
    /// Training was told to stop before it was done.
    #[error("training was stopped")]
    Stopped,
}

//! From the values of the target column to the f32 labels the trainer sees, and back.
//!
//! Classes are coded in the order in which they are met, so no pass over the table is needed before
//! training; a table clustered by label shows its second class late. Log loss and hinge are
//! symmetric under (y, w) → (−y, −w), exactly, also in floating point: when the scan met the larger
//! class first, the finished weights are negated, and the model is the same as if the classes had
//! been known. What a user sees is always sorted.

use crate::loss::Loss;
use crate::{Error, Result};
use std::collections::HashMap;

/// One value of the target.
#[derive(Debug, Clone, PartialEq)]
pub enum TargetValue {
    /// Any integer type, and boolean as 0 and 1.
    Integer(i64),
    /// Any other number; never NaN.
    Number(f64),
    /// Any other type, in its text form.
    Text(String),
}

impl TargetValue {
    /// The order in which classes are shown.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(b),
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Text(_), _) => std::cmp::Ordering::Greater,
            (_, Self::Text(_)) => std::cmp::Ordering::Less,
            (a, b) => a.number().total_cmp(&b.number()),
        }
    }

    /// As a number; NaN for text.
    pub fn number(&self) -> f64 {
        match self {
            Self::Integer(i) => *i as f64,
            Self::Number(x) => *x,
            Self::Text(_) => f64::NAN,
        }
    }

    /// For messages.
    fn quoted(&self) -> String {
        match self {
            Self::Integer(i) => i.to_string(),
            Self::Number(x) => x.to_string(),
            Self::Text(s) => {
                let mut text: String = s.chars().take(40).collect();
                if text.len() < s.len() {
                    text.push('…');
                }
                format!("\"{text}\"")
            }
        }
    }
}

/// What the type of the target allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// Two values, no number.
    Boolean,
    /// A number: a class or a quantity.
    Numeric,
    /// Anything else: a class.
    Text,
}

/// How labels are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// −1 and +1 for two classes, the number of the class for softmax.
    Classes,
    /// The number itself.
    Numbers,
}

/// What became of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Coded {
    /// Its label.
    Label(f32),
    /// A numeric target without a chosen loss showed a third value: it is a quantity. Labels handed
    /// out before were codes; [`LabelCoder::value_of_code`] turns them into numbers.
    NowNumbers,
    /// A target of classes without a chosen loss showed a third one: the loss is softmax now. Labels
    /// handed out before were −1 and +1; [`LabelCoder::class_of_code`] numbers them.
    NowSoftmax,
}

/// A target value as a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Integer(i64),
    Bits(u64),
    Text(String),
}

impl From<&TargetValue> for Key {
    fn from(value: &TargetValue) -> Self {
        match value {
            TargetValue::Integer(i) => Self::Integer(*i),
            TargetValue::Number(x) => Self::Bits((x + 0.0).to_bits()),
            TargetValue::Text(s) => Self::Text(s.clone()),
        }
    }
}

/// Codes target values and decides the loss when the user did not.
#[derive(Debug, Clone)]
pub struct LabelCoder {
    kind: TargetKind,
    loss: Loss,
    decided: bool,
    /// No class beside these will do: the model that training starts from has them only.
    closed: bool,
    meaning: Meaning,
    /// In order of appearance; at most two but for softmax.
    classes: Vec<TargetValue>,
    numbers: HashMap<Key, usize>,
}

/// Most classes that softmax takes.
pub const MAX_CLASSES: usize = 65_536;

impl LabelCoder {
    /// A coder for a target of this kind; `loss` as the user gave it.
    pub fn new(kind: TargetKind, loss: Option<Loss>) -> Result<Self> {
        let chosen = loss.unwrap_or(Loss::LogLoss);
        if !chosen.is_classification() && kind != TargetKind::Numeric {
            return Err(Error::NotNumeric { loss: chosen.name() });
        }
        Ok(Self {
            kind,
            loss: chosen,
            decided: loss.is_some(),
            closed: false,
            meaning: if chosen.is_classification() { Meaning::Classes } else { Meaning::Numbers },
            classes: Vec::new(),
            numbers: HashMap::new(),
        })
    }

    /// A coder that knows the (sorted) classes of a model with this loss, and takes no others.
    pub fn continued(kind: TargetKind, loss: Loss, classes: Vec<TargetValue>) -> Result<Self> {
        let mut coder = Self::new(kind, Some(loss))?;
        for class in classes {
            coder.code(class)?;
        }
        coder.closed = true;
        Ok(coder)
    }

    /// The loss as it stands: final once a third value was met or the scan has ended.
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// How labels are to be read, as it stands.
    pub fn meaning(&self) -> Meaning {
        self.meaning
    }

    /// The kind of target.
    pub fn kind(&self) -> TargetKind {
        self.kind
    }

    /// Classes in order of appearance.
    pub fn classes(&self) -> &[TargetValue] {
        &self.classes
    }

    /// The label of class number `number`, as the loss wants it.
    pub fn label_of(&self, number: usize) -> f32 {
        match (self.loss, number) {
            (Loss::Softmax, number) => number as f32,
            (_, 0) => -1.0,
            _ => 1.0,
        }
    }

    /// Codes one value.
    pub fn code(&mut self, value: TargetValue) -> Result<Coded> {
        if self.meaning == Meaning::Numbers {
            return Ok(Coded::Label(value.number() as f32));
        }
        let key = Key::from(&value);
        if let Some(number) = self.numbers.get(&key) {
            return Ok(Coded::Label(self.label_of(*number)));
        }
        if self.closed {
            let known: Vec<String> = self.classes.iter().take(20).map(TargetValue::quoted).collect();
            return Err(Error::UnknownClass { found: value.quoted(), known: known.join(", ") });
        }
        let number = self.classes.len();
        let mut coded = None;
        if number >= 2 && self.loss != Loss::Softmax {
            if self.decided {
                let found: Vec<String> = self.classes.iter().chain([&value]).map(TargetValue::quoted).collect();
                return Err(Error::TooManyClasses { loss: self.loss.name(), found: found.join(", ") });
            }
            self.decided = true;
            if self.kind == TargetKind::Numeric {
                self.loss = Loss::SquaredError;
                self.meaning = Meaning::Numbers;
                return Ok(Coded::NowNumbers);
            }
            self.loss = Loss::Softmax;
            coded = Some(Coded::NowSoftmax);
        }
        if number >= MAX_CLASSES {
            return Err(Error::TooManyClasses { loss: self.loss.name(), found: format!("more than {MAX_CLASSES}") });
        }
        self.classes.push(value);
        self.numbers.insert(key, number);
        Ok(coded.unwrap_or(Coded::Label(self.label_of(number))))
    }

    /// The class number behind a label handed out before [`Coded::NowSoftmax`].
    pub fn class_of_code(code: f32) -> f32 {
        if code > 0.0 { 1.0 } else { 0.0 }
    }

    /// How many classes were met.
    pub fn class_count(&self) -> usize {
        self.classes.len()
    }

    /// The order in which the rows of softmax are to be sorted: class numbers by class.
    pub fn sorted_numbers(&self) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..self.classes.len()).collect();
        numbers.sort_by(|a, b| self.classes[*a].order(&self.classes[*b]));
        numbers
    }

    /// The number that a code handed out before [`Coded::NowNumbers`] stood for.
    pub fn value_of_code(&self, code: f32) -> f32 {
        let class = self.classes.get(usize::from(code > 0.0));
        class.map_or(f64::NAN, TargetValue::number) as f32
    }

    /// At the end of the first epoch: a binary loss needs two classes.
    pub fn check_complete(&self, rows: u64) -> Result<()> {
        match (self.meaning, self.classes.as_slice()) {
            (Meaning::Classes, [only]) => Err(Error::OneClass { loss: self.loss.name(), found: only.quoted(), rows }),
            _ => Ok(()),
        }
    }

    /// Whether the finished weights must be negated so that +1 is the larger class.
    pub fn is_flipped(&self) -> bool {
        match self.classes.as_slice() {
            [first, second] if self.loss.is_binary() => first.order(second).is_gt(),
            _ => false,
        }
    }

    /// The classes sorted; none for a quantity.
    pub fn sorted_classes(&self) -> Vec<TargetValue> {
        if self.meaning == Meaning::Numbers {
            return Vec::new();
        }
        let mut classes = self.classes.clone();
        classes.sort_by(TargetValue::order);
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(coder: &mut LabelCoder, values: &[i64]) -> Vec<Coded> {
        values.iter().map(|v| coder.code(TargetValue::Integer(*v)).expect("codes")).collect()
    }

    #[test]
    fn classes_are_coded_as_met_and_shown_sorted() {
        let mut coder = LabelCoder::new(TargetKind::Numeric, None).expect("valid");
        assert_eq!(codes(&mut coder, &[1, 0, 1]), [Coded::Label(-1.0), Coded::Label(1.0), Coded::Label(-1.0)]);
        assert!(coder.is_flipped());
        assert_eq!(coder.sorted_classes(), [TargetValue::Integer(0), TargetValue::Integer(1)]);
        assert_eq!(coder.loss(), Loss::LogLoss);
    }

    #[test]
    fn a_third_number_makes_a_quantity() {
        let mut coder = LabelCoder::new(TargetKind::Numeric, None).expect("valid");
        assert_eq!(
            codes(&mut coder, &[5, 7, 9, 7]),
            [Coded::Label(-1.0), Coded::Label(1.0), Coded::NowNumbers, Coded::Label(7.0)]
        );
        assert_eq!((coder.value_of_code(-1.0), coder.value_of_code(1.0)), (5.0, 7.0));
        assert_eq!(coder.loss(), Loss::SquaredError);
        assert!(coder.sorted_classes().is_empty());
    }

    #[test]
    fn a_third_class_is_an_error_where_classes_are_meant() {
        let mut coder = LabelCoder::new(TargetKind::Numeric, Some(Loss::Hinge)).expect("valid");
        codes(&mut coder, &[0, 1]);
        let error = coder.code(TargetValue::Integer(2)).expect_err("three classes");
        assert!(error.to_string().contains("0, 1, 2"), "{error}");
        let mut text = LabelCoder::new(TargetKind::Text, None).expect("valid");
        for class in ["a", "b"] {
            text.code(TargetValue::Text(class.into())).expect("two classes");
        }
        assert_eq!(text.code(TargetValue::Text("c".into())), Ok(Coded::NowSoftmax));
        assert_eq!((text.loss(), text.class_count(), text.label_of(2)), (Loss::Softmax, 3, 2.0));
        assert_eq!(text.code(TargetValue::Text("0".into())), Ok(Coded::Label(3.0)));
        assert_eq!(text.sorted_numbers(), [3, 0, 1, 2]);
        let mut hinge = LabelCoder::new(TargetKind::Text, Some(Loss::Hinge)).expect("valid");
        for class in ["a", "b"] {
            hinge.code(TargetValue::Text(class.into())).expect("two classes");
        }
        assert!(hinge.code(TargetValue::Text("c".into())).is_err());
        assert!(LabelCoder::new(TargetKind::Text, Some(Loss::SquaredError)).is_err());
    }

    #[test]
    fn a_continued_coder_takes_no_other_class() {
        let classes = vec![TargetValue::Text("a".into()), TargetValue::Text("b".into())];
        let mut coder = LabelCoder::continued(TargetKind::Text, Loss::LogLoss, classes).expect("valid");
        assert_eq!(coder.code(TargetValue::Text("b".into())), Ok(Coded::Label(1.0)));
        assert!(!coder.is_flipped());
        assert!(coder.check_complete(1).is_ok());
        let error = coder.code(TargetValue::Text("c".into())).expect_err("a new class");
        assert!(error.to_string().contains("\"c\""), "{error}");
    }

    #[test]
    fn one_class_is_reported() {
        let mut coder = LabelCoder::new(TargetKind::Boolean, None).expect("valid");
        codes(&mut coder, &[1, 1]);
        assert!(coder.check_complete(2).is_err());
        codes(&mut coder, &[0]);
        assert!(coder.check_complete(3).is_ok());
    }
}

//! The row that was scored last, and its scores. PREDICT BY's class and probability are two calls for each row: the second
//! need not score it again.
//!
//! Call sites that apply the same model to columns of the same types share one. Rows are compared by what they hold: where
//! it lies may be another row's place by now.

use crate::pg::{array, types};
use corgipile_core::model::Model;
use corgipile_core::short;
use pgrx::pg_sys;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// How a column's value is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    InPlace,
    /// So many bytes.
    Fixed(usize),
    Varlena,
    /// Otherwise: such rows are not kept.
    Elsewhere,
}

/// Bytes of a row and its scores that are kept at most; a longer one is scored again.
const MOST_BYTES: usize = 64 << 10;

/// Rows in a row that were asked for once only, after which no more are kept: the call sites see other rows.
const MOST_MISSES: u32 = 64;

/// Shared by call sites.
pub type Shared = Rc<RefCell<LastRow>>;

/// See the module.
#[derive(Debug)]
pub struct LastRow {
    model: Rc<Model>,
    types: Vec<pg_sys::Oid>,
    held: Vec<Held>,
    /// Is there a row?
    known: bool,
    /// Rows kept since one was asked for again.
    misses: u32,
    /// The row is good while enums are what they were.
    enum_changes: u64,
    /// Its columns: a value, or the length of what is in `bytes`; `None` for NULL.
    words: Vec<Option<usize>>,
    bytes: Vec<u8>,
    /// `None` for a row without a prediction.
    scores: Option<Vec<f64>>,
}

thread_local! {
    static ALL: RefCell<Vec<Weak<RefCell<LastRow>>>> = const { RefCell::new(Vec::new()) };
}

/// The last row of this model's columns of these types.
pub fn of(model: &Rc<Model>, types: &[pg_sys::Oid]) -> Shared {
    ALL.with_borrow_mut(|all| {
        all.retain(|row| row.strong_count() > 0);
        let known = all.iter().filter_map(Weak::upgrade).find(|row| {
            let row = row.borrow();
            Rc::ptr_eq(&row.model, model) && row.types == types
        });
        known.unwrap_or_else(|| {
            let row = Rc::new(RefCell::new(LastRow::new(Rc::clone(model), types)));
            all.push(Rc::downgrade(&row));
            row
        })
    })
}

/// Whether it is worth while to ask: there is more than one call site, and they see the same rows.
pub fn is_shared(row: &Shared) -> bool {
    Rc::strong_count(row) > 1 && row.borrow().misses < MOST_MISSES
}

impl LastRow {
    fn new(model: Rc<Model>, types: &[pg_sys::Oid]) -> Self {
        let held = types.iter().map(|oid| {
            let (mut len, mut in_place) = (0, false);
            // SAFETY: a catalog look-up by oid, an error for none.
            unsafe { pg_sys::get_typlenbyval(*oid, &mut len, &mut in_place) };
            match usize::try_from(len) {
                _ if in_place => Held::InPlace,
                Ok(len) => Held::Fixed(len),
                Err(_) if len == -1 => Held::Varlena,
                Err(_) => Held::Elsewhere,
            }
        });
        Self {
            held: held.collect(),
            model,
            types: types.to_vec(),
            known: false,
            misses: 0,
            enum_changes: 0,
            words: Vec::new(),
            bytes: Vec::new(),
            scores: None,
        }
    }

    /// The scores if the row is this one, `None` in place of them if it has no prediction.
    ///
    /// # Safety
    /// The datums are of the types that this was made for.
    pub unsafe fn scores(&mut self, datums: &[Option<pg_sys::Datum>]) -> Option<Option<&[f64]>> {
        let mut bytes = self.bytes.as_slice();
        let same = self.known
            && self.enum_changes == types::enum_changes()
            && datums.len() == self.words.len()
            && datums.iter().zip(&self.held).zip(&self.words).all(|((datum, held), word)| match (datum, held) {
                (Some(_), Held::Elsewhere) => false,
                (Some(datum), Held::Fixed(_) | Held::Varlena) => {
                    // SAFETY: by contract.
                    let Some(own) = (unsafe { held.bytes(*datum) }) else { return false };
                    if *word != Some(own.len()) {
                        return false;
                    }
                    let (known, rest) = bytes.split_at(own.len());
                    bytes = rest;
                    short::same(known, own)
                }
                _ => datum.map(|datum| datum.value()) == *word,
            });
        self.misses = if same { 0 } else { self.misses + 1 };
        same.then_some(self.scores.as_deref())
    }

    /// Keeps a row and its scores.
    ///
    /// # Safety
    /// As for `scores`.
    pub unsafe fn keep(&mut self, datums: &[Option<pg_sys::Datum>], scores: Option<&[f64]>) {
        // SAFETY: by contract.
        self.known = unsafe { self.take(datums, scores) }.is_some();
    }

    /// `None` where the row cannot be kept: it is too large, or lies elsewhere, or there is no memory.
    ///
    /// # Safety
    /// As for `scores`.
    unsafe fn take(&mut self, datums: &[Option<pg_sys::Datum>], scores: Option<&[f64]>) -> Option<()> {
        self.enum_changes = types::enum_changes();
        self.words.clear();
        self.bytes.clear();
        self.words.try_reserve(datums.len()).ok()?;
        let mut left = MOST_BYTES.checked_sub(size_of_val(scores.unwrap_or_default()))?;
        for (datum, held) in datums.iter().zip(&self.held) {
            let word = match (datum, held) {
                (Some(_), Held::Elsewhere) => return None,
                (Some(datum), Held::Fixed(_) | Held::Varlena) => {
                    // SAFETY: by contract.
                    let own = unsafe { held.bytes(*datum) }?;
                    left = left.checked_sub(own.len())?;
                    self.bytes.try_reserve(own.len()).ok()?;
                    self.bytes.extend_from_slice(own);
                    Some(own.len())
                }
                _ => datum.map(|datum| datum.value()),
            };
            self.words.push(word);
        }
        let Some(scores) = scores else {
            self.scores = None;
            return Some(());
        };
        let kept = self.scores.get_or_insert_default();
        kept.clear();
        kept.try_reserve(scores.len()).ok()?;
        kept.extend_from_slice(scores);
        Some(())
    }
}

impl Held {
    /// What a value that is not in place holds; `None` where that lies elsewhere.
    ///
    /// # Safety
    /// A value of a type that is held so.
    #[inline]
    unsafe fn bytes<'a>(self, datum: pg_sys::Datum) -> Option<&'a [u8]> {
        let at = datum.cast_mut_ptr::<u8>();
        // SAFETY: by contract; a varlena says how long it is, and lies as long as the call goes on.
        unsafe {
            let len = match self {
                Self::InPlace | Self::Elsewhere => return None,
                Self::Fixed(len) => len,
                Self::Varlena => array::stored_len(datum)?,
            };
            Some(core::slice::from_raw_parts(at, len))
        }
    }
}

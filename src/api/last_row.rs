//! The row that was scored last, and its scores. PREDICT BY's class and probability are two calls for each row: the second
//! need not score it again.
//!
//! Call sites that apply the same model to columns of the same types share one. Rows are compared by what they hold: where
//! it lies may be another row's place by now.

use crate::pg::array;
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
}

/// Bytes of a row that are kept at most; a longer one is scored again.
const MOST_BYTES: usize = 64 << 10;

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

/// Whether more than one call site may ask.
pub fn is_shared(row: &Shared) -> bool {
    Rc::strong_count(row) > 1
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
                Err(_) => Held::Varlena,
            }
        });
        let held = held.collect();
        Self { model, types: types.to_vec(), held, known: false, words: Vec::new(), bytes: Vec::new(), scores: None }
    }

    /// The scores if the row is this one, `None` in place of them if it has no prediction.
    ///
    /// # Safety
    /// The datums are of the types that this was made for.
    pub unsafe fn scores(&self, datums: &[Option<pg_sys::Datum>]) -> Option<Option<&[f64]>> {
        let mut bytes = self.bytes.as_slice();
        let same = self.known
            && datums.len() == self.words.len()
            && datums.iter().zip(&self.held).zip(&self.words).all(|((datum, held), word)| match (datum, held) {
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
        same.then_some(self.scores.as_deref())
    }

    /// Keeps a row and its scores.
    ///
    /// # Safety
    /// As for `scores`.
    pub unsafe fn keep(&mut self, datums: &[Option<pg_sys::Datum>], scores: Option<&[f64]>) {
        self.known = false;
        self.words.clear();
        self.bytes.clear();
        for (datum, held) in datums.iter().zip(&self.held) {
            let word = match (datum, held) {
                (Some(datum), Held::Fixed(_) | Held::Varlena) => {
                    // SAFETY: by contract.
                    let Some(own) = (unsafe { held.bytes(*datum) }) else { return };
                    if self.bytes.len() + own.len() > MOST_BYTES {
                        return;
                    }
                    self.bytes.extend_from_slice(own);
                    Some(own.len())
                }
                _ => datum.map(|datum| datum.value()),
            };
            self.words.push(word);
        }
        match (&mut self.scores, scores) {
            (Some(kept), Some(scores)) => {
                kept.clear();
                kept.extend_from_slice(scores);
            }
            (kept, scores) => *kept = scores.map(<[f64]>::to_vec),
        }
        self.known = true;
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
                Self::InPlace => return None,
                Self::Fixed(len) => len,
                Self::Varlena => array::stored_len(datum)?,
            };
            Some(core::slice::from_raw_parts(at, len))
        }
    }
}

//! The columnar arena that holds the decoded tuples of a buffer: dense (one row-major matrix) or
//! sparse (CSR), f32, with the labels beside. Shuffling permutes a `u32` index; tuples never move.
//!
//! Storage is grown by fallible allocation only, and kept from fill to fill. It is handed out as
//! plain slices so that the filling side can write into it without a call per tuple.

use crate::memory::prefetch;
use crate::permute::{Stream, generator, shuffle};
use crate::vector::GROUP;
use crate::{Error, Result};
use ndarray::ArrayView2;

/// Shape of the features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Density {
    /// Every tuple has this many features.
    Dense(usize),
    /// Indices and values.
    Sparse,
}

/// The features of one tuple.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Features<'a> {
    /// One value per feature.
    Dense(&'a [f32]),
    /// Zero-based strictly increasing indices, and as many values.
    Sparse(&'a [u32], &'a [f32]),
}

impl Features<'_> {
    /// Values stored.
    pub fn len(&self) -> usize {
        match self {
            Features::Dense(x) | Features::Sparse(_, x) => x.len(),
        }
    }

    /// Whether no value is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes that a tuple costs beside its features: label and index entry, and its weight if it has one.
const OVERHEAD: usize = 8;
const WEIGHT: usize = 4;

/// One buffer: tuples in the order they were read, and a shuffled index over them.
#[derive(Debug)]
pub struct TupleBuffer {
    density: Density,
    /// Soft limit in bytes; one more tuple is always let in when the buffer is empty.
    limit: usize,
    rows: usize,
    values: Vec<f32>,
    labels: Vec<f32>,
    /// How much each tuple counts, if they differ; negative: held out, never to be trained on.
    weights: Vec<f32>,
    weighted: bool,
    /// Sparse: feature numbers, beside `values`.
    indices: Vec<u32>,
    /// Sparse: end of each row in `values`.
    ends: Vec<u32>,
    order: Vec<u32>,
    max_features: usize,
}

/// Storage of a buffer as slices of equal meaning; rows from `rows` on are free to be written.
#[derive(Debug)]
pub struct Storage<'a> {
    /// Rows already in use.
    pub rows: usize,
    /// Values in use (sparse only; dense uses rows × dims).
    pub used: usize,
    /// Feature values.
    pub values: &'a mut [f32],
    /// Feature numbers (sparse).
    pub indices: &'a mut [u32],
    /// Ends of rows in `values` (sparse).
    pub ends: &'a mut [u32],
    /// Labels, one a row.
    pub labels: &'a mut [f32],
    /// Weights, one a row; empty where all tuples count the same.
    pub weights: &'a mut [f32],
}

/// Grows a vector to `len` elements, all of them readable, without ever aborting.
fn grow<T: Copy + Default>(vec: &mut Vec<T>, len: usize, purpose: &'static str) -> Result<()> {
    if len > vec.len() {
        vec.try_reserve_exact(len - vec.len())
            .map_err(|_| Error::OutOfMemory { bytes: len.saturating_mul(size_of::<T>()), purpose })?;
        vec.resize(len, T::default());
    }
    Ok(())
}

impl TupleBuffer {
    /// An empty buffer of at most about `limit` bytes.
    pub fn new(density: Density, limit: usize) -> Self {
        Self {
            density,
            limit,
            rows: 0,
            values: Vec::new(),
            labels: Vec::new(),
            weights: Vec::new(),
            weighted: false,
            indices: Vec::new(),
            ends: Vec::new(),
            order: Vec::new(),
            max_features: match density {
                Density::Dense(dims) => dims,
                Density::Sparse => 0,
            },
        }
    }

    /// The same, empty, with room for a weight beside each tuple.
    pub fn with_weights(self) -> Self {
        Self { weighted: true, ..self }
    }

    /// The shape.
    pub fn density(&self) -> Density {
        self.density
    }

    /// The soft limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Sets another soft limit; storage that is there stays.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Tuples held.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether no tuple is held.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The number of features needed to hold any tuple seen so far.
    pub fn max_features(&self) -> usize {
        self.max_features
    }

    /// Feature values stored, zeros of sparse tuples not counted.
    pub fn stored_values(&self) -> usize {
        match self.density {
            Density::Dense(dims) => self.rows * dims,
            Density::Sparse => self.used(),
        }
    }

    fn used(&self) -> usize {
        match self.rows {
            0 => 0,
            rows => self.ends.get(rows - 1).map_or(0, |end| *end as usize),
        }
    }

    /// Bytes that a tuple costs beside its features.
    fn overhead(&self) -> usize {
        OVERHEAD + if self.weighted { WEIGHT } else { 0 }
    }

    /// Bytes that a tuple of `values` stored values costs.
    pub fn tuple_bytes(&self, values: usize) -> usize {
        match self.density {
            Density::Dense(dims) => dims * 4 + self.overhead(),
            Density::Sparse => values * 8 + self.sparse_row_bytes(),
        }
    }

    /// Bytes that a sparse tuple costs beside its values and their numbers.
    pub fn sparse_row_bytes(&self) -> usize {
        self.overhead() + 4
    }

    /// Most rows of a dense buffer, or of empty sparse rows.
    fn most_rows(&self) -> usize {
        (self.limit / self.tuple_bytes(0)).max(1).min(u32::MAX as usize)
    }

    /// Forgets the tuples, keeps the storage.
    pub fn clear(&mut self) {
        self.rows = 0;
        self.order.clear();
    }

    /// Bytes of the tuples held.
    pub fn bytes_used(&self) -> usize {
        match self.density {
            Density::Dense(_) => self.rows * self.tuple_bytes(0),
            Density::Sparse => self.used() * 8 + self.rows * self.sparse_row_bytes(),
        }
    }

    /// Bytes of storage that have been used at some time.
    pub fn bytes_held(&self) -> usize {
        let rows = self.labels.len() * 2 + self.weights.len() + self.ends.len();
        (self.values.len() + self.indices.len() + rows) * 4
    }

    /// Whether a tuple of `values` stored values still fits under the limit. An empty buffer takes
    /// any tuple that fits in it at all.
    pub fn has_room(&self, values: usize) -> bool {
        let most = u32::MAX as usize;
        let countable = self.density != Density::Sparse || self.used() + values <= most;
        countable && self.rows < most && self.bytes_used() + self.tuple_bytes(values) <= self.limit
    }

    /// Makes storage for at least one more tuple of `values` values, growing by doubling up to the
    /// limit. Callers ask [`Self::has_room`] first.
    pub fn make_room(&mut self, values: usize) -> Result<()> {
        let purpose = "a buffer of tuples";
        if self.rows == self.labels.len() {
            let rows = (self.rows * 2).max(1024).min(self.most_rows()).max(self.rows + 1);
            match self.density {
                Density::Dense(dims) => grow(&mut self.values, rows * dims + GROUP, purpose)?,
                Density::Sparse => grow(&mut self.ends, rows, purpose)?,
            }
            if self.weighted {
                grow(&mut self.weights, rows, purpose)?;
            }
            grow(&mut self.labels, rows, purpose)?;
        }
        if self.density == Density::Sparse {
            let used = self.used();
            if used + values > self.values.len() {
                let most = self.limit / 8;
                let len = (self.values.len() * 2).max(4096).min(most).max(used + values);
                grow(&mut self.values, len, purpose)?;
                grow(&mut self.indices, len, purpose)?;
            }
        }
        Ok(())
    }

    /// Reserves storage for a full buffer at once, so that filling never moves it, and lets `advise`
    /// say something to the system about each region (address, bytes) before it is touched. Memory is
    /// used only as far as it is filled.
    pub fn reserve_all(&mut self, mut advise: impl FnMut(*const u8, usize)) -> Result<()> {
        fn reserve<T>(vec: &mut Vec<T>, len: usize, advise: &mut impl FnMut(*const u8, usize)) -> Result<()> {
            let bytes = len.saturating_mul(size_of::<T>());
            vec.try_reserve_exact(len).map_err(|_| Error::OutOfMemory { bytes, purpose: "a buffer of tuples" })?;
            advise(vec.as_ptr().cast(), bytes);
            Ok(())
        }
        match self.density {
            Density::Dense(dims) => {
                let rows = self.most_rows();
                reserve(&mut self.values, rows * dims + GROUP, &mut advise)?;
                reserve(&mut self.labels, rows, &mut advise)?;
                if self.weighted {
                    reserve(&mut self.weights, rows, &mut advise)?;
                }
                reserve(&mut self.order, rows, &mut advise)
            }
            Density::Sparse => {
                // Rows of fewer values are rare; they grow the rest by moving it.
                const FEW: usize = 4;
                let rows = (self.limit / self.tuple_bytes(FEW)).min(u32::MAX as usize);
                reserve(&mut self.values, self.limit / 8, &mut advise)?;
                reserve(&mut self.indices, self.limit / 8, &mut advise)?;
                reserve(&mut self.ends, rows, &mut advise)?;
                reserve(&mut self.labels, rows, &mut advise)?;
                if self.weighted {
                    reserve(&mut self.weights, rows, &mut advise)?;
                }
                reserve(&mut self.order, rows, &mut advise)
            }
        }
    }

    /// Rows (and, sparse, values) for which storage is there and the limit is kept.
    pub fn capacity(&self) -> (usize, usize) {
        match self.density {
            Density::Dense(_) => (self.labels.len().min(self.most_rows()), 0),
            Density::Sparse => (self.labels.len(), self.values.len()),
        }
    }

    /// The storage, to be written from row `rows` on and made valid by [`Self::commit`].
    pub fn storage(&mut self) -> Storage<'_> {
        Storage {
            rows: self.rows,
            used: self.used(),
            values: &mut self.values,
            indices: &mut self.indices,
            ends: &mut self.ends,
            labels: &mut self.labels,
            weights: &mut self.weights,
        }
    }

    /// Declares the first `rows` rows of the storage valid; `max_features` is the largest feature
    /// count that any of them needs.
    pub fn commit(&mut self, rows: usize, max_features: usize) {
        debug_assert!(rows <= self.labels.len());
        self.rows = rows.min(self.labels.len());
        self.max_features = self.max_features.max(max_features);
    }

    /// Appends one tuple that counts 1 (the scan writes into [`Self::storage`]).
    pub fn push(&mut self, label: f32, features: Features<'_>) -> Result<()> {
        self.push_weighted(label, features, 1.0)
    }

    /// Appends one tuple; its weight is kept by a buffer with weights only.
    pub fn push_weighted(&mut self, label: f32, features: Features<'_>, weight: f32) -> Result<()> {
        let row = self.rows;
        match (self.density, features) {
            (Density::Dense(dims), Features::Dense(x)) if x.len() == dims => {
                self.make_room(dims)?;
                self.values[row * dims..(row + 1) * dims].copy_from_slice(x);
                self.labels[row] = label;
                self.commit(row + 1, dims);
            }
            (Density::Sparse, Features::Sparse(k, x)) if k.len() == x.len() => {
                self.make_room(x.len())?;
                let start = self.used();
                let end = start + x.len();
                self.values[start..end].copy_from_slice(x);
                self.indices[start..end].copy_from_slice(k);
                self.ends[row] = end as u32;
                self.labels[row] = label;
                self.commit(row + 1, k.last().map_or(0, |k| *k as usize + 1));
            }
            (Density::Dense(dims), Features::Dense(x)) => {
                return Err(Error::FeatureCount { expected: dims, found: x.len() });
            }
            _ => return Err(Error::FeatureCount { expected: 0, found: 0 }),
        }
        if let Some(at) = self.weights.get_mut(row) {
            *at = weight;
        }
        Ok(())
    }

    /// Appends rows of another buffer of the same shape, whatever the limit.
    pub fn append(&mut self, from: &TupleBuffer, rows: impl IntoIterator<Item = u32>) -> Result<()> {
        for row in rows {
            let row = row as usize;
            self.push_weighted(from.label(row), from.features(row), from.weight(row))?;
        }
        Ok(())
    }

    /// Appends all rows of another buffer of the same shape, whatever the limit.
    pub fn append_all(&mut self, from: &TupleBuffer) -> Result<()> {
        /// `len` elements at place `at`, growing by a half more where storage ends.
        fn put<T: Copy + Default>(to: &mut Vec<T>, at: usize, from: &[T]) -> Result<()> {
            let len = at + from.len();
            if len > to.capacity() {
                grow(to, at, "the cache of tuples")?;
                to.try_reserve_exact(len + len / 2 - to.len()).map_err(|_| Error::OutOfMemory {
                    bytes: len.saturating_mul(size_of::<T>()),
                    purpose: "the cache of tuples",
                })?;
            }
            to.truncate(at);
            to.extend_from_slice(from);
            Ok(())
        }
        if from.is_empty() {
            return Ok(());
        }
        let (rows, used) = (self.rows, self.used());
        match self.density {
            // With what has to be there behind the last row.
            Density::Dense(dims) => put(&mut self.values, rows * dims, &from.values[..from.rows * dims + GROUP])?,
            Density::Sparse => {
                put(&mut self.values, used, &from.values[..from.used()])?;
                put(&mut self.indices, used, &from.indices[..from.used()])?;
                put(&mut self.ends, rows, &from.ends[..from.rows])?;
                self.ends[rows..].iter_mut().for_each(|end| *end += used as u32);
            }
        }
        put(&mut self.labels, rows, &from.labels[..from.rows])?;
        if self.weighted && from.weighted {
            put(&mut self.weights, rows, &from.weights[..from.rows])?;
        }
        self.commit(rows + from.rows, from.max_features);
        Ok(())
    }

    /// Values stored for row `row`.
    pub fn stored_of(&self, row: usize) -> usize {
        match self.density {
            Density::Dense(dims) => dims,
            Density::Sparse => self.range(row).len(),
        }
    }

    /// Whether row `row` is held out.
    pub fn is_held_out(&self, row: usize) -> bool {
        self.weighted && self.weights[row] < 0.0
    }

    /// Forgets every second tuple.
    pub fn thin(&mut self) {
        let (mut rows, mut used) = (0, 0);
        for row in (0..self.rows).step_by(2) {
            let from = match self.density {
                Density::Dense(dims) => row * dims..(row + 1) * dims,
                Density::Sparse => self.range(row),
            };
            let to = used;
            used += from.len();
            if self.density == Density::Sparse {
                self.indices.copy_within(from.clone(), to);
                self.ends[rows] = used as u32;
            }
            self.values.copy_within(from, to);
            self.labels[rows] = self.labels[row];
            if self.weighted {
                self.weights[rows] = self.weights[row];
            }
            rows += 1;
        }
        self.rows = rows;
        self.order.clear();
    }

    /// The label of row `row`.
    pub fn label(&self, row: usize) -> f32 {
        self.labels[row]
    }

    /// Whether tuples have weights of their own.
    pub fn is_weighted(&self) -> bool {
        self.weighted
    }

    /// How much row `row` counts in training; 0 if it is held out.
    #[inline(always)]
    pub fn weight(&self, row: usize) -> f32 {
        if self.weighted { self.weights[row].max(0.0) } else { 1.0 }
    }

    /// The rows that are held out, and how much they count.
    pub fn held_out(&self) -> impl Iterator<Item = (usize, f32)> {
        let rows = if self.weighted { self.rows } else { 0 };
        self.weights[..rows].iter().enumerate().filter(|(_, w)| **w < 0.0).map(|(row, w)| (row, -w))
    }

    /// Changes the labels in place (the meaning of the target was found out late).
    pub fn map_labels(&mut self, f: impl Fn(f32) -> f32) {
        for label in &mut self.labels[..self.rows] {
            *label = f(*label);
        }
    }

    /// Features a tuple, and the values of all rows one after the other, with at least [`GROUP`] numbers behind them
    /// (a last row can be read to the end of its last group); none for sparse features.
    #[inline(always)]
    pub fn dense_values(&self) -> (usize, &[f32]) {
        match self.density {
            Density::Dense(dims) => (dims, &self.values),
            Density::Sparse => (0, &[]),
        }
    }

    /// The features of row `row`.
    #[inline(always)]
    pub fn features(&self, row: usize) -> Features<'_> {
        match self.density {
            Density::Dense(dims) => Features::Dense(&self.values[row * dims..(row + 1) * dims]),
            Density::Sparse => {
                let range = self.range(row);
                Features::Sparse(&self.indices[range.clone()], &self.values[range])
            }
        }
    }

    /// Where the values of a sparse row lie.
    #[inline(always)]
    fn range(&self, row: usize) -> std::ops::Range<usize> {
        (if row == 0 { 0 } else { self.ends[row - 1] as usize })..self.ends[row] as usize
    }

    /// Asks for what says where row `row` lies, and for its label, to be brought into the cache: the
    /// first step, well before [`Self::prefetch`], which has to read it.
    #[inline(always)]
    pub fn prefetch_place(&self, row: usize) {
        prefetch(&self.labels[row..=row]);
        if self.density == Density::Sparse {
            prefetch(&self.ends[row..=row]);
        }
    }

    /// Asks for the features of row `row` to be brought into the cache.
    #[inline(always)]
    pub fn prefetch(&self, row: usize) {
        match self.features(row) {
            Features::Dense(x) => prefetch(x),
            Features::Sparse(k, x) => {
                prefetch(k);
                prefetch(x);
            }
        }
    }

    /// Dense features as a matrix of rows × dims.
    pub fn matrix(&self) -> Option<ArrayView2<'_, f32>> {
        match self.density {
            Density::Dense(dims) => ArrayView2::from_shape((self.rows, dims), &self.values[..self.rows * dims]).ok(),
            Density::Sparse => None,
        }
    }

    /// The rows of dense features, to be changed in place; none for sparse ones.
    pub fn dense_rows_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let (dims, used) = match self.density {
            Density::Dense(dims) => (dims, self.rows * dims),
            Density::Sparse => (1, 0),
        };
        self.values[..used].chunks_exact_mut(dims.max(1))
    }

    /// Numbers and values of all sparse tuples, values to be changed in place; nothing for dense ones.
    pub fn sparse_values_mut(&mut self) -> (&[u32], &mut [f32]) {
        let used = if self.density == Density::Sparse { self.used() } else { 0 };
        (&self.indices[..used], &mut self.values[..used])
    }

    /// Labels of the rows held.
    pub fn labels(&self) -> &[f32] {
        &self.labels[..self.rows]
    }

    /// Puts the index in the order of reading, or shuffles it (uniformly, by seed, epoch, fill). Tuples
    /// that are held out are not in it.
    pub fn arrange(&mut self, shuffled: bool, seed: i64, epoch: u32, fill: u32) -> Result<()> {
        let rows = self.rows;
        self.order.clear();
        self.order
            .try_reserve_exact(rows)
            .map_err(|_| Error::OutOfMemory { bytes: rows * 4, purpose: "the index of a buffer" })?;
        if self.weighted {
            self.order.extend((0..rows as u32).filter(|row| self.weights[*row as usize] >= 0.0));
        } else {
            self.order.extend(0..rows as u32);
        }
        if shuffled {
            shuffle(&mut self.order, &mut generator(seed, Stream::Tuples, epoch, fill));
        }
        Ok(())
    }

    /// Sets the order in which the tuples are to be visited.
    pub fn set_order(&mut self, order: Vec<u32>) {
        self.order = order;
    }

    /// The tuples in the order in which they are to be visited.
    pub fn visits(&self) -> Visits<'_> {
        Visits { tuples: self, order: &self.order }
    }

    /// The order in which the tuples are to be visited; set by [`Self::arrange`].
    pub fn order(&self) -> &[u32] {
        &self.order
    }
}

/// Tuples, and an order in which to visit some of them.
#[derive(Debug, Clone, Copy)]
pub struct Visits<'a> {
    /// The tuples.
    pub tuples: &'a TupleBuffer,
    /// Their rows.
    pub order: &'a [u32],
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dense_rows_come_back() {
        let mut buffer = TupleBuffer::new(Density::Dense(2), 1 << 20);
        for i in 0..3000 {
            buffer.push(i as f32, Features::Dense(&[i as f32, -1.0])).expect("fits");
        }
        assert_eq!(buffer.features(2999), Features::Dense(&[2999.0, -1.0]));
        assert_eq!(buffer.matrix().expect("dense").shape(), [3000, 2]);
        let mut all = TupleBuffer::new(Density::Dense(2), 1 << 20);
        for _ in 0..3 {
            all.append_all(&buffer).expect("fits");
        }
        assert_eq!((all.len(), all.features(8999)), (9000, Features::Dense(&[2999.0, -1.0])));
        // A row can be read to the end of its last group.
        for buffer in [&buffer, &all] {
            assert!(buffer.dense_values().1.len() >= buffer.len() * 2 + GROUP);
        }
        buffer.clear();
        assert!(buffer.is_empty());
    }

    #[test]
    fn limit_is_kept_and_one_tuple_always_fits() {
        let mut buffer = TupleBuffer::new(Density::Dense(4), 24 * 5);
        let mut n = 0;
        while buffer.has_room(4) {
            buffer.push(0.0, Features::Dense(&[0.0; 4])).expect("fits");
            n += 1;
        }
        assert_eq!(n, 5);
        assert_eq!(buffer.capacity().0, 5);
    }

    #[test]
    fn held_out_tuples_are_not_in_the_order() {
        for density in [Density::Dense(1), Density::Sparse] {
            let mut buffer = TupleBuffer::new(density, 1 << 20).with_weights();
            for i in 0..10 {
                let x = [i as f32];
                let x = if density == Density::Sparse { Features::Sparse(&[3], &x) } else { Features::Dense(&x) };
                buffer.push_weighted(0.0, x, if i % 3 == 0 { -2.0 } else { 0.5 }).expect("fits");
            }
            buffer.arrange(false, 1, 0, 0).expect("memory");
            assert_eq!(buffer.order(), [1, 2, 4, 5, 7, 8]);
            assert_eq!(buffer.held_out().collect::<Vec<_>>(), [(0, 2.0), (3, 2.0), (6, 2.0), (9, 2.0)]);
            assert_eq!((buffer.weight(0), buffer.weight(1)), (0.0, 0.5));
            buffer.thin();
            let values: Vec<f32> = (0..buffer.len())
                .map(|row| match buffer.features(row) {
                    Features::Dense(x) | Features::Sparse(_, x) => x[0],
                })
                .collect();
            assert_eq!(values, [0.0, 2.0, 4.0, 6.0, 8.0]);
            assert_eq!(buffer.held_out().count(), 2);
        }
    }

    proptest! {
        #[test]
        fn sparse_rows_come_back(rows in prop::collection::vec(prop::collection::btree_map(0u32..1000, -5f32..5.0, 0..20), 0..100)) {
            let mut buffer = TupleBuffer::new(Density::Sparse, usize::MAX);
            for (i, row) in rows.iter().enumerate() {
                let k: Vec<u32> = row.keys().copied().collect();
                let v: Vec<f32> = row.values().copied().collect();
                buffer.push(i as f32, Features::Sparse(&k, &v)).expect("fits");
            }
            prop_assert_eq!(buffer.len(), rows.len());
            for (i, row) in rows.iter().enumerate() {
                let Features::Sparse(k, v) = buffer.features(i) else { panic!("sparse") };
                prop_assert!(k.iter().eq(row.keys()) && v.iter().eq(row.values()));
                prop_assert_eq!(buffer.label(i), i as f32);
            }
        }

        #[test]
        fn arranged_order_visits_each_tuple_once(n in 0usize..500, shuffled: bool, seed: i64) {
            let mut buffer = TupleBuffer::new(Density::Dense(1), usize::MAX);
            for _ in 0..n { buffer.push(0.0, Features::Dense(&[0.0])).expect("fits"); }
            buffer.arrange(shuffled, seed, 0, 0).expect("fits");
            let mut order = buffer.order().to_vec();
            if shuffled { order.sort_unstable(); }
            prop_assert_eq!(order, (0..n as u32).collect::<Vec<_>>());
        }
    }
}

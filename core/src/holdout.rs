//! Tuples that are held out of training, to judge the model after each epoch.
//!
//! They are kept decoded, and are scaled when all are there: by then the scale of every feature is known. When they outgrow their memory, every second one is forgotten and
//! of those to come every second is taken: what is left is spread evenly over the table, whatever
//! order its blocks were read in.

use crate::Result;
use crate::scaling::Scaling;
use crate::tuples::{Density, TupleBuffer};

/// The held-out tuples.
#[derive(Debug)]
pub struct Holdout {
    tuples: TupleBuffer,
    seen: u64,
    every: u64,
    scaled: bool,
}

impl Holdout {
    /// None yet; they may take `limit` bytes.
    pub fn new(density: Density, limit: usize) -> Self {
        Self { tuples: TupleBuffer::new(density, limit).with_weights(), seen: 0, every: 1, scaled: false }
    }

    /// Copies those of a buffer, not yet scaled, that are held out.
    pub fn take_from(&mut self, buffer: &TupleBuffer) -> Result<()> {
        for (row, weight) in buffer.held_out() {
            self.seen += 1;
            if !self.seen.is_multiple_of(self.every) {
                continue;
            }
            let x = buffer.features(row);
            if !self.tuples.has_room(x.len()) {
                self.tuples.thin();
                self.every *= 2;
            }
            // A single tuple may be larger than all there is room for.
            if self.tuples.has_room(x.len()) {
                self.tuples.push_weighted(buffer.label(row), x, weight)?;
            }
        }
        self.tuples.arrange(false, 0, 0, 0)
    }

    /// Scales the tuples kept, once: no more may be taken.
    pub fn scale(&mut self, scaling: &Scaling) {
        if !std::mem::replace(&mut self.scaled, true) {
            scaling.apply(&mut self.tuples);
        }
    }

    /// The tuples kept, all in the order.
    pub fn tuples(&self) -> &TupleBuffer {
        &self.tuples
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuples::Features;

    #[test]
    fn what_is_kept_is_spread_evenly() {
        let mut holdout = Holdout::new(Density::Dense(1), 16 * 100);
        for fill in 0..20 {
            let mut buffer = TupleBuffer::new(Density::Dense(1), usize::MAX).with_weights();
            for i in 0..100 {
                let weight = if i % 2 == 0 { -1.0 } else { 1.0 };
                buffer.push_weighted(fill as f32, Features::Dense(&[i as f32]), weight).expect("fits");
            }
            holdout.take_from(&buffer).expect("fits");
        }
        let tuples = holdout.tuples();
        assert!((50..=100).contains(&tuples.len()), "{}", tuples.len());
        for fill in 0..20 {
            let of_fill = tuples.labels().iter().filter(|label| **label == fill as f32).count();
            assert!((2..=5).contains(&of_fill), "{of_fill} of fill {fill}");
        }
        assert_eq!(tuples.order().len(), tuples.len());
    }
}

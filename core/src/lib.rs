//! CorgiPile's two-level shuffle, the SGD trainer and the model value, in pure Rust.
//!
//! This crate knows nothing of PostgreSQL: no symbol of the server is linked, no pointer of the
//! server is seen. Everything here may run on the read thread (see `exchange`).
//!
//! Words: a *block* is a run of pages, the *buffer* holds the tuples of several blocks, a *tuple*
//! is one training example, an *epoch* is one pass over all blocks.

#![deny(missing_docs)]

pub mod advice;
pub mod auc;
pub mod blocks;
pub mod cache;
mod circle;
pub mod clauses;
pub mod clustering;
pub mod dense;
pub mod disk;
pub mod encoding;
pub mod error;
pub mod exchange;
mod exp;
pub mod holdout;
pub mod labels;
mod logistic;
pub mod loss;
pub mod memory;
pub mod model;
pub mod params;
pub mod permute;
pub mod plumber;
pub mod report;
pub mod scaling;
pub mod short;
pub mod trainer;
pub mod transfer;
pub mod tuples;
pub mod vector;
pub mod weights;
pub mod window;

pub use error::{Error, Result};

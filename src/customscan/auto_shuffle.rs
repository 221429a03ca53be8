//! `shuffle => 'auto'`: looks at a few tuples of a sample of pages, through the nodes themselves, and
//! chooses the order of visits by how clustered they are (see `corgipile_core::clustering`).

use super::block_shuffle::BlockShuffle;
use super::tuple_shuffle::{Filled, TupleShuffle};
use crate::pg::node::Node;
use corgipile_core::clustering::{Clustering, SAMPLE_ROWS, Verdict, sample_pages};
use corgipile_core::labels::LabelCoder;
use corgipile_core::loss::Loss;
use corgipile_core::params::{Params, Shuffle};
use corgipile_core::tuples::{Density, TupleBuffer};
use pgrx::{check_for_interrupts, pg_sys};

/// Memory for the tuples of one page, where their size is not known.
const PAGE_TUPLES: usize = 16 << 20;

/// The instrumentation of a chain of nodes, to be put back: what is read here is not part of an epoch.
pub struct Instruments(Vec<(*mut pg_sys::Instrumentation, pg_sys::Instrumentation)>);

impl Instruments {
    /// Of `ps` and the nodes below it, down the left.
    ///
    /// # Safety
    /// Both are plan states of a begun plan.
    pub unsafe fn save(ps: *mut pg_sys::PlanState, below: *mut pg_sys::PlanState) -> Self {
        // SAFETY: valid plan states; instrumentation is a plain struct or null.
        unsafe {
            let mut all = Vec::new();
            let mut note = |ps: *mut pg_sys::PlanState| {
                if !(*ps).instrument.is_null() {
                    all.push(((*ps).instrument, *(*ps).instrument));
                }
            };
            note(ps);
            let mut ps = below;
            while !ps.is_null() {
                note(ps);
                ps = match (*ps).type_ {
                    pg_sys::NodeTag::T_SubqueryScanState => (*ps.cast::<pg_sys::SubqueryScanState>()).subplan,
                    _ => (*ps).lefttree,
                };
            }
            Self(all)
        }
    }

    /// Puts it back.
    ///
    /// # Safety
    /// The plan has not ended.
    pub unsafe fn restore(self) {
        for (instrument, saved) in self.0 {
            // SAFETY: the node's own, as saved.
            unsafe { *instrument = saved };
        }
    }
}

/// Chooses. The coder learns the target's values on the way, and is passed on to the training.
///
/// # Safety
/// `shuffle` is a begun node, prepared for a training and at the start of its input.
pub unsafe fn choose(shuffle: *mut Node<TupleShuffle>, params: &Params, coder: &mut Option<LabelCoder>) -> Verdict {
    let unknown = Verdict { factor: None, shuffle: Shuffle::Corgipile };
    // SAFETY: by contract.
    unsafe {
        let Some(blocks) = TupleShuffle::block_shuffle(shuffle) else { return unknown };
        let pages = sample_pages(params.seed, (*blocks).state.layout().pages());
        let instruments = Instruments::save(shuffle.cast(), (*shuffle).state.child());
        BlockShuffle::look_at(blocks, pages.clone(), 1);
        pg_sys::ExecReScan(shuffle.cast());
        let density = TupleShuffle::start(shuffle, params, coder.take());
        let verdict = density.map(|density| look(shuffle, blocks, density, &pages));
        *coder = (*shuffle).state.coder().cloned();
        TupleShuffle::reset(shuffle);
        (*shuffle).state.forget_counts();
        pg_sys::ExecReScan(shuffle.cast());
        instruments.restore();
        verdict.unwrap_or(unknown)
    }
}

unsafe fn look(
    shuffle: *mut Node<TupleShuffle>,
    blocks: *mut Node<BlockShuffle>,
    density: Density,
    pages: &[u32],
) -> Verdict {
    let limit = match density {
        Density::Dense(dims) => SAMPLE_ROWS * (dims * 4 + 16),
        Density::Sparse => PAGE_TUPLES,
    };
    // SAFETY: as for `choose`; TupleShuffle was started.
    unsafe {
        let loss = || (*shuffle).state.coder().map_or(Loss::LogLoss, LabelCoder::loss);
        let mut tuples = TupleBuffer::new(density, limit);
        if (*shuffle).state.is_weighted() {
            tuples = tuples.with_weights();
        }
        // A target whose meaning is found out on the way is looked at once more: at most two times.
        loop {
            let assumed = loss();
            let mut clustering = Clustering::new(assumed == Loss::Softmax);
            for page in pages {
                check_for_interrupts!();
                BlockShuffle::look_at(blocks, vec![*page], 1);
                pg_sys::ExecReScan(shuffle.cast());
                tuples.clear();
                let filled = TupleShuffle::fill(shuffle, &mut tuples, false);
                debug_assert!(filled != Filled::Restart);
                if loss() != assumed {
                    break;
                }
                clustering.add_page(&tuples);
            }
            if loss() == assumed {
                return clustering.verdict();
            }
        }
    }
}

/// The choice in words.
pub fn reason(verdict: Verdict) -> String {
    match verdict.factor {
        Some(factor) => format!("auto: pages differ {factor:.1} times as much as in random order"),
        None => "auto: how clustered the input is cannot be measured".into(),
    }
}

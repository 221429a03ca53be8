//! Every setting, and one plain struct of their values, read once a query on the backend's thread.

use corgipile_core::params::Shuffle;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, pg_sys};

static ASYNC_COMPUTE: GucSetting<bool> = GucSetting::<bool>::new(true);
static BLOCK_SIZE: GucSetting<i32> = GucSetting::<i32>::new(10 * 1024);
static BUFFER_SIZE: GucSetting<i32> = GucSetting::<i32>::new(0);
static ENABLE_BLOCK_SHUFFLE: GucSetting<bool> = GucSetting::<bool>::new(true);
static ENABLE_SGD_NODE: GucSetting<bool> = GucSetting::<bool>::new(true);
static MEMORY_LIMIT: GucSetting<i32> = GucSetting::<i32>::new(256 * 1024);
static SHUFFLE: GucSetting<DefaultShuffle> = GucSetting::<DefaultShuffle>::new(DefaultShuffle::Auto);
static TRACE: GucSetting<bool> = GucSetting::<bool>::new(true);
static MODEL_CACHE: GucSetting<i32> = GucSetting::<i32>::new(64 * 1024);
static SHARED_MODEL_SIZE: GucSetting<i32> = GucSetting::<i32>::new(1024);
static PREDICT_BY: GucSetting<bool> = GucSetting::<bool>::new(true);

/// The strategies as values of a setting.
#[derive(Debug, Clone, Copy, pgrx::PostgresGucEnum)]
enum DefaultShuffle {
    #[name = c"auto"]
    Auto,
    #[name = c"corgipile"]
    Corgipile,
    #[name = c"block_only"]
    BlockOnly,
    #[name = c"tuple_only"]
    TupleOnly,
    #[name = c"none"]
    None,
    #[name = c"once"]
    Once,
    #[name = c"epoch"]
    Epoch,
    #[name = c"sliding_window"]
    SlidingWindow,
    #[name = c"mrs"]
    Mrs,
}

/// The strategy where a training names none.
pub fn default_shuffle() -> Shuffle {
    match SHUFFLE.get() {
        DefaultShuffle::Auto => Shuffle::Auto,
        DefaultShuffle::Corgipile => Shuffle::Corgipile,
        DefaultShuffle::BlockOnly => Shuffle::BlockOnly,
        DefaultShuffle::TupleOnly => Shuffle::TupleOnly,
        DefaultShuffle::None => Shuffle::None,
        DefaultShuffle::Once => Shuffle::Once,
        DefaultShuffle::Epoch => Shuffle::Epoch,
        DefaultShuffle::SlidingWindow => Shuffle::SlidingWindow,
        DefaultShuffle::Mrs => Shuffle::Mrs,
    }
}

/// Values of the settings that a training uses.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Largest block chosen unasked, in bytes.
    pub block_size: usize,
    /// Buffer size in bytes; `None`: chosen.
    pub buffer_size: Option<usize>,
    /// Most memory of one training, in bytes.
    pub memory_limit: usize,
    /// Train in a thread of its own?
    pub async_compute: bool,
    /// Record what each operator costs?
    pub trace: bool,
}

impl Settings {
    /// Buffers that a training has: one is filled while the other is trained on, or the same in turn.
    pub fn buffers(&self) -> usize {
        if self.async_compute { 2 } else { 1 }
    }

    /// Reads them.
    pub fn read() -> Self {
        let bytes = |kb: i32| kb.max(0) as usize * 1024;
        Self {
            block_size: bytes(BLOCK_SIZE.get()),
            buffer_size: Some(bytes(BUFFER_SIZE.get())).filter(|b| *b > 0),
            memory_limit: bytes(MEMORY_LIMIT.get()),
            async_compute: ASYNC_COMPUTE.get(),
            trace: TRACE.get(),
        }
    }
}

/// Whether the planner may use BlockShuffle.
pub fn enable_block_shuffle() -> bool {
    ENABLE_BLOCK_SHUFFLE.get()
}

/// Whether the planner may replace the aggregate by the SGD node.
pub fn enable_sgd_node() -> bool {
    ENABLE_SGD_NODE.get()
}

/// Bytes of decoded models that a backend keeps.
pub fn model_cache() -> usize {
    MODEL_CACHE.get().max(0) as usize * 1024
}

/// Bytes from which on a model is in memory once for all sessions; `None`: never.
pub fn shared_model_size() -> Option<usize> {
    usize::try_from(SHARED_MODEL_SIZE.get()).ok().map(|kb| kb * 1024)
}

/// Whether PREDICT BY is understood.
pub fn predict_by() -> bool {
    PREDICT_BY.get()
}

/// Defines the settings, in alphabetical order.
pub fn init() {
    GucRegistry::define_bool_guc(
        c"corgipile.async_compute",
        c"Trains in a second thread while the backend fills the next buffer.",
        c"Off trains between the fills, on the backend's own thread.",
        &ASYNC_COMPUTE,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"corgipile.block_size",
        c"Largest block that is chosen when the option block_size is 'auto'.",
        c"A block is a run of contiguous pages, read as a unit. Smaller tables get smaller blocks.",
        &BLOCK_SIZE,
        8,
        1024 * 1024,
        GucContext::Userset,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_int_guc(
        c"corgipile.buffer_size",
        c"Size of one of the two buffers when the option buffer_size is 'auto'.",
        c"0 means as planned: a twentieth of the table, at least 16 MB, within corgipile.memory_limit.",
        &BUFFER_SIZE,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_bool_guc(
        c"corgipile.enable_block_shuffle",
        c"Lets training read a table's blocks in random order.",
        c"Off leaves the scan to PostgreSQL; tuples are then shuffled in the buffer only.",
        &ENABLE_BLOCK_SHUFFLE,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"corgipile.enable_sgd_node",
        c"Lets the planner run corgipile.sgd as a chain of custom scan nodes.",
        c"Off runs it as a plain aggregate, which keeps all tuples in memory.",
        &ENABLE_SGD_NODE,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"corgipile.model_cache",
        c"Decoded models that a session keeps for predictions.",
        c"A larger one is decoded anew for each statement that uses it.",
        &MODEL_CACHE,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_int_guc(
        c"corgipile.memory_limit",
        c"Most memory that one training may hold: both buffers and the weights.",
        c"A training that cannot keep it ends with an error.",
        &MEMORY_LIMIT,
        64,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_bool_guc(
        c"corgipile.predict_by",
        c"Understands PREDICT BY after a table in FROM.",
        c"Off gives PostgreSQL's own parser back.",
        &PREDICT_BY,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"corgipile.shared_model_size",
        c"Size from which on a model is in memory once for all sessions.",
        c"By a file among the server's temporary files, which the sessions map; -1: every session has its own copy.",
        &SHARED_MODEL_SIZE,
        -1,
        1024 * 1024,
        GucContext::Userset,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_enum_guc(
        c"corgipile.shuffle",
        c"The order in which tuples are visited when the option shuffle is not given.",
        c"auto looks at a few pages of the table and chooses none, block_only or corgipile.",
        &SHUFFLE,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"corgipile.trace",
        c"Records what each operator of a training costs.",
        c"The records are kept with the model; see the views corgipile.trace and corgipile.tuning.",
        &TRACE,
        GucContext::Userset,
        GucFlags::default(),
    );
    // SAFETY: called from _PG_init, after all definitions; the prefix is copied.
    unsafe {
        pg_sys::MarkGUCPrefixReserved(c"corgipile".as_ptr());
    }
}

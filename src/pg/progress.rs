//! Progress of a training for other sessions to see, in the server's own array of what backends do
//! (backend_progress.c): it is there without preloading, and is cleared when a transaction aborts.

use corgipile_core::params::Shuffle;
use pgrx::pg_sys;

/// Our kind of command among those of the server; its own are small numbers.
const COMMAND: pg_sys::ProgressCommandType::Type = 0x636f_7267;

/// What a training is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Looks how clustered the table is.
    Sampling = 1,
    /// Sorts by random keys and trains on what is sorted.
    Sorting = 2,
    /// Reads and trains.
    Training = 3,
    /// Trains on tuples that were kept.
    Cached = 4,
    /// Takes the loss of the finished weights.
    Measuring = 5,
}

impl Phase {
    /// The phase of an epoch.
    pub fn of_epoch(shuffle: Shuffle) -> Self {
        if shuffle.sorts() { Self::Sorting } else { Self::Training }
    }

    fn name(number: i64) -> &'static str {
        match number {
            1 => "sampling pages",
            2 => "sorting and training",
            3 => "training",
            4 => "training on cached tuples",
            5 => "measuring the final loss",
            _ => "starting",
        }
    }
}

/// Places in the server's array.
#[derive(Clone, Copy)]
enum Place {
    Phase = 0,
    Epoch,
    MaxEpochs,
    BlocksDone,
    BlocksTotal,
    Tuples,
    LossBits,
    Started,
}

fn set(place: Place, value: i64) {
    // SAFETY: writes the backend's own entry; does nothing with track_activities off.
    unsafe { pg_sys::pgstat_progress_update_param(place as i32, value) };
}

/// A training that is shown while it runs.
pub struct Progress(());

impl Progress {
    /// Begins to show one over a relation (InvalidOid: not a single one).
    pub fn start(relation: pg_sys::Oid, max_epochs: u32, blocks: u32) -> Self {
        // SAFETY: as for `set`.
        unsafe { pg_sys::pgstat_progress_start_command(COMMAND, relation) };
        set(Place::MaxEpochs, i64::from(max_epochs));
        set(Place::BlocksTotal, i64::from(blocks));
        set(Place::LossBits, f64::NAN.to_bits() as i64);
        // SAFETY: reads the clock.
        set(Place::Started, unsafe { pg_sys::GetCurrentTimestamp() });
        Self(())
    }

    /// Blocks of an epoch, once they are settled.
    pub fn blocks(blocks: u32) {
        set(Place::BlocksTotal, i64::from(blocks));
    }

    /// A phase begins, in an epoch counted from 1.
    pub fn phase(phase: Phase, epoch: u32) {
        set(Place::Phase, phase as i64);
        set(Place::Epoch, i64::from(epoch));
        set(Place::BlocksDone, 0);
    }

    /// Blocks of this epoch, and tuples of all.
    pub fn done(blocks: u64, tuples: u64) {
        set(Place::BlocksDone, blocks as i64);
        set(Place::Tuples, tuples as i64);
    }

    /// The loss of an epoch.
    pub fn loss(loss: Option<f64>) {
        set(Place::LossBits, loss.unwrap_or(f64::NAN).to_bits() as i64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // SAFETY: as for `set`; after an ERROR the server does it itself, twice is harmless.
        unsafe { pg_sys::pgstat_progress_end_command() };
    }
}

/// A training of some backend.
pub struct Row {
    /// Its process.
    pub pid: i32,
    /// Its database.
    pub database: pg_sys::Oid,
    /// Its role.
    pub role: pg_sys::Oid,
    /// The relation; InvalidOid for none.
    pub relation: pg_sys::Oid,
    /// In words.
    pub phase: &'static str,
    /// Counted from 1.
    pub epoch: i64,
    /// At most so many.
    pub max_epochs: i64,
    /// Of this epoch.
    pub blocks_done: i64,
    /// Of the table; 0: not read in blocks.
    pub blocks_total: i64,
    /// Trained on so far.
    pub tuples: i64,
    /// Of the last epoch.
    pub loss: Option<f64>,
    /// When training began.
    pub started: i64,
}

/// The trainings of all backends whose role's rights the current role has.
pub fn all() -> Vec<Row> {
    // SAFETY: a copy of the server's array, made for this transaction; indices run from 1.
    unsafe {
        let mut rows = Vec::new();
        for i in 1..=pg_sys::pgstat_fetch_stat_numbackends() {
            #[cfg(feature = "pg15")]
            let entry = pg_sys::pgstat_fetch_stat_local_beentry(i);
            #[cfg(not(feature = "pg15"))]
            let entry = pg_sys::pgstat_get_local_beentry_by_index(i);
            if entry.is_null() {
                continue;
            }
            let status = &(*entry).backendStatus;
            let visible = pg_sys::superuser() || pg_sys::has_privs_of_role(pg_sys::GetUserId(), status.st_userid);
            if status.st_progress_command != COMMAND || !visible {
                continue;
            }
            let value = |place: Place| status.st_progress_param[place as usize];
            let loss = f64::from_bits(value(Place::LossBits) as u64);
            rows.push(Row {
                pid: status.st_procpid,
                database: status.st_databaseid,
                role: status.st_userid,
                relation: status.st_progress_command_target,
                phase: Phase::name(value(Place::Phase)),
                epoch: value(Place::Epoch),
                max_epochs: value(Place::MaxEpochs),
                blocks_done: value(Place::BlocksDone),
                blocks_total: value(Place::BlocksTotal),
                tuples: value(Place::Tuples),
                loss: loss.is_finite().then_some(loss),
                started: value(Place::Started),
            });
        }
        rows
    }
}

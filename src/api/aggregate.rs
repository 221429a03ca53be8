//! `corgipile.sgd` as a plain aggregate: what runs with GROUP BY, and wherever the nodes do not.
//!
//! It keeps the group's decoded tuples in memory, under corgipile.memory_limit for all groups
//! together, and runs the same epochs over them with a full shuffle. The state lives in the
//! aggregate's memory context and is dropped with it.

use super::arguments::Call;
use crate::customscan::sgd::{class_weights, header, model_datum, parse_options};
use crate::customscan::tuple_shuffle::{Layout, decoder, learn_label, new_coder};
use crate::customscan::warm_start::WarmStart;
use crate::error::{self, ColumnNames, RowError};
use crate::guc::Settings;
use crate::pg::fill::{Decoder, Room, Stop, Taken};
use crate::pg::types;
use crate::pg_function;
use crate::planner::Roles;
use corgipile_core::Error;
use corgipile_core::labels::LabelCoder;
use corgipile_core::params::{Params, Shuffle};
use corgipile_core::trainer::{Trainer, train_in_memory};
use corgipile_core::tuples::{Density, TupleBuffer};
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{FromDatum, JsonB, PgMemoryContexts, PgSqlErrorCode, check_for_interrupts, pg_sys};
use std::cell::Cell;
use std::time::Instant;

thread_local! {
    /// Bytes held by all states of this backend.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// One group.
struct Group {
    params: Params,
    target_type: pg_sys::Oid,
    roles: Roles,
    warm: Option<WarmStart>,
    decoder: Decoder,
    coder: LabelCoder,
    texts: Vec<Box<[u8]>>,
    tuples: TupleBuffer,
    rows_seen: u64,
    limit: usize,
    held: usize,
}

impl Drop for Group {
    fn drop(&mut self) {
        HELD.set(HELD.get().saturating_sub(self.held));
    }
}

impl Group {
    /// A group whose first row is in the call.
    fn new(call: Call) -> Self {
        types::require_utf8();
        let settings = Settings::read();
        let types: Vec<pg_sys::Oid> = (1..call.len()).map(|i| call.type_of(i)).collect();
        let Some(roles) = Roles::of(&types) else { error::internal("corgipile.sgd was called with other arguments") };
        let options = roles.options.and_then(|i| call.get(i + 1));
        // SAFETY: the argument is declared jsonb.
        let options = options.and_then(|d| unsafe { JsonB::from_datum(d, false) });
        let params = parse_options(options.as_ref());
        if params.advise {
            error::fail(
                PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
                "advice is given of trainings by the custom scan node only",
                Some("SET corgipile.enable_sgd_node = on."),
            );
        }
        if params.shuffle.parts() > 1 {
            error::fail(
                PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
                format!(
                    "shuffle \"{}\" is not available where a group's rows are kept in memory",
                    params.shuffle.name()
                ),
                Some("Leave out GROUP BY, or use shuffle 'epoch'."),
            );
        }
        // All rows are there: nothing comes closer to random order than to shuffle them all.
        let in_memory = if params.shuffle == Shuffle::Auto { Shuffle::Epoch } else { params.shuffle };
        let params = Params { shuffle: in_memory, ..params };
        let target_type = types[0];
        let layout = Layout::of(&types[1..if roles.sparse { 3 } else { 2 }], &[]);
        let warm = WarmStart::find(&params, target_type);
        let coder = warm.as_ref().map_or_else(|| new_coder(target_type, &params), WarmStart::coder);
        // SAFETY: the current context of a transition call is reset for each row.
        let temporary = unsafe { pg_sys::CurrentMemoryContext };
        let mut decoder = decoder(target_type, &coder, layout, roles.weight.is_some(), &params, temporary);
        decoder.max_index = ((settings.memory_limit / 24) as i64).min(i64::from(i32::MAX));
        let density = if layout.is_sparse() { Density::Sparse } else { Density::Dense(0) };
        Self {
            tuples: Self::buffer(density, &decoder, settings.memory_limit),
            params,
            target_type,
            roles,
            warm,
            decoder,
            coder,
            texts: Vec::new(),
            rows_seen: 0,
            limit: settings.memory_limit,
            held: 0,
        }
    }

    /// An empty buffer, with weights where they are needed.
    fn buffer(density: Density, decoder: &Decoder, limit: usize) -> TupleBuffer {
        let tuples = TupleBuffer::new(density, limit);
        if decoder.weighted || decoder.hold_out_below > 0 { tuples.with_weights() } else { tuples }
    }

    /// Adds the row in the call.
    unsafe fn add(&mut self, call: Call) {
        let mut values = [pg_sys::Datum::from(0); 4];
        let mut nulls = [true; 4];
        for (i, argument) in self.roles.columns().enumerate() {
            if let Some(datum) = call.get(argument + 1) {
                values[i] = datum;
                nulls[i] = false;
            }
        }
        self.rows_seen += 1;
        // SAFETY: the current context lives for this call.
        self.decoder.temporary = unsafe { pg_sys::CurrentMemoryContext };
        self.decoder.label = None;
        loop {
            let mut room = Room::of(&mut self.tuples);
            let (room_at, decoder) = (&raw mut room, &raw mut self.decoder);
            let (values_at, nulls_at) = (values.as_ptr(), nulls.as_ptr());
            // SAFETY: plain data only inside the guard; the arrays hold the decoder's columns.
            let decoded = unsafe { pg_guard_ffi_boundary(|| (*decoder).decode(values_at, nulls_at, &mut *room_at)) };
            room.commit(&mut self.tuples);
            match decoded {
                Ok(Taken::Null) => {
                    self.decoder.skipped += 1;
                    return;
                }
                Ok(Taken::Row | Taken::Absent | Taken::HeldOut) => return,
                Err(Stop::Length(dims)) if self.decoder.dims == 0 && dims > 0 => {
                    self.decoder.dims = dims;
                    self.tuples = Self::buffer(Density::Dense(dims), &self.decoder, self.limit);
                }
                Err(Stop::Full) => self.too_large(),
                Err(Stop::Room(n)) => self.grow(n),
                Err(Stop::UnknownLabel) => {
                    let datum = values[self.decoder.target];
                    // SAFETY: not NULL, or decode would have said so; of the target's type.
                    let learnt = unsafe {
                        learn_label(&mut self.decoder, &mut self.coder, &mut self.texts, datum, self.target_type)
                    };
                    match learnt {
                        Ok(learnt) => learnt.relabel(&mut self.tuples, &self.coder),
                        Err(what) => self.fail(what),
                    }
                }
                Err(stop) => self.fail(RowError::from(stop)),
            }
        }
    }

    fn fail(&self, what: RowError) -> ! {
        let names =
            ColumnNames { target: "target".into(), features: vec!["features".into()], weight: Some("weight".into()) };
        let place = format!("in row {} of the group", self.rows_seen);
        error::raise_row(what, &names, &place, self.decoder.dims, self.decoder.max_index)
    }

    fn too_large(&self) -> ! {
        let what = format!("a group of more than {} rows", self.tuples.len());
        error::raise(Error::MemoryLimit { what, needed: HELD.get(), limit: self.limit })
    }

    fn grow(&mut self, values: usize) {
        if !self.tuples.has_room(values) {
            self.too_large();
        }
        self.tuples.make_room(values).unwrap_or_else(|e| error::raise(e));
        let now = self.tuples.bytes_held();
        HELD.set(HELD.get() + now - self.held);
        self.held = now;
        if HELD.get() > self.limit {
            self.too_large();
        }
    }

    /// Trains on the group.
    fn train(&mut self) -> Option<pg_sys::Datum> {
        if self.tuples.is_empty() {
            return None;
        }
        let started = Instant::now();
        let outcome = self.coder.check_complete(self.tuples.len() as u64).and_then(|()| {
            let go_on = || {
                check_for_interrupts!();
                true
            };
            let left = self.limit.saturating_sub(HELD.get());
            let mut trainer = Trainer::new(self.params.clone(), self.coder.loss(), self.tuples.density(), left);
            trainer.set_class_weights(class_weights(&self.params, &self.coder, self.target_type, true));
            if let Some(warm) = &self.warm {
                trainer.start_from(warm.rows(self.tuples.density()).clone());
            }
            train_in_memory(trainer, &mut self.tuples, self.coder.class_count(), go_on)
        });
        let trained = outcome.unwrap_or_else(|e| error::raise(e));
        if trained.history.last().is_none_or(|report| report.rows == 0) {
            return None;
        }
        let mut header = header(&trained, &self.coder, self.target_type, self.tuples.density());
        header.rows_skipped = self.decoder.skipped;
        header.rows_held_out = self.decoder.held_out;
        header.weight = self.roles.weight.map(|_| String::new());
        header.peak_memory = (self.tuples.bytes_held() + trained.trainer.bytes()) as u64;
        header.duration_ms = started.elapsed().as_secs_f64() * 1e3;
        Some(model_datum(trained.trainer, &self.coder, header).unwrap_or_else(|e| error::raise(e)))
    }
}

pg_function!(
    /// Transition function: (internal, target, [indices,] values, [options]) → internal.
    corgipile_sgd_transition,
    pg_finfo_corgipile_sgd_transition,
    transition
);
pg_function!(
    /// Final function: internal → corgipile.model, NULL for no rows.
    corgipile_sgd_final,
    pg_finfo_corgipile_sgd_final,
    finish
);

unsafe fn transition(call: Call) -> pg_sys::Datum {
    // SAFETY: a valid call frame; the state pointer was made here and lives in the aggregate's context.
    unsafe {
        let mut context: pg_sys::MemoryContext = std::ptr::null_mut();
        if pg_sys::AggCheckCallContext(call.0, &mut context) == 0 {
            error::internal("corgipile.sgd_transition was called outside an aggregate");
        }
        let state = match call.get(0) {
            Some(state) => state.cast_mut_ptr::<Group>(),
            None => PgMemoryContexts::For(context).leak_and_drop_on_delete(Group::new(call)),
        };
        (*state).add(call);
        pg_sys::Datum::from(state)
    }
}

unsafe fn finish(call: Call) -> pg_sys::Datum {
    // SAFETY: as for `transition`.
    unsafe {
        let mut context: pg_sys::MemoryContext = std::ptr::null_mut();
        if pg_sys::AggCheckCallContext(call.0, &mut context) == 0 {
            error::internal("corgipile.sgd_final was called outside an aggregate");
        }
        let Some(state) = call.get(0) else { return call.null() };
        match (*state.cast_mut_ptr::<Group>()).train() {
            Some(model) => model,
            None => call.null(),
        }
    }
}

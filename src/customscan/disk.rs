//! How fast the disk under a table is: as it was measured by corgipile.probe_disk and kept, or as a short
//! look shows, once a session for each tablespace.

use crate::error;
use crate::pg::{disk_probe, relation};
use corgipile_core::disk::Curve;
use pgrx::{PgSqlErrorCode, Spi, check_for_interrupts, direct_function_call, pg_sys};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// A look that nobody asked for takes no longer.
const SHORT: Duration = Duration::from_millis(150);
/// Tables smaller than this say nothing about a disk.
const LEAST_FILE: u64 = 16 << 20;
/// Numbers of readers that are measured.
const PARALLELISM: [usize; 4] = [1, 2, 4, 8];

thread_local! {
    /// By tablespace, what short looks have shown in this session.
    static LOOKED: RefCell<BTreeMap<u32, Option<Curve>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The tablespace of a relation.
fn tablespace_of(relation: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: a catalog look-up by oid, and a plain variable of the backend.
    unsafe {
        match pg_sys::get_rel_tablespace(relation) {
            pg_sys::InvalidOid => pg_sys::MyDatabaseTableSpace,
            tablespace => tablespace,
        }
    }
}

/// The name of a tablespace.
fn name_of(tablespace: pg_sys::Oid) -> String {
    // SAFETY: a catalog look-up; null if it is gone.
    unsafe { relation::string(pg_sys::get_tablespace_name(tablespace)) }
}

/// The relation's first file, from the data directory, which is where a backend lives.
fn file_of(relation: pg_sys::Oid) -> Option<PathBuf> {
    // SAFETY: the SQL function pg_relation_filepath(regclass); NULL where there is no file.
    let path = unsafe { direct_function_call::<String>(pg_sys::pg_relation_filepath, &[Some(relation.into())]) };
    path.map(PathBuf::from)
}

fn interrupts() {
    check_for_interrupts!();
}

/// The curve for reading `relation`, a table that is not in memory; `None` where it cannot be measured.
pub fn curve_of(relation: pg_sys::Oid) -> Option<Curve> {
    let tablespace = tablespace_of(relation);
    if let Some(kept) = kept(tablespace) {
        return Some(kept);
    }
    if let Some(looked) = LOOKED.with_borrow(|all| all.get(&tablespace.to_u32()).cloned()) {
        return looked;
    }
    let path = file_of(relation).filter(|path| std::fs::metadata(path).is_ok_and(|file| file.len() >= LEAST_FILE))?;
    let measured = match disk_probe::probe(&path, &[1], SHORT, interrupts) {
        Ok(measured) => measured,
        Err(e) => {
            pgrx::debug1!("the disk of {} was not measured: {e}", path.display());
            Vec::new()
        }
    };
    let points: Vec<(f64, f64)> = measured.iter().map(|m| (m.block as f64, m.bandwidth)).collect();
    let curve = Curve::new(&points);
    LOOKED.with_borrow_mut(|all| all.insert(tablespace.to_u32(), curve.clone()));
    curve
}

/// What was measured before, with as many readers as the tablespace is said to bear.
fn kept(tablespace: pg_sys::Oid) -> Option<Curve> {
    // SAFETY: a look-up in the cache of tablespace options.
    let readers = unsafe { pg_sys::get_tablespace_io_concurrency(tablespace) }.max(1);
    let query = "SELECT block_size::float8, pg_catalog.max(bytes_per_second) FROM corgipile.disks
                 WHERE tablespace OPERATOR(pg_catalog.=) $1 AND parallelism OPERATOR(pg_catalog.<=) $2
                 GROUP BY block_size ORDER BY block_size";
    let found = Spi::connect(|client| {
        let rows = client.select(query, None, &[name_of(tablespace).into(), readers.into()])?;
        rows.map(|row| Ok((row.get::<f64>(1)?, row.get::<f64>(2)?))).collect::<Result<Vec<_>, pgrx::spi::Error>>()
    });
    let points: Vec<(f64, f64)> =
        found.ok()?.into_iter().filter_map(|(block, bandwidth)| Some((block?, bandwidth?))).collect();
    Curve::new(&points)
}

/// Measures the disk of a tablespace (NULL: the database's own) for about `seconds`, by the largest table
/// there. (Block bytes, readers, bytes per second.)
pub fn measure(tablespace: Option<&str>, seconds: f64) -> (String, Vec<(i64, i32, f64)>) {
    if !(0.1..=600.0).contains(&seconds) {
        error::fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("a disk cannot be measured for {seconds} seconds"),
            Some("Give 0.1 to 600 seconds."),
        );
    }
    let oid = match tablespace.map(std::ffi::CString::new) {
        // SAFETY: a plain variable of the backend.
        None => unsafe { pg_sys::MyDatabaseTableSpace },
        // SAFETY: a catalog look-up that raises the server's own error.
        Some(Ok(name)) => unsafe { pg_sys::get_tablespace_oid(name.as_ptr(), false) },
        Some(Err(_)) => error::fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "the name of a tablespace has no zero byte",
            None,
        ),
    };
    let name = name_of(oid);
    // The database's own tablespace is written as 0.
    let query = "SELECT c.oid FROM pg_catalog.pg_class c
                 WHERE coalesce(nullif(c.reltablespace, 0::oid), $2) OPERATOR(pg_catalog.=) $1
                   AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,m,t,i}'::\"char\"[])
                   AND c.relpersistence OPERATOR(pg_catalog.<>) 't'
                 ORDER BY c.relpages DESC, c.oid DESC LIMIT 20";
    // SAFETY: a plain variable of the backend.
    let own = unsafe { pg_sys::MyDatabaseTableSpace };
    let largest = Spi::connect(|client| {
        let rows = client.select(query, None, &[oid.into(), own.into()])?;
        rows.map(|row| row.get::<pg_sys::Oid>(1)).collect::<Result<Vec<_>, pgrx::spi::Error>>()
    });
    // Whichever is the largest by now; one that is gone has no file.
    let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
    let paths = largest.unwrap_or_default().into_iter().flatten().filter_map(file_of);
    let path = paths.max_by_key(size);
    let path = path.filter(|path| std::fs::metadata(path).is_ok_and(|file| file.len() >= LEAST_FILE));
    let Some(path) = path else {
        error::fail(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("this database has no table of at least 16 MB in tablespace \"{name}\" to measure the disk by"),
            Some("Load a table first."),
        )
    };
    let measured = disk_probe::probe(&path, &PARALLELISM, Duration::from_secs_f64(seconds), interrupts);
    let measured = measured.unwrap_or_else(|e| {
        error::fail(
            PgSqlErrorCode::ERRCODE_IO_ERROR,
            format!("the disk of tablespace \"{name}\" could not be measured: {e}"),
            None,
        )
    });
    LOOKED.with_borrow_mut(|all| all.remove(&oid.to_u32()));
    (name, measured.into_iter().map(|m| (m.block as i64, m.parallelism as i32, m.bandwidth)).collect())
}

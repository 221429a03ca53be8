//! Large models are in memory once for all sessions: a file of the model's bytes, which each maps read-only.
//!
//! The files are among the server's temporary files (base/pgsql_tmp, under its prefix), where no base backup takes
//! them along and a start of the server removes them; a file that nobody has asked for in a day is removed when
//! another is written. A file's name says whose row it is and the checksum of the model, so a row that changes
//! means another file, and what is read back must have that checksum. Shared memory would need preloading and a
//! size set beforehand; a file needs neither, and the kernel may drop its pages.
//!
//! Whatever fails here, the model is read from the store as a small one is.

use crate::guc;
use crate::pg::types;
use corgipile_core::model::{Digest, Model};
use memmap2::Mmap;
use pgrx::pg_sys;
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Below the data directory, in which a backend runs.
const DIRECTORY: &str = "base/pgsql_tmp";
/// The server's prefix of temporary files, and ours.
const PREFIX: &str = "pgsql_tmp_corgipile_";
/// A file that nobody asks for is kept this long.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// The model of a row of the store from its file, which is written if there is none; `None` for a small model, or
/// where that cannot be done.
///
/// # Safety
/// `datum` is a corgipile.model; in a transaction.
pub unsafe fn model(id: i64, datum: pg_sys::Datum) -> Option<Model> {
    // SAFETY: by contract.
    let digest = unsafe { digest(datum, guc::shared_model_size()?)? };
    // SAFETY: a plain variable of the server.
    let database = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let path = Path::new(DIRECTORY).join(format!("{PREFIX}{database}_{id}_{:08x}_{}", digest.checksum, digest.len));
    if let Some(model) = open(&path, digest) {
        return Some(model);
    }
    // SAFETY: by contract; the copy is freed as soon as it is written.
    unsafe {
        let copy = pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr());
        let written = write(&path, digest, types::varlena_bytes(pg_sys::Datum::from(copy)));
        if !std::ptr::eq(copy, datum.cast_mut_ptr()) {
            pg_sys::pfree(copy.cast());
        }
        if let Err(e) = written {
            pgrx::debug1!("model {id} is not shared: {e}");
            return None;
        }
    }
    open(&path, digest)
}

/// Length and checksum, from the first and last bytes alone: the rest is not fetched. `None` if it is small.
unsafe fn digest(datum: pg_sys::Datum, smallest: usize) -> Option<Digest> {
    // SAFETY: a varlena; slices of it are copies.
    unsafe {
        let len = pg_sys::toast_raw_datum_size(datum).checked_sub(pg_sys::VARHDRSZ)?;
        if len < smallest.max(Digest::FIRST + Digest::LAST) {
            return None;
        }
        let slice = |at: usize, len: usize| {
            let slice = pg_sys::pg_detoast_datum_slice(datum.cast_mut_ptr(), at as i32, len as i32);
            types::varlena_bytes(pg_sys::Datum::from(slice))
        };
        Digest::new(slice(0, Digest::FIRST), slice(len - Digest::LAST, Digest::LAST), len).ok()
    }
}

/// The model in a file, if it is the one that is meant.
fn open(path: &Path, digest: Digest) -> Option<Model> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path).ok()?;
    if file.metadata().ok()?.len() != (digest.padding + digest.len) as u64 {
        return None;
    }
    // Asked for just now; the owner of the file may say so without writing to it.
    let _ = file.set_times(FileTimes::new().set_modified(SystemTime::now()));
    // SAFETY: a file of the server's own, in a directory that only the server can write to. It is complete before it
    // gets this name, and is never written to or shortened afterwards; removing it leaves the pages in place.
    let map = unsafe { Mmap::map(&file) }.ok()?;
    let checksum = map.get(map.len() - Digest::LAST..)?;
    if checksum != digest.checksum.to_le_bytes() {
        return None;
    }
    Model::decode_shared(Arc::new(map), digest.padding).ok()
}

/// Writes a file under another name first, so that it is whole under its own.
fn write(path: &Path, digest: Digest, bytes: &[u8]) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(DIRECTORY) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    remove_old();
    let unfinished = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
    let result = write_new(&unfinished, digest, bytes).and_then(|()| fs::rename(&unfinished, path));
    if result.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    result
}

fn write_new(path: &Path, digest: Digest, bytes: &[u8]) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(&[0; 4][..digest.padding])?;
    file.write_all(bytes)
}

/// Removes the files that nobody has asked for in a long time.
fn remove_old() {
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let old = modified.is_ok_and(|then| then.elapsed().is_ok_and(|age| age > KEPT));
        if ours && old {
            let _ = fs::remove_file(entry.path());
        }
    }
}

//! The store of models: look-up under a snapshot, insert and delete as the store's owner, and the
//! backend's cache of decoded models.
//!
//! A look-up reads the table directly (systable scan by index), so that it works on a standby, needs
//! no privilege on the table, and can run under a catalog snapshot while a statement is parsed. Who
//! may use a model is decided here: its owner, members of the owner's role, and superusers.

use crate::error;
use crate::guc;
use crate::pg::{relation, types};
use corgipile_core::model::Model;
use pgrx::{FromDatum, IntoDatum, PgSqlErrorCode, Spi, pg_sys};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Columns of corgipile.models_store, by number.
mod column {
    pub const MODEL_ID: i16 = 1;
    pub const MODEL_NAME: i16 = 2;
    pub const OWNER: i16 = 3;
    pub const MODEL: i16 = 6;
}

/// Columns of corgipile.model_grants, by number.
mod grants {
    pub const MODEL_ID: i16 = 1;
    pub const GRANTEE: i16 = 2;
}

/// The name of a grant to all roles; no role can have it.
pub const EVERYBODY: &str = "public";

/// How a user names a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelKey {
    /// By id.
    Id(i64),
    /// By name, or by an id written as text.
    Name(String),
}

impl std::fmt::Display for ModelKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Name(name) => write!(f, "\"{name}\""),
        }
    }
}

/// A model found in the store.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its id.
    pub id: i64,
    /// The role that trained it.
    pub owner: String,
    /// Header and weights.
    pub model: Rc<Model>,
}

/// What tells one version of a stored row from another, also after DROP and CREATE EXTENSION.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowVersion {
    table: pg_sys::Oid,
    xmin: u32,
    page: u32,
    line: u16,
}

thread_local! {
    static CACHE: RefCell<HashMap<i64, (RowVersion, Rc<Model>)>> = RefCell::new(HashMap::new());
}

/// A relation of the extension's schema; InvalidOid if there is none.
fn relation_oid(name: &std::ffi::CStr) -> pg_sys::Oid {
    // SAFETY: catalog look-ups by name.
    unsafe {
        let schema = pg_sys::get_namespace_oid(c"corgipile".as_ptr(), true);
        if schema == pg_sys::InvalidOid { schema } else { pg_sys::get_relname_relid(name.as_ptr(), schema) }
    }
}

/// The store; InvalidOid where the extension is not installed. A table of that name which is not the
/// extension's own is not read: its columns may be anything.
fn store_oid() -> pg_sys::Oid {
    // SAFETY: catalog look-ups by oid.
    unsafe {
        let table = relation_oid(c"models_store");
        let extension = pg_sys::get_extension_oid(c"corgipile".as_ptr(), true);
        let ours = table != pg_sys::InvalidOid
            && extension != pg_sys::InvalidOid
            && pg_sys::getExtensionOfObject(pg_sys::RelationRelationId, table) == extension;
        if ours { table } else { pg_sys::InvalidOid }
    }
}

/// Looks a model up; `snapshot` null means the latest committed state (a catalog snapshot).
///
/// # Safety
/// In a transaction; `snapshot` is null or registered or active.
unsafe fn find_row(index: &std::ffi::CStr, key: pg_sys::ScanKeyData, snapshot: pg_sys::Snapshot) -> Option<Stored> {
    // SAFETY: by contract; the tuple is used before the scan ends, the table before it is closed.
    unsafe {
        let table_oid = store_oid();
        let index_oid = relation_oid(index);
        if table_oid == pg_sys::InvalidOid || index_oid == pg_sys::InvalidOid {
            return None;
        }
        let table = pg_sys::table_open(table_oid, pg_sys::AccessShareLock as i32);
        let mut key = key;
        let scan = pg_sys::systable_beginscan(table, index_oid, true, snapshot, 1, &mut key);
        let tuple = pg_sys::systable_getnext(scan);
        let found = if tuple.is_null() {
            None
        } else {
            let get = |number: i16| {
                let mut null = false;
                let datum = pg_sys::heap_getattr(tuple, i32::from(number), (*table).rd_att, &mut null);
                (datum, null)
            };
            let (id, id_null) = get(column::MODEL_ID);
            let (owner, owner_null) = get(column::OWNER);
            let (model, model_null) = get(column::MODEL);
            let id = i64::from_datum(id, id_null).unwrap_or_default();
            let owner = if owner_null { String::new() } else { relation::string(owner.cast_mut_ptr()) };
            let tid = (*tuple).t_self;
            let version = RowVersion {
                table: table_oid,
                xmin: (*(*tuple).t_data).t_choice.t_heap.t_xmin.into(),
                page: (u32::from(tid.ip_blkid.bi_hi) << 16) | u32::from(tid.ip_blkid.bi_lo),
                line: tid.ip_posid,
            };
            let model = if model_null { None } else { cached(id, version, model) };
            model.map(|model| Stored { id, owner, model })
        };
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(table, pg_sys::AccessShareLock as i32);
        found
    }
}

/// The decoded model of a row, from the cache if it is still the same row.
unsafe fn cached(id: i64, version: RowVersion, datum: pg_sys::Datum) -> Option<Rc<Model>> {
    let hit = CACHE.with_borrow(|cache| cache.get(&id).filter(|(v, _)| *v == version).map(|(_, m)| Rc::clone(m)));
    if hit.is_some() {
        return hit;
    }
    // SAFETY: the model column of a row that is being read.
    let bytes = unsafe { types::varlena_bytes(datum) };
    let model = match Model::decode(bytes) {
        Ok(model) => Rc::new(model),
        Err(e) => error::fail(
            PgSqlErrorCode::ERRCODE_DATA_CORRUPTED,
            format!("model {id} cannot be read: {e}"),
            Some("Restore corgipile.models_store from a backup, or drop the model and train it again."),
        ),
    };
    CACHE.with_borrow_mut(|cache| {
        let limit = guc::model_cache();
        let held: usize = cache.values().map(|(_, model)| model.bytes()).sum();
        if held + model.bytes() > limit {
            cache.clear();
        }
        if model.bytes() <= limit {
            cache.insert(id, (version, Rc::clone(&model)));
        }
    });
    Some(model)
}

/// A scan key for equality on one column.
unsafe fn equality(column: i16, procedure: u32, datum: pg_sys::Datum) -> pg_sys::ScanKeyData {
    // SAFETY: fills plain data; the procedures are built-in equality functions.
    unsafe {
        let mut key: pg_sys::ScanKeyData = std::mem::zeroed();
        pg_sys::ScanKeyInit(
            &mut key,
            column,
            pg_sys::BTEqualStrategyNumber as u16,
            pg_sys::Oid::from_u32(procedure),
            datum,
        );
        key
    }
}

/// Finds a model without asking who may use it. `snapshot` as for `find_row`.
///
/// # Safety
/// In a transaction; `snapshot` is null or registered or active.
pub unsafe fn find(key: &ModelKey, snapshot: pg_sys::Snapshot) -> Option<Stored> {
    // SAFETY: by contract.
    unsafe {
        let by_id = |id: i64| {
            let key = equality(column::MODEL_ID, pg_sys::F_INT8EQ, pg_sys::Datum::from(id));
            find_row(c"models_store_pkey", key, snapshot)
        };
        match key {
            ModelKey::Id(id) => by_id(*id),
            ModelKey::Name(name) => {
                let datum = name.as_str().into_datum()?;
                let key = equality(column::MODEL_NAME, pg_sys::F_TEXTEQ, datum);
                let found = find_row(c"models_store_model_name_key", key, snapshot);
                found.or_else(|| name.parse().ok().and_then(by_id))
            }
        }
    }
}

fn active_snapshot() -> pg_sys::Snapshot {
    // SAFETY: plain queries of the snapshot stack.
    unsafe { if pg_sys::ActiveSnapshotSet() { pg_sys::GetActiveSnapshot() } else { std::ptr::null_mut() } }
}

/// Whether the current role may use what `owner` trained.
fn may_use(owner: &str) -> bool {
    let Ok(name) = std::ffi::CString::new(owner) else { return false };
    // SAFETY: catalog look-ups; a role that is gone gives InvalidOid.
    unsafe {
        let role = pg_sys::get_role_oid(name.as_ptr(), true);
        pg_sys::superuser() || (role != pg_sys::InvalidOid && pg_sys::has_privs_of_role(pg_sys::GetUserId(), role))
    }
}

/// Whether the current role, or one that it has the rights of, was given a model by its owner, as
/// `snapshot` sees it.
///
/// # Safety
/// In a transaction; `snapshot` is null or registered or active.
unsafe fn is_granted(id: i64, snapshot: pg_sys::Snapshot) -> bool {
    // SAFETY: by contract; the tuple is used before the scan ends, the table before it is closed.
    unsafe {
        let (table_oid, index_oid) = (relation_oid(c"model_grants"), relation_oid(c"model_grants_pkey"));
        if store_oid() == pg_sys::InvalidOid || table_oid == pg_sys::InvalidOid || index_oid == pg_sys::InvalidOid {
            return false;
        }
        let table = pg_sys::table_open(table_oid, pg_sys::AccessShareLock as i32);
        let mut key = equality(grants::MODEL_ID, pg_sys::F_INT8EQ, pg_sys::Datum::from(id));
        let scan = pg_sys::systable_beginscan(table, index_oid, true, snapshot, 1, &mut key);
        let mut found = false;
        while !found {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            let mut null = false;
            let grantee = pg_sys::heap_getattr(tuple, i32::from(grants::GRANTEE), (*table).rd_att, &mut null);
            let grantee = if null { String::new() } else { relation::string(grantee.cast_mut_ptr()) };
            found = grantee == EVERYBODY || (!grantee.is_empty() && may_use(&grantee));
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(table, pg_sys::AccessShareLock as i32);
        found
    }
}

/// What is known of a model while a statement is parsed: the latest committed state, only of models
/// that the current role may use; for others, running the statement says why not.
///
/// # Safety
/// In a transaction.
pub unsafe fn find_usable(key: &ModelKey) -> Option<Stored> {
    // SAFETY: by contract.
    unsafe {
        let usable = |stored: &Stored| may_use(&stored.owner) || is_granted(stored.id, std::ptr::null_mut());
        find(key, std::ptr::null_mut()).filter(usable)
    }
}

/// The error for a model that is not there.
pub fn no_such_model(key: &ModelKey) -> ! {
    if store_oid() == pg_sys::InvalidOid {
        error::fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            "extension \"corgipile\" is not installed in this database",
            Some("Run CREATE EXTENSION corgipile."),
        );
    }
    error::fail(
        PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
        format!("model {key} does not exist"),
        Some("SELECT model_id, model_name FROM corgipile.models lists the models that you may use."),
    )
}

/// Finds a model that the current role may use, under the running query's snapshot; `None` if there
/// is no such model, an error if it is another's.
pub fn lookup(key: &ModelKey) -> Option<Stored> {
    // SAFETY: called while a statement runs. An id that the statement's snapshot does not know may come
    // from a train_sgd within the statement itself; what an id means never changes.
    let stored = unsafe {
        match find(key, active_snapshot()) {
            None if matches!(key, ModelKey::Id(_)) => find(key, std::ptr::null_mut()),
            found => found,
        }
    }?;
    // SAFETY: as above.
    if !may_use(&stored.owner) && !unsafe { is_granted(stored.id, active_snapshot()) } {
        error::fail(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            format!("permission denied for model {key}"),
            Some(&format!("It belongs to the role \"{}\", which can allow its use with grant_model.", stored.owner)),
        );
    }
    Some(stored)
}

/// Finds a model that the current role may change; `None` if there is no such model, an error if it is
/// another's, also where that one has allowed its use.
pub fn lookup_owned(key: &ModelKey) -> Option<Stored> {
    let stored = lookup(key)?;
    if !may_use(&stored.owner) {
        error::fail(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            format!("must be owner of model {key}"),
            Some(&format!("It belongs to the role \"{}\".", stored.owner)),
        );
    }
    Some(stored)
}

/// Runs `body` with the rights of the store's owner, as foreign-key triggers do, and with a search path
/// that the caller cannot fill with operators of its own. After an ERROR the server restores user and
/// path itself when the (sub)transaction ends.
fn as_store_owner<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: the two calls bracket `body`; SECURITY_LOCAL_USERID_CHANGE forbids SET ROLE meanwhile.
    unsafe {
        let table = pg_sys::table_open(store_oid(), pg_sys::AccessShareLock as i32);
        let owner = (*(*table).rd_rel).relowner;
        pg_sys::table_close(table, pg_sys::NoLock as i32);
        let (mut user, mut context) = (pg_sys::InvalidOid, 0);
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        pg_sys::SetUserIdAndSecContext(owner, context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32);
        let level = pg_sys::NewGUCNestLevel();
        pg_sys::set_config_option(
            c"search_path".as_ptr(),
            c"pg_catalog, pg_temp".as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
        let result = body();
        pg_sys::AtEOXact_GUC(false, level);
        pg_sys::SetUserIdAndSecContext(user, context);
        result
    }
}

/// Name of the current role.
fn current_role() -> String {
    // SAFETY: the current user exists.
    unsafe { relation::string(pg_sys::GetUserNameFromId(pg_sys::GetUserId(), false)) }
}

/// Stores a model for the current role; returns its id.
pub fn insert(name: Option<&str>, source: &str, model: &Model) -> i64 {
    let bytes = model.encode().unwrap_or_else(|e| error::raise(e));
    let owner = current_role();
    let inserted = as_store_owner(|| {
        Spi::get_one_with_args::<i64>(
            "INSERT INTO corgipile.models_store (model_name, owner, source, model) \
             VALUES ($1, $2::pg_catalog.name, $3, corgipile.model_from_bytes($4)) RETURNING model_id",
            &[name.into(), owner.into(), source.into(), bytes.into()],
        )
    });
    match inserted {
        Ok(Some(id)) => id,
        Ok(None) => error::internal("the model was not stored"),
        Err(e) => error::internal(&format!("the model was not stored: {e}")),
    }
}

/// Changes the store by a statement over the model's id, as its owner.
fn change(what: &str, statement: &str, arguments: &[pgrx::datum::DatumWithOid<'_>]) {
    if let Err(e) = as_store_owner(|| Spi::run_with_args(statement, arguments)) {
        error::internal(&format!("the model was not {what}: {e}"));
    }
}

/// Deletes a model, and with it what was granted.
pub fn delete(id: i64) {
    let statement = "DELETE FROM corgipile.models_store WHERE model_id OPERATOR(pg_catalog.=) $1";
    change("deleted", statement, &[id.into()]);
}

/// Gives a model another name, or none.
pub fn rename(id: i64, name: Option<&str>) {
    let statement = "UPDATE corgipile.models_store SET model_name = $2 WHERE model_id OPERATOR(pg_catalog.=) $1";
    change("renamed", statement, &[id.into(), name.into()]);
}

/// Allows a role, or everybody, to use a model.
pub fn grant(id: i64, grantee: &str) {
    let grantor = current_role();
    let statement = "INSERT INTO corgipile.model_grants (model_id, grantee, grantor) \
                     VALUES ($1, $2::pg_catalog.name, $3::pg_catalog.name) ON CONFLICT DO NOTHING";
    change("granted", statement, &[id.into(), grantee.into(), grantor.into()]);
}

/// Takes that back.
pub fn revoke(id: i64, grantee: &str) {
    let statement = "DELETE FROM corgipile.model_grants WHERE model_id OPERATOR(pg_catalog.=) $1 \
                     AND grantee OPERATOR(pg_catalog.=) $2::pg_catalog.name";
    change("revoked", statement, &[id.into(), grantee.into()]);
}

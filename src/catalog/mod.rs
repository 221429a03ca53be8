//! The store of models: look-up under a snapshot, insert and delete as the store's owner, and the
//! backend's cache of decoded models.
//!
//! A look-up reads the table directly (systable scan by index), so that it works on a standby, needs
//! no privilege on the table, and can run under a catalog snapshot while a statement is parsed. Who
//! may use a model is decided here: its owner, members of the owner's role, and superusers.

mod shared;

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
    pub const SOURCE: i16 = 4;
    pub const MODEL: i16 = 6;
    pub const VERSION: i16 = 7;
    pub const OWNER_ROLE: i16 = 8;
}

/// Columns of corgipile.model_pins, by number.
mod pins {
    pub const MODEL_NAME: i16 = 1;
    pub const MODEL_ID: i16 = 2;
}

/// Columns of corgipile.model_grants, by number.
mod grants {
    pub const MODEL_ID: i16 = 1;
    pub const GRANTEE: i16 = 2;
    pub const GRANTEE_ROLE: i16 = 5;
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

impl ModelKey {
    /// Whether it can only be an id: no name is a number.
    fn is_id(&self) -> bool {
        match self {
            Self::Id(_) => true,
            Self::Name(name) => name.parse::<i64>().is_ok(),
        }
    }
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
    /// The name that it is a version of.
    pub name: Option<String>,
    /// Which version, from 1.
    pub version: i32,
    /// The role that it belongs to.
    pub owner: Role,
    /// The table that it was trained on, as text.
    pub source: String,
    /// Header and weights.
    pub model: Rc<Model>,
}

/// A role as the store names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Its name when that was written.
    pub name: String,
    /// The system's identifier and the role's oid, which mean that very role in this system: another of the same name is
    /// not it, and with another name it still is. In another system, as after a restore, the name counts.
    pub identity: Option<String>,
}

impl Role {
    /// The current role.
    fn current() -> Self {
        // SAFETY: the current user exists.
        let (role, name) = unsafe {
            let role = pg_sys::GetUserId();
            (role, relation::string(pg_sys::GetUserNameFromId(role, false)))
        };
        Self { name, identity: Some(identity(role)) }
    }

    /// A role by name, which need not exist.
    pub fn named(name: &str) -> Self {
        let c_name = std::ffi::CString::new(name).unwrap_or_default();
        // SAFETY: a catalog look-up by name.
        let role = unsafe { pg_sys::get_role_oid(c_name.as_ptr(), true) };
        Self { name: name.into(), identity: (role != pg_sys::InvalidOid).then(|| identity(role)) }
    }

    /// The role of this system that is meant; it may be gone.
    fn oid(&self) -> pg_sys::Oid {
        let here = self.identity.as_ref().and_then(|identity| identity.split_once(':'));
        if let Some((system, oid)) = here
            && system == system_identifier()
        {
            return pg_sys::Oid::from_u32(oid.parse().unwrap_or_default());
        }
        let name = std::ffi::CString::new(self.name.as_str()).unwrap_or_default();
        // SAFETY: a catalog look-up by name.
        unsafe { pg_sys::get_role_oid(name.as_ptr(), true) }
    }
}

fn system_identifier() -> String {
    // SAFETY: reads the control data that is in shared memory.
    unsafe { pg_sys::GetSystemIdentifier() }.to_string()
}

fn identity(role: pg_sys::Oid) -> String {
    format!("{}:{}", system_identifier(), role.to_u32())
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

/// Runs `use_tuple` on the first, or the last, of the tuples that an index finds in a table of ours by equality
/// of its first column; `None` where there is no table, no index or no tuple. `snapshot` null means the latest
/// committed state (a catalog snapshot).
///
/// # Safety
/// In a transaction; `snapshot` is null or registered or active; `key` is for the first column of the index.
unsafe fn with_tuple<T>(
    table: pg_sys::Oid,
    index: &std::ffi::CStr,
    mut key: pg_sys::ScanKeyData,
    snapshot: pg_sys::Snapshot,
    last: bool,
    use_tuple: impl FnOnce(&Tuple) -> Option<T>,
) -> Option<T> {
    // SAFETY: by contract; the tuple is used before the scan ends, the table before it is closed.
    unsafe {
        let index_oid = relation_oid(index);
        if table == pg_sys::InvalidOid || index_oid == pg_sys::InvalidOid {
            return None;
        }
        let lock = pg_sys::AccessShareLock as i32;
        let table = pg_sys::table_open(table, lock);
        let index = pg_sys::index_open(index_oid, lock);
        let scan = pg_sys::systable_beginscan_ordered(table, index, snapshot, 1, &mut key);
        let direction = if last {
            pg_sys::ScanDirection::BackwardScanDirection
        } else {
            pg_sys::ScanDirection::ForwardScanDirection
        };
        let tuple = pg_sys::systable_getnext_ordered(scan, direction);
        let found = if tuple.is_null() { None } else { use_tuple(&Tuple { tuple, table }) };
        pg_sys::systable_endscan_ordered(scan);
        pg_sys::index_close(index, lock);
        pg_sys::table_close(table, lock);
        found
    }
}

/// A tuple that is being looked at.
struct Tuple {
    tuple: pg_sys::HeapTuple,
    table: pg_sys::Relation,
}

impl Tuple {
    /// A column by number; `None` if it is NULL or the table has no such column.
    fn get(&self, number: i16) -> Option<pg_sys::Datum> {
        // SAFETY: the tuple is of this table, and both are held.
        unsafe {
            let descriptor = (*self.table).rd_att;
            if i32::from(number) > (*descriptor).natts {
                return None;
            }
            let mut null = false;
            let datum = pg_sys::heap_getattr(self.tuple, i32::from(number), descriptor, &mut null);
            (!null).then_some(datum)
        }
    }

    /// What tells this version of the row from any other.
    fn version(&self) -> RowVersion {
        // SAFETY: as above.
        unsafe {
            let tid = (*self.tuple).t_self;
            RowVersion {
                table: (*self.table).rd_id,
                xmin: (*(*self.tuple).t_data).t_choice.t_heap.t_xmin.into(),
                page: (u32::from(tid.ip_blkid.bi_hi) << 16) | u32::from(tid.ip_blkid.bi_lo),
                line: tid.ip_posid,
            }
        }
    }

    /// A role: a column of type name, and one of its identity.
    ///
    /// # Safety
    /// The columns have these types.
    unsafe fn role(&self, name: i16, identity: i16) -> Role {
        // SAFETY: by contract.
        unsafe {
            Role {
                name: self.get(name).map(|datum| relation::string(datum.cast_mut_ptr())).unwrap_or_default(),
                identity: self.get(identity).and_then(|datum| String::from_datum(datum, false)),
            }
        }
    }

    /// The row of the store that this is.
    ///
    /// # Safety
    /// A tuple of the store.
    unsafe fn stored(&self) -> Option<Stored> {
        // SAFETY: by contract, the columns' types are the store's.
        unsafe {
            let id = self.get(column::MODEL_ID)?.value() as i64;
            let name = self.get(column::MODEL_NAME).and_then(|datum| String::from_datum(datum, false));
            // Before it was updated to versions, every model of the store is a first one.
            let version = self.get(column::VERSION).map_or(1, |datum| datum.value() as i32);
            let owner = self.role(column::OWNER, column::OWNER_ROLE);
            let source =
                self.get(column::SOURCE).and_then(|datum| String::from_datum(datum, false)).unwrap_or_default();
            let model = cached(id, self.version(), self.get(column::MODEL)?);
            Some(Stored { id, name, version, owner, source, model })
        }
    }
}

/// The decoded model of a row, from the cache if it is still the same row.
unsafe fn cached(id: i64, version: RowVersion, datum: pg_sys::Datum) -> Rc<Model> {
    let hit = CACHE.with_borrow(|cache| cache.get(&id).filter(|(v, _)| *v == version).map(|(_, m)| Rc::clone(m)));
    if let Some(model) = hit {
        return model;
    }
    // SAFETY: the model column of a row that is being read.
    let read = unsafe {
        match shared::model(id, datum) {
            Some(model) => Ok(model),
            None => Model::decode(types::varlena_bytes(datum)),
        }
    };
    let model = match read {
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
    model
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

/// Finds a model without asking who may use it: by id, or the current version of a name, or by an id written as
/// text. `snapshot` null means the latest committed state.
///
/// # Safety
/// In a transaction; `snapshot` is null or registered or active.
pub unsafe fn find(key: &ModelKey, snapshot: pg_sys::Snapshot) -> Option<Stored> {
    // SAFETY: by contract.
    unsafe {
        let store = store_oid();
        let by_id = |id: i64| {
            let key = equality(column::MODEL_ID, pg_sys::F_INT8EQ, pg_sys::Datum::from(id));
            with_tuple(store, c"models_store_pkey", key, snapshot, false, |tuple| tuple.stored())
        };
        let name = match key {
            ModelKey::Id(id) => return by_id(*id),
            ModelKey::Name(name) => name,
        };
        let datum = name.as_str().into_datum()?;
        let equal = |column| equality(column, pg_sys::F_TEXTEQ, datum);
        // The version that set_current_model said, else the newest.
        let pins = if store == pg_sys::InvalidOid { store } else { relation_oid(c"model_pins") };
        let pinned = with_tuple(pins, c"model_pins_pkey", equal(pins::MODEL_NAME), snapshot, false, |tuple| {
            tuple.get(pins::MODEL_ID).map(|datum| datum.value() as i64)
        });
        let newest = || {
            // The second is the index before names had versions.
            [c"models_store_model_name_version_key", c"models_store_model_name_key"].into_iter().find_map(|index| {
                with_tuple(store, index, equal(column::MODEL_NAME), snapshot, true, |tuple| tuple.stored())
            })
        };
        // A pin of a model that has another name by now says nothing.
        let pinned = pinned.and_then(by_id).filter(|stored| stored.name.as_ref() == Some(name));
        pinned.or_else(newest).or_else(|| name.parse().ok().and_then(by_id))
    }
}

fn active_snapshot() -> pg_sys::Snapshot {
    // SAFETY: plain queries of the snapshot stack.
    unsafe { if pg_sys::ActiveSnapshotSet() { pg_sys::GetActiveSnapshot() } else { std::ptr::null_mut() } }
}

/// Whether the current role may use what `owner` trained.
fn may_use(owner: &Role) -> bool {
    let role = owner.oid();
    // SAFETY: catalog look-ups; of a role that is gone nobody has the rights.
    unsafe {
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
            let grantee = Tuple { tuple, table }.role(grants::GRANTEE, grants::GRANTEE_ROLE);
            found = grantee.name == EVERYBODY || (!grantee.name.is_empty() && may_use(&grantee));
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

/// Refuses to write to a store of an older version of the extension; reading it works.
pub fn require_up_to_date() {
    if store_oid() != pg_sys::InvalidOid && relation_oid(c"model_pins") == pg_sys::InvalidOid {
        error::fail(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "extension \"corgipile\" in this database is older than its library",
            Some("Run ALTER EXTENSION corgipile UPDATE. Until then models can be used, but not stored or changed."),
        );
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
            None if key.is_id() => find(key, std::ptr::null_mut()),
            found => found,
        }
    }?;
    // SAFETY: as above.
    if !may_use(&stored.owner) && !unsafe { is_granted(stored.id, active_snapshot()) } {
        error::fail(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            format!("permission denied for model {key}"),
            Some(&format!(
                "It belongs to the role \"{}\", which can allow its use with grant_model.",
                stored.owner.name
            )),
        );
    }
    Some(stored)
}

/// Locks a name until the end of the transaction: whoever stores, renames, grants or drops under it is alone in that,
/// so what was found out of the name before a change still holds for the change.
pub fn lock_name(name: &str) {
    // Two names that share a lock wait for each other; nothing else.
    let hash = name.bytes().fold(2_166_136_261u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619));
    // SAFETY: in a transaction that may write; the lock is released with it.
    unsafe {
        pg_sys::LockDatabaseObject(store_oid(), pg_sys::Oid::from_u32(hash), 0, pg_sys::ExclusiveLock as i32);
    }
}

/// The same, where there must be one.
pub fn required(key: &ModelKey) -> Stored {
    lookup(key).unwrap_or_else(|| no_such_model(key))
}

/// Finds a model that the current role may change, as it is now, and locks its name; `None` if there is no such
/// model, an error if it is another's, also where that one has allowed its use.
pub fn lookup_owned(key: &ModelKey) -> Option<Stored> {
    if store_oid() == pg_sys::InvalidOid {
        return None;
    }
    if let ModelKey::Name(name) = key {
        lock_name(name);
    }
    loop {
        // SAFETY: a statement is running, so there is a transaction; the latest state is wanted.
        let found = unsafe { find(key, std::ptr::null_mut()) }?;
        if let Some(name) = &found.name {
            lock_name(name);
        }
        // SAFETY: as above.
        let stored = unsafe { find(key, std::ptr::null_mut()) }?;
        if stored.name != found.name {
            // It got another name while this one was waited for.
            pgrx::check_for_interrupts!();
            continue;
        }
        if !may_use(&stored.owner) {
            // SAFETY: as above.
            let known = unsafe { is_granted(stored.id, std::ptr::null_mut()) };
            error::fail(
                PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
                if known {
                    format!("must be owner of model {key}")
                } else {
                    format!("permission denied for model {key}")
                },
                Some(&format!("It belongs to the role \"{}\".", stored.owner.name)),
            );
        }
        return Some(stored);
    }
}

/// Whether the current role may use a model, or change it where `change`: what the views show.
pub fn is_usable(id: i64, change: bool) -> bool {
    // SAFETY: called while a statement runs.
    unsafe {
        let snapshot = active_snapshot();
        let key = equality(column::MODEL_ID, pg_sys::F_INT8EQ, pg_sys::Datum::from(id));
        let owner = with_tuple(store_oid(), c"models_store_pkey", key, snapshot, false, |tuple| {
            Some(tuple.role(column::OWNER, column::OWNER_ROLE))
        });
        owner.is_some_and(|owner| may_use(&owner) || (!change && is_granted(id, snapshot)))
    }
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

/// Stores a model; returns its id and its version. Under a name that there is already it becomes the name's newest
/// version and the current one, of the same owner and with the grants of the version before.
pub fn insert(name: Option<&str>, source: &str, model: &Model) -> (i64, i32) {
    let bytes = model.encode().unwrap_or_else(|e| error::raise(e));
    name.inspect(|name| lock_name(name));
    let before = name.and_then(versions_of);
    let owner = before.as_ref().map_or_else(Role::current, |stored| stored.owner.clone());
    let inserted = as_store_owner(|| {
        Spi::get_two_with_args::<i64, i32>(
            "INSERT INTO corgipile.models_store AS m (model_name, version, owner, owner_role, source, model) \
             SELECT $1, 1 OPERATOR(pg_catalog.+) coalesce((SELECT pg_catalog.max(s.version) FROM corgipile.models_store s \
             WHERE s.model_name OPERATOR(pg_catalog.=) $1), 0), $2::pg_catalog.name, $3, $4, corgipile.model_from_bytes($5) \
             RETURNING m.model_id, m.version",
            &[
                name.into(),
                owner.name.as_str().into(),
                owner.identity.as_deref().into(),
                source.into(),
                bytes.as_slice().into(),
            ],
        )
    });
    match inserted {
        Ok((Some(id), Some(version))) => {
            if let Some(before) = before {
                inherit(&before, id);
            }
            (id, version)
        }
        Ok(_) => error::internal("the model was not stored"),
        Err(e) => error::internal(&format!("the model was not stored: {e}")),
    }
}

/// The current version of a name as of now, if there is one; an error if it is another's: a new version of it can
/// be stored by who may change it.
pub fn versions_of(name: &str) -> Option<Stored> {
    let key = ModelKey::Name(name.into());
    // SAFETY: a statement is running, so there is a transaction; the latest state is wanted.
    let stored = unsafe { find(&key, std::ptr::null_mut()) }.filter(|stored| stored.name.as_deref() == Some(name))?;
    if !may_use(&stored.owner) {
        error::fail(
            PgSqlErrorCode::ERRCODE_DUPLICATE_OBJECT,
            format!("model {key} already exists"),
            Some(&format!("It belongs to the role \"{}\". Choose another model_name.", stored.owner.name)),
        );
    }
    Some(stored)
}

/// What a new version takes over from the one before; it is the current one from now on.
fn inherit(before: &Stored, id: i64) {
    let grants = "INSERT INTO corgipile.model_grants (model_id, grantee, grantor, grantee_role) \
                  SELECT $2, g.grantee, g.grantor, g.grantee_role FROM corgipile.model_grants g WHERE g.model_id OPERATOR(pg_catalog.=) $1";
    change("granted", grants, &[before.id.into(), id.into()]);
    unpin(before.name.as_deref().unwrap_or_default());
}

/// Lets a name mean its newest version.
fn unpin(name: &str) {
    let statement = "DELETE FROM corgipile.model_pins WHERE model_name OPERATOR(pg_catalog.=) $1";
    change("made current", statement, &[name.into()]);
}

/// Lets a name mean this version of it.
pub fn set_current(name: &str, id: i64) {
    unpin(name);
    let statement = "INSERT INTO corgipile.model_pins (model_name, model_id) SELECT $1, $2 \
                     WHERE EXISTS (SELECT FROM corgipile.models_store s WHERE s.model_name OPERATOR(pg_catalog.=) $1 \
                                   AND s.version OPERATOR(pg_catalog.>) (SELECT c.version FROM corgipile.models_store c WHERE c.model_id OPERATOR(pg_catalog.=) $2)) \
                     ON CONFLICT (model_name) DO UPDATE SET model_id = excluded.model_id";
    change("made current", statement, &[name.into(), id.into()]);
}

/// Changes the store by a statement over the model's id, as its owner.
fn change(what: &str, statement: &str, arguments: &[pgrx::datum::DatumWithOid<'_>]) {
    if let Err(e) = as_store_owner(|| Spi::run_with_args(statement, arguments)) {
        error::internal(&format!("the model was not {what}: {e}"));
    }
}

/// Which models a change is for; their names are locked.
#[derive(Debug, Clone, Copy)]
pub enum Which<'a> {
    /// One.
    Id(i64),
    /// All versions of a name.
    Versions(&'a str),
}

impl Which<'_> {
    /// Changes the store by a statement over these rows, which are `{these}` of it, and `arguments` from `$2` on.
    fn change(self, what: &str, statement: &str, arguments: Vec<pgrx::datum::DatumWithOid<'_>>) {
        let (these, key) = match self {
            Self::Id(id) => ("m.model_id OPERATOR(pg_catalog.=) $1", id.into()),
            Self::Versions(name) => ("m.model_name OPERATOR(pg_catalog.=) $1", name.into()),
        };
        let mut all = vec![key];
        all.extend(arguments);
        change(what, &statement.replace("{these}", these), &all);
    }
}

/// Deletes models, and with them what was granted.
pub fn delete(which: Which<'_>) {
    which.change("deleted", "DELETE FROM corgipile.models_store AS m WHERE {these}", vec![]);
}

/// Gives models another name, or none. One model alone becomes the first version of its name.
pub fn rename(which: Which<'_>, name: Option<&str>) {
    // Versions stay what they are under another name of theirs; whatever else is alone.
    let together = matches!(which, Which::Versions(_)) && name.is_some();
    let version = if together { "version" } else { "1" };
    let statement =
        format!("UPDATE corgipile.models_store AS m SET model_name = $2, version = {version} WHERE {{these}}");
    which.change("renamed", &statement, vec![name.into()]);
    if together {
        which.change(
            "renamed",
            "UPDATE corgipile.model_pins AS m SET model_name = $2 WHERE {these}",
            vec![name.into()],
        );
    } else {
        which.change("renamed", "DELETE FROM corgipile.model_pins AS m WHERE {these}", vec![]);
    }
}

/// Allows a role, or everybody, to use models.
pub fn grant(which: Which<'_>, grantee: &Role) {
    let grantor = Role::current().name;
    // What was granted to another role of this name is no more.
    let statement = "INSERT INTO corgipile.model_grants (model_id, grantee, grantor, grantee_role) \
                     SELECT m.model_id, $2::pg_catalog.name, $3::pg_catalog.name, $4 FROM corgipile.models_store AS m WHERE {these} \
                     ON CONFLICT (model_id, grantee) DO UPDATE SET grantor = excluded.grantor, grantee_role = excluded.grantee_role";
    let arguments = vec![grantee.name.as_str().into(), grantor.into(), grantee.identity.as_deref().into()];
    which.change("granted", statement, arguments);
}

/// Takes that back.
pub fn revoke(which: Which<'_>, grantee: &str) {
    let statement = "DELETE FROM corgipile.model_grants AS g USING corgipile.models_store AS m \
                     WHERE {these} AND g.model_id OPERATOR(pg_catalog.=) m.model_id \
                     AND g.grantee OPERATOR(pg_catalog.=) $2::pg_catalog.name";
    which.change("revoked", statement, vec![grantee.into()]);
}

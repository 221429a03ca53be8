-- corgipile 0.1.0: install script, kept by hand. Every C function named here is exported by the
-- library, and every exported one is named here (tests/exports.sh).
\echo Use "CREATE EXTENSION corgipile" to load this file. \quit

-- The script runs with a superuser's rights: nothing in it may be looked up in a schema that others can
-- write to.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE SCHEMA corgipile;
GRANT USAGE ON SCHEMA corgipile TO PUBLIC;

-- ---------------------------------------------------------------- the model type
CREATE TYPE corgipile.model;

CREATE FUNCTION corgipile.model_in(cstring) RETURNS corgipile.model
    AS 'MODULE_PATHNAME', 'corgipile_model_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION corgipile.model_out(corgipile.model) RETURNS cstring
    AS 'byteaout' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION corgipile.model_recv(internal) RETURNS corgipile.model
    AS 'MODULE_PATHNAME', 'corgipile_model_recv' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION corgipile.model_send(corgipile.model) RETURNS bytea
    AS 'byteasend' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;

CREATE TYPE corgipile.model (
    INPUT = corgipile.model_in,
    OUTPUT = corgipile.model_out,
    RECEIVE = corgipile.model_recv,
    SEND = corgipile.model_send,
    INTERNALLENGTH = VARIABLE,
    -- Weights hardly compress; EXTERNAL keeps them out of line and quick to read.
    STORAGE = external
);
COMMENT ON TYPE corgipile.model IS 'a trained model: header, packed weights, checksum';

CREATE FUNCTION corgipile.model_from_bytes(bytea) RETURNS corgipile.model
    AS 'MODULE_PATHNAME', 'corgipile_model_from_bytes' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

-- ---------------------------------------------------------------- the aggregate
-- The planner replaces it by custom scan nodes where it stands alone over its input.
CREATE FUNCTION corgipile.sgd_transition(internal, anyelement, anycompatiblearray) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_sgd_transition' LANGUAGE C VOLATILE PARALLEL UNSAFE;
CREATE FUNCTION corgipile.sgd_transition(internal, anyelement, anycompatiblearray, jsonb) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_sgd_transition' LANGUAGE C VOLATILE PARALLEL UNSAFE;
CREATE FUNCTION corgipile.sgd_transition(internal, anyelement, integer[], anycompatiblearray) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_sgd_transition' LANGUAGE C VOLATILE PARALLEL UNSAFE;
CREATE FUNCTION corgipile.sgd_transition(internal, anyelement, integer[], anycompatiblearray, jsonb) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_sgd_transition' LANGUAGE C VOLATILE PARALLEL UNSAFE;
CREATE FUNCTION corgipile.sgd_transition(internal, anyelement, anycompatiblearray, jsonb, double precision) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_sgd_transition' LANGUAGE C VOLATILE PARALLEL UNSAFE;
CREATE FUNCTION corgipile.sgd_transition(internal, anyelement, integer[], anycompatiblearray, jsonb, double precision)
    RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_sgd_transition' LANGUAGE C VOLATILE PARALLEL UNSAFE;
CREATE FUNCTION corgipile.sgd_final(internal) RETURNS corgipile.model
    AS 'MODULE_PATHNAME', 'corgipile_sgd_final' LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE AGGREGATE corgipile.sgd(target anyelement, features anycompatiblearray) (
    SFUNC = corgipile.sgd_transition, STYPE = internal, SSPACE = 1048576,
    FINALFUNC = corgipile.sgd_final, FINALFUNC_MODIFY = READ_WRITE, PARALLEL = UNSAFE);
CREATE AGGREGATE corgipile.sgd(target anyelement, features anycompatiblearray, options jsonb) (
    SFUNC = corgipile.sgd_transition, STYPE = internal, SSPACE = 1048576,
    FINALFUNC = corgipile.sgd_final, FINALFUNC_MODIFY = READ_WRITE, PARALLEL = UNSAFE);
CREATE AGGREGATE corgipile.sgd(target anyelement, features_k integer[], features_v anycompatiblearray) (
    SFUNC = corgipile.sgd_transition, STYPE = internal, SSPACE = 1048576,
    FINALFUNC = corgipile.sgd_final, FINALFUNC_MODIFY = READ_WRITE, PARALLEL = UNSAFE);
CREATE AGGREGATE corgipile.sgd(target anyelement, features_k integer[], features_v anycompatiblearray, options jsonb) (
    SFUNC = corgipile.sgd_transition, STYPE = internal, SSPACE = 1048576,
    FINALFUNC = corgipile.sgd_final, FINALFUNC_MODIFY = READ_WRITE, PARALLEL = UNSAFE);

CREATE AGGREGATE corgipile.sgd(
    target anyelement, features anycompatiblearray, options jsonb, weight double precision) (
    SFUNC = corgipile.sgd_transition, STYPE = internal, SSPACE = 1048576,
    FINALFUNC = corgipile.sgd_final, FINALFUNC_MODIFY = READ_WRITE, PARALLEL = UNSAFE);
CREATE AGGREGATE corgipile.sgd(
    target anyelement, features_k integer[], features_v anycompatiblearray, options jsonb, weight double precision) (
    SFUNC = corgipile.sgd_transition, STYPE = internal, SSPACE = 1048576,
    FINALFUNC = corgipile.sgd_final, FINALFUNC_MODIFY = READ_WRITE, PARALLEL = UNSAFE);

-- ---------------------------------------------------------------- the store
CREATE SEQUENCE corgipile.model_id_seq;
CREATE TABLE corgipile.models_store (
    model_id bigint NOT NULL DEFAULT nextval('corgipile.model_id_seq') PRIMARY KEY,
    model_name text COLLATE "C" UNIQUE,
    owner name NOT NULL,
    -- Text, not regclass: a dump must restore also where the source does not exist.
    source text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    model corgipile.model NOT NULL
);
ALTER SEQUENCE corgipile.model_id_seq OWNED BY corgipile.models_store.model_id;
-- Roles that may use a model beside its owner; 'public' is everybody. Names, not oids: see owner.
CREATE TABLE corgipile.model_grants (
    model_id bigint NOT NULL REFERENCES corgipile.models_store ON DELETE CASCADE,
    grantee name NOT NULL,
    grantor name NOT NULL,
    granted_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (model_id, grantee)
);
COMMENT ON TABLE corgipile.model_grants IS 'who may use which model; see grant_model';
SELECT pg_catalog.pg_extension_config_dump('corgipile.model_grants', '');
COMMENT ON TABLE corgipile.models_store IS 'trained models; read them through corgipile.models';
SELECT pg_catalog.pg_extension_config_dump('corgipile.models_store', '');
SELECT pg_catalog.pg_extension_config_dump('corgipile.model_id_seq', '');
-- Whoever installed the extension dumps the database, models included.
GRANT SELECT ON corgipile.models_store, corgipile.model_grants, corgipile.model_id_seq TO @extowner@;

-- ---------------------------------------------------------------- disks
-- What corgipile.probe_disk has measured: of this machine, so not dumped.
CREATE TABLE corgipile.disks (
    tablespace text COLLATE "C" NOT NULL,
    block_size bigint NOT NULL,
    parallelism integer NOT NULL,
    bytes_per_second double precision NOT NULL,
    measured_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tablespace, block_size, parallelism)
);
COMMENT ON TABLE corgipile.disks IS 'how fast the disks of tablespaces are, by size of block and number of readers';
GRANT SELECT ON corgipile.disks TO PUBLIC;

CREATE FUNCTION corgipile.probe_disk_rows(
    tablespace text, seconds double precision,
    OUT tablespace text, OUT block_size bigint, OUT parallelism integer, OUT bytes_per_second double precision)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'probe_disk_rows_wrapper' LANGUAGE C VOLATILE PARALLEL RESTRICTED;
CREATE FUNCTION corgipile.probe_disk(tablespace text DEFAULT NULL, seconds double precision DEFAULT 3)
    RETURNS SETOF corgipile.disks
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
        WITH measured AS MATERIALIZED (SELECT * FROM corgipile.probe_disk_rows($1, $2))
        INSERT INTO corgipile.disks AS d (tablespace, block_size, parallelism, bytes_per_second)
        SELECT m.tablespace, m.block_size, m.parallelism, m.bytes_per_second FROM measured m
        ON CONFLICT (tablespace, block_size, parallelism)
            DO UPDATE SET bytes_per_second = excluded.bytes_per_second, measured_at = pg_catalog.now()
        RETURNING d.*
    $$;
COMMENT ON FUNCTION corgipile.probe_disk IS
    'measures the disk of a tablespace (NULL: the database''s own) by reading its largest table, and keeps the result';
-- It keeps a disk busy, and what it finds is everybody's.
REVOKE EXECUTE ON FUNCTION corgipile.probe_disk_rows, corgipile.probe_disk FROM PUBLIC;

-- ---------------------------------------------------------------- functions for users
CREATE FUNCTION corgipile.advise(
    source regclass,
    target text DEFAULT NULL,
    features text[] DEFAULT NULL,
    options jsonb DEFAULT NULL,
    weight text DEFAULT NULL,
    OUT section text, OUT item text, OUT value double precision, OUT unit text, OUT note text)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'advise_wrapper' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION corgipile.advise IS
    'what train_sgd would do with a table and how fast, from a look at 1 % of it or for 0.2 seconds';

CREATE FUNCTION @extschema@.train_sgd(
    source regclass,
    target text DEFAULT NULL,
    features text[] DEFAULT NULL,
    loss text DEFAULT NULL,
    model_name text DEFAULT NULL,
    l2_reg double precision DEFAULT NULL,
    l1_reg double precision DEFAULT NULL,
    optimizer text DEFAULT NULL,
    learning_rate double precision DEFAULT NULL,
    schedule text DEFAULT NULL,
    decay double precision DEFAULT NULL,
    average boolean DEFAULT NULL,
    standardize boolean DEFAULT NULL,
    epsilon double precision DEFAULT NULL,
    class_weight text DEFAULT NULL,
    max_epochs integer DEFAULT NULL,
    tolerance double precision DEFAULT NULL,
    max_seconds double precision DEFAULT NULL,
    batch_size integer DEFAULT NULL,
    seed bigint DEFAULT NULL,
    fit_intercept boolean DEFAULT NULL,
    on_null text DEFAULT NULL,
    weight text DEFAULT NULL,
    eval_fraction double precision DEFAULT NULL,
    final_loss boolean DEFAULT NULL,
    warm_start text DEFAULT NULL,
    shuffle text DEFAULT NULL,
    mrs_ratio integer DEFAULT NULL,
    block_size text DEFAULT NULL,
    buffer_size text DEFAULT NULL,
    cache boolean DEFAULT NULL,
    verbose boolean DEFAULT NULL
) RETURNS bigint
    AS 'MODULE_PATHNAME', 'train_sgd_wrapper' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.train_sgd IS 'trains a model on a table and stores it; returns its id';

CREATE FUNCTION @extschema@.drop_model(model bigint, missing_ok boolean DEFAULT false) RETURNS boolean
    AS 'MODULE_PATHNAME', 'drop_model_by_id_wrapper' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE FUNCTION @extschema@.drop_model(model text, missing_ok boolean DEFAULT false) RETURNS boolean
    AS 'MODULE_PATHNAME', 'drop_model_by_name_wrapper' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

CREATE FUNCTION @extschema@.rename_model(model text, new_name text) RETURNS void
    AS 'MODULE_PATHNAME', 'rename_model_wrapper' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rename_model(text, text) IS 'gives a model another name; NULL takes it away';
CREATE FUNCTION @extschema@.rename_model(model bigint, new_name text) RETURNS void
    LANGUAGE sql VOLATILE AS $$ SELECT @extschema@.rename_model($1::pg_catalog.text, $2) $$;
CREATE FUNCTION @extschema@.grant_model(model text, role text) RETURNS void
    AS 'MODULE_PATHNAME', 'grant_model_wrapper' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.grant_model(text, text) IS 'allows a role, or PUBLIC, to use a model and to see what is known of it';
CREATE FUNCTION @extschema@.grant_model(model bigint, role text) RETURNS void
    LANGUAGE sql VOLATILE AS $$ SELECT @extschema@.grant_model($1::pg_catalog.text, $2) $$;
CREATE FUNCTION @extschema@.revoke_model(model text, role text) RETURNS void
    AS 'MODULE_PATHNAME', 'revoke_model_wrapper' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.revoke_model(text, text) IS 'takes back what grant_model gave';
CREATE FUNCTION @extschema@.revoke_model(model bigint, role text) RETURNS void
    LANGUAGE sql VOLATILE AS $$ SELECT @extschema@.revoke_model($1::pg_catalog.text, $2) $$;

-- A model is meant by its id, by its name (or its id as text), or is a model value. Features are an
-- array, feature numbers and values, or a row whose columns are found by name. The same functions
-- stand in schema corgipile, where PREDICT BY finds them whatever the search path.
DO $do$
DECLARE
    schema text;
    model text;
    input text;
    f record;
BEGIN
    FOREACH schema IN ARRAY ARRAY[(SELECT n.nspname FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'corgipile'), 'corgipile'] LOOP
        FOREACH model IN ARRAY ARRAY['bigint', 'text', 'corgipile.model'] LOOP
            FOR f IN SELECT * FROM (VALUES
                ('predict', 'text', 'corgipile_predict'),
                ('predict_score', 'double precision', 'corgipile_predict_score'),
                ('predict_value', 'double precision', 'corgipile_predict_value'),
                ('predict_proba', 'double precision', 'corgipile_predict_proba'),
                ('prediction_probability', 'double precision', 'corgipile_prediction_probability')) AS v(name, result, symbol)
            LOOP
                -- That of PREDICT BY is for PREDICT BY only.
                CONTINUE WHEN f.name = 'prediction_probability' AND schema <> 'corgipile';
                FOREACH input IN ARRAY ARRAY[
                    'features anyarray', 'features_k integer[], features_v anyarray', 'input record']
                LOOP
                    EXECUTE format(
                        'CREATE FUNCTION %I.%I(model %s, %s) RETURNS %s AS ''MODULE_PATHNAME'', %L '
                        'LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10',
                        schema, f.name, model, input, f.result, f.symbol);
                    IF f.name = 'predict_proba' THEN
                        EXECUTE format(
                            'CREATE FUNCTION %I.%I(model %s, %s, class text) RETURNS %s AS ''MODULE_PATHNAME'', %L '
                            'LANGUAGE C STABLE STRICT PARALLEL SAFE COST 10',
                            schema, f.name, model, input, f.result, f.symbol);
                    END IF;
                END LOOP;
            END LOOP;
            IF schema = 'corgipile' THEN
                EXECUTE format(
                    'CREATE FUNCTION corgipile.model_info(model %s) RETURNS jsonb '
                    'AS ''MODULE_PATHNAME'', ''corgipile_model_info'' LANGUAGE C STABLE STRICT PARALLEL SAFE', model);
                EXECUTE format(
                    'CREATE FUNCTION corgipile.trace_json(model %s) RETURNS jsonb '
                    'AS ''MODULE_PATHNAME'', ''corgipile_trace_json'' LANGUAGE C STABLE STRICT PARALLEL SAFE', model);
            ELSE
                EXECUTE format(
                    'CREATE FUNCTION %I.model_vector(model %s) RETURNS real[] '
                    'AS ''MODULE_PATHNAME'', ''corgipile_model_vector'' LANGUAGE C STABLE STRICT PARALLEL SAFE',
                    schema, model);
            END IF;
        END LOOP;
    END LOOP;
END
$do$;

-- All that a model says of a row: SELECT t.*, p.* FROM t, predict_by(t, 'model') AS p.
CREATE FUNCTION @extschema@.predict_by(input anyelement, model text,
    OUT prediction text, OUT probability double precision, OUT score double precision)
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT corgipile.predict($2, $1), corgipile.prediction_probability($2, $1), corgipile.predict_score($2, $1) $$;
CREATE FUNCTION @extschema@.predict_by(input anyelement, model bigint,
    OUT prediction text, OUT probability double precision, OUT score double precision)
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT corgipile.predict($2, $1), corgipile.prediction_probability($2, $1), corgipile.predict_score($2, $1) $$;

-- PREDICT BY's column in the type of the target. Not strict: the last argument is there for its type only.
CREATE FUNCTION corgipile.predicted_class(model bigint, features anycompatiblearray, class anyelement) RETURNS anyelement
    AS 'MODULE_PATHNAME', 'corgipile_predicted_class' LANGUAGE C STABLE PARALLEL SAFE COST 10;
CREATE FUNCTION corgipile.predicted_class(
    model bigint, features_k integer[], features_v anycompatiblearray, class anyelement) RETURNS anyelement
    AS 'MODULE_PATHNAME', 'corgipile_predicted_class' LANGUAGE C STABLE PARALLEL SAFE COST 10;

-- ---------------------------------------------------------------- views
-- A role sees the models of the roles whose rights it has; a superuser also those whose owner is gone.
CREATE FUNCTION corgipile.may_use(owner name) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
        SELECT coalesce((SELECT pg_catalog.pg_has_role(r.oid, 'USAGE') FROM pg_catalog.pg_roles r WHERE r.rolname = owner),
                        (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user))
    $$;

CREATE FUNCTION corgipile.is_grantee(grantee name) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT grantee = 'public' OR corgipile.may_use(grantee) $$;

CREATE VIEW corgipile.models WITH (security_barrier) AS
SELECT m.model_id,
       m.model_name,
       m.owner,
       m.source,
       i.info ->> 'loss' AS loss,
       i.info ->> 'target' AS target,
       i.info ->> 'target_type' AS target_type,
       ARRAY(SELECT pg_catalog.jsonb_array_elements_text(i.info -> 'features')) AS features,
       ARRAY(SELECT pg_catalog.jsonb_array_elements_text(i.info -> 'classes')) AS classes,
       (i.info ->> 'n_features')::bigint AS n_features,
       (i.info ->> 'rows')::bigint AS rows_used,
       (i.info ->> 'rows_skipped')::bigint AS rows_skipped,
       coalesce((i.info ->> 'rows_held_out')::bigint, 0) AS rows_held_out,
       pg_catalog.jsonb_array_length(i.info -> 'history') AS epochs,
       i.info ->> 'stop' AS stop_reason,
       coalesce((i.info #>> '{measured,loss}'), (i.info #>> '{history,-1,loss}'))::double precision AS train_loss,
       (i.info #>> '{history,-1,eval,loss}')::double precision AS eval_loss,
       (i.info #>> '{history,-1,eval,accuracy}')::double precision AS eval_accuracy,
       i.info #>> '{params,shuffle}' AS shuffle,
       i.info ->> 'shuffle_reason' AS shuffle_reason,
       (i.info ->> 'clustering')::double precision AS clustering,
       (i.info #>> '{params,seed}')::bigint AS seed,
       (i.info ->> 'blocks')::bigint AS blocks,
       (i.info ->> 'blocks_per_buffer')::double precision AS blocks_per_buffer,
       coalesce((i.info ->> 'cache_bytes')::bigint, 0) AS cache_bytes,
       (i.info ->> 'peak_memory')::bigint AS peak_memory,
       (i.info ->> 'duration_ms')::double precision AS duration_ms,
       m.created_at,
       -- For those who can change it.
       CASE WHEN corgipile.may_use(m.owner) THEN
           ARRAY(SELECT g.grantee FROM corgipile.model_grants g WHERE g.model_id OPERATOR(pg_catalog.=) m.model_id ORDER BY 1) END AS granted_to,
       i.info -> 'params' AS params
FROM corgipile.models_store m
CROSS JOIN LATERAL (SELECT corgipile.model_info(m.model) AS info) i
WHERE (corgipile.may_use(m.owner) OR EXISTS (SELECT FROM corgipile.model_grants g
       WHERE g.model_id OPERATOR(pg_catalog.=) m.model_id AND corgipile.is_grantee(g.grantee)));
COMMENT ON VIEW corgipile.models IS 'the models that the current role may use';

CREATE VIEW corgipile.training_history WITH (security_barrier) AS
SELECT m.model_id,
       (e.report ->> 'epoch')::integer AS epoch,
       (e.report ->> 'loss')::double precision AS loss,
       (e.report ->> 'accuracy')::double precision AS accuracy,
       (e.report #>> '{eval,loss}')::double precision AS eval_loss,
       (e.report #>> '{eval,accuracy}')::double precision AS eval_accuracy,
       (e.report #>> '{eval,rows}')::bigint AS eval_rows,
       (e.report ->> 'learning_rate')::double precision AS learning_rate,
       (e.report ->> 'rows')::bigint AS rows,
       (e.report ->> 'elapsed_ms')::double precision AS elapsed_ms,
       coalesce((e.report ->> 'diverged')::boolean, false) AS diverged
FROM corgipile.models_store m
CROSS JOIN LATERAL (SELECT corgipile.model_info(m.model) -> 'history' AS history) i
CROSS JOIN LATERAL pg_catalog.jsonb_array_elements(i.history) WITH ORDINALITY AS e(report, n)
WHERE (corgipile.may_use(m.owner) OR EXISTS (SELECT FROM corgipile.model_grants g
       WHERE g.model_id OPERATOR(pg_catalog.=) m.model_id AND corgipile.is_grantee(g.grantee)));
COMMENT ON VIEW corgipile.training_history IS 'each epoch of the models that the current role may use';

CREATE VIEW corgipile.trace WITH (security_barrier) AS
SELECT m.model_id,
       (e.epoch ->> 'epoch')::integer AS epoch,
       (e.epoch ->> 'cached')::boolean AS cached,
       o.operator ->> 'operator' AS operator,
       (o.operator ->> 'completions')::bigint AS completions,
       (o.operator ->> 'visit_ratio')::double precision AS visit_ratio,
       (o.operator ->> 'bytes_per_element')::double precision AS bytes_per_element,
       (o.operator ->> 'rate')::double precision AS rate,
       (o.operator ->> 'theta')::double precision AS theta,
       (o.operator ->> 'bottleneck')::boolean AS bottleneck,
       (o.operator ->> 'cpu_ms')::double precision AS cpu_ms,
       (o.operator ->> 'blocked_ms')::double precision AS blocked_ms,
       (o.operator ->> 'pages_read')::bigint AS pages_read,
       (o.operator ->> 'pages_hit')::bigint AS pages_hit,
       (o.operator ->> 'pages_prefetched')::bigint AS pages_prefetched,
       (o.operator ->> 'detoasted_bytes')::bigint AS detoasted_bytes,
       (o.operator ->> 'io_ms')::double precision AS io_ms
FROM corgipile.models_store m
CROSS JOIN LATERAL (SELECT corgipile.trace_json(m.model) -> 'epochs' AS epochs) t
CROSS JOIN LATERAL pg_catalog.jsonb_array_elements(t.epochs) AS e(epoch)
CROSS JOIN LATERAL pg_catalog.jsonb_array_elements(e.epoch -> 'operators') AS o(operator)
WHERE (corgipile.may_use(m.owner) OR EXISTS (SELECT FROM corgipile.model_grants g
       WHERE g.model_id OPERATOR(pg_catalog.=) m.model_id AND corgipile.is_grantee(g.grantee)));
COMMENT ON VIEW corgipile.trace IS
    'what each operator cost in each epoch: rate in minibatches per second and core, theta in cores used';

CREATE VIEW corgipile.tuning WITH (security_barrier) AS
SELECT m.model_id,
       (t.tuning ->> 'predicted')::double precision AS predicted,
       (t.tuning ->> 'measured')::double precision AS measured,
       t.tuning ->> 'limit' AS held_down_by,
       (t.tuning ->> 'best')::double precision AS best,
       (t.tuning ->> 'best_with_cache')::boolean AS best_with_cache,
       (t.tuning ->> 'with_one_core_more')::double precision AS with_one_core_more,
       (t.tuning ->> 'with_twice_the_memory')::double precision AS with_twice_the_memory,
       (t.tuning ->> 'with_twice_the_bandwidth')::double precision AS with_twice_the_bandwidth,
       (t.tuning #>> '{plan,block_size}')::bigint AS planned_block_size,
       (t.tuning #>> '{plan,buffer_size}')::bigint AS planned_buffer_size,
       (t.tuning #>> '{plan,cache}')::boolean AS planned_cache,
       t.tuning #>> '{plan,reason}' AS planned_for,
       (t.tuning #>> '{plan,on_disk}')::boolean AS on_disk,
       (t.tuning #>> '{plan,decoded_bytes}')::double precision AS estimated_bytes,
       (t.tuning #>> '{plan,size_error}')::double precision AS size_error
FROM corgipile.models_store m
CROSS JOIN LATERAL (SELECT corgipile.trace_json(m.model) -> 'tuning' AS tuning) t
WHERE (corgipile.may_use(m.owner) OR EXISTS (SELECT FROM corgipile.model_grants g
       WHERE g.model_id OPERATOR(pg_catalog.=) m.model_id AND corgipile.is_grantee(g.grantee))) AND pg_catalog.jsonb_typeof(t.tuning) OPERATOR(pg_catalog.=) 'object';
COMMENT ON VIEW corgipile.tuning IS
    'minibatches per second of the last epoch, predicted and measured, what held them down, and what more would bring';

CREATE FUNCTION corgipile.training_progress_rows(
    OUT pid integer, OUT datid oid, OUT usesysid oid, OUT relid oid, OUT phase text, OUT epoch bigint,
    OUT max_epochs bigint, OUT blocks_done bigint, OUT blocks_total bigint, OUT tuples bigint,
    OUT loss double precision, OUT started_at timestamptz) RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'training_progress_rows_wrapper' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

CREATE VIEW corgipile.training_progress WITH (security_barrier) AS
SELECT p.pid,
       pg_catalog.pg_get_userbyid(p.usesysid) AS usename,
       d.datname,
       CASE WHEN d.datname = pg_catalog.current_database() AND p.relid <> 0 THEN p.relid::regclass::text END AS relation,
       p.phase,
       p.epoch,
       p.max_epochs,
       p.blocks_done,
       nullif(p.blocks_total, 0) AS blocks_total,
       p.tuples,
       p.tuples / nullif(extract(epoch FROM t.elapsed), 0)::double precision AS tuples_per_second,
       p.loss,
       t.elapsed,
       t.elapsed * (1 / nullif(w.done, 0) - 1) AS estimated_remaining
FROM corgipile.training_progress_rows() p
LEFT JOIN pg_catalog.pg_database d ON d.oid = p.datid
CROSS JOIN LATERAL (SELECT pg_catalog.clock_timestamp() - p.started_at AS elapsed) t
-- Epochs that are over, and part of this one, of all there may be: tolerance may end it sooner.
CROSS JOIN LATERAL (SELECT (greatest(p.epoch - 1, 0) + coalesce(p.blocks_done::double precision / nullif(p.blocks_total, 0), 0))
                           / greatest(p.max_epochs, 1) AS done) w;
COMMENT ON VIEW corgipile.training_progress IS 'trainings that run now, of the roles whose rights the current role has';

GRANT SELECT ON corgipile.models, corgipile.training_history, corgipile.training_progress, corgipile.trace, corgipile.tuning
    TO PUBLIC;

-- ---------------------------------------------------------------- judging models
CREATE FUNCTION corgipile.roc_auc_transition(internal, double precision, boolean) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_roc_auc_transition' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION corgipile.roc_auc_combine(internal, internal) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_roc_auc_combine' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION corgipile.roc_auc_serial(internal) RETURNS bytea
    AS 'MODULE_PATHNAME', 'corgipile_roc_auc_serial' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION corgipile.roc_auc_deserial(bytea, internal) RETURNS internal
    AS 'MODULE_PATHNAME', 'corgipile_roc_auc_deserial' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION corgipile.roc_auc_final(internal) RETURNS double precision
    AS 'MODULE_PATHNAME', 'corgipile_roc_auc_final' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE AGGREGATE corgipile.roc_auc(score double precision, positive boolean) (
    SFUNC = corgipile.roc_auc_transition, STYPE = internal, SSPACE = 8388608,
    COMBINEFUNC = corgipile.roc_auc_combine, SERIALFUNC = corgipile.roc_auc_serial,
    DESERIALFUNC = corgipile.roc_auc_deserial, FINALFUNC = corgipile.roc_auc_final, FINALFUNC_MODIFY = READ_WRITE,
    PARALLEL = SAFE);
COMMENT ON AGGREGATE corgipile.roc_auc(double precision, boolean) IS
    'area under the ROC curve, in at most 8 MB: exact up to 262,144 different scores, to 4e-6 beyond';

-- A query for the rows of a source that a model can be judged on: numbers of the actual and of the predicted class
-- (from 1; 0: a class that the model does not know), or the two numbers of a regression; the score; the
-- probability of the actual class, NULL where the loss has none.
CREATE FUNCTION corgipile.judging_query(model text, source regclass, filter text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    info jsonb := corgipile.model_info(model);
    features text;
    target text := info ->> 'target';
    kind text;
    classes text;
    probability text := 'NULL::float8';
    score text;
BEGIN
    IF source IS NULL THEN
        RAISE EXCEPTION 'the source to judge the model on is NULL' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    SELECT string_agg(format('t.%I', f.name), ', ' ORDER BY f.n), bool_and(f.name <> '') INTO features, kind
    FROM jsonb_array_elements_text(info -> 'features') WITH ORDINALITY AS f(name, n);
    IF kind IS DISTINCT FROM 'true' OR target = '' THEN
        RAISE EXCEPTION 'model % was trained on expressions, so its columns cannot be found in a table by name', model
            USING ERRCODE = 'undefined_column', HINT = 'Judge it by corgipile.roc_auc and predict in a query of your own.';
    END IF;
    PERFORM 1 FROM pg_attribute a WHERE a.attrelid = source AND a.attname = target AND a.attnum > 0 AND NOT a.attisdropped;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'column "%" of % does not exist', target, source
            USING ERRCODE = 'undefined_column', HINT = format('The model predicts "%s"; judge it on a table that has it.', target);
    END IF;
    score := format('corgipile.predict_score(%L::text, %s)', model, features);
    IF jsonb_array_length(info -> 'classes') = 0 THEN
        RETURN format('SELECT t.%I::float8 AS actual, %s AS predicted, NULL::float8 AS score, NULL::float8 AS probability FROM %s AS t%s',
            target, score, source, coalesce(' WHERE (' || filter || ')', ''));
    END IF;
    SELECT string_agg(format('%L::%s', c.class, info ->> 'target_type'), ', ' ORDER BY c.n) INTO classes
    FROM jsonb_array_elements_text(info -> 'classes') WITH ORDINALITY AS c(class, n);
    -- Of two classes everything follows from the score.
    kind := info ->> 'loss';
    IF kind = 'softmax' THEN
        probability := format('CASE WHEN c.actual > 0 THEN corgipile.predict_proba(%L::text, %s, (%L::text[])[c.actual]) END',
            model, features, ARRAY(SELECT jsonb_array_elements_text(info -> 'classes')));
        RETURN format('SELECT c.actual, array_position(%L::text[], corgipile.predict(%L::text, %s)) AS predicted, NULL::float8 AS score, %s AS probability FROM %s AS t '
            'CROSS JOIN LATERAL (SELECT CASE WHEN t.%I IS NOT NULL THEN coalesce(array_position(ARRAY[%s], t.%I::%s), 0) END AS actual) AS c%s',
            ARRAY(SELECT jsonb_array_elements_text(info -> 'classes')), model, features, probability, source, target, classes, target,
            info ->> 'target_type', coalesce(' WHERE (' || filter || ')', ''));
    END IF;
    IF kind = 'log_loss' THEN
        probability := 'CASE WHEN abs(s.score) < 700 THEN 1 / (1 + exp(CASE c.actual WHEN 2 THEN -s.score ELSE s.score END)) ELSE ((s.score > 0) = (c.actual = 2))::int END';
    ELSIF kind = 'modified_huber' THEN
        probability := 'CASE c.actual WHEN 2 THEN 1 + least(greatest(s.score, -1), 1) ELSE 1 - least(greatest(s.score, -1), 1) END / 2';
    END IF;
    RETURN format('SELECT c.actual, 1 + (s.score > 0)::int AS predicted, s.score, %s AS probability FROM %s AS t '
        'CROSS JOIN LATERAL (SELECT %s AS score OFFSET 0) AS s '
        'CROSS JOIN LATERAL (SELECT CASE WHEN t.%I IS NOT NULL THEN coalesce(array_position(ARRAY[%s], t.%I::%s), 0) END AS actual) AS c%s',
        probability, source, score, target, classes, target, info ->> 'target_type', coalesce(' WHERE (' || filter || ')', ''));
END
$$;

-- Counts of each pair of actual and predicted class; the row without classes is of all, with what is not counted.
CREATE FUNCTION corgipile.judged(model text, source regclass, filter text,
    OUT actual integer, OUT predicted integer, OUT count bigint, OUT log_loss double precision, OUT roc_auc double precision)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    -- Two programs clip probabilities alike: scikit-learn's log_loss, and this.
    RETURN QUERY EXECUTE format(
        'SELECT q.actual, q.predicted, count(*), sum(CASE WHEN q.probability IS NOT NULL THEN -ln(least(greatest(q.probability, 2.220446049250313e-16), 1 - 2.220446049250313e-16)) END), '
        'CASE WHEN grouping(q.actual) = 1 THEN corgipile.roc_auc(q.score, q.actual = 2) END FROM (%s) AS q '
        'WHERE q.actual IS NOT NULL AND q.predicted IS NOT NULL GROUP BY GROUPING SETS ((q.actual, q.predicted), ())',
        corgipile.judging_query(model, source, filter));
END
$$;

-- An unknown class is an error: no number would mean anything.
CREATE FUNCTION corgipile.unknown_class(model text, target text) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    RAISE EXCEPTION 'column "%" has a value that model % has not seen in training', target, model
        USING ERRCODE = 'invalid_parameter_value',
              HINT = format('Its classes are: %s. Leave the other rows out with filter.',
                  (SELECT string_agg(c, ', ') FROM jsonb_array_elements_text(corgipile.model_info(model) -> 'classes') AS c));
END
$$;

DO $do$
DECLARE
    schema text := (SELECT n.nspname FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'corgipile');
BEGIN
    EXECUTE format($create$
CREATE FUNCTION %1$I.confusion_matrix(model text, source regclass, filter text DEFAULT NULL,
    OUT actual text, OUT predicted text, OUT count bigint) RETURNS SETOF record
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    info jsonb := corgipile.model_info(model);
    classes text[] := ARRAY(SELECT jsonb_array_elements_text(info -> 'classes'));
BEGIN
    IF cardinality(classes) = 0 THEN
        RAISE EXCEPTION 'model %% predicts a number, not a class', model
            USING ERRCODE = 'wrong_object_type', HINT = 'Use evaluate_sgd.';
    END IF;
    -- Every pair of classes, also those that do not occur; a value that is no class of the model under its place, 0.
    RETURN QUERY
        WITH judged AS MATERIALIZED (SELECT * FROM corgipile.judged(model, source, filter))
        SELECT CASE a.n WHEN 0 THEN '(unknown)' ELSE classes[a.n] END, classes[p.n], coalesce(j.count, 0)
        FROM generate_series(0, cardinality(classes)) AS a(n) CROSS JOIN generate_series(1, cardinality(classes)) AS p(n)
        LEFT JOIN judged j ON j.actual = a.n AND j.predicted = p.n
        WHERE a.n > 0 OR j.count > 0
        ORDER BY a.n, p.n;
END
$$;

CREATE FUNCTION %1$I.evaluate_classes(model text, source regclass, filter text DEFAULT NULL,
    OUT class text, OUT support bigint, OUT "precision" double precision, OUT recall double precision, OUT f1_score double precision)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    info jsonb := corgipile.model_info(model);
    classes text[] := ARRAY(SELECT jsonb_array_elements_text(info -> 'classes'));
    unknown boolean;
BEGIN
    IF cardinality(classes) = 0 THEN
        RAISE EXCEPTION 'model %% predicts a number, not a class', model
            USING ERRCODE = 'wrong_object_type', HINT = 'Use evaluate_sgd.';
    END IF;
    FOR class, support, "precision", recall, f1_score, unknown IN
        WITH judged AS MATERIALIZED (SELECT * FROM corgipile.judged(model, source, filter)),
        counts AS (
            SELECT k, coalesce(sum(j.count) FILTER (WHERE j.actual = k AND j.predicted = k), 0)::float8 AS hits,
                   coalesce(sum(j.count) FILTER (WHERE j.predicted = k), 0)::float8 AS claims,
                   coalesce(sum(j.count) FILTER (WHERE j.actual = k), 0) AS support
            FROM generate_series(1, cardinality(classes)) AS k CROSS JOIN judged j GROUP BY k)
        SELECT classes[k], c.support, coalesce(c.hits / nullif(c.claims, 0), 0), coalesce(c.hits / nullif(c.support, 0), 0),
               coalesce(2 * c.hits / nullif(c.claims + c.support, 0), 0), EXISTS (SELECT FROM judged j WHERE j.actual = 0)
        FROM counts c ORDER BY k
    LOOP
        IF unknown THEN
            PERFORM corgipile.unknown_class(model, info ->> 'target');
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE FUNCTION %1$I.evaluate_sgd(model text, source regclass, filter text DEFAULT NULL,
    OUT rows bigint, OUT accuracy double precision, OUT balanced_accuracy double precision, OUT "precision" double precision,
    OUT recall double precision, OUT f1_score double precision, OUT log_loss double precision, OUT roc_auc double precision,
    OUT mean_absolute_error double precision, OUT root_mean_squared_error double precision, OUT r2_score double precision)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    info jsonb := corgipile.model_info(model);
    classes integer := jsonb_array_length(info -> 'classes');
    unknown boolean;
BEGIN
    IF classes = 0 THEN
        EXECUTE format(
            'SELECT count(*), avg(abs(q.actual - q.predicted)), sqrt(avg((q.actual - q.predicted) ^ 2)), '
            '1 - avg((q.actual - q.predicted) ^ 2) / nullif(var_pop(q.actual), 0) FROM (%%s) AS q '
            'WHERE q.actual IS NOT NULL AND q.predicted IS NOT NULL', corgipile.judging_query(model, source, filter))
            INTO rows, mean_absolute_error, root_mean_squared_error, r2_score;
        RETURN;
    END IF;
    WITH judged AS MATERIALIZED (SELECT * FROM corgipile.judged(model, source, filter)),
    pairs AS (SELECT * FROM judged j WHERE j.actual IS NOT NULL),
    of_class AS (
        SELECT k, coalesce(sum(j.count) FILTER (WHERE j.actual = k AND j.predicted = k), 0)::float8 AS hits,
               coalesce(sum(j.count) FILTER (WHERE j.predicted = k), 0)::float8 AS claims,
               coalesce(sum(j.count) FILTER (WHERE j.actual = k), 0)::float8 AS support
        FROM generate_series(1, classes) AS k LEFT JOIN pairs j ON true GROUP BY k)
    SELECT t.count, t.log_loss / nullif(t.count, 0), t.roc_auc,
           (SELECT sum(c.hits) FROM of_class c) / nullif(t.count, 0),
           -- Classes that do not occur have no recall.
           (SELECT avg(c.hits / c.support) FROM of_class c WHERE c.support > 0),
           m."precision", m.recall, m.f1,
           EXISTS (SELECT FROM pairs p WHERE p.actual = 0)
    INTO rows, log_loss, roc_auc, accuracy, balanced_accuracy, "precision", recall, f1_score, unknown
    FROM judged t
    -- Of two classes the second is the positive one; of more, all count the same.
    CROSS JOIN LATERAL (
        SELECT avg(coalesce(c.hits / nullif(c.claims, 0), 0)) AS "precision",
               avg(coalesce(c.hits / nullif(c.support, 0), 0)) AS recall,
               avg(coalesce(2 * c.hits / nullif(c.claims + c.support, 0), 0)) AS f1
        FROM of_class c WHERE t.count > 0 AND (classes > 2 OR c.k = 2)) AS m
    WHERE t.actual IS NULL;
    IF unknown THEN
        PERFORM corgipile.unknown_class(model, info ->> 'target');
    END IF;
END
$$;

CREATE FUNCTION %1$I.export_model(model text) RETURNS jsonb
    AS 'MODULE_PATHNAME', 'corgipile_export_model' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION %1$I.export_model(model bigint) RETURNS jsonb
    AS 'MODULE_PATHNAME', 'corgipile_export_model' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION %1$I.import_model(exported jsonb, model_name text DEFAULT NULL) RETURNS bigint
    AS 'MODULE_PATHNAME', 'import_model_wrapper' LANGUAGE C VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION %1$I.export_model_sql(model text, OUT class text, OUT score_sql text) RETURNS SETOF record
    LANGUAGE plpgsql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
    SET extra_float_digits = 1
    AS $$
DECLARE
    info jsonb := corgipile.model_info(model);
    names text[] := ARRAY(SELECT jsonb_array_elements_text(info -> 'features'));
    exported jsonb;
    output integer;
    weights text;
    intercept text;
BEGIN
    IF cardinality(names) = 0 OR '' = ANY (names) THEN
        RAISE EXCEPTION 'model %% was trained on expressions, so it has no columns to write an expression of', model
            USING ERRCODE = 'undefined_column';
    END IF;
    EXECUTE format('SELECT %%I.export_model($1)', %1$L) INTO exported USING model;
    FOR output IN 0 .. jsonb_array_length(exported -> 'coef_') - 1 LOOP
        SELECT coalesce('{' || string_agg(w, ',' ORDER BY n) || '}', '{}') INTO weights
        FROM jsonb_array_elements_text(exported -> 'coef_' -> output) WITH ORDINALITY AS e(w, n);
        intercept := exported -> 'intercept_' ->> output;
        class := CASE jsonb_array_length(exported -> 'coef_') WHEN 1 THEN NULL ELSE exported -> 'classes_' ->> output END;
        score_sql := CASE cardinality(names)
            WHEN 1 THEN format('(SELECT coalesce(sum(u.x::float8 * u.w), 0) + (%%s)::float8 FROM unnest(%%I, %%L::float8[]) AS u(x, w))', intercept, names[1], weights)
            ELSE format('(SELECT coalesce(sum(u.v::float8 * (%%L::float8[])[u.k]), 0) + (%%s)::float8 FROM unnest(%%I, %%I) AS u(k, v))', weights, intercept, names[1], names[2])
        END;
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE FUNCTION %1$I.explain_prediction(model text, features double precision[],
    OUT feature integer, OUT value double precision, OUT weight double precision, OUT contribution double precision)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT * FROM corgipile.explained($1, NULL, $2) $$;
CREATE FUNCTION %1$I.explain_prediction(model text, features_k integer[], features_v double precision[],
    OUT feature integer, OUT value double precision, OUT weight double precision, OUT contribution double precision)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT * FROM corgipile.explained($1, $2, $3) $$;
$create$, schema);
    -- The same by id: a number written as text is one.
    EXECUTE format($create$
CREATE FUNCTION %1$I.confusion_matrix(model bigint, source regclass, filter text DEFAULT NULL,
    OUT actual text, OUT predicted text, OUT count bigint) RETURNS SETOF record
    LANGUAGE sql STABLE AS $$ SELECT * FROM %1$I.confusion_matrix($1::pg_catalog.text, $2, $3) $$;
CREATE FUNCTION %1$I.evaluate_classes(model bigint, source regclass, filter text DEFAULT NULL,
    OUT class text, OUT support bigint, OUT "precision" double precision, OUT recall double precision, OUT f1_score double precision)
    RETURNS SETOF record
    LANGUAGE sql STABLE AS $$ SELECT * FROM %1$I.evaluate_classes($1::pg_catalog.text, $2, $3) $$;
CREATE FUNCTION %1$I.evaluate_sgd(model bigint, source regclass, filter text DEFAULT NULL,
    OUT rows bigint, OUT accuracy double precision, OUT balanced_accuracy double precision, OUT "precision" double precision,
    OUT recall double precision, OUT f1_score double precision, OUT log_loss double precision, OUT roc_auc double precision,
    OUT mean_absolute_error double precision, OUT root_mean_squared_error double precision, OUT r2_score double precision)
    LANGUAGE sql STABLE AS $$ SELECT * FROM %1$I.evaluate_sgd($1::pg_catalog.text, $2, $3) $$;
CREATE FUNCTION %1$I.export_model_sql(model bigint, OUT class text, OUT score_sql text) RETURNS SETOF record
    LANGUAGE sql STABLE STRICT AS $$ SELECT * FROM %1$I.export_model_sql($1::pg_catalog.text) $$;
CREATE FUNCTION %1$I.explain_prediction(model bigint, features double precision[],
    OUT feature integer, OUT value double precision, OUT weight double precision, OUT contribution double precision)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT AS $$ SELECT * FROM corgipile.explained($1::pg_catalog.text, NULL, $2) $$;
CREATE FUNCTION %1$I.explain_prediction(model bigint, features_k integer[], features_v double precision[],
    OUT feature integer, OUT value double precision, OUT weight double precision, OUT contribution double precision)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT AS $$ SELECT * FROM corgipile.explained($1::pg_catalog.text, $2, $3) $$;
$create$, schema);
END
$do$;

-- Weights by feature number and class (NULL where there is one row of them); the intercept is feature 0.
CREATE FUNCTION corgipile.model_weights(model text,
    OUT class text, OUT feature integer, OUT weight real) RETURNS SETOF record
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
    AS $$
        SELECT CASE WHEN i.info ->> 'loss' = 'softmax' THEN i.info -> 'classes' ->> ((w.n - 1) / (i.n + 1))::int END,
               CASE WHEN (w.n - 1) % (i.n + 1) = i.n THEN 0 ELSE (w.n - 1) % (i.n + 1) + 1 END::int,
               w.weight
        FROM (SELECT info, (info ->> 'n_features')::bigint AS n FROM corgipile.model_info($1) AS info) AS i
        CROSS JOIN LATERAL unnest(corgipile.weights_of($1)) WITH ORDINALITY AS w(weight, n)
    $$;
CREATE FUNCTION corgipile.model_weights(model bigint, OUT class text, OUT feature integer, OUT weight real) RETURNS SETOF record
    LANGUAGE sql STABLE STRICT AS $$ SELECT * FROM corgipile.model_weights($1::pg_catalog.text) $$;
CREATE FUNCTION corgipile.weights_of(model text) RETURNS real[]
    AS 'MODULE_PATHNAME', 'corgipile_model_vector' LANGUAGE C STABLE STRICT PARALLEL SAFE;

-- What each feature adds to the score (softmax: that of the predicted class), the largest first; feature 0 is the
-- intercept. The contributions add up to predict_score, but for its rounding to single precision.
CREATE FUNCTION corgipile.explained(model text, k integer[], v double precision[],
    OUT feature integer, OUT value double precision, OUT weight double precision, OUT contribution double precision)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    predicted text := CASE WHEN k IS NULL THEN corgipile.predict(model, v) ELSE corgipile.predict(model, k, v) END;
    many boolean := corgipile.model_info(model) ->> 'loss' = 'softmax';
BEGIN
    RETURN QUERY
        SELECT w.feature, x.value, w.weight::float8, w.weight::float8 * x.value
        FROM corgipile.model_weights(model) AS w
        JOIN (SELECT u.k, u.v FROM unnest(coalesce(k, ARRAY(SELECT generate_subscripts(v, 1))), v) AS u(k, v)
              UNION ALL SELECT 0, 1) AS x(feature, value) ON x.feature = w.feature
        WHERE NOT many OR w.class = predicted
        ORDER BY abs(w.weight::float8 * x.value) DESC, w.feature;
END
$$;

-- The loss of the epochs as a line for a terminal.
CREATE FUNCTION corgipile.loss_curve(model text) RETURNS text
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
    AS $$
        SELECT string_agg(CASE WHEN e.loss IS NULL THEN 'x'
                               ELSE substr('▁▂▃▄▅▆▇█', 1 + coalesce(round(7 * (e.loss - e.least) / nullif(e.most - e.least, 0)), 0)::int, 1) END,
                          '' ORDER BY e.epoch)
               || format('  %s → %s', round((array_agg(e.loss ORDER BY e.epoch))[1]::numeric, 6),
                         round((array_agg(e.loss ORDER BY e.epoch DESC))[1]::numeric, 6))
        FROM (SELECT (h ->> 'epoch')::int AS epoch, (h ->> 'loss')::float8 AS loss,
                     min((h ->> 'loss')::float8) OVER () AS least, max((h ->> 'loss')::float8) OVER () AS most
              FROM jsonb_array_elements(corgipile.model_info($1) -> 'history') AS h) AS e
    $$;
CREATE FUNCTION corgipile.loss_curve(model bigint) RETURNS text
    LANGUAGE sql STABLE STRICT AS $$ SELECT corgipile.loss_curve($1::pg_catalog.text) $$;

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
COMMENT ON TABLE corgipile.models_store IS 'trained models; read them through corgipile.models';
SELECT pg_catalog.pg_extension_config_dump('corgipile.models_store', '');
SELECT pg_catalog.pg_extension_config_dump('corgipile.model_id_seq', '');
-- Whoever installed the extension dumps the database, models included.
GRANT SELECT ON corgipile.models_store, corgipile.model_id_seq TO @extowner@;

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
    FOREACH schema IN ARRAY ARRAY['@extschema@', 'corgipile'] LOOP
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

-- ---------------------------------------------------------------- views
-- A role sees the models of the roles whose rights it has; a superuser also those whose owner is gone.
CREATE FUNCTION corgipile.may_use(owner name) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
        SELECT coalesce((SELECT pg_catalog.pg_has_role(r.oid, 'USAGE') FROM pg_catalog.pg_roles r WHERE r.rolname = owner),
                        (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user))
    $$;

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
       i.info -> 'params' AS params
FROM corgipile.models_store m
CROSS JOIN LATERAL (SELECT corgipile.model_info(m.model) AS info) i
WHERE corgipile.may_use(m.owner);
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
WHERE corgipile.may_use(m.owner);
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
WHERE corgipile.may_use(m.owner);
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
WHERE corgipile.may_use(m.owner) AND pg_catalog.jsonb_typeof(t.tuning) OPERATOR(pg_catalog.=) 'object';
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

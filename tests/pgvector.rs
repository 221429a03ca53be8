//! pgvector's types as features, where pgvector is there (`scripts/pgvector.sh`).

use corgipile_tests::{Server, value};
use postgres::Client;

/// A server with pgvector and a table of embeddings, clustered by label; `None`, and a word, where there is no pgvector.
fn server() -> Option<(Server, Client)> {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let there: bool = value(&mut client, "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector')");
    if !there {
        println!("skipped: pgvector is not installed");
        return None;
    }
    client
        .batch_execute(
            "CREATE EXTENSION vector; CREATE EXTENSION corgipile; SET client_min_messages = warning;
             CREATE TABLE items AS SELECT i AS id, i > 3000 AS label, (i % 7)::real AS price,
                 (SELECT array_agg(round((sin(i * k) + CASE WHEN i > 3000 THEN 0.3 ELSE 0 END)::numeric, 2)::real) FROM generate_series(1, 12) AS k) AS plain
                 FROM generate_series(1, 6000) AS i;
             ALTER TABLE items ADD v vector(12), ADD h halfvec(12), ADD s sparsevec(12);
             UPDATE items SET v = plain::vector, h = plain::halfvec, s = plain::vector::sparsevec;
             CREATE TABLE arrays AS SELECT id, label, price, plain, h::real[] AS halves FROM items ORDER BY id",
        )
        .expect("creates");
    // As a table that was filled in this order.
    client
        .batch_execute(
            "CREATE TABLE copied AS TABLE items ORDER BY id; DROP TABLE items; ALTER TABLE copied RENAME TO items",
        )
        .expect("copies");
    Some((server, client))
}

#[test]
fn vectors_are_features_like_arrays() {
    let Some((_server, mut client)) = server() else { return };
    let train = |client: &mut Client, table: &str, features: &str, name: &str| -> f64 {
        let options = format!("max_epochs => 5, block_size => '8kB', shuffle => 'corgipile', model_name => '{name}'");
        let _: i64 = value(client, &format!("SELECT train_sgd('{table}', 'label', '{{{features}}}', {options})"));
        value(client, &format!("SELECT accuracy FROM evaluate_sgd('{name}', '{table}')"))
    };
    let plain = train(&mut client, "arrays", "plain", "plain");
    assert!(plain > 0.75, "{plain}");
    for (features, name) in [("v", "single"), ("h", "half"), ("s", "sparse")] {
        let accuracy = train(&mut client, "items", features, name);
        assert!((accuracy - plain).abs() < 0.02, "{name}: {accuracy}, arrays {plain}");
        // By name, by a whole row, by PREDICT BY: all the same.
        let same: bool = value(
            &mut client,
            &format!(
                "SELECT bool_and(predict('{name}', i) = p.prediction::text) FROM items i JOIN items AS p PREDICT BY '{name}' USING (id)"
            ),
        );
        assert!(same, "{name}");
    }
    // The same numbers give the same model, and the same predictions whichever type a row has.
    let vector =
        |client: &mut Client, name: &str| -> Vec<f32> { value(client, &format!("SELECT model_vector('{name}')")) };
    let (arrays, vectors) = (vector(&mut client, "plain"), vector(&mut client, "single"));
    let apart = arrays.iter().zip(&vectors).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    assert!(arrays.len() == 12 && apart < 0.1, "{arrays:?} and {vectors:?}");
    let casts = "SELECT count(*) FROM items i WHERE predict('single', v::real[]) <> predict('single', i)";
    assert_eq!(value::<i64>(&mut client, casts), 0);
    // What a prediction is made of, of a row and of a vector.
    for input in ["i", "i.v"] {
        let sum = format!("(SELECT sum(contribution) FROM explain_prediction('single', {input}))");
        let query =
            format!("SELECT max(abs({sum} - predict_score('single', i))) FROM (SELECT * FROM items LIMIT 20) AS i");
        assert!(value::<f64>(&mut client, &query) < 1e-5, "{input}");
    }
    // As an expression, of a model of the vectors alone and of columns.
    train(&mut client, "items", "v,price,h", "vectors and price");
    for name in ["single", "half", "vectors and price"] {
        let expression: String = value(&mut client, &format!("SELECT score_sql FROM export_model_sql('{name}')"));
        let apart: f64 =
            value(&mut client, &format!("SELECT max(abs({expression} - predict_score('{name}', i))) FROM items i"));
        assert!(apart < 1e-5, "{name}: {apart}");
    }
    // Mixed with other columns.
    let mixed = train(&mut client, "items", "v,price,s", "mixed");
    assert!((mixed - plain).abs() < 0.03, "{mixed}");
    let names: i64 = value(
        &mut client,
        "SELECT count(*) FROM corgipile.model_features('mixed') WHERE name LIKE 'v[%' OR name LIKE 's[%'",
    );
    assert_eq!(names, 24);
}

#[test]
fn models_of_vectors_survive_a_dump() {
    let Some((server, mut client)) = server() else { return };
    client
        .batch_execute(
            "CREATE TABLE trained (name text PRIMARY KEY, scores text);
             SELECT train_sgd('items', 'label', ARRAY[f], model_name => f, max_epochs => 2) FROM unnest('{v,h,s}'::text[]) AS f;
             SELECT train_sgd('items', 'label', '{v,h,s,price}', model_name => 'all', max_epochs => 2);
             CREATE FUNCTION scores(m text) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(predict(m, i) || predict_score(m, i), ',' ORDER BY id) FROM items AS i $$;
             INSERT INTO trained SELECT model_name, scores(model_name) FROM corgipile.models",
        )
        .expect("trains");
    client.batch_execute("CREATE DATABASE restored").expect("creates");
    let dump = server.socket().join("dump.sql").to_string_lossy().into_owned();
    server.run("pg_dump", &["-f", &dump, "postgres"]);
    server.run("psql", &["-qX", "-v", "ON_ERROR_STOP=1", "-f", &dump, "restored"]);
    let mut restored = server.connect_to("restored");
    let same = "SELECT count(*) FROM trained WHERE scores = scores(name)";
    assert_eq!(value::<i64>(&mut restored, same), 4);
}

#[test]
fn an_index_finds_what_a_model_likes_best() {
    let Some((_server, mut client)) = server() else { return };
    client
        .batch_execute(
            "SELECT train_sgd('items', 'label', '{v}', model_name => 'm');
             CREATE INDEX ON items USING hnsw (v vector_ip_ops);
             SET enable_seqscan = off; SET hnsw.ef_search = 200",
        )
        .expect("trains");
    let query = "SELECT id FROM items ORDER BY v <#> model_vector('m')::vector LIMIT 10";
    let plan: Vec<String> =
        client.query(&format!("EXPLAIN {query}"), &[]).expect("explains").iter().map(|row| row.get(0)).collect();
    assert!(plan.iter().any(|line| line.contains("Index Scan using items_v_idx")), "{plan:?}");
    let found: Vec<i32> = client.query(query, &[]).expect("finds").iter().map(|row| row.get(0)).collect();
    let best = "SELECT id FROM items ORDER BY predict_score('m', v::real[]) DESC LIMIT 20";
    let best: Vec<i32> = client.query(best, &[]).expect("scores").iter().map(|row| row.get(0)).collect();
    let right = found.iter().filter(|id| best.contains(id)).count();
    assert!(right >= 9, "{found:?} of {best:?}");
}

#[test]
fn what_a_vector_cannot_be() {
    let Some((_server, mut client)) = server() else { return };
    let error = |client: &mut Client, query: &str| {
        let error = client.batch_execute(query).expect_err("is refused");
        error.as_db_error().map(|e| format!("{}: {}", e.code().code(), e.message())).unwrap_or_default()
    };
    client
        .batch_execute(
            "CREATE TABLE ragged (label boolean, v vector, s sparsevec, b bit(3));
             INSERT INTO ragged VALUES (true, '[1,2]', '{1:1}/4', '101'), (false, '[1,2,3]', '{1:1}/5', '101'), (true, NULL, NULL, NULL), (false, '[3,4]', '{1:1}/4', '101');
             CREATE TYPE halfvec_of_ours AS ENUM ('a')",
        )
        .expect("creates");
    let lengths = error(&mut client, "SELECT train_sgd('ragged', 'label', '{v}', filter => 'v IS NOT NULL')");
    assert!(lengths.starts_with("2202E") && lengths.contains("\"v\"") && lengths.contains("ctid (0,"), "{lengths}");
    let nulls = error(&mut client, "SELECT train_sgd('ragged', 'label', '{v}', filter => 's IS NULL')");
    assert!(nulls.starts_with("22004") && nulls.contains("\"v\""), "{nulls}");
    let sparse = error(&mut client, "SELECT train_sgd('ragged', 'label', '{s}')");
    assert!(sparse.contains("the array in column \"s\" has 5 elements in the row with ctid (0,2)"), "{sparse}");
    // Weights that memory has no room for are refused before there are any.
    client
        .batch_execute(
            "CREATE TABLE huge AS SELECT i % 2 = 0 AS label, '{1:1}/1000000000'::sparsevec AS s FROM generate_series(1, 100) AS i",
        )
        .expect("creates");
    let huge = error(&mut client, "SELECT train_sgd('huge', 'label', '{s}')");
    assert!(huge.starts_with("53400") && huge.contains("1000000000 features"), "{huge}");
    // Numbers go with an array of values; with a vector they are a feature beside it.
    client
        .batch_execute("CREATE TABLE beside AS SELECT i % 2 = 0 AS label, ARRAY[1, i % 3] AS k, format('[%s,1]', i % 2)::vector AS v FROM generate_series(1, 100) AS i")
        .expect("creates");
    let beside: i64 = value(&mut client, "SELECT train_sgd('beside', 'label', '{k,v}', model_name => 'beside')");
    assert!(beside > 0);
    let features: i64 = value(&mut client, "SELECT sum(features)::int8 FROM corgipile.model_encoding('beside')");
    assert_eq!(features, 4);
    let bits = error(&mut client, "SELECT train_sgd('ragged', 'label', '{b}')");
    assert!(bits.starts_with("42804"), "{bits}");
    let skipped: i64 = value(
        &mut client,
        "SELECT train_sgd('ragged', 'label', '{v}', on_null => 'skip', filter => 'v IS NULL OR vector_dims(v) = 2')",
    );
    assert!(skipped > 0);
}

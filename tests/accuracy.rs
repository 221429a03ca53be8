//! The paper's claim on the repository's real data: on tables clustered by label, CorgiPile is as
//! accurate as the same trainer on a shuffled copy, and the same table unshuffled is far worse.

use corgipile_tests::{Server, root, value};
use postgres::Client;
use std::process::{Command, Stdio};

fn load(server: &Server, file: &str, table: &str, dims: u32) {
    let status = Command::new(root().join("scripts/load.sh"))
        .args([root().join("data").join(file).to_string_lossy().as_ref(), table, &dims.to_string()])
        .env("PGHOST", server.socket())
        .env("PGUSER", "postgres")
        .env("PGDATABASE", "postgres")
        .stdin(Stdio::null())
        .status();
    assert!(status.expect("load.sh runs").success());
}

/// Percent of the test table that a model trained on `train` gets right.
fn accuracy(client: &mut Client, train: &str, test: &str, options: &str) -> f64 {
    let id: i64 = value(client, &format!("SELECT train_sgd('{train}'{options})"));
    let query = format!("SELECT 100 * avg((prediction = label)::int)::float8 FROM {test} PREDICT BY {id}");
    value(client, &query)
}

#[test]
fn corgipile_is_as_good_as_a_shuffled_copy() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.batch_execute("CREATE EXTENSION corgipile; SET client_min_messages = warning").expect("installs");
    load(&server, "a9a.libsvm.gz", "a9a", 0);
    load(&server, "a9a.t.libsvm.gz", "a9a_test", 0);
    load(&server, "higgs.libsvm.gz", "higgs", 28);
    load(&server, "higgs.t.libsvm.gz", "higgs_test", 28);
    let shifted = std::fs::read_to_string(root().join("scripts/demo_shifted.sql")).expect("a file of ours");
    client.batch_execute(&shifted.replace("\\g /dev/null", ";")).expect("makes the shifted table");
    // scikit-learn's LogisticRegression(C=1), features standardised: 84.95 on a9a, 63.43 on this
    // excerpt of Higgs. The best linear rule on the shifted data: 78.5 (a normal of ten features
    // whose class means are 0.5 apart: Φ(√10·0.25)).
    let mut seen = Vec::new();
    for (table, buffer, reference) in [("a9a", "450kB", 84.95), ("higgs", "16MB", 63.43), ("shifted", "300kB", 78.5)] {
        client
            .batch_execute(&format!("CREATE TABLE {table}_shuffled AS SELECT * FROM {table} ORDER BY hashint4(id)"))
            .expect("copies");
        let test = format!("{table}_test");
        let sizes = format!(", block_size => '8kB', buffer_size => '{buffer}'");
        let corgipile = accuracy(&mut client, table, &test, &sizes);
        let shuffled = accuracy(&mut client, &format!("{table}_shuffled"), &test, "");
        let none = accuracy(&mut client, table, &test, ", shuffle => 'none'");
        // A partition for each label is as clustered as can be.
        client
            .batch_execute(&format!("CREATE TABLE {table}_parts (LIKE {table}) PARTITION BY LIST (label)"))
            .expect("creates");
        let create = "SELECT string_agg(format('CREATE TABLE %1$s_part_%2$s PARTITION OF %1$s_parts FOR VALUES IN (%3$s)', '{table}', n, label), ';')
             FROM (SELECT label, row_number() OVER (ORDER BY label) AS n FROM {table} GROUP BY label) AS labels";
        let create: String = value(&mut client, &create.replace("{table}", table));
        client.batch_execute(&format!("{create}; INSERT INTO {table}_parts TABLE {table}")).expect("partitions");
        let parts = accuracy(&mut client, &format!("{table}_parts"), &test, &sizes);
        println!(
            "{table}: corgipile {corgipile:.2}, partitioned by label {parts:.2}, shuffled copy {shuffled:.2}, no shuffle {none:.2}, reference {reference}"
        );
        seen.push((table, corgipile, parts, shuffled, none, reference));
    }
    for (table, corgipile, parts, shuffled, none, reference) in seen {
        assert!((corgipile - shuffled).abs() <= 0.5 || corgipile > shuffled, "{table}: {corgipile} and {shuffled}");
        assert!((parts - shuffled).abs() <= 0.5 || parts > shuffled, "{table}: {parts} partitioned, and {shuffled}");
        assert!(corgipile >= reference - 1.5, "{table}: {corgipile}, reference {reference}");
        assert!(none < corgipile - 5.0, "{table}: {none} unshuffled, {corgipile} shuffled");
    }
}

#[test]
fn the_same_seed_gives_the_same_bits() {
    let server = Server::start(&[]);
    let mut client = server.with_table(5000, 20);
    let train = |client: &mut Client, options: &str| -> Vec<f32> {
        value(client, &format!("SELECT model_vector(corgipile.sgd(label, features_v, '{options}')) FROM wide"))
    };
    for options in [r#"{"max_epochs": 3}"#, r#"{"max_epochs": 3, "block_size": "8kB", "buffer_size": "64kB"}"#] {
        let first = train(&mut client, options);
        assert_eq!(first, train(&mut client, options));
        client.batch_execute("SET corgipile.async_compute = off").expect("sets");
        assert_eq!(first, train(&mut client, options), "with and without the read thread");
        client.batch_execute("RESET corgipile.async_compute").expect("resets");
        let mut other = server.connect();
        assert_eq!(first, train(&mut other, options), "in another session");
    }
}

#[test]
fn a_raw_table_of_columns_is_as_good_as_one_prepared_by_hand() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client
        .batch_execute(
            "CREATE EXTENSION corgipile; SET client_min_messages = warning;
             CREATE TABLE adult (split text, age int, workclass text, fnlwgt int, education text, education_num int, marital_status text,
                 occupation text, relationship text, race text, sex text, capital_gain int, capital_loss int, hours_per_week int,
                 native_country text, income text)",
        )
        .expect("creates");
    let csv = Command::new("gzip").arg("-dc").arg(root().join("data/adult.csv.gz")).output().expect("unpacks").stdout;
    let mut copy = client.copy_in("COPY adult FROM STDIN (FORMAT csv, HEADER, NULL '?')").expect("copies");
    std::io::Write::write_all(&mut copy, &csv).expect("writes");
    copy.finish().expect("is there");
    client
        .batch_execute("SELECT train_sgd('adult', 'income', model_name => 'adult', exclude => '{split}', filter => 'split = ''train''')")
        .expect("trains");
    let judged = "SELECT 100 * accuracy FROM evaluate_sgd('adult', 'adult', 'split = ''test''')";
    let accuracy: f64 = value(&mut client, judged);
    // scikit-learn's LogisticRegression on standardised and one-hot columns: 85.31.
    assert!((accuracy - 85.31).abs() < 0.5, "{accuracy}");
    let by_clause =
        "SELECT 100 * avg((prediction = income)::int)::float8 FROM adult PREDICT BY 'adult' WHERE split = 'test'";
    assert!((value::<f64>(&mut client, by_clause) - accuracy).abs() < 1e-9);
}

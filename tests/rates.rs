//! The rate that is found where none is given diverges on no data: every real set, as it is and in other units, with every loss
//! and optimiser that fits. Needs the directory of the data sets beside the checkout.

use corgipile_tests::{Server, root, value};
use postgres::Client;
use std::io::Write;
use std::process::Command;

/// Rows of a set that are used.
const ROWS: usize = 2000;

fn lines(file: &str) -> Option<Vec<String>> {
    let path = root().join("../shared/data").join(file);
    if !path.exists() {
        return None;
    }
    let unpacked = Command::new("gzip").arg("-dc").arg(path).output().expect("unpacks").stdout;
    Some(String::from_utf8(unpacked).expect("text").lines().map(str::to_string).collect())
}

/// Every so many-th of the rows, clustered by label.
fn some(mut rows: Vec<(String, String)>) -> String {
    let every = rows.len().div_ceil(ROWS);
    rows.sort();
    rows.into_iter().step_by(every).map(|(label, features)| format!("{label}\t{features}\n")).collect()
}

/// The numeric columns of a CSV file, as `COPY` reads (label, features_v).
fn dense(file: &str, target: &str) -> Option<String> {
    let lines = lines(file)?;
    let (header, rows) = lines.split_first()?;
    let label = header.split(',').position(|name| name == target)?;
    let is_feature = |(i, cell): (usize, &str)| i != label && cell.parse::<f64>().is_ok();
    let numeric: Vec<bool> = rows.first()?.split(',').enumerate().map(is_feature).collect();
    let rows = rows.iter().map(|row| {
        let cells: Vec<&str> = row.split(',').collect();
        let features = cells.iter().zip(&numeric).filter(|(_, numeric)| **numeric).map(|(cell, _)| *cell);
        let features: Vec<&str> = features.map(|cell| if cell.parse::<f64>().is_ok() { cell } else { "0" }).collect();
        (cells[label].to_string(), format!("{{{}}}", features.join(",")))
    });
    Some(some(rows.collect()))
}

/// A LIBSVM file, as `COPY` reads (label, features_k, features_v).
fn sparse(file: &str) -> Option<String> {
    let rows = lines(file)?.into_iter().map(|row| {
        let mut cells = row.split_ascii_whitespace();
        let label = cells.next().unwrap_or_default().to_string();
        let (k, v): (Vec<&str>, Vec<&str>) = cells.filter_map(|cell| cell.split_once(':')).unzip();
        (label, format!("{{{}}}\t{{{}}}", k.join(","), v.join(",")))
    });
    Some(some(rows.collect()))
}

/// Fills table `t`.
fn load(client: &mut Client, columns: &str, text: &str) {
    client.batch_execute(&format!("DROP TABLE IF EXISTS t; CREATE TABLE t ({columns})")).expect("creates");
    let mut copy = client.copy_in("COPY t FROM STDIN").expect("copies");
    copy.write_all(text.as_bytes()).expect("is sent");
    copy.finish().expect("is stored");
}

/// Trains and says how often that diverged.
fn diverged(client: &mut Client, options: &str) -> i64 {
    let id: i64 = value(client, &format!("SELECT train_sgd('t', max_epochs => 3, {options})"));
    value(client, &format!("SELECT count(*) FROM corgipile.training_history WHERE model_id = {id} AND diverged"))
}

const TWO_CLASSES: &[&str] = &["log_loss", "hinge", "squared_hinge", "modified_huber"];
const CLASSES: &[&str] = &["softmax"];
const NUMBERS: &[&str] = &["squared_error", "huber", "epsilon_insensitive"];

#[test]
fn no_found_rate_diverges_on_real_data() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.batch_execute("CREATE EXTENSION corgipile; SET client_min_messages = error").expect("creates");
    let dense_sets = [
        ("breast_cancer.csv.gz", "target", TWO_CLASSES),
        ("higgs57k.csv.gz", "label", TWO_CLASSES),
        ("covtype100k.csv.gz", "cover_type", CLASSES),
        ("digits.csv.gz", "target", CLASSES),
        ("news20_lsa128.csv.gz", "label", CLASSES),
        ("fmnist.csv.gz", "label", CLASSES),
        ("california.csv.gz", "medianHouseValue", NUMBERS),
        ("abalone.csv.gz", "rings", NUMBERS),
        ("diabetes.csv.gz", "target", NUMBERS),
        ("flights13.csv.gz", "distance", NUMBERS),
    ];
    let sparse_sets = [
        ("a9a.libsvm.gz", TWO_CLASSES),
        ("agaricus.libsvm.gz", TWO_CLASSES),
        ("news20.libsvm.gz", CLASSES),
        ("sector.libsvm.gz", CLASSES),
    ];
    let dense_sets = dense_sets.iter().map(|(file, target, losses)| (*file, *losses, dense(file, target), false));
    let sparse_sets = sparse_sets.iter().map(|(file, losses)| (*file, *losses, sparse(file), true));
    let (mut wrong, mut trained) = (Vec::new(), 0);
    for (file, losses, text, sparse) in dense_sets.chain(sparse_sets) {
        let Some(text) = text else {
            println!("skipped: {file} is not beside the checkout");
            continue;
        };
        let label = if losses == NUMBERS { "float8" } else { "text" };
        let indices = if sparse { "features_k int[]," } else { "" };
        // A hundred classes of fifty thousand words take a while.
        let optimizers: &[&str] =
            if sparse && losses == CLASSES { &["sgd"] } else { &["sgd", "momentum", "adagrad", "adam"] };
        load(&mut client, &format!("label {label}, {indices} features_v real[]"), &text);
        for unit in ["1", "1e-4", "1e4"] {
            if unit != "1" {
                let scaled = format!(
                    "CREATE TABLE scaled AS SELECT label, {indices} (SELECT array_agg(x * {unit}::real ORDER BY n) FROM unnest(features_v) WITH ORDINALITY AS u(x, n)) AS features_v FROM t;
                     DROP TABLE t; ALTER TABLE scaled RENAME TO t",
                    indices = indices.replace(" int[]", "")
                );
                client.batch_execute(&scaled).expect("scales");
            }
            for loss in losses {
                for optimizer in optimizers {
                    for standardize in [true, false] {
                        let options =
                            format!("loss => '{loss}', optimizer => '{optimizer}', standardize => {standardize}");
                        trained += 1;
                        if diverged(&mut client, &options) > 0 {
                            wrong.push(format!("{file} in units of {unit}: {options}"));
                        }
                    }
                }
            }
        }
    }
    println!("{trained} trainings");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

//! Exported models in scikit-learn, where that is there (`scripts/sklearn.sh`).

use corgipile_tests::{Server, value};
use std::io::Write;
use std::process::{Command, Stdio};

const PYTHON: &str = "/usr/bin/python3";

/// Loads each model as scikit-learn has it and says how many predictions differ, and how far probabilities and scores do.
const LOAD: &str = r#"
import json, sys
import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier

for line in sys.stdin:
    given = json.loads(line)
    export, x = given["export"], np.array(given["x"], dtype=float)
    if not export["classes_"]:
        model = LinearRegression()
        model.coef_, model.intercept_ = np.array(export["coef_"][0]), export["intercept_"][0]
        print(0, abs(model.predict(x) - given["score"]).max())
        continue
    # With more than two classes it is the multinomial model.
    model = LogisticRegression() if given["proba"][0] is not None else SGDClassifier(loss="hinge")
    model.coef_, model.intercept_ = np.array(export["coef_"]), np.array(export["intercept_"])
    model.classes_ = np.array(export["classes_"])
    differ = (model.predict(x).astype(str) != np.array(given["predicted"])).sum()
    if given["proba"][0] is None:
        print(differ, abs(model.decision_function(x) - given["score"]).max())
    else:
        print(differ, abs(model.predict_proba(x) - np.array(given["proba"])).max())
"#;

#[test]
fn an_exported_model_predicts_the_same_in_scikit_learn() {
    if !Command::new(PYTHON).args(["-c", "import sklearn"]).output().is_ok_and(|output| output.status.success()) {
        println!("skipped: scikit-learn is not installed");
        return;
    }
    let server = Server::start(&[]);
    let mut client = server.connect();
    client
        .batch_execute(
            "CREATE EXTENSION corgipile; SET client_min_messages = warning;
             CREATE TABLE t AS SELECT i AS id, (sin(i) + cos(i * 3) > 0.2) AS yes, (ARRAY['red', 'green', 'blue'])[1 + (i * 7 % 11) % 3] AS colour,
                 sin(i) * 3 + cos(i * 3) AS amount, ARRAY[sin(i), cos(i * 3), i * 7 % 11 % 3, (i % 5) * 1000]::real[] AS features_v
                 FROM generate_series(1, 2000) AS i;
             SELECT train_sgd('t', 'yes', model_name => 'two classes'), train_sgd('t', 'colour', model_name => 'three classes'),
                 train_sgd('t', 'yes', loss => 'hinge', model_name => 'hinge'), train_sgd('t', 'amount', model_name => 'amount')",
        )
        .expect("trains");
    let models = ["two classes", "three classes", "hinge", "amount"];
    let mut python =
        Command::new(PYTHON).args(["-c", LOAD]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    let mut stdin = python.stdin.take().expect("piped");
    for model in models {
        let classes: i64 = value(
            &mut client,
            &format!(
                "SELECT coalesce(cardinality(classes), 0)::int8 FROM corgipile.models WHERE model_name = '{model}'"
            ),
        );
        let proba = match (model, classes) {
            ("hinge", _) | (_, 0) => "NULL::float8".to_string(),
            _ => format!(
                "(SELECT json_agg(predict_proba('{model}', features_v, c) ORDER BY n)
                  FROM corgipile.models, unnest(classes) WITH ORDINALITY AS u(c, n) WHERE model_name = '{model}')"
            ),
        };
        let score = if model == "three classes" {
            "NULL::float8".into()
        } else {
            format!("predict_score('{model}', features_v)")
        };
        let json: String = value(
            &mut client,
            &format!(
                "SELECT json_build_object('export', export_model('{model}'), 'x', json_agg(features_v ORDER BY id), 'predicted', json_agg(predict('{model}', features_v) ORDER BY id),
                     'proba', json_agg({proba} ORDER BY id), 'score', json_agg({score} ORDER BY id))::text FROM t"
            ),
        );
        writeln!(stdin, "{}", json.replace('\n', " ")).expect("writes");
    }
    drop(stdin);
    let output = python.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.lines().count(), models.len(), "{said}");
    for (model, line) in models.iter().zip(said.lines()) {
        let (differ, apart) = line.split_once(' ').expect("two numbers");
        assert_eq!(differ, "0", "{model}");
        assert!(apart.parse::<f64>().is_ok_and(|apart| apart < 1e-5), "{model}: {apart}");
    }
}

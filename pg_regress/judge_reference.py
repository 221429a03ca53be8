"""The numbers of judge.out by scikit-learn, from the same predictions: PGHOST=… python judge_reference.py, on a server on which the
first statements of judge.sql have run. Needs scikit-learn."""
import csv, io, subprocess
import numpy as np
from sklearn import metrics


def rows(query):
    out = subprocess.run(["psql", "-XqAt", "--csv", "-c", query], check=True, capture_output=True, text=True).stdout
    return list(csv.reader(io.StringIO(out)))


for model, target, features in [("binary", "label", "features_v"), ("levels", "level", "features_v"), ("sparse yes", "yes::text", "k, features_v"),
                                ("amount", "amount", "features_v"), ("hinge", "label", "features_v"), ("huber", "yes::text", "features_v")]:
    classes = [c for c, in rows(f"SELECT unnest(classes) FROM corgipile.models WHERE model_name = '{model}'")]
    if not classes:
        y, p = np.array(rows(f"SELECT amount, predict_score('{model}', {features}) FROM judged"), float).T
        print(model, dict(r2=metrics.r2_score(y, p), mae=metrics.mean_absolute_error(y, p), rmse=metrics.mean_squared_error(y, p) ** 0.5))
        continue
    got = rows(f"SELECT {target}, predict('{model}', {features}), predict_score('{model}', {features}) FROM judged")
    y, p, score = ([row[i] for row in got] for i in range(3))
    said = dict(accuracy=metrics.accuracy_score(y, p), balanced=metrics.balanced_accuracy_score(y, p))
    average = dict(average="macro") if len(classes) > 2 else dict(pos_label=classes[1])
    said |= dict(precision=metrics.precision_score(y, p, **average), recall=metrics.recall_score(y, p, **average), f1=metrics.f1_score(y, p, **average))
    if len(classes) == 2:
        said |= dict(auc=metrics.roc_auc_score([c == classes[1] for c in y], [float(s) for s in score]))
    if model != "hinge":
        columns = ", ".join("predict_proba('%s', %s, '%s')" % (model, features, c.replace("'", "''")) for c in classes)
        probabilities = np.array(rows(f"SELECT {columns} FROM judged"), float)
        said |= dict(log_loss=metrics.log_loss(y, probabilities, labels=classes))
    print(model, {name: round(float(x), 6) for name, x in said.items()})

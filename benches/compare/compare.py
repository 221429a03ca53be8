"""Accuracy and time of train_sgd and its peers on the same data; see run.sh.

Ours: train_sgd with defaults only, on a table clustered by label, time of the whole statement, from
PostgreSQL's pages to the stored model. Peers: data in memory as the peer wants it, time of fitting
only, one thread, settings as their documentation advises.
"""
import csv, gzip, json, os, subprocess, sys, tempfile, time

import numpy as np
import scipy.sparse as sp
from liblinear.liblinear import problem
from liblinear.liblinearutil import parameter, predict as ll_predict, train as ll_train
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.preprocessing import StandardScaler
from vowpalwabbit import Workspace

ROOT, SHARED = sys.argv[1], sys.argv[2]


def psql(sql, stdin=None):
    run = subprocess.run(["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql], input=stdin, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr)
    return run.stdout.strip()


def load(name, task, x, y):
    """Loads a table clustered by label, as tables in databases often are."""
    kind = "text" if task == "class" else "double precision"
    psql(f"CREATE TABLE {name} (id int, features_k int[], features_v real[], label {kind})")
    lines = []
    for i in np.argsort(y, kind="stable"):
        if sp.issparse(x):
            row = slice(x.indptr[i], x.indptr[i + 1])
            k = "{" + ",".join(map(str, x.indices[row] + 1)) + "}"
            v = "{" + ",".join(f"{a:.7g}" for a in x.data[row]) + "}"
        else:
            k, v = "\\N", "{" + ",".join(f"{a:.7g}" for a in x[i]) + "}"
        lines.append(f"{i}\t{k}\t{v}\t{y[i]:.10g}\n")
    psql(f"COPY {name} FROM STDIN", "".join(lines))


def svm(path, dims):
    x, y = load_svmlight_file(path, n_features=dims, zero_based=False)
    x.sort_indices()
    return x.astype(np.float32), y


def table(path):
    with gzip.open(path, "rt") as f:
        rows = list(csv.reader(f))
    return rows[0], rows[1:]


def dense(path, target, test=None, drop=(), one_hot=()):
    """A CSV file as (x, y, x_test, y_test)."""
    def read(path):
        head, rows = table(path)
        t = head.index(target)
        cols = [i for i, c in enumerate(head) if c not in (target, "split", "part", *drop)]
        values = {i: sorted({r[i] for r in rows}) for i in cols if head[i] in one_hot}
        x = np.array([[f for i in cols for f in ([float(r[i] == v) for v in values[i]] if i in values else [float(r[i] or 0)])] for r in rows], np.float32)
        y = np.array([float(r[t]) for r in rows])
        split = np.array([r[head.index("split")] == "test" for r in rows]) if "split" in head else None
        return x, y, split
    x, y, split = read(path)
    if test:
        xt, yt, _ = read(test)
        return x, y, xt, yt
    return x[~split], y[~split], x[split], y[split]


def sets():
    """(name, task, reference, x, y, x_test, y_test); references: accuracy in percent, or RMSE."""
    data = lambda f: os.path.join(ROOT, "data", f)
    shared = lambda f: os.path.join(SHARED, f)
    x, y = svm(data("a9a.libsvm.gz"), 123)
    yield "a9a", "class", 84.98, x, y, *svm(data("a9a.t.libsvm.gz"), 123)
    if not SHARED:
        x, y = svm(data("higgs.libsvm.gz"), 28)
        xt, yt = svm(data("higgs.t.libsvm.gz"), 28)
        yield "higgs", "class", 63.43, x.toarray(), y, xt.toarray(), yt
        return
    yield "higgs57k", "class", 63.70, *dense(shared("higgs57k.csv.gz"), "label")
    x, y = svm(shared("agaricus.libsvm.gz"), 127)
    yield "agaricus", "class", 100.0, x, y, *svm(shared("agaricus.t.libsvm.gz"), 127)
    cover = dense(shared("covtype100k.csv.gz"), "cover_type")
    yield "covtype7", "class", 72.60, *cover
    x, y, xt, yt = cover
    yield "covtype2", "class", 76.10, x, np.where(y == 2, 1, -1), xt, np.where(yt == 2, 1, -1)
    x, y = svm(shared("news20.libsvm.gz"), 130107)
    xt, yt = svm(shared("news20.t.libsvm.gz"), 130107)
    tf = TfidfTransformer(sublinear_tf=True).fit(x)
    a, at = tf.transform(x).astype(np.float32), tf.transform(xt).astype(np.float32)
    yield "news20", "class", 84.20, a, y, at, yt
    yield "news20_2", "class", 90.81, a, np.where(y <= 10, 1, -1), at, np.where(yt <= 10, 1, -1)
    b, bt = x.copy(), xt.copy()
    b.data, bt.data = np.log1p(b.data), np.log1p(bt.data)
    yield "news20_log", "class", 91.53, b, np.where(y <= 10, 1, -1), bt, np.where(yt <= 10, 1, -1)
    x, y, xt, yt = dense(shared("news20_lsa128.csv.gz"), "label")
    yield "lsa128", "class", 78.62, x / 1e4, y, xt / 1e4, yt
    yield "lsa128_2", "class", 89.07, x / 1e4, np.where(y <= 10, 1, -1), xt / 1e4, np.where(yt <= 10, 1, -1)
    x, y = svm(shared("sector.libsvm.gz"), 55197)
    yield "sector", "class", 92.36, x, y, *svm(shared("sector.t.libsvm.gz"), 55197)
    yield "fmnist20k", "class", 83.22, *dense(shared("fmnist.csv.gz"), "label", shared("fmnist.t.csv.gz"))
    yield "digits", "class", 96.66, *dense(shared("digits.csv.gz"), "target")
    yield "breast_cancer", "class", 99.12, *dense(shared("breast_cancer.csv.gz"), "target")
    yield "california", "number", 69412.6, *dense(shared("california.csv.gz"), "medianHouseValue")
    yield "abalone", "number", 2.18759, *dense(shared("abalone.csv.gz"), "rings", one_hot=("sex",))
    yield "diabetes", "number", 57.264, *dense(shared("diabetes.csv.gz"), "target")


def ours(name, task, epochs=None):
    train, test = f"c_{name}", f"c_{name}_test"
    options = f", max_epochs => {epochs}" if epochs else ""
    start = time.perf_counter()
    model = int(psql(f"SET client_min_messages = warning; SELECT train_sgd('{train}'{options})"))
    seconds = time.perf_counter() - start
    if task == "class":
        score = psql(f"SELECT 100 * avg((prediction = label)::int) FROM {test} PREDICT BY {model}")
    else:
        score = psql(f"SELECT sqrt(avg((prediction - label) ^ 2)) FROM {test} PREDICT BY {model}")
    epochs = int(psql(f"SELECT epochs FROM corgipile.models WHERE model_id = {model}"))
    return float(score), seconds, epochs


def scaled(x, xt):
    if sp.issparse(x):
        return x, xt
    s = StandardScaler().fit(x)
    return s.transform(x).astype(np.float32), s.transform(xt).astype(np.float32)


def sklearn(task, x, y, xt, yt, epochs=None):
    x, xt = scaled(x, xt)
    n = epochs or 20
    if task == "class":
        model = SGDClassifier(loss="log_loss", alpha=1e-4 if not sp.issparse(x) else 1e-5, average=True, max_iter=n, tol=None, random_state=1)
    else:
        model = SGDRegressor(alpha=1e-4, average=True, max_iter=n, tol=None, random_state=1)
    scale = 1.0 if task == "class" else y.std()
    target = y if task == "class" else (y - y.mean()) / scale
    start = time.perf_counter()
    model.fit(x, target)
    seconds = time.perf_counter() - start
    p = model.predict(xt)
    score = 100 * np.mean(p == yt) if task == "class" else np.sqrt(np.mean((p * scale + y.mean() - yt) ** 2))
    return score, seconds, n


def liblinear(task, x, y, xt, yt, epochs=None):
    x, xt = scaled(x, xt)
    options = "-s 0 -c 1 -B 1 -q" if task == "class" else "-s 11 -c 1 -p 0 -B 1 -q"
    # It has no epochs: a tolerance, which stops earlier the larger it is (0.01 unless given).
    options += {None: "", 1: " -e 1", 2: " -e 0.3", 5: " -e 0.1"}[epochs]
    scale = 1.0 if task == "class" else y.std()
    target = y if task == "class" else (y - y.mean()) / scale
    prob = problem(target, sp.csr_matrix(x, dtype=np.float64), bias=1)
    start = time.perf_counter()
    model = ll_train(prob, parameter(options))
    seconds = time.perf_counter() - start
    p = np.array(ll_predict([], sp.csr_matrix(xt, dtype=np.float64), model, "-q")[0])
    score = 100 * np.mean(p == yt) if task == "class" else np.sqrt(np.mean((p * scale + y.mean() - yt) ** 2))
    return score, seconds, None


def vw(task, x, y, xt, yt, epochs=None):
    x, xt = scaled(x, xt)
    n = epochs or 20
    classes = np.unique(y)
    binary = len(classes) == 2 and task == "class"
    scale = 1.0 if task == "class" else y.std()

    def write(path, x, y, order):
        x = sp.csr_matrix(x)
        with open(path, "w") as f:
            for i in order:
                row = slice(x.indptr[i], x.indptr[i + 1])
                if task == "number":
                    label = (y[i] - mean) / scale
                elif binary:
                    label = 1 if y[i] == classes[1] else -1
                else:
                    label = int(np.searchsorted(classes, y[i])) + 1
                f.write(f"{label} | " + " ".join(f"{k}:{v:.6g}" for k, v in zip(x.indices[row], x.data[row])) + "\n")

    mean = y.mean()
    loss = "--loss_function logistic" if task == "class" else "--loss_function squared"
    many = "" if binary or task == "number" else f"--oaa {len(classes)}"
    with tempfile.TemporaryDirectory() as d:
        # Vowpal Wabbit does not shuffle: it gets the rows shuffled.
        write(f"{d}/train", x, y, np.random.default_rng(1).permutation(len(y)))
        write(f"{d}/test", xt, yt, range(len(yt)))
        start = time.perf_counter()
        Workspace(f"-d {d}/train --passes {n} --cache_file {d}/cache --holdout_off {loss} {many} -b 22 -f {d}/model --quiet").finish()
        seconds = time.perf_counter() - start
        Workspace(f"-t -d {d}/test -i {d}/model -p {d}/out --quiet").finish()
        p = np.array([float(line.split()[0]) for line in open(f"{d}/out")])
    if task == "number":
        return np.sqrt(np.mean((p * scale + mean - yt) ** 2)), seconds, n
    if binary:
        p = np.where(p > 0, classes[1], classes[0])
    else:
        p = classes[np.clip(p.astype(int) - 1, 0, len(classes) - 1)]
    return 100 * np.mean(p == yt), seconds, n


def per_epoch():
    """Milliseconds an epoch: our kernel alone (CPU time of the read thread), the whole statement, and
    scikit-learn's SGD with the data in memory, on the same tuples, log_loss."""
    rng = np.random.default_rng(1)
    x, y = svm(os.path.join(ROOT, "data", "a9a.libsvm.gz"), 123)
    made = [("a9a ten times, 14 of 123 sparse", sp.vstack([x] * 10).tocsr(), np.tile(y, 10))]
    for n, dims in ((400_000, 28), (200_000, 90), (30_000, 784), (12_000, 2000)):
        x = rng.normal(size=(n, dims)).astype(np.float32)
        y = np.where(x @ rng.normal(size=dims) + rng.normal(size=n) * np.sqrt(dims) > 0, 1, -1)
        made.append((f"{n:,} × {dims} dense", x, y))
    for name, x, y in made:
        load("c_epoch", "number", x, y)
        psql("VACUUM ANALYZE c_epoch")
        features = "features_k, features_v" if sp.issparse(x) else "features_v"
        n = 10
        query = f"""SET corgipile.memory_limit = '1GB'; EXPLAIN (ANALYZE, TIMING %s, FORMAT JSON) SELECT corgipile.sgd(label, {features},
            '{{"max_epochs": {n}, "tolerance": 0, "loss": "log_loss", "learning_rate": 0.001}}') FROM c_epoch"""
        # With timing every tuple goes through the executor: the whole is taken without.
        kernel = json.loads(psql(query % "ON"))[0]["Plan"]["SGD CPU Time"] / n
        whole = json.loads(psql(query % "OFF"))[0]["Execution Time"] / n
        model = SGDClassifier(loss="log_loss", alpha=1e-4, average=False, max_iter=n, tol=None, random_state=1)
        start = time.perf_counter()
        model.fit(x, y)
        peer = (time.perf_counter() - start) / n * 1e3
        psql("DROP TABLE c_epoch")
        yield f"| {name} | {kernel:.1f} | {whole:.1f} | {peer:.1f} | {peer / kernel:.1f} | {peer / whole:.1f} |"


def time_to_best(name, task, data, full):
    """Seconds of the shortest run of each program that comes within 0.5 % of the best result of all."""
    runs = [[result] for result in full]
    for epochs in (1, 2, 5):
        runs[0].append(ours(name, task, epochs))
        for i, (_, run) in enumerate(PEERS):
            if full[i + 1]:
                runs[i + 1].append(run(task, *data, epochs))
    results = [r for of_one in runs for r in of_one if r]
    best = max(r[0] for r in results) if task == "class" else min(r[0] for r in results)
    enough = (lambda r: r[0] >= best * 0.995) if task == "class" else (lambda r: r[0] <= best * 1.005)
    return [min((r[1] for r in of_one if r and enough(r)), default=None) for of_one in runs]


PEERS = [("scikit-learn SGD", sklearn), ("LIBLINEAR", liblinear), ("Vowpal Wabbit", vw)]


def plot(rows, path):
    """Seconds of each program on each data set, as bars on a logarithmic axis."""
    names = ["corgipile"] + [name for name, _ in PEERS]
    colours = ["#c0392b", "#2980b9", "#27ae60", "#8e44ad"]
    width, bar, left = 760, 9, 120
    height = 50 + len(rows) * (bar * len(names) + 12)
    low, high = -2.5, 2.5
    x = lambda s: left + (np.log10(max(s, 10**low)) - low) / (high - low) * (width - left - 20)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">']
    out.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    for e in range(-2, 3):
        out.append(f'<line x1="{x(10.0**e):.0f}" y1="35" x2="{x(10.0**e):.0f}" y2="{height - 5}" stroke="#ddd"/>')
        out.append(f'<text x="{x(10.0**e):.0f}" y="32" text-anchor="middle">{10.0**e:g} s</text>')
    for i, (name, colour) in enumerate(zip(names, colours)):
        out.append(f'<rect x="{left + i * 150}" y="6" width="10" height="10" fill="{colour}"/><text x="{left + 14 + i * 150}" y="15">{name}</text>')
    for r, (name, results) in enumerate(rows):
        y = 44 + r * (bar * len(names) + 12)
        out.append(f'<text x="{left - 6}" y="{y + bar * len(names) / 2 + 4}" text-anchor="end">{name}</text>')
        for i, (result, colour) in enumerate(zip(results, colours)):
            if result:
                out.append(f'<rect x="{left}" y="{y + i * bar}" width="{max(1, x(result[1]) - left):.1f}" height="{bar - 1}" fill="{colour}"/>')
    open(path, "w").write("\n".join(out + ["</svg>\n"]))


def main():
    psql("CREATE EXTENSION IF NOT EXISTS corgipile")
    lines, rows, missed, races = [], [], [], []
    epochs = list(per_epoch())
    print("\n".join(epochs), flush=True)
    for name, task, reference, x, y, xt, yt in sets():
        for suffix, a, b in (("", x, y), ("_test", xt, yt)):
            load(f"c_{name}{suffix}", task, a, b)
        psql("VACUUM ANALYZE")
        results = [ours(name, task)]
        for peer, run in PEERS:
            try:
                results.append(run(task, x, y, xt, yt))
            except Exception as e:  # a peer that cannot do a task is a gap in the table
                print(f"{name}: {peer}: {e}", file=sys.stderr)
                results.append(None)
        unit = "%" if task == "class" else ""
        show = lambda r: "–" if r is None else f"{r[0]:.2f}{unit} in {r[1]:.2f} s"
        good = results[0][0] >= reference - 0.5 if task == "class" else results[0][0] <= reference * 1.02
        if not good:
            missed.append(name)
        line = f"| {name} | {x.shape[0]:,} × {x.shape[1]:,} | {len(np.unique(y)) if task == 'class' else 'number'} | {reference:.2f}{unit} | **{show(results[0])}**, {results[0][2]} epochs | " + " | ".join(show(r) for r in results[1:]) + " |"
        print(line, flush=True)
        lines.append(line)
        rows.append((name, results))
        race = time_to_best(name, task, (x, y, xt, yt), results)
        races.append(f"| {name} | " + " | ".join("not reached" if s is None else f"{s:.2f}" for s in race) + " |")
        print(races[-1], flush=True)
        psql(f"DROP TABLE c_{name}, c_{name}_test")
    os.makedirs(f"{ROOT}/docs", exist_ok=True)
    plot(rows, f"{ROOT}/docs/comparison.svg")
    with open(f"{ROOT}/docs/comparison.md", "w") as f:
        f.write("# Comparison with other trainers\n\n")
        f.write("Written by `benches/compare/run.sh`: the same data, the same machine, the same run. Accuracy on the test\n")
        f.write("set in percent (for numbers: RMSE), and seconds. corgipile: `train_sgd(table, target)` with defaults only,\n")
        f.write("on a table clustered by label, the whole statement, from PostgreSQL's pages to the stored model (two threads).\n")
        f.write("The others: fitting only, data in memory in their own form (Vowpal Wabbit: from a shuffled file), one thread,\n")
        f.write("20 passes or to convergence, dense features standardised for them. More than two classes: softmax here,\n")
        f.write("one-against-rest there. The reference is a batch solver's (LogisticRegression, LinearRegression).\n\n")
        f.write("| data | train | classes | reference | corgipile | " + " | ".join(n for n, _ in PEERS) + " |\n|---|---|---|---|---|---|---|---|\n")
        f.write("\n".join(lines) + "\n\n")
        f.write("Within half a point (2 % of the RMSE) of the reference: " + ("all." if not missed else f"all but {', '.join(missed)}.") + "\n\n")
        f.write("![seconds by data set](comparison.svg)\n\n")
        f.write("## Time to the best\n\n")
        f.write("Seconds of the shortest run of each, among 1, 2, 5 and 20 epochs (LIBLINEAR: tolerances 1, 0.3, 0.1 and its\n")
        f.write("own), whose result on the test set is within 0.5 % of the best that any of them reached.\n\n")
        f.write("| data | corgipile | " + " | ".join(n for n, _ in PEERS) + " |\n|---|---|---|---|---|\n")
        f.write("\n".join(races) + "\n\n")
        f.write("## Time of an epoch\n\n")
        f.write("Milliseconds, log_loss, the same tuples: the kernel alone (CPU time of the read thread), the whole statement\n")
        f.write("(reading pages, detoasting, shuffling, training in two threads), scikit-learn's SGDClassifier on data in memory.\n\n")
        f.write("| tuples | kernel | statement | scikit-learn | × kernel | × statement |\n|---|---|---|---|---|---|\n")
        f.write("\n".join(epochs) + "\n")


main()

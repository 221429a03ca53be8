"""Tables for the evaluation: the shapes of the papers' data sets, made by a model of known accuracy, and
the real data of the repository. Every set comes clustered by label; some also in other orders."""
import gzip, os
from statistics import NormalDist

import numpy as np


def gaussian(rng, n, dims, accuracy):
    """Two normal classes whose means differ so that the best linear rule has this accuracy; means away
    from zero and scales of their own, or the order of the tuples would hardly matter."""
    y = np.where(rng.random(n) < 0.5, 1, -1)
    direction = rng.normal(size=dims)
    direction *= NormalDist().inv_cdf(accuracy) / np.linalg.norm(direction)
    model = np.random.default_rng(7)
    offset, scale = model.normal(size=dims), model.uniform(0.5, 2, dims)
    x = (rng.normal(size=(n, dims)) + y[:, None] * direction + offset) * scale
    return y, x.astype(np.float32)


def fields(rng, n, count=39, vocabulary=1_000_000):
    """Categorical fields, one active feature in each, as in click logs; log-odds add up."""
    size = vocabulary // count
    model = np.random.default_rng(9)
    weight = model.normal(size=vocabulary) * 0.35
    # Popular values come first in each field (Zipf).
    rank = np.minimum((size ** rng.random((n, count))).astype(int), size) - 1
    k = rank + np.arange(count) * size
    odds = weight[k].sum(axis=1) - 1.0
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-odds)), 1, -1)
    return y, k + 1


def made(name, n, dims, accuracy):
    def rows():
        rng = np.random.default_rng(3)
        if name == "criteo":
            y, k = fields(rng, n)
            value = "{" + ",".join(["0.16"] * k.shape[1]) + "}"
            for i in np.argsort(y, kind="stable"):
                yield f"{i}\t{{{','.join(map(str, k[i]))}}}\t{value}\t{y[i]}\n"
        else:
            y, x = gaussian(rng, n, dims, accuracy)
            for i in np.argsort(y, kind="stable"):
                yield f"{i}\t\\N\t{{{','.join(f'{a:.6g}' for a in x[i])}}}\t{y[i]}\n"
    return rows


def real(path):
    def rows():
        with gzip.open(path, "rt") as f:
            lines = [line.split() for line in f]
        lines.sort(key=lambda line: float(line[0]))
        for i, line in enumerate(lines):
            pairs = [pair.split(":") for pair in line[1:]]
            if "higgs" in path:
                dense = ["0"] * 28
                for k, v in pairs:
                    dense[int(k) - 1] = v
                yield f"{i}\t\\N\t{{{','.join(dense)}}}\t{float(line[0]):g}\n"
            else:
                yield f"{i}\t{{{','.join(k for k, _ in pairs)}}}\t{{{','.join(v for _, v in pairs)}}}\t{float(line[0]):g}\n"
    return rows


def sets(root, scale):
    """name -> (rows, sparse, learning rate of plain SGD or None for 1/(4·dims), dims)."""
    n = lambda count: max(1000, int(count * scale))
    return {
        "higgs": (made("higgs", n(300_000), 28, 0.642), False, None, 28),
        "susy": (made("susy", n(300_000), 18, 0.787), False, None, 18),
        "epsilon": (made("epsilon", n(30_000), 2000, 0.902), False, None, 2000),
        "criteo": (made("criteo", n(200_000), 1_000_000, None), True, 0.5, 1_000_000),
        "yfcc": (made("yfcc", n(10_000), 4096, 0.965), False, None, 4096),
        "shifted": (made("shifted", n(300_000), 10, 0.785), False, None, 10),
        "a9a": (real(os.path.join(root, "data", "a9a.libsvm.gz")), True, 0.01, 123),
        "higgs_real": (real(os.path.join(root, "data", "higgs.libsvm.gz")), False, None, 28),
    }

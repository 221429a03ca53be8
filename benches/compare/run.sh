#!/usr/bin/env bash
# Compares train_sgd with scikit-learn, LIBLINEAR and Vowpal Wabbit on the same data in the same run,
# one thread each for the peers. Writes docs/comparison.md and docs/comparison.svg.
#   benches/compare/run.sh [DIRECTORY of data sets]
# The directory is optional: without it only the repository's own data are used.
. "$(dirname "$0")/../../scripts/lib.sh"
"$root/scripts/setup.sh"
"$root/scripts/build.sh"
install_tree
venv=$root/target/compare-venv
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import sklearn, liblinear, vowpalwabbit' 2>/dev/null; then
    python3 -m venv "$venv" || die "python3-venv is needed"
    "$venv/bin/pip" -q install numpy scipy scikit-learn liblinear-official vowpalwabbit
fi
temporary_server "shared_buffers = 2GB" "max_wal_size = 4GB"
export PATH=$PGBIN:$PATH
# Some machines choose a slow kernel for older processors: the peers get the best there is.
env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
    "$venv/bin/python" "$root/benches/compare/compare.py" "$root" "${1:-}"

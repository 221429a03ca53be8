#!/usr/bin/env bash
# Debian's scikit-learn, for the tests that load models into it. Where it cannot be had this says so, and they are skipped.
. "$(dirname "$0")/lib.sh"
there() { /usr/bin/python3 -c 'import sklearn' 2>/dev/null; }
if ! there && [ "$(id -u)" = 0 ]; then
    say "installing python3-sklearn"
    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qqy install --no-install-recommends python3-sklearn >/dev/null 2>&1 || true
fi
there || say "scikit-learn is not there (python3-sklearn): tests that need it are skipped"

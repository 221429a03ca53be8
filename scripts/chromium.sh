#!/usr/bin/env bash
# Debian's Chromium, for the test that opens a report in it. Where it cannot be had this says so, and that is skipped.
. "$(dirname "$0")/lib.sh"
there() { chromium --version >/dev/null 2>&1; }
if ! there && [ "$(id -u)" = 0 ]; then
    say "installing chromium"
    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qqy install --no-install-recommends chromium >/dev/null 2>&1 || true
fi
there || say "chromium is not there: the test that needs it is skipped"

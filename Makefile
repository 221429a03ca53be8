# Everything a newcomer needs: `make demo` and `make test`. Each target sets up what it needs.
.PHONY: setup build demo server psql stop load test lint bench bench-plumber evaluate postgres-regress smith fuzz package clean
CARGO_FLAGS := --ignore-rust-version

setup:
	@scripts/setup.sh

build: setup
	@scripts/build.sh

demo: build
	@scripts/demo.sh

server: build
	@scripts/lasting_server.sh start

psql: server
	@scripts/lasting_server.sh psql

stop:
	@scripts/lasting_server.sh stop

# make load FILE=data.libsvm[.gz] TABLE=name [DIMS=28 for dense rows]
load: server
	@scripts/lasting_server.sh load "$(FILE)" "$(TABLE)" "$(DIMS)"

test: setup
	@scripts/test.sh

lint: setup
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets $(CARGO_FLAGS) --release -- -D warnings

bench: setup
	cargo bench -p corgipile_core $(CARGO_FLAGS)

# Predicted against measured throughput, and the automatic sizes against a grid: writes docs/plumber.md
bench-plumber: setup
	@benches/plumber/run.sh

# make evaluate [SCALE=1]: the papers' evaluation on this machine, minutes; goes on where it was interrupted
evaluate: setup
	@SCALE="$(or $(SCALE),1)" benches/evaluate/run.sh

# PostgreSQL's own regression suite with and without the library, and random queries against it
postgres-regress: build
	@scripts/postgres_regress.sh

smith: build
	@scripts/smith.sh

# Random texts and bytes for what reads them: make fuzz [SECONDS_EACH=60]
fuzz: setup
	@SECONDS_EACH="$(or $(SECONDS_EACH),60)" scripts/fuzz.sh

package: build
	@scripts/package.sh

clean: stop
	cargo clean

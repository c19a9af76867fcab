# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal --durations=10

# Threads that spin while they wait take their time from whatever else runs on the machine.
export OMP_WAIT_POLICY ?= passive

.PHONY: demo test test-other-sums test-exhaustive lint docs clean

# One environment serves both; it is made again only when what it installs has changed.
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/python calib_data/digits.py --out build/digits
	$(BIN)/star-export compile --recipe engines/demo.toml --method matching,tome,star,a-star --mac-reduction 0.4 \
	  --max-images 16 --max-eval-images 300 --rounds 10 --out build/demo

test: $(VENV)/.installed
	$(PYTEST)

# Where sums take part, once more with MKL's kernels for any CPU: they sum in another order, on which no test may lean.
SUMS := tests/core/vit tests/models tests/depth tests/core/prune \
  $(addprefix tests/core/lower/test_,adaptive.py lone_layer.py merging.py missing_parts.py outputs.py pooled.py) \
  $(addprefix tests/jobs/test_,finetune.py opened.py proof.py steps.py)
test-other-sums: $(VENV)/.installed
	MKL_CBWR=COMPATIBLE $(PYTEST) $(SUMS) -k 'not preprocessing and not weights and not class_names'

# What `make test` leaves out: the same checks on further models, and whole documents. CI runs both.
test-exhaustive: $(VENV)/.installed
	$(PYTEST) -m exhaustive

lint: $(VENV)/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(VENV)/.installed
	PYTHONPATH=. $(BIN)/mkdocs build

clean:
	rm -rf build $(VENV)

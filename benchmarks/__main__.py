"""Runs all measurements: `make bench`."""

from benchmarks import attention, timing

if __name__ == "__main__":
    print(timing.where(), flush=True)
    for measure in (attention.multi_head, attention.additive):
        print(f"\n{measure()}", flush=True)

"""The laboratory: synthetic worlds, the mesh in one process, demand for live cities, benchmarks, the paper's
experiments. Needs the extra `lab`; no other part of the package imports it."""

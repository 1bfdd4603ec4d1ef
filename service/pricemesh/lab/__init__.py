"""The laboratory: synthetic worlds, the mesh in one process, and what one makes of its results."""

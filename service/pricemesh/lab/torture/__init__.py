"""Whole meshes with faults, simulated from a seed: the real code on a virtual clock, network and disk."""

"""Small modules under the names that programs for pyzmq import."""

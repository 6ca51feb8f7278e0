"""Small modules under the names that pyzmq's programs import."""

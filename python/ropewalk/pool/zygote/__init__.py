"""The module that only a zygote runs."""

"""What only a zygote runs."""

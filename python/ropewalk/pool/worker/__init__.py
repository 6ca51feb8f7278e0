"""What a worker runs, and its zygote before the fork."""

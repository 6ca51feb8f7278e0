"""What only the program that makes a pool loads."""

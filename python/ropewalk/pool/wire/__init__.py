"""What the parent, the zygote and the workers load: how calls, results and surroundings travel between them."""

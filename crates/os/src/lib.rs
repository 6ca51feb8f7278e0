//! Every raw system call that Windlass makes.

"""Several pools by name, and the routing of tasks to them: `Runtime`, its configuration and its routes."""

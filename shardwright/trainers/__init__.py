"""What feeds each training framework. Each file imports its own framework, and only when it is imported itself."""

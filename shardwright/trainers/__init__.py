"""Feed training frameworks: one module per framework, which imports that framework."""

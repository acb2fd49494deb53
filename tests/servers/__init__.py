"""Object stores on this machine for tests and benchmarks: versitygw and moto, fake-gcs-server."""

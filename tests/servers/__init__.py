"""Real object stores on this machine, for tests and benchmarks: versitygw and moto for S3, fake-gcs-server for GCS."""

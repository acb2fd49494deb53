"""Storage: local files, S3, Google Cloud Storage, Azure, and web servers (read-only).

Everything else uses `Folder`. Local files go through `local`, objects through obstore with one
client per process and bucket (`clients`). Clients find their credentials (`credentials`), retry
transient errors and raise typed errors (`faults`).
"""

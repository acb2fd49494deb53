"""Histories of datasets in a store: real code over a simulated store, clock and scheduler."""

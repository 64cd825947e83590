"""Mutation testing: small faults put into the sources, and whether the tests notice them."""

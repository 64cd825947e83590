"""One folder a backend; none knows of another."""

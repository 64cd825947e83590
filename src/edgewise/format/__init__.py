"""The files that programs are written to and read from, field by field. Takes no torch."""

"""TFLite files: what NXP's converter reads and writes."""

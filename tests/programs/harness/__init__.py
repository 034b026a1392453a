"""Runs real OpenCL programs natively and through Grus, and compares what they do."""

"""The format of a graph in object storage: written, read by ranges, and kept fresh beside a live graph."""

"""The parts that HTTP processes of LiveGNN share, below server, workers and functions."""

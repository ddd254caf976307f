"""What every HTTP process of LiveGNN shares, below server, workers and functions."""

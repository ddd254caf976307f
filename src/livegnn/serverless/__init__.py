"""Predictions without a server that runs: a snapshot in object storage, workers that come with requests and
leave when these stop (FaaS-GNN).
"""

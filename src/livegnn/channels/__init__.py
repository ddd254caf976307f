"""Channels: the exchange of rows between the workers that each hold a part of a graph, round by round.

`livegnn.partitions.remote` uses them. The workers of `livegnn.workers` exchange samples by streams.
`livegnn.channels.channel` has the interface and the channels between threads of one process;
`livegnn.channels.zmq` those between processes, which need pyzmq: `pip install 'livegnn[cluster]'`.
"""

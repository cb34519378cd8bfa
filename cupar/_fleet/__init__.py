"""Sharded arrays: records of shards, communication between ranks, and algorithms made of both."""

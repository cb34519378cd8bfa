"""Runs jobs: threads in the background, the queue that feeds them, helper processes, and the pool of these.

The executors of ``concurrent.futures`` do not fit, only their futures do. Its threads are joined when the
interpreter ends, so a program would wait for builds that it no longer wants; its processes import the user's
script, and a crash in one of them breaks the whole pool.
"""

"""Resolved operators, iterators and types: the input of builds."""

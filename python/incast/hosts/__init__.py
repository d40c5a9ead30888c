"""Runs over many hosts: which, how to reach them, and the engines there."""

"""Tests of the Python front end."""

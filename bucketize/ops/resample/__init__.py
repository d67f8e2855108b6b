"""Operators that look at images between their pixels."""

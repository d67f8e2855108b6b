"""The functions of a library, as integer code.

They stand in a folder of their own, for they are read as text and not run here.
"""

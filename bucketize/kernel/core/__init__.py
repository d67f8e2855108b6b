"""The two kernels that every image has: one fills tables, one walks them.

Their files are sources for `kernel.build`, read as text and never imported: what they say must
compile with numba alone. The words of their blocks are named in `program.plan`.
"""

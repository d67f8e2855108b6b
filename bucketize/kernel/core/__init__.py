"""The kernels that every image has: one fills tables, one walks them, one runs groups in strips.

Their files are sources for `kernel.build`, read as text: nobody imports them from here. The words
of their blocks are named in `program.plan`.
"""

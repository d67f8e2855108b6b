"""The kernels that every image has: one fills tables, one walks them, one runs groups in strips.

Their files are sources for `kernel.build`, read as text: nobody imports them from here. They are
integer code, of `emit.integer`: `a[i]` is the word at address a + 8 * i. The words of their blocks
are named in `link.block`.
"""

"""All operators; importing this fills the table in `bucketize.op`.

Each family exports what it declares.
"""

from bucketize.ops.dim import *
from bucketize.ops.dyn.axes import *
from bucketize.ops.dyn.shape import *
from bucketize.ops.elementwise.activation import *
from bucketize.ops.elementwise.arithmetic import *
from bucketize.ops.elementwise.bits import *
from bucketize.ops.elementwise.trigonometry import *
from bucketize.ops.fill import *
from bucketize.ops.index import *
from bucketize.ops.linalg import *
from bucketize.ops.random import *
from bucketize.ops.reduce import *
from bucketize.ops.resample.resize import *
from bucketize.ops.resample.sampling import *
from bucketize.ops.segment import *
from bucketize.ops.selection import *
from bucketize.ops.sequence import *
from bucketize.ops.shape import *
from bucketize.ops.spectrum import *
from bucketize.ops.window.column import *
from bucketize.ops.window.deformed import *
from bucketize.ops.window.image import *
from bucketize.ops.window.transposed import *
from bucketize.ops.window.volume import *

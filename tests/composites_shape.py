"""Shapes that only the run knows, and operands that come at run time."""

from composites import composite

COMPOSITES = [
    # --- several unknown extents -----------------------------------------------------------------
    composite(
        "reshape_two_unknown",
        "A=1,2,5,7,0 B=1,3,2,5,4 C=1,4,3,1,2",
        """(float[A, B, C] x) => (float[P, Q] y, float[R, S, T] z) {
          s = Shape(x)
          a = Gather(s, $[0])
          b = Gather(s, $[1])
          ab = Mul(a, b)
          c = Gather(s, $[2])
          to = Concat<axis = 0>(ab, c)
          y = Reshape<allowzero = 1>(x, to)
          swapped = Concat<axis = 0>(c, b, a)
          z = Reshape<allowzero = 1>(x, swapped)
        }""",
    ),
    composite(
        "reshape_by_operand",
        "N=1,2,5,7,3 M=6,4,2,3,12",
        """(float[N, M] x, int64[3] to) => (float[P, Q, R] y, float[P, R] z) {
          e = Exp(x)
          y = Reshape(e, to)
          z = ReduceSum<keepdims = 0>(y, $[1])
        }""",
        given={"to": "[[0, -1, 1], [-1, 0, 1], [M, 1, N], [1, N, M]][N % 4]"},
    ),
    composite(
        "flatten_unknown",
        "N=1,2,5,7,0 M=1,3,2,5,4",
        """(float[N, M, 3] x, bool[N] keep) => (float[P, Q] y, float[P, 4] z) {
          k = Compress<axis = 0>(x, keep)
          t = Transpose<perm = [0, 2, 1]>(k)
          y = Flatten<axis = 2>(t)
          m = ReduceMax<keepdims = 0>(y, $[0])
          f = Flatten<axis = 1>(k)
          s = ReduceSum<keepdims = 1>(f, $[1])
          z = MatMul(s, $w[1, 4])
        }""",
        given={"keep": "np.arange(N) % 2 == 0"},
    ),
    composite(
        "broadcast_unknown_with_known",
        "N=10,1,10,1,10 M=10,7,1,5,3",
        """(float[N, ?] x, float[10, 10] y, float[M] v) => (float[P, Q] z, float[R, S] w) {
          z0 = Add(x, y)
          z = Relu(z0)
          t = Unsqueeze(v, $[1])
          c = ReduceSum<keepdims = 1>(z, $[0])
          w = Mul(t, c)
        }""",
        given={"x": "rng.standard_normal((N, 10 if M % 2 else 1))"},
    ),
    composite(
        "two_broadcasts_decided_by_the_run",
        "N=1,1,5,5,7 M=1,4,1,4,7",
        """(float[N, ?] x, float[?, M] y) => (float[P, Q] z, float[P] s) {
          a = Sub(x, y)
          z = Tanh(a)
          s = ReduceMean<keepdims = 0>(z, $[1])
        }""",
        given={
            "x": "rng.standard_normal((N, M if N % 2 else 1))",
            "y": "rng.standard_normal((N if M % 2 else 1, M))",
        },
    ),
    composite(
        "arange_then_sum",
        "i=0,1,2,7,13",
        """(int64 n, float[i] x) => (float s, int64[i] r) {
          f = Cast<to = 1>(n)
          a = Range($0.0, f, $1.0)
          b = Mul(a, x)
          s = ReduceSum<keepdims = 0>(b)
          l = Shape(x)
          q = Squeeze(l, $[0])
          r = Range($0, q, $1)
        }""",
        given={"n": "i"},
    ),
    composite(
        "range_of_the_run",
        "N=1,2,5,7,11",
        """(int64 start, int64 stop, int64 step, float[N] x) => (int64[P] r, float[P, N] y) {
          r = Range(start, stop, step)
          f = Cast<to = 1>(r)
          c = Unsqueeze(f, $[-1])
          y = Mul(c, x)
        }""",
        given={"start": "N - 3", "stop": "2 * N", "step": "1 + N % 3"},
    ),
    # --- operands known only to the run ----------------------------------------------------------
    composite(
        "slice_by_operands",
        "N=1,2,5,7,13 M=4,3,1,5,2",
        """(float[N, M] x, int64[1] begin, int64[1] end) => (float[P, M] y, float[P, Q] z,
          float[Q] t) {
          y = Slice(x, begin, end)
          both = Slice(y, $[0], $[2], $[1], $[1])
          z = Softmax<axis = -1>(both)
          t = ReduceSum<keepdims = 0>(z, $[0])
        }""",
        given={"begin": "[N // 3]", "end": "[N + 1]"},
    ),
    composite(
        "slice_backwards_by_operands",
        "N=2,3,5,7,13 M=4,3,1,5,2",
        """(float[N, M] x, int64[2] begin, int64[2] end, int64[2] axes, int64[2] steps)
          => (float[P, Q] y, float[P] s) {
          y = Slice(x, begin, end, axes, steps)
          e = Exp(y)
          s = ReduceSum<keepdims = 0>(e, $[1])
        }""",
        given={
            "begin": "[-1, 0]",
            "end": "[-100, 2**62]",
            "axes": "[0, 1] if N % 2 else [1, 0]",
            "steps": "[-1, 2]",
        },
    ),
    composite(
        "slice_strided_in_a_loop",
        "N=1,2,5,7,13 M=4,3,1,5,2",
        """(float[N, M] x, int64 rounds) => (float[P, M] y) {
          go = Constant<value = bool {1}>()
          y = Loop(rounds, go, x) <body = b (int64 i, bool c, float[Q, M] h) => (bool d, float[R,
            M] g) {
            d = Identity(c)
            s = Slice(h, $[0], $[1000], $[0], $[2])
            g = Concat<axis = 0>(s, s, x)
          }>
        }""",
        given={"rounds": "N % 4"},
    ),
    composite(
        "topk_by_operand",
        "N=1,2,5,7,3 M=1,3,5,13,4",
        """(float[N, M] x, int64[1] k) => (float[N, P] y, float[N, P] z, float[N] s) {
          y, i = TopK<axis = -1>(x, k)
          e = Exp(x)
          z = GatherElements<axis = 1>(e, i)
          s = ReduceSum<keepdims = 0>(z, $[1])
        }""",
        given={"k": "[(M + 1) // 2]"},
    ),
    composite(
        "topk_of_the_extent",
        "N=1,2,5,7,3 M=1,3,16,13,5",
        """(float[N, M] x) => (float[N, P] y, int64[N, P] i) {
          s = Shape(x)
          m = Gather(s, $[1])
          k = Min(m, $[6])
          y, i = TopK(x, k)
        }""",
    ),
    composite(
        "cumsum_by_operand",
        "N=1,2,5,7,0 M=1,3,5,2,4",
        """(float[N, M] x, int64 axis) => (float[N, M] y, float[M] z) {
          a = CumSum(x, axis)
          y = Tanh(a)
          b = CumSum<exclusive = 1, reverse = 1>(y, axis)
          z = ReduceSum<keepdims = 0>(b, $[0])
        }""",
        given={"axis": "N % 2"},
    ),
    composite(
        "trilu_by_operand",
        "N=1,2,5,7,0 M=1,3,5,2,4",
        """(float[N, M] x, int64 k) => (float[N, M] y, float[N, M] z) {
          y = Trilu<upper = 0>(x, k)
          u = Trilu(x, k)
          z = Softmax(u)
        }""",
        given={"k": "M - N"},
    ),
    composite(
        "unsqueeze_by_operand",
        "N=1,2,5,7,0 M=1,3,5,2,4",
        """(float[N, M] x, int64[1] axis) => (float[P, Q, R] y, float[P, R] z) {
          y = Unsqueeze(x, axis)
          z = ReduceSum<keepdims = 0>(y, $[1])
        }""",
        given={"axis": "[N % 3]"},
    ),
    composite(
        "squeeze_and_reduce_by_operand",
        "N=1,2,5,7,3 M=1,3,5,2,4",
        """(float[N, 1, M] x, int64[1] axes, int64[1] one) => (float[N, M] y, float[P, Q] z,
          float[P, Q] n) {
          y = Squeeze(x, one)
          z = ReduceMean(y, axes)
          n = ReduceL2(y, axes)
        }""",
        given={"axes": "[N % 2]", "one": "[1]"},
    ),
    composite(
        "split_by_operand",
        "N=1,2,5,7,3 M=3,4,5,7,13",
        """(float[N, M] x, int64[2] parts) => (float[N, P] a, float[N, Q] b, float[N] c) {
          a, b0 = Split<axis = 1>(x, parts)
          b = Relu(b0)
          sa = ReduceSum<keepdims = 0>(a, $[1])
          sb = ReduceSum<keepdims = 0>(b, $[1])
          c = Sub(sa, sb)
        }""",
        given={"parts": "[M // 3, M - M // 3]"},
    ),
    composite(
        "split_in_equal_parts",
        "N=1,2,5,7,3 M=3,4,5,7,13",
        """(float[N, M] x) => (float[N, P] a, float[N, P] b, float[N, Q] c) {
          a, b, c = Split<axis = 1, num_outputs = 3>(x)
        }""",
    ),
    composite(
        "expand_by_operand",
        "N=1,2,5,7,0",
        """(float[N, 1] x, int64[2] to) => (float[P, Q] y, float[P] z) {
          y = Expand(x, to)
          e = Exp(y)
          z = ReduceSum<keepdims = 0>(e, $[1])
        }""",
        given={"to": "[1, (3 * N + 1) % 8]"},
    ),
    composite(
        "tile_by_operand",
        "N=1,2,5,7,0 M=1,3,2,1,4",
        """(float[N, M] x, int64[2] times) => (float[P, Q] y, float[Q] z) {
          t = Tile(x, times)
          y = Sin(t)
          z = ReduceSum<keepdims = 0>(y, $[0])
        }""",
        given={"times": "[2, N % 3]"},
    ),
    composite(
        "pad_by_operand",
        "N=1,2,5,7,3 M=1,3,2,1,4",
        """(float[N, M] x, int64[4] pads, float value) => (float[P, Q] y, float[P] z) {
          p = Pad(x, pads, value)
          y = Abs(p)
          z = ReduceSum<keepdims = 0>(y, $[1])
        }""",
        given={"pads": "[1, 0, 0, M]"},
    ),
    composite(
        "pad_to_a_multiple",
        "N=1,2,3,1,2 H=1,4,5,7,13 W=4,3,8,11,1",
        """(float[N, 2, H, W] x) => (float[N, 4, P, Q] y, float[N, 4, R, S] z) {
          s = Shape<start = 2>(x)
          r = Mod(s, $[4])
          over = Sub($[4], r)
          need = Mod(over, $[4])
          pads = Concat<axis = 0>($[0, 0, 0, 0, 0, 0], need)
          p = Pad(x, pads)
          y = Conv<pads = [1, 1, 1, 1]>(p, $w[4, 2, 3, 3])
          z = MaxPool<kernel_shape = [4, 4], strides = [4, 4]>(y)
        }""",
    ),
    composite(
        "one_hot_by_operand",
        "N=1,2,5,7,13 M=1,3,2,1,4",
        """(int64[N, M] x, int64 depth, float[2] values) => (float[N, M, P] y, float[N, P] z) {
          y = OneHot(x, depth, values)
          z = ReduceSum<keepdims = 0>(y, $[1])
        }""",
        given={"depth": "N + 2"},
    ),
    composite(
        "constant_of_shape_by_operand",
        "N=1,2,5,7,13 M=1,3,2,1,4",
        """(float[N, M] x, int64[2] to) => (float[P, Q] y, float[N, M] z) {
          y = ConstantOfShape<value = float[1] {2.5}>(to)
          s = ReduceSum<keepdims = 0>(y)
          z = Mul(x, s)
        }""",
        given={"to": "[M, N % 3]"},
    ),
    composite(
        "gather_nd_by_values",
        "N=2,2,5,7,13 M=1,3,2,1,4",
        """(float[N, M, 3] x, int64[M, 1] at, int64[M, 2] pairs) => (float[M, M, 3] y, float[M,
          3] z) {
          y = GatherND(x, at)
          z = GatherND(x, pairs)
        }""",
        given={
            "at": "rng.integers(0, N, (M, 1))",
            "pairs": "np.stack([rng.integers(0, N, M), rng.integers(0, M, M)], 1)",
        },
    ),
]

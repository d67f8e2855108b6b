"""Shapes that follow from values, and what goes on from there."""

from composites import composite

COMPOSITES = [
    # --- shapes that follow from values ----------------------------------------------------------
    composite(
        "nonzero_then_gather",
        "N=1,2,5,7,0 M=1,3,5,2,4",
        """(float[N, M] x) => (float[P] y, int64[2, P] at, float s) {
          positive = Greater(x, $0.0)
          at = NonZero(positive)
          pairs = Transpose<perm = [1, 0]>(at)
          y0 = GatherND(x, pairs)
          y = Sqrt(y0)
          s = ReduceSum<keepdims = 0>(y)
        }""",
    ),
    composite(
        "boolean_mask",
        "N=1,2,5,7,0 M=1,3,5,2,4",
        """(float[N, M] x, bool[N] keep) => (float[P, 3] y, float[3] total) {
          kept = Compress<axis = 0>(x, keep)
          s = ReduceSum<keepdims = 1>(kept, $[1])
          y = MatMul(s, $w[1, 3])
          total = ReduceSum<keepdims = 0>(y, $[0])
        }""",
        given={"keep": "np.arange(N) % 3 != 1"},
    ),
    composite(
        "unique_and_back",
        "N=1,2,5,7,13",
        """(int64[N] ids, float[16, 4] table) => (float[N, 4] y, float[P, 4] rows, int64[P] count) {
          u, first, back, count = Unique(ids)
          rows0 = Gather(table, u)
          rows = Tanh(rows0)
          y = Gather(rows, back)
        }""",
        given={"ids": "rng.integers(0, 6, N)"},
    ),
    composite(
        "unique_rows_unsorted",
        "N=1,2,5,7,13 M=1,3,5,2,4",
        """(int64[N, M] x) => (int64[P, M] y, float[P] f) {
          y, first, back, count = Unique<axis = 0, sorted = 0>(x)
          g = Cast<to = 1>(y)
          f = ReduceMean<keepdims = 0>(g, $[1])
        }""",
        given={"x": "rng.integers(0, 2, (N, M))"},
        oracle="reference",
    ),
    composite(
        "unique_consecutive",
        "T=1,2,5,7,13 V=3,2,5,7,4",
        """(float[T, V] logits) => (int64[P] labels, float[Q] best) {
          most = ArgMax<axis = 1, keepdims = 0>(logits)
          before = Slice(most, $[0], $[-1])
          first = Concat<axis = 0>($[-1], before)
          same = Equal(most, first)
          blank = Equal(most, $0)
          drop = Or(same, blank)
          keep = Not(drop)
          labels = Compress<axis = 0>(most, keep)
          top = ReduceMax<keepdims = 0>(logits, $[1])
          best = Compress<axis = 0>(top, keep)
        }""",
    ),
    composite(
        "compress_flat_then_matrix",
        "N=1,2,5,7,3 M=1,3,5,2,4",
        """(float[N, M] x, bool[K] keep) => (float[1, P] row, float[P, P] outer) {
          flat = Compress(x, keep)
          row = Unsqueeze(flat, $[0])
          column = Transpose<perm = [1, 0]>(row)
          outer = MatMul(column, row)
        }""",
        given={"keep": "np.arange(N * M) % 2 == 0"},
    ),
    composite(
        "where_then_scatter",
        "N=1,2,5,7,11 M=1,3,5,2,4",
        """(float[N, M] x, float level) => (float[N, M] y) {
          big = Greater(x, level)
          at = NonZero(big)
          pairs = Transpose<perm = [1, 0]>(at)
          values = GatherND(x, pairs)
          logs = Log(values)
          y = ScatterND(x, pairs, logs)
        }""",
        given={"level": "0.1"},
    ),
    composite(
        "one_more_than_came",
        "n=1,2,5,7,0 m=1,3,5,2,4",
        """(float[n] x, float[m] y) => (float[P] z, float[P, m] o, float[Q] d) {
          one = Constant<value = float[1] {1.0}>()
          z = Concat<axis = 0>(x, one)
          c = Unsqueeze(z, $[1])
          o = Mul(c, y)
          d = Concat<axis = 0>(x, y, z)
        }""",
    ),
    composite(
        "grey_or_colour",
        "N=1,2,3,5,7 H=2,3,5,7,1 C=1,3,1,3,3",
        """(float[N, C, H, H] image) => (float[N, 4, H, H] y) {
          to = Constant<value = int64[4] {1, 3, 1, 1}>()
          colour = Expand(image, to)
          y = Conv(colour, $w[4, 3, 1, 1])
        }""",
    ),
    composite(
        "non_max_suppression",
        "N=1,2,5,7,13 C=1,2,3,1,2",
        """(float[1, N, 4] boxes, float[1, C, N] scores) => (int64[P, 3] chosen, float[P, 4] kept,
          float[P] score) {
          chosen = NonMaxSuppression(boxes, scores, $3, $0.4, $0.2)
          i = Slice(chosen, $[2], $[3], $[1])
          at = Squeeze(i, $[1])
          flat = Squeeze(boxes, $[0])
          kept = Gather(flat, at)
          score = GatherND(scores, chosen)
        }""",
        given={
            "boxes": "np.sort(rng.random((1, N, 2, 2)), 2).reshape(1, N, 4)",
            "scores": "rng.random((1, C, N))",
        },
    ),
    composite(
        "detection_head",
        "N=2,3,5,7,13",
        """(float[N, 4] deltas, float[N, 4] anchors, float[N] logits, int64[1] most) => (float[P,
          4] boxes, float[P] scores) {
          p = Sigmoid(logits)
          s = Shape(p)
          k = Min(s, most)
          best, i = TopK(p, k)
          d = Gather(deltas, i)
          a = Gather(anchors, i)
          moved = Add(d, a)
          low, high = Split<axis = 1, num_outputs = 2>(moved)
          l = Min(low, high)
          h = Max(low, high)
          b0 = Concat<axis = 1>(l, h)
          b = Clip(b0, $-2.0, $2.0)
          b3 = Unsqueeze(b, $[0])
          s3 = Unsqueeze(best, $[0, 1])
          chosen = NonMaxSuppression(b3, s3, $100, $0.5)
          c = Slice(chosen, $[2], $[3], $[1])
          at = Squeeze(c, $[1])
          boxes = Gather(b, at)
          scores = Gather(best, at)
        }""",
        given={"most": "[1 + N // 2]"},
    ),
]

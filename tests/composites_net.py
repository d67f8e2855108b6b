"""Parts of networks: norms, means, pooling, images, and old forms of operators."""

from composites import composite

COMPOSITES = [
    # --- norms, means and pooling ----------------------------------------------------------------
    composite(
        "masked_mean",
        "B=1,2,3,5,0 S=1,2,5,7,13",
        """(float[B, S, 4] x, bool[B, S] keep) => (float[B, 4] mean, float[B, 4] most) {
          k = Unsqueeze(keep, $[2])
          f = Cast<to = 1>(k)
          xk = Mul(x, f)
          s = ReduceSum<keepdims = 0>(xk, $[1])
          n = ReduceSum<keepdims = 0>(f, $[1])
          one = Max(n, $1.0)
          mean = Div(s, one)
          hidden = Where(k, x, $-100.0)
          most = ReduceMax<keepdims = 0>(hidden, $[1])
        }""",
    ),
    composite(
        "mean_and_variance",
        "N=1,2,3,5,7 S=2,2,5,7,13",
        """(float[N, S] x) => (float[N, S] y, float[N] s) {
          m = ReduceMean(x, $[1])
          d = Sub(x, m)
          sq = Mul(d, d)
          v = ReduceMean(sq, $[1])
          e = Add(v, $0.01)
          r = Sqrt(e)
          y = Div(d, r)
          s = ReduceLogSumExp<keepdims = 0>(y, $[1])
        }""",
    ),
    composite(
        "softmax_over_a_symbol",
        "N=1,2,3,5,0 S=1,2,5,7,13",
        """(float[N, S] x) => (float[N, S] y, float[N, S] z, float[N, 3] w) {
          y = Softmax<axis = 0>(x)
          z = LogSoftmax<axis = 1>(x)
          e = Softmax(x)
          s = ReduceSum<keepdims = 1>(e, $[1])
          w = MatMul(s, $w[1, 3])
        }""",
    ),
    composite(
        "residual_block",
        "N=1,2,1,3,2 H=3,4,5,7,13 W=2,9,5,8,11",
        """(float[N, 4, H, W] x) => (float[N, 4, H, W] y, float[N, 3] z) {
          c = Conv<pads = [1, 1, 1, 1]>(x, $w[4, 4, 3, 3])
          b = BatchNormalization(c, $w[4], $w[4], $w[4], one)
          r = Relu(b)
          d = Conv<pads = [1, 1, 1, 1]>(r, $w[4, 4, 3, 3])
          a = Add(d, x)
          y = Relu(a)
          g = GlobalAveragePool(y)
          f = Flatten(g)
          z = Gemm(f, $w[4, 3], $w[3])
        }""".replace(
            "c = Conv", "one = Constant<value = float[4] {1.0, 2.0, 0.5, 1.5}>()\n c = Conv", 1
        ),
    ),
    composite(
        "squeeze_and_excite",
        "N=1,2,1,3,2 H=3,4,5,7,13 W=2,9,5,8,11",
        """(float[N, 4, H, W] x) => (float[N, 4, H, W] y, float[N, 4] m) {
          g = ReduceMean(x, $[2, 3])
          c = Conv(g, $w[2, 4, 1, 1])
          r = Relu(c)
          d = Conv(r, $w[4, 2, 1, 1])
          s = HardSigmoid(d)
          y = Mul(x, s)
          p = GlobalMaxPool(y)
          m = Flatten(p)
        }""",
    ),
    composite(
        "inception_with_lrn",
        "N=1,2,1,3,2 H=4,5,6,7,13 W=5,9,5,8,11",
        """(float[N, 3, H, W] x) => (float[N, 8, P, Q] y, float[N, 8] z) {
          s = Conv<pads = [1, 1, 1, 1]>(x, $w[4, 3, 3, 3])
          p = MaxPool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(s)
          l = LRN<size = 3, alpha = 0.0002, beta = 0.75>(p)
          a = Conv(l, $w[2, 4, 1, 1])
          b0 = Conv(l, $w[2, 4, 1, 1])
          b1 = Relu(b0)
          b = Conv<pads = [1, 1, 1, 1]>(b1, $w[2, 2, 3, 3])
          c0 = Conv(l, $w[2, 4, 1, 1])
          c = Conv<pads = [2, 2, 2, 2]>(c0, $w[2, 2, 5, 5])
          d0 = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(l)
          d = Conv(d0, $w[2, 4, 1, 1])
          y = Concat<axis = 1>(a, b, c, d)
          g = GlobalAveragePool(y)
          z = Flatten(g)
        }""",
    ),
    composite(
        "group_and_instance_norm",
        "N=1,2,1,3,2 H=3,4,5,7,13 W=2,9,5,8,11",
        """(float[N, 4, H, W] x) => (float[N, 4, H, W] y, float[N, 4, H, W] z) {
          y = GroupNormalization<num_groups = 2>(x, $w[4], $w[4])
          z = InstanceNormalization(y, $w[4], $w[4])
        }""",
        opset=21,
    ),
    composite(
        "pooling_of_odd_images",
        "N=1,2,1,3,0 H=3,4,5,7,13 W=4,9,5,8,11",
        """(float[N, 2, H, W] x) => (float[N, 2, P, Q] a, float[N, 2, R, S] b, float[N, 2, T] c) {
          a = AveragePool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x)
          b = MaxPool<kernel_shape = [2, 3], strides = [2, 1], dilations = [1, 1]>(x)
          c = ReduceMax<keepdims = 0>(b, $[2])
        }""",
    ),
    composite(
        "vision_transformer",
        "N=1,2,1,3,2 H=4,8,12,4,8 W=4,4,8,12,16",
        """(float[N, 3, H, W] x, float[1, 8] head) => (float[N, T, 8] y, float[N, 8] first) {
          p = Conv<strides = [4, 4]>(x, $w[8, 3, 4, 4])
          s = Shape(p)
          to0 = Slice(s, $[0], $[2])
          to = Concat<axis = 0>(to0, $[-1])
          f = Reshape(p, to)
          t = Transpose<perm = [0, 2, 1]>(f)
          n = Gather(s, $[0])
          wide = Concat<axis = 0>(n, $[1, 8])
          c = Expand(head, wide)
          all = Concat<axis = 1>(c, t)
          q = MatMul(all, $w[8, 8])
          kt = Transpose<perm = [0, 2, 1]>(q)
          qk = MatMul(q, kt)
          a = Softmax(qk)
          o = MatMul(a, q)
          y = LayerNormalization(o, $w[8], $w[8])
          first = Gather<axis = 1>(y, $0)
        }""",
    ),
    composite(
        "depth_to_space_and_back",
        "N=1,2,1,3,0 H=2,4,6,10,2 W=4,2,6,8,14",
        """(float[N, 4, H, W] x) => (float[N, 1, P, Q] y, float[N, R, S, T] z) {
          y = DepthToSpace<blocksize = 2>(x)
          e = Exp(y)
          z = SpaceToDepth<blocksize = 4>(e)
        }""",
    ),
    composite(
        "focus_slices",
        "N=1,2,1,3,2 H=2,4,6,10,14 W=4,2,6,8,10",
        """(float[N, 3, H, W] x) => (float[N, 4, P, Q] y) {
          a = Slice(x, $[0, 0], $[100, 100], $[2, 3], $[2, 2])
          b = Slice(x, $[1, 0], $[100, 100], $[2, 3], $[2, 2])
          c = Slice(x, $[0, 1], $[100, 100], $[2, 3], $[2, 2])
          d = Slice(x, $[1, 1], $[100, 100], $[2, 3], $[2, 2])
          f = Concat<axis = 1>(a, b, c, d)
          y = Conv(f, $w[4, 12, 1, 1])
        }""",
    ),
    composite(
        "same_padding",
        "N=1,2,1,3,2 H=3,4,5,7,13 W=4,9,5,8,11",
        """(float[N, 2, H, W] x) => (float[N, 4, P, Q] y, float[N, 4, R, S] z) {
          y = Conv<auto_pad = "SAME_UPPER", strides = [2, 2]>(x, $w[4, 2, 3, 3])
          z = MaxPool<auto_pad = "SAME_LOWER", kernel_shape = [2, 2], strides = [2, 2]>(y)
        }""",
    ),
    composite(
        "speech_front",
        "B=1,2,1,3,2 T=9,11,13,14,16",
        """(float[B, 1, T] wave) => (float[B, 3, P] y, float[B, 3] mean) {
          c = Conv<strides = [2]>(wave, $w[4, 1, 5])
          a = Abs(c)
          l0 = Add(a, $1.0)
          l = Log(l0)
          n = InstanceNormalization(l, $w[4], $w[4])
          y = Conv<group = 1, pads = [1, 1], dilations = [1]>(n, $w[3, 4, 3])
          mean = ReduceMean<keepdims = 0>(y, $[2])
        }""",
    ),
    composite(
        "embedding_bag",
        "B=1,2,3,5,0 S=1,2,5,7,13",
        """(int64[B, S] ids, float[B, S] weight) => (float[B, 4] y, int64[B, S] order) {
          e = Gather($w[8, 4], ids)
          w = Softmax(weight)
          w1 = Unsqueeze(w, $[1])
          m = MatMul(w1, e)
          y = Squeeze(m, $[1])
          n = Shape(ids)
          k = Gather(n, $[1])
          v, order = TopK(weight, k)
        }""",
        given={"ids": "rng.integers(-8, 8, (B, S))"},
    ),
    composite(
        "relative_positions",
        "S=1,2,5,7,13",
        """(float[S, 4] x) => (float[S, S] bias, float[S, S] scores) {
          s = Shape(x)
          n = Gather(s, $0)
          r = Range($0, n, $1)
          c = Unsqueeze(r, $[1])
          d = Sub(r, c)
          low = Max(d, $-4)
          high = Min(low, $4)
          at = Add(high, $4)
          b = Gather($w[9], at)
          t = Transpose<perm = [1, 0]>(x)
          q = MatMul(x, t)
          bias = Identity(b)
          scores = Add(q, b)
        }""",
    ),
    composite(
        "segment_sums",
        "N=1,2,5,7,13 M=1,3,5,2,4",
        """(float[N, M] x, int64[N] segment) => (float[4, M] sums, float[4, M] means) {
          hot = OneHot<axis = 0>(segment, $4, ends)
          sums = MatMul(hot, x)
          n = ReduceSum(hot, $[1])
          one = Max(n, $1.0)
          means = Div(sums, one)
        }""".replace("hot = One", "ends = Constant<value = float[2] {0.0, 1.0}>()\n hot = One", 1),
        given={"segment": "rng.integers(0, 4, N)"},
    ),
    composite(
        "half_precision",
        "N=1,2,5,7,0 M=1,3,5,2,4",
        """(float16[N, M] x) => (float16[N, M] y, float[N] s) {
          e = Exp(x)
          f = Cast<to = 1>(e)
          s = ReduceSum<keepdims = 0>(f, $[1])
          h = Cast<to = 10>(f)
          y = Sub(h, x)
        }""",
    ),
    composite(
        "integers_of_all_kinds",
        "N=1,2,5,7,0 M=1,3,5,2,4",
        """(uint8[N, M] a, int32[N, M] b, int64[M] c) => (int64[N, M] y, int32[N] z, uint8[M] w) {
          a32 = Cast<to = 6>(a)
          s = Add(a32, b)
          s64 = Cast<to = 7>(s)
          d = Add(c, $1)
          q = Div(s64, d)
          r = Mod(s64, d)
          y = Sub(q, r)
          z = ReduceSum<keepdims = 0>(s, $[1])
          w = ReduceMax<keepdims = 0>(a, $[0])
        }""",
    ),
    # --- old forms -------------------------------------------------------------------------------
    composite(
        "opset_9_resnet_end",
        "N=1,2,1,3,0 H=3,4,5,7,13 W=2,9,5,8,11",
        """(float[N, 4, H, W] x) => (float[N, 3] y, float[N, 2] b) {
          u = Unsqueeze<axes = [0]>(x)
          v = Squeeze<axes = [0]>(u)
          p = Pad<pads = [0, 0, 1, 1, 0, 0, 1, 1]>(v)
          c = Clip<min = -1.0, max = 1.0>(p)
          m = ReduceMean<axes = [2, 3], keepdims = 0>(c)
          s = Slice<axes = [1], starts = [0], ends = [3]>(m)
          g = Gemm<transB = 1>(s, $w[3, 3], $w[3])
          y = Softmax<axis = 1>(g)
          b, i = TopK<axis = 1, k = 2>(y)
        }""",
        opset=9,
    ),
    composite(
        "opset_9_forms",
        "N=1,2,3,5,7 M=1,3,5,2,4",
        """(float[N, M] x) => (float[N, M] y, float[N, P] z, float[Q, M] w) {
          s = Slice<axes = [0], starts = [0], ends = [-1]>(x)
          w = Concat<axis = 0>(s, x, s)
          e = Flatten<axis = 1>(x)
          y = Softmax<axis = 1>(e)
          a, b = Split<axis = 1, split = [1, 1]>(t)
          z = Sub(a, b)
        }""".replace("a, b =", "t = Concat<axis = 1>(r, r)\n a, b =").replace(
            "s = Sl", "r = ReduceSum<axes = [1], keepdims = 1>(x)\n s = Sl", 1
        ),
        opset=9,
    ),
    composite(
        "opset_11_detector",
        "N=2,3,5,7,13 M=1,3,5,2,4",
        """(float[N, M] x, int64[2] pads) => (float[P] top, float[N, M] y, float[Q] padded) {
          m = ReduceMax<axes = [1], keepdims = 0>(x)
          n = Shape(m)
          half = Div(n, $[2])
          top, i = TopK(m, half)
          padded = Pad(top, pads)
          c = Clip(x, $-0.5, $0.5)
          y = CumSum(c, $0)
        }""",
        opset=11,
        given={"pads": "[1, N % 3]"},
    ),
    composite(
        "opset_12_softmax_of_the_rest",
        "N=1,2,3,5,7 M=1,3,5,2,4 K=2,1,3,2,5",
        """(float[N, M, K] x) => (float[N, M, K] y, float[N, M, K] z, float[N, M, K] w) {
          y = Softmax<axis = 1>(x)
          z = LogSoftmax<axis = 2>(x)
          w = Hardmax<axis = 1>(x)
        }""",
        opset=12,
    ),
    composite(
        "opset_13_forms",
        "N=1,2,3,5,0 M=3,3,6,9,12",
        """(float[N, M] x, float[M] scale) => (float[N, P] a, float[N, P] b, float[N, P] c,
          float[1, N] s) {
          y = Mul(x, scale)
          a, b, c = Split<axis = 1>(y)
          t = ReduceSum<keepdims = 0>(y, $[1])
          s = Unsqueeze(t, $[0])
        }""",
        opset=13,
    ),
    composite(
        "opset_25_forms",
        "N=1,2,3,5,7 M=3,3,6,9,12",
        """(float[N, M] x) => (float[N, M] y, float[M, N] t, float[N] s) {
          t = Transpose<perm = [1, 0]>(x)
          g = Gelu(x)
          y = Swish(g)
          s = ReduceSum<keepdims = 0>(y, $[1])
        }""",
        opset=25,
        oracle="reference",
    ),
    composite(
        "functions_of_the_standard",
        "N=1,2,3,5,7 C=2,3,5,2,4",
        """(float[N, C] scores, int64[N] labels) => (float loss, float[N] each, float[N, C] logp) {
          loss, logp = SoftmaxCrossEntropyLoss(scores, labels)
          each = NegativeLogLikelihoodLoss<reduction = "none">(logp, labels)
        }""",
        given={"labels": "rng.integers(0, C, N)"},
    ),
]

"""Attention: caches, heads in groups, rotary positions, masks, and what is around it."""

from composites import composite

COMPOSITES = [
    # --- attention -------------------------------------------------------------------------------
    composite(
        "attention_with_a_cache",
        "B=1,2,1,3,2 S=1,1,5,7,3 P=0,3,2,0,13",
        """(float[B, S, 8] x, float[B, 2, P, 4] keys, float[B, 2, P, 4] values)
           => (float[B, S, 8] y, float[B, 2, T, 4] k, float[B, 2, T, 4] v) {
          q0 = MatMul(x, $w[8, 16])
          k0 = MatMul(x, $w[8, 8])
          v0 = MatMul(x, $w[8, 8])
          q1 = Reshape(q0, $[0, 0, 4, 4])
          k1 = Reshape(k0, $[0, 0, 2, 4])
          v1 = Reshape(v0, $[0, 0, 2, 4])
          q = Transpose<perm = [0, 2, 1, 3]>(q1)
          k2 = Transpose<perm = [0, 2, 1, 3]>(k1)
          v2 = Transpose<perm = [0, 2, 1, 3]>(v1)
          k = Concat<axis = 2>(keys, k2)
          v = Concat<axis = 2>(values, v2)
          a, pk, pv, sc = Attention(q, k, v)
          t = Transpose<perm = [0, 2, 1, 3]>(a)
          f = Reshape(t, $[0, 0, -1])
          y = MatMul(f, $w[16, 8])
        }""",
        opset=23,
        oracle="reference",
    ),
    composite(
        "grouped_heads_by_hand",
        "B=1,2,1,3,2 S=1,2,5,7,13",
        """(float[B, S, 8] x) => (float[B, S, 8] y) {
          q0 = MatMul(x, $w[8, 16])
          k0 = MatMul(x, $w[8, 8])
          v0 = MatMul(x, $w[8, 8])
          q1 = Reshape(q0, $[0, 0, 4, 4])
          k1 = Reshape(k0, $[0, 0, 2, 4])
          v1 = Reshape(v0, $[0, 0, 2, 4])
          q = Transpose<perm = [0, 2, 1, 3]>(q1)
          k2 = Transpose<perm = [0, 2, 1, 3]>(k1)
          v2 = Transpose<perm = [0, 2, 1, 3]>(v1)
          sh = Shape(x)
          b = Gather(sh, $[0])
          s = Gather(sh, $[1])
          wide = Concat<axis = 0>(b, $[2, 2], s, $[4])
          flat = Concat<axis = 0>(b, $[4], s, $[4])
          k3 = Unsqueeze(k2, $[2])
          k4 = Expand(k3, wide)
          k = Reshape(k4, flat)
          v3 = Unsqueeze(v2, $[2])
          v4 = Expand(v3, wide)
          v = Reshape(v4, flat)
          kt = Transpose<perm = [0, 1, 3, 2]>(k)
          qk = MatMul(q, kt)
          scaled = Mul(qk, $0.5)
          square = Concat<axis = 0>(s, s)
          low = ConstantOfShape<value = float[1] {-1e9}>(square)
          mask = Trilu(low, $1)
          masked = Add(scaled, mask)
          p = Softmax(masked)
          o = MatMul(p, v)
          t = Transpose<perm = [0, 2, 1, 3]>(o)
          to = Concat<axis = 0>(b, s, $[16])
          f = Reshape(t, to)
          y = MatMul(f, $w[16, 8])
        }""",
    ),
    composite(
        "rotary_by_hand",
        "B=1,2,1,3,2 S=1,2,5,7,13 P=0,1,3,2,5",
        """(float[B, S, 8] x, float[P] past) => (float[B, S, 8] y) {
          sh = Shape(x)
          s = Gather(sh, $1)
          ph = Shape(past)
          p = Squeeze(ph, $[0])
          end = Add(p, s)
          at = Range(p, end, $1)
          f = Cast<to = 1>(at)
          c = Unsqueeze(f, $[1])
          angle0 = MatMul(c, $w[1, 4])
          angle = Concat<axis = 1>(angle0, angle0)
          cos = Cos(angle)
          sin = Sin(angle)
          l, r = Split<axis = -1, num_outputs = 2>(x)
          n = Neg(r)
          turned = Concat<axis = -1>(n, l)
          xc = Mul(x, cos)
          ts = Mul(turned, sin)
          y = Add(xc, ts)
        }""",
    ),
    composite(
        "rotary_operator",
        "B=1,2,1,3,2 S=1,2,5,7,13",
        """(float[B, S, 16] x, int64[B, S] at) => (float[B, S, 16] y) {
          y = RotaryEmbedding<num_heads = 2>(x, $w[16, 4], $w[16, 4], at)
        }""",
        opset=23,
        oracle="reference",
        given={"at": "np.arange(B * S).reshape(B, S) % 16"},
    ),
    composite(
        "decoder_layer",
        "B=1,2,1,3,2 S=1,2,5,7,4 P=0,1,3,2,13",
        """(int64[B, S] ids, float[B, 2, P, 4] keys, float[B, 2, P, 4] values)
           => (float[B, S, 16] logits, float[B, 2, T, 4] k, float[B, 2, T, 4] v) {
          x = Gather($w[16, 8], ids)
          sq = Mul(x, x)
          ms = ReduceMean(sq, $[-1])
          ms1 = Add(ms, $0.001)
          rt = Sqrt(ms1)
          n = Div(x, rt)
          q0 = MatMul(n, $w[8, 8])
          k0 = MatMul(n, $w[8, 8])
          v0 = MatMul(n, $w[8, 8])
          q1 = Reshape(q0, $[0, 0, 2, 4])
          k1 = Reshape(k0, $[0, 0, 2, 4])
          v1 = Reshape(v0, $[0, 0, 2, 4])
          q = Transpose<perm = [0, 2, 1, 3]>(q1)
          k2 = Transpose<perm = [0, 2, 1, 3]>(k1)
          v2 = Transpose<perm = [0, 2, 1, 3]>(v1)
          k = Concat<axis = 2>(keys, k2)
          v = Concat<axis = 2>(values, v2)
          kt = Transpose<perm = [0, 1, 3, 2]>(k)
          qk = MatMul(q, kt)
          sh = Shape(ids)
          s = Gather(sh, $1)
          kh = Shape(k)
          total = Gather(kh, $2)
          past = Sub(total, s)
          rows = Range(past, total, $1)
          rows1 = Unsqueeze(rows, $[1])
          columns = Range($0, total, $1)
          hidden = Greater(columns, rows1)
          masked = Where(hidden, $-1e9, qk)
          p = Softmax(masked)
          o = MatMul(p, v)
          t = Transpose<perm = [0, 2, 1, 3]>(o)
          f = Reshape(t, $[0, 0, 8])
          r = Add(f, x)
          g = MatMul(r, $w[8, 16])
          u = Sigmoid(g)
          h = Mul(g, u)
          d = MatMul(h, $w[16, 8])
          e = Add(d, r)
          logits = MatMul(e, $w[8, 16])
        }""".replace("$-1e9", "$-1000000000.0"),
    ),
    composite(
        "encoder_layer_with_a_mask",
        "B=1,2,1,3,2 S=1,2,5,7,13",
        """(float[B, S, 8] x, int64[B, S] mask) => (float[B, S, 8] y, float[B, 8] mean) {
          m1 = Unsqueeze(mask, $[1, 2])
          m2 = Cast<to = 1>(m1)
          m3 = Sub($1.0, m2)
          m = Mul(m3, $-10000.0)
          q = MatMul(x, $w[8, 8])
          q1 = Reshape(q, $[0, 0, 2, 4])
          q2 = Transpose<perm = [0, 2, 1, 3]>(q1)
          kt = Transpose<perm = [0, 2, 3, 1]>(q1)
          qk = MatMul(q2, kt)
          a = Add(qk, m)
          p = Softmax(a)
          o = MatMul(p, q2)
          t = Transpose<perm = [0, 2, 1, 3]>(o)
          f = Reshape(t, $[0, 0, 8])
          r = Add(f, x)
          y = LayerNormalization(r, $w[8], $w[8])
          w = Unsqueeze(mask, $[2])
          wf = Cast<to = 1>(w)
          yw = Mul(y, wf)
          sum = ReduceSum<keepdims = 0>(yw, $[1])
          count0 = ReduceSum<keepdims = 0>(wf, $[1])
          count = Max(count0, $1.0)
          mean = Div(sum, count)
        }""",
        given={"mask": "np.arange(S) < rng.integers(1, S + 1, (B, 1))"},
    ),
    composite(
        "cross_attention",
        "B=1,2,1,3,2 S=1,2,5,7,13 T=3,1,7,2,5",
        """(float[B, S, 8] x, float[B, T, 6] y) => (float[B, S, 8] z) {
          q = MatMul(x, $w[8, 4])
          k = MatMul(y, $w[6, 4])
          v = MatMul(y, $w[6, 8])
          s = Einsum<equation = "bsd,btd->bst">(q, k)
          p = Softmax(s)
          o = Einsum<equation = "bst,btd->bsd">(p, v)
          z = Add(o, x)
        }""",
    ),
    composite(
        "swiglu_and_rms",
        "B=1,2,0,3,2 S=1,2,5,7,13",
        """(float[B, S, 8] x) => (float[B, S, 8] y) {
          n = RMSNormalization(x, $w[8])
          a = MatMul(n, $w[8, 12])
          b = MatMul(n, $w[8, 12])
          s = Sigmoid(a)
          g = Mul(a, s)
          h = Mul(g, b)
          d = MatMul(h, $w[12, 8])
          y = Add(x, d)
        }""",
        opset=23,
        oracle="reference",
    ),
    composite(
        "einsum_chain",
        "B=1,2,3,5,2 I=1,2,5,7,13 J=3,1,4,2,5",
        """(float[B, I, 4] x, float[J, 4] y) => (float[B, I, J] a, float[B, I] t, float[I, I] g) {
          a = Einsum<equation = "bid,jd->bij">(x, y)
          t = Einsum<equation = "bij->bi">(a)
          g = Einsum<equation = "bid,bjd->ij">(x, x)
        }""",
    ),
]

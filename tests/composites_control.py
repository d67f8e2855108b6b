"""Branches, loops, recurrences and functions, nested and seeing what is around them."""

from composites import composite

COMPOSITES = [
    composite(
        "if_of_other_extents",
        "N=1,2,5,7,0 M=1,3,5,2,4",
        """(float[N, 3] x, float[M, 3] y, bool which) => (float[P, 3] z, float[P, 4] w) {
          z = If(which) <
            then_branch = t () => (float[A, 3] a) { a = Concat<axis = 0>(x, y) },
            else_branch = e () => (float[B, 3] b) { b = Relu(x) }
          >
          w = MatMul(z, $w[3, 4])
        }""",
        given={"which": "M % 2"},
    ),
    composite(
        "if_by_the_extent",
        "N=1,2,5,7,13 M=1,3,5,2,4",
        """(float[N, M] x) => (float[P, Q] y, float[P] s) {
          sh = Shape(x)
          n = Gather(sh, $0)
          large = Greater(n, $4)
          y = If(large) <
            then_branch = t () => (float[A, M] a) { a = Slice(x, $[0], $[4], $[0]) },
            else_branch = e () => (float[B, M] b) {
              b = If(less) <
                then_branch = tt () => (float[C, M] c) { c = Exp(x) },
                else_branch = ee () => (float[D, M] d) { d = Concat<axis = 0>(x, x) }
              >
            }
          >
          s = ReduceMax<keepdims = 0>(y, $[1])
        }""".replace("large =", "less = Less(n, $2)\n large =", 1),
    ),
    composite(
        "if_of_several_results",
        "N=1,2,5,7,0 M=1,3,5,2,4",
        """(float[N, M] x, float[M, N] y) => (float[P, Q] a, float[R] b, float[P, P] c) {
          s = ReduceSum<keepdims = 0>(x)
          up = Greater(s, $0.0)
          a, b = If(up) <
            then_branch = t () => (float[A, B] a0, float[C] b0) {
              a0 = Tanh(x) b0 = ReduceSum<keepdims = 0>(x, $[0]) },
            else_branch = e () => (float[D, E] a1, float[F] b1) {
              a1 = Identity(y) b1 = ReduceSum<keepdims = 0>(y, $[0]) }
          >
          t = Transpose<perm = [1, 0]>(a)
          c = MatMul(a, t)
        }""",
    ),
    composite(
        "loop_grows",
        "N=1,2,5,7,3 M=1,3,5,2,4",
        """(int64 n, float[N, M] x) => (float[P, M] y, float[Q] sums, float[P] last) {
          y, sums = Loop(n, $true, x) <body = b (int64 i, bool c, float[A, M] h)
            => (bool d, float[B, M] g, float s) {
            d = Identity(c)
            e = Mul(x, $0.5)
            g = Concat<axis = 0>(h, e)
            s = ReduceSum<keepdims = 0>(g)
          }>
          last = ReduceMean<keepdims = 0>(y, $[1])
        }""",
        given={"n": "N % 4"},
    ),
    composite(
        "loop_ends_early",
        "N=1,2,5,7,3",
        """(float[N] x, float limit) => (float[N] y, float[K, N] rows, float[N] mean) {
          y, rows = Loop($20, $true, x) <body = b (int64 i, bool c, float[N] h)
            => (bool d, float[N] g, float[N] row) {
            a = Abs(h)
            g = Add(a, $0.5)
            m = ReduceMax<keepdims = 0>(g)
            d = Less(m, limit)
            row = Neg(g)
          }>
          mean = ReduceMean<keepdims = 0>(rows, $[0])
        }""",
        given={"limit": "N + 1"},
    ),
    composite(
        "loop_in_a_loop",
        "N=1,2,5,7,3 M=1,3,5,2,4",
        """(int64 n, float[N, M] x, float[M, M] w) => (float[N, M] y, float[Q, R] sums) {
          y, sums = Loop(n, $true, x) <body = outer (int64 i, bool c, float[N, M] h)
            => (bool d, float[N, M] g, float[A] t) {
            d = Identity(c)
            k = Add(i, $1)
            g, t0 = Loop(n, d, h) <body = inner (int64 j, bool p, float[N, M] u)
              => (bool q, float[N, M] v, float s) {
              both = Mul(i, j)
              f = Cast<to = 1>(both)
              less = Less(j, k)
              q = Identity(p)
              r = MatMul(u, w)
              r2 = Add(r, f)
              v = Tanh(r2)
              s = ReduceSum<keepdims = 0>(v)
            }>
            t = Neg(t0)
          }>
        }""",
        given={"n": "1 + N % 3"},
    ),
    composite(
        "loop_with_a_branch",
        "N=1,2,5,7,3 M=1,3,5,2,4",
        """(int64 n, float[N, M] x) => (float[P, M] y) {
          y = Loop(n, $true, x) <body = b (int64 i, bool c, float[A, M] h) => (bool d, float[B,
            M] g) {
            d = Identity(c)
            r = Mod(i, $2)
            odd = Equal(r, $1)
            g = If(odd) <
              then_branch = t () => (float[C, M] g1) { g1 = Concat<axis = 0>(h, x) },
              else_branch = e () => (float[D, M] g2) { g2 = Slice(h, $[0], $[3], $[0]) }
            >
          }>
        }""",
        given={"n": "M"},
    ),
    composite(
        "loop_over_rows",
        "N=1,2,5,7,13 M=1,3,5,2,4",
        """(float[N, M] x) => (float[N, M] y, float[M] last) {
          sh = Shape(x)
          n = Gather(sh, $0)
          m = Gather(sh, $[1])
          z = ConstantOfShape<value = float[1] {0.0}>(m)
          last, y = Loop(n, $true, z) <body = b (int64 i, bool c, float[M] h)
            => (bool d, float[M] g, float[M] row) {
            d = Identity(c)
            r = Gather<axis = 0>(x, i)
            half = Mul(h, $0.5)
            g = Add(half, r)
            row = Identity(g)
          }>
        }""",
    ),
    composite(
        "greedy_decoding",
        "V=2,3,5,7,1",
        """(int64[1, 1] start, int64 most, float[8, 4] table, float[4, V] head) => (int64[1,
          P] tokens, float[Q, V] scores) {
          tokens, scores = Loop(most, $true, start) <body = b (int64 i, bool c, int64[1, A] t)
            => (bool d, int64[1, B] u, float[V] row) {
            e = Gather(table, t)
            m = ReduceMean<keepdims = 0>(e, $[0, 1])
            row = MatMul(m, head)
            best = ArgMax<axis = 0, keepdims = 1>(row)
            next = Unsqueeze(best, $[0])
            u = Concat<axis = 1>(t, next)
            z = Squeeze(best, $[0])
            stop = Equal(z, $1)
            d = Not(stop)
          }>
        }""",
        given={"start": "[[V % 8]]", "most": "V"},
    ),
    composite(
        "beam_search",
        "K=1,2,3,5,4 V=2,3,5,7,13",
        """(int64 steps, float[K, V] x, float[V, V] move) => (int64[K, P] beams, float[K] score) {
          sh = Shape(x)
          k = Gather(sh, $[0])
          v = Gather(sh, $1)
          k1 = Concat<axis = 0>(k, $[1])
          zeros = ConstantOfShape<value = int64[1] {0}>(k1)
          start = ReduceMax<keepdims = 0>(x, $[1])
          beams, score = Loop(steps, $true, zeros, start) <body = b (int64 i, bool c, int64[K,
            A] seq, float[K] sc)
            => (bool d, int64[K, B] seq2, float[K] sc2) {
            d = Identity(c)
            last0 = Gather<axis = 1>(seq, $-1)
            rows = Gather(move, last0)
            logp = LogSoftmax(rows)
            col = Unsqueeze(sc, $[1])
            all = Add(logp, col)
            flat = Reshape(all, $[-1])
            sc2, at = TopK(flat, k)
            from = Div(at, v)
            token = Mod(at, v)
            kept = Gather(seq, from)
            t2 = Unsqueeze(token, $[1])
            seq2 = Concat<axis = 1>(kept, t2)
          }>
        }""",
        given={"steps": "K"},
    ),
    composite(
        "scan_of_several_states",
        "T=1,2,5,7,13 N=1,3,5,2,4",
        """(float[T, N] x, float[T, N] y, float[N] a, float[N] b)
           => (float[N] af, float[N] bf, float[T, N] s, float[T] m) {
          af, bf, s, m = Scan<num_scan_inputs = 2, body = body (float[N] p, float[N] q,
            float[N] u, float[N] v)
            => (float[N] p2, float[N] q2, float[N] w, float k) {
            p0 = Add(p, u)
            p2 = Tanh(p0)
            q0 = Mul(q, v)
            q2 = Add(q0, p2)
            w = Sub(q2, a)
            k = ReduceMax<keepdims = 0>(w)
          }>(a, b, x, y)
        }""",
    ),
    composite(
        "scan_backwards_along_columns",
        "T=1,2,5,7,13 N=1,3,5,2,4",
        """(float[N, T] x, float[N] a) => (float[N] af, float[N, T] s) {
          af, s = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
            scan_input_directions = [1], scan_output_directions = [1],
            body = body (float[N] p, float[N] u) => (float[N] p2, float[N] w) {
            h = Mul(p, $0.5)
            p2 = Add(h, u)
            w = Sigmoid(p2)
          }>(a, x)
        }""",
    ),
    composite(
        "lstm_both_ways_with_lengths",
        "T=1,2,5,7,3 B=1,3,2,1,4",
        """(float[T, B, 3] x, int32[B] lengths) => (float[T, B, 8] y, float[B, 5] z) {
          h, last, cell = LSTM<hidden_size = 4, direction = "bidirectional">(x, $w[2, 16, 3],
            $w[2, 16, 4], $w[2, 32], lengths)
          t = Transpose<perm = [0, 2, 1, 3]>(h)
          y = Reshape(t, $[0, 0, 8])
          l = Transpose<perm = [1, 0, 2]>(last)
          f = Flatten(l)
          z = MatMul(f, $w[8, 5])
        }""",
        given={"lengths": "rng.integers(1, T + 1, B)"},
    ),
    composite(
        "gru_then_lstm_with_states",
        "T=1,2,5,7,3 B=1,3,2,1,4",
        """(float[T, B, 3] x, float[1, B, 4] h0, float[1, B, 4] c0) => (float[T, 1, B, 4] y,
          float[1, B, 4] c) {
          g, gl = GRU<hidden_size = 4, linear_before_reset = 1>(x, $w[1, 12, 3], $w[1, 12, 4],
            $w[1, 24], , h0)
          s = Squeeze(g, $[1])
          y, yl, c = LSTM<hidden_size = 4>(s, $w[1, 16, 4], $w[1, 16, 4], , , gl, c0)
        }""",
    ),
    composite(
        "rnn_backwards_with_lengths",
        "T=1,2,5,7,3 B=1,3,2,1,4",
        """(float[T, B, 3] x, int32[B] lengths) => (float[T, 1, B, 4] y, float[B, T] a) {
          y, last = RNN<hidden_size = 4, direction = "reverse", activations = ["Relu"]>(x, $w[1,
            4, 3], $w[1, 4, 4], , lengths)
          s = Squeeze(y, $[1])
          m = ReduceMean<keepdims = 0>(s, $[2])
          t = Transpose<perm = [1, 0]>(m)
          a = Softmax(t)
        }""",
        given={"lengths": "rng.integers(1, T + 1, B)"},
    ),
    composite(
        "text_recogniser",
        "N=1,2,1,3,2 W=4,8,13,7,16",
        """(float[N, 1, 8, W] x) => (float[T, N, 6] y, int64[T, N] best) {
          c = Conv<pads = [1, 1, 1, 1]>(x, $w[4, 1, 3, 3])
          r = Relu(c)
          p = MaxPool<kernel_shape = [8, 2], strides = [8, 2]>(r)
          s = Squeeze(p, $[2])
          t = Transpose<perm = [2, 0, 1]>(s)
          h, hl = GRU<hidden_size = 3, direction = "bidirectional">(t, $w[2, 9, 4], $w[2, 9, 3])
          u = Transpose<perm = [0, 2, 1, 3]>(h)
          v = Reshape(u, $[0, 0, -1])
          y0 = MatMul(v, $w[6, 6])
          y = LogSoftmax(y0)
          best = ArgMax<axis = -1, keepdims = 0>(y)
        }""",
    ),
    composite(
        "functions_in_functions",
        "N=1,2,5,7,0 M=1,3,5,2,4",
        """(float[N, M] x, float[M, N] y) => (float[N, M] a, float[M, N] b, float[N, N] c) {
          a = my.outer<slope = 0.3, axis = 1>(x)
          b = my.outer<axis = 0>(y)
          c = MatMul(a, b)
        }
        <domain: "my", opset_import: ["" : 18, "my" : 1]>
        outer <axis, slope: float = 0.1> (p) => (q) {
          s = my.inner<along: int = @axis>(p)
          q = LeakyRelu<alpha: float = @slope>(s)
        }
        <domain: "my", opset_import: ["" : 18, "my" : 1]>
        inner <along: int = 0> (u) => (v) {
          w = Softmax<axis: int = @along>(u)
          v = Sub(u, w)
        }""",
    ),
    composite(
        "a_function_with_branches_and_loops",
        "N=1,2,5,7,3 M=1,3,5,2,4",
        """(float[N, M] x, int64 n, bool c) => (float[P, M] y, float[Q, M] z) {
          y = my.grow(x, n, c)
          no = Not(c)
          z = my.grow(x, n, no)
        }
        <domain: "my", opset_import: ["" : 18]>
        grow (a, k, which) => (r) {
          go = Constant<value = bool {1}>()
          r = If(which) <
            then_branch = t () => (u) {
              u = Loop(k, go, a) <body = b (i, d, h) => (d2,
                h2) { d2 = Identity(d) h2 = Concat<axis = 0>(h, a) }>
            },
            else_branch = e () => (v) { v = Neg(a) }
          >
        }""",
        given={"n": "N % 3"},
        oracle="reference",
    ),
    composite(
        "seen_from_deep_inside",
        "N=1,2,5,7,3 M=1,3,5,2,4",
        """(float[N, M] x, bool p, bool q, int64 n) => (float[A, M] y) {
          a = Exp(x)
          y = If(p) <
            then_branch = t () => (float[B, M] y1) {
              b = Add(a, x)
              y1 = If(q) <
                then_branch = tt () => (float[C, M] y2) {
                  c = Mul(a, b)
                  y2 = Loop(n, q, c) <body = body (int64 i, bool g, float[D, M] h) => (bool g2,
                    float[E, M] h2) {
                    g2 = Identity(g)
                    s = Sub(b, x)
                    h2 = Concat<axis = 0>(h, s)
                  }>
                },
                else_branch = ee () => (float[F, M] y3) { y3 = Sub(b, a) }
              >
            },
            else_branch = e () => (float[N, M] y4) { y4 = Identity(a) }
          >
        }""",
        given={"p": "N != 2", "q": "M != 1", "n": "M"},
    ),
    composite(
        "loop_until_unique",
        "N=1,2,5,7,13",
        """(int64[N] x) => (int64[P] y, int64 rounds) {
          y, rounds = Loop($9, $true, x, $0) <body = b (int64 i, bool c, int64[A] h, int64 r)
            => (bool d, int64[B] g, int64 r2) {
            half = Div(h, $2)
            g, first, back, count = Unique(half)
            s = Size(g)
            d = Greater(s, $1)
            r2 = Add(r, $1)
          }>
        }""",
        given={"x": "rng.integers(0, 99, N)"},
    ),
    composite(
        "newton_with_matrices",
        "N=1,2,5,7,3",
        """(float[N, N] a, int64 n) => (float[N, N] inverse, float error) {
          t = Transpose<perm = [1, 0]>(a)
          sq = Mul(a, a)
          norm = ReduceSum<keepdims = 0>(sq)
          x0 = Div(t, norm)
          sh = Shape(a)
          z = ConstantOfShape<value = float[1] {1.0}>(sh)
          eye = EyeLike<dtype = 1>(a)
          two = Mul(eye, $2.0)
          inverse, errors = Loop(n, $true, x0) <body = b (int64 i, bool c, float[N, N] x)
            => (bool d, float[N, N] x2, float e) {
            d = Identity(c)
            ax = MatMul(a, x)
            r = Sub(two, ax)
            x2 = MatMul(x, r)
            off = Sub(eye, ax)
            e = ReduceL2<keepdims = 0>(off)
          }>
          error = ReduceMin<keepdims = 0>(errors)
        }""",
        given={"n": "4", "a": "np.eye(N) * 2 + 0.1 * rng.standard_normal((N, N))"},
    ),
]

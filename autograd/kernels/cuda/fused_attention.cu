// SPDX-License-Identifier: Apache-2.0
// Three kernels of four warps each. Forward and the gradient of queries give a warp 16 queries (32
// where registers allow) and walk over tiles of keys and values; the gradients of keys and values
// give it 16 keys and walk over tiles of queries. So every sum is made by one warp in one order,
// and the price is that backward makes scores and their gradients twice: 7 products instead of 5,
// rather than atomic additions, or partial sums of dq that cost as much traffic.
//
// What should make it fast, as reasoned and not yet measured: operands stay in registers (scores
// are the next product's left operand without leaving them), two stages of tiles let the next one
// be copied during products, one barrier a tile; 32 KiB of shared memory and at most 255 registers
// a thread let two blocks and more share a multiprocessor; long blocks start first, so that a
// causal grid ends evenly.
#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/kernels/cuda/element.h>
#include <peal/autograd/kernels/cuda/fused_attention.h>
#include <peal/autograd/kernels/cuda/warp_product.h>
#include <peal/autograd/kernels/dispatch.h>

#include <cmath>
#include <limits>

namespace peal::cuda {
namespace {

using functor::computed;

constexpr int threads = 128, warps = threads / warp;
constexpr int tile_bytes = 8192;

// Blocks that share a multiprocessor in backward, by the registers that they need: 168 a thread for
// three.
template <class T, int width>
constexpr int resident = on_tensor_cores<T>&& width == 64 ? 3 : 1;

template <class C>
constexpr C infinity = std::numeric_limits<C>::infinity();

// Tokens of all sequences.
template <class T>
struct Sequences {
  T* at;
  std::int64_t row;
  int count;
  bool aligned;
};

struct Sizes {
  int heads, width, queries, keys;
  std::int64_t pairs;  // sequences x heads
  bool causal;
  double scale;

  // A head's part of its sequence.
  template <class T>
  __device__ Matrix<T> of(const Sequences<T>& x, std::int64_t pair) const {
    const std::int64_t sequence = pair / heads, head = pair % heads;
    return {x.at + sequence * x.count * x.row + head * width, x.row, x.count, width, x.aligned};
  }
  // How many keys a query sees, which may be past the last one.
  __device__ int seen(int query) const { return causal && query < keys ? query + 1 : keys; }
};

// One instruction, in which a NaN loses: the powers of two find it.
__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }

template <class C>
constexpr C log2_e = static_cast<C>(1.44269504088896340736);

// What one more in a kept logarithm is to the base of 2.
template <class T>
constexpr computed<T> kept_unit = on_tensor_cores<T> ? log2_e<computed<T>> : computed<T>(1);

// What the tiles of two operands are read from while others are copied.
template <class Tile>
struct Stage {
  Tile first, second;
  template <class T>
  __device__ Stage(T* room, int stage)
      : first{room + 2 * stage * Tile::rows * Tile::columns},
        second{first.at + Tile::rows * Tile::columns} {}
};

template <class T, int width, int blocks>
__global__ void __launch_bounds__(threads)
    attend(Sizes o, Sequences<T> y, computed<T>* sums, Sequences<const T> q, Sequences<const T> k,
           Sequences<const T> v) {
  using C = computed<T>;
  constexpr int rows = tile_bytes / sizeof(T) / width, of_block = warps * 16 * blocks;
  using Keys = Tile<T, width, rows>;
  __shared__ SixteenBytes room[4 * tile_bytes / 16];
  const std::int64_t parts = gridDim.x / o.pairs, part = blockIdx.x / o.pairs,
                     pair = blockIdx.x % o.pairs;
  const int lane = static_cast<int>(threadIdx.x) % warp, g = lane / 4, t = lane % 4;
  const int begin = static_cast<int>(parts - 1 - part) * of_block;
  const int own = begin + static_cast<int>(threadIdx.x) / warp * 16 * blocks;
  const int end = o.seen(begin + of_block - 1);  // of the keys that the block sees
  const C scale = static_cast<C>(o.scale) * log2_e<C>;

  const auto keys = o.of(k, pair), values = o.of(v, pair), queries = o.of(q, pair);
  const auto fetch = [&](int at) {
    const Stage<Keys> to(reinterpret_cast<T*>(room), at / rows % 2);
    to.first.template load<threads>(keys, at);
    to.second.template load<threads>(values, at);
  };
  fetch(0);
  Rows<T, width> left[blocks];
#pragma unroll
  for (int m = 0; m < blocks; ++m) left[m].load(queries, own + 16 * m);

  C out[blocks][width / 8][4] = {}, largest[blocks][2], total[blocks][2] = {};
#pragma unroll
  for (int m = 0; m < blocks; ++m) largest[m][0] = largest[m][1] = -infinity<C>;
  for (int at = 0; at < end; at += rows) {
    copies_arrive();
    __syncthreads();
    if (at + rows < end) fetch(at + rows);
    if (at >= o.seen(own + 16 * blocks - 1)) continue;
    const Stage<Keys> tile(reinterpret_cast<T*>(room), at / rows % 2);
    C score[blocks][rows / 8][4] = {};
    add_over_columns<T>(score, left, tile.first);
    if (at + rows > o.seen(own)) {
#pragma unroll
      for (int m = 0; m < blocks; ++m) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int seen = o.seen(own + 16 * m + g + e / 2 * 8) - at - 2 * t - e % 2;
#pragma unroll
          for (int n = 0; n < rows / 8; ++n) {
            if (8 * n >= seen) score[m][n][e] = -infinity<C>;
          }
        }
      }
    }
    Shares<T, rows> shares[blocks];
#pragma unroll
    for (int m = 0; m < blocks; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        C most = largest[m][h];
#pragma unroll
        for (int n = 0; n < rows / 8; ++n) {
          most = larger(larger(most, score[m][n][2 * h]), score[m][n][2 * h + 1]);
        }
        most = larger(most, from_lane(most, 1));
        most = larger(most, from_lane(most, 2));
        // Where nothing is larger than -infinity yet, 2^(that - 0) is the 0 it should be.
        const C shift = most == -infinity<C> ? C(0) : most * scale;
        const C shrink = power_of_two(largest[m][h] * scale - shift);
        largest[m][h] = most;
        C sum = 0;
#pragma unroll
        for (int n = 0; n < rows / 8; ++n) {
#pragma unroll
          for (int e = 2 * h; e < 2 * h + 2; ++e) {
            score[m][n][e] = power_of_two(score[m][n][e] * scale - shift);
            sum += score[m][n][e];
          }
        }
        total[m][h] = total[m][h] * shrink + sum;
#pragma unroll
        for (int n = 0; n < width / 8; ++n) {
          out[m][n][2 * h] *= shrink;
          out[m][n][2 * h + 1] *= shrink;
        }
      }
      shares[m] = Shares<T, rows>(score[m]);
    }
    add_over_rows<T>(out, shares, tile.second);
  }
#pragma unroll
  for (int m = 0; m < blocks; ++m) {
    C share[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      total[m][h] = warp_reduce(total[m][h], Plus{}, 4);
      share[h] = 1 / total[m][h];
      const int query = own + 16 * m + g + 8 * h;
      if (t == 0 && query < o.queries) {
        sums[pair * o.queries + query] =
            (largest[m][h] * scale + std::log2(total[m][h])) * (1 / kept_unit<T>);
      }
    }
    store_rows<T, width>(o.of(y, pair), own + 16 * m, out[m], share);
  }
}

// The sums of dy y, [B, heads, queries], by 8 threads each.
template <class T>
__global__ void attention_dots(Sizes o, computed<T>* dots, Sequences<const T> dy,
                               Sequences<const T> y) {
  using C = computed<T>;
  constexpr int in_chunk = static_cast<int>(16 / sizeof(T)), lanes = 8;
  using Chunk = Pack<T, in_chunk>;
  // Heads of a token are neighbours, as they are in memory.
  const std::int64_t place = thread_number() / lanes, token = place / o.heads;
  const std::int64_t pair = token / o.queries * o.heads + place % o.heads;
  const int row = static_cast<int>(token % o.queries);
  C sum = 0;
  if (pair < o.pairs) {
    const auto a = o.of(dy, pair), b = o.of(y, pair);
    for (int c = static_cast<int>(thread_number() % lanes) * in_chunk; c < o.width;
         c += lanes * in_chunk) {
      if (a.aligned) {
        const Chunk first = *reinterpret_cast<const Chunk*>(a.at + row * a.row + c),
                    second = *reinterpret_cast<const Chunk*>(b.at + row * b.row + c);
        for (int e = 0; e < in_chunk; ++e) {
          sum += static_cast<C>(first.at[e]) * static_cast<C>(second.at[e]);
        }
      } else {
        for (int e = 0; e < in_chunk; ++e) {
          sum += static_cast<C>(a.element(row, c + e)) * static_cast<C>(b.element(row, c + e));
        }
      }
    }
  }
  sum = warp_reduce(sum, Plus{}, lanes);
  if (pair < o.pairs && thread_number() % lanes == 0) dots[pair * o.queries + row] = sum;
}

template <class T, int width>
__global__ void __launch_bounds__(threads, resident<T, width>)
    attend_backward_queries(Sizes o, Sequences<T> dq, Sequences<const T> dy,
                            const computed<T>* sums, const computed<T>* dots, Sequences<const T> q,
                            Sequences<const T> k, Sequences<const T> v) {
  using C = computed<T>;
  constexpr int rows = tile_bytes / 2 / sizeof(T) / width, of_block = warps * 16;
  using Keys = Tile<T, width, rows>;
  __shared__ SixteenBytes room[2 * tile_bytes / 16];
  const std::int64_t parts = gridDim.x / o.pairs, part = blockIdx.x / o.pairs,
                     pair = blockIdx.x % o.pairs;
  const int lane = static_cast<int>(threadIdx.x) % warp, g = lane / 4, t = lane % 4;
  const int begin = static_cast<int>(parts - 1 - part) * of_block;
  const int own = begin + static_cast<int>(threadIdx.x) / warp * 16;
  const int end = o.seen(begin + of_block - 1);
  const C scale = static_cast<C>(o.scale) * log2_e<C>;

  const auto keys = o.of(k, pair), values = o.of(v, pair);
  const auto fetch = [&](int at) {
    const Stage<Keys> to(reinterpret_cast<T*>(room), at / rows % 2);
    to.first.template load<threads>(keys, at);
    to.second.template load<threads>(values, at);
  };
  fetch(0);
  Rows<T, width> left[1], grad[1];
  left[0].load(o.of(q, pair), own);
  grad[0].load(o.of(dy, pair), own);
  C sum[2], dot[2];  // of queries that there are not: shares of 0
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int query = own + g + 8 * h;
    const bool there = query < o.queries;
    sum[h] = there ? sums[pair * o.queries + query] * kept_unit<T> : infinity<C>;
    dot[h] = there ? dots[pair * o.queries + query] : C(0);
  }

  C out[1][width / 8][4] = {};
  for (int at = 0; at < end; at += rows) {
    copies_arrive();
    __syncthreads();
    if (at + rows < end) fetch(at + rows);
    if (at >= o.seen(own + 15)) continue;
    const Stage<Keys> tile(reinterpret_cast<T*>(room), at / rows % 2);
    C score[1][rows / 8][4] = {}, change[1][rows / 8][4] = {};
    add_over_columns<T>(score, left, tile.first);
    add_over_columns<T>(change, grad, tile.second);
#pragma unroll
    for (int n = 0; n < rows / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        score[0][n][e] = power_of_two(score[0][n][e] * scale - sum[e / 2]);
      }
    }
    if (at + rows > o.seen(own)) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int seen = o.seen(own + g + e / 2 * 8) - at - 2 * t - e % 2;
#pragma unroll
        for (int n = 0; n < rows / 8; ++n) {
          if (8 * n >= seen) score[0][n][e] = 0;
        }
      }
    }
#pragma unroll
    for (int n = 0; n < rows / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) score[0][n][e] *= change[0][n][e] - dot[e / 2];
    }
    const Shares<T, rows> shares[1] = {Shares<T, rows>(score[0])};
    add_over_rows<T>(out, shares, tile.first);
  }
  const C factor[2] = {static_cast<C>(o.scale), static_cast<C>(o.scale)};
  store_rows<T, width>(o.of(dq, pair), own, out[0], factor);
}

// Scores are transposed here: a warp's rows are keys. dk and dv may be null.
template <class T, int width>
__global__ void __launch_bounds__(threads, resident<T, width>)
    attend_backward_keys(Sizes o, Sequences<T> dk, Sequences<T> dv, Sequences<const T> dy,
                         const computed<T>* sums, const computed<T>* dots, Sequences<const T> q,
                         Sequences<const T> k, Sequences<const T> v) {
  using C = computed<T>;
  constexpr int rows = tile_bytes / 2 / sizeof(T) / width, of_block = warps * 16;
  using Queries = Tile<T, width, rows>;
  __shared__ SixteenBytes room[2 * tile_bytes / 16];
  __shared__ C both[2][2][rows];  // of a stage: sums and dots
  const std::int64_t part = blockIdx.x / o.pairs, pair = blockIdx.x % o.pairs;
  const int lane = static_cast<int>(threadIdx.x) % warp, g = lane / 4, t = lane % 4;
  const int begin = static_cast<int>(part) * of_block;
  const int own = begin + static_cast<int>(threadIdx.x) / warp * 16;
  const C scale = static_cast<C>(o.scale) * log2_e<C>;

  const auto queries = o.of(q, pair), grads = o.of(dy, pair);
  const auto fetch = [&](int at) {
    const Stage<Queries> to(reinterpret_cast<T*>(room), at / rows % 2);
    to.first.template load<threads>(queries, at);
    to.second.template load<threads>(grads, at);
  };
  // One of the tile's sums or dots, of queries that there are not as above, by a thread of the
  // first 2 * rows.
  const int thread = static_cast<int>(threadIdx.x), which = thread / rows, query = thread % rows;
  const auto one = [&](int at) {
    if (which >= 2) return C(0);
    if (at + query >= o.queries) return which == 0 ? infinity<C> : C(0);
    const std::int64_t place = pair * o.queries + at + query;
    return which == 0 ? sums[place] * kept_unit<T> : dots[place];
  };
  // The first query that sees any of the block's keys, at the start of its tile.
  const int first = o.causal ? begin / rows * rows : 0;
  Rows<T, width> left[1], value[1];
  if (first < o.queries) {
    fetch(first);
    if (which < 2) both[first / rows % 2][which][query] = one(first);
    left[0].load(o.of(k, pair), own);
    value[0].load(o.of(v, pair), own);
  }
  C to_keys[1][width / 8][4] = {}, to_values[1][width / 8][4] = {};
  for (int at = first; at < o.queries; at += rows) {
    copies_arrive();
    __syncthreads();
    const bool more = at + rows < o.queries;
    const int stage = at / rows % 2;
    if (more) fetch(at + rows);
    const C next = more ? one(at + rows) : C(0);  // stored at the end, when it has come
    if (!o.causal || at + rows > own) {
      const Stage<Queries> tile(reinterpret_cast<T*>(room), stage);
      C score[1][rows / 8][4] = {}, change[1][rows / 8][4] = {};
      add_over_columns<T>(score, left, tile.first);
      add_over_columns<T>(change, value, tile.second);
#pragma unroll
      for (int n = 0; n < rows / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int column = 8 * n + 2 * t + e % 2;
          score[0][n][e] = power_of_two(score[0][n][e] * scale - both[stage][0][column]);
        }
      }
      if (o.causal && at < own + 15) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int before = own + g + e / 2 * 8 - at - 2 * t - e % 2;
#pragma unroll
          for (int n = 0; n < rows / 8; ++n) {
            if (8 * n < before) score[0][n][e] = 0;
          }
        }
      }
#pragma unroll
      for (int n = 0; n < rows / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int column = 8 * n + 2 * t + e % 2;
          change[0][n][e] = score[0][n][e] * (change[0][n][e] - both[stage][1][column]);
        }
      }
      const Shares<T, rows> shares[1] = {Shares<T, rows>(score[0])},
                            changes[1] = {Shares<T, rows>(change[0])};
      add_over_rows<T>(to_values, shares, tile.second);
      add_over_rows<T>(to_keys, changes, tile.first);
    }
    if (more && which < 2) both[1 - stage][which][query] = next;
  }
  const C scaled[2] = {static_cast<C>(o.scale), static_cast<C>(o.scale)}, as_is[2] = {1, 1};
  if (dk.at != nullptr) store_rows<T, width>(o.of(dk, pair), own, to_keys[0], scaled);
  if (dv.at != nullptr) store_rows<T, width>(o.of(dv, pair), own, to_values[0], as_is);
}

Sizes sizes_of(const AttentionGeometry& o) {
  return {static_cast<int>(o.heads),
          static_cast<int>(o.width),
          static_cast<int>(o.queries),
          static_cast<int>(o.keys),
          o.batch * o.heads,
          o.causal,
          1 / std::sqrt(static_cast<double>(o.width))};
}

template <class T>
Sequences<T> sequences(const Tokens& x, std::int64_t count, std::int64_t width) {
  T* at = static_cast<T*>(x.data.raw()) + x.at;
  constexpr std::int64_t chunk = 16 / sizeof(T);
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(at) % 16 == 0 && x.row % chunk == 0 && width % chunk == 0;
  return {at, x.row, static_cast<int>(count), aligned};
}
template <class T>
Sequences<T> sequences(const Tokens* x, std::int64_t count, std::int64_t width) {
  return x == nullptr ? Sequences<T>{} : sequences<T>(*x, count, width);
}

// f<T, width>() with the width that the kernels have.
template <class F>
void with_width(DType dtype, std::int64_t width, F&& f) {
  static_cast<void>(with_floating(dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) {
      if (width > 64) return f.template operator()<T, 128>();
    }
    f.template operator()<T, 64>();
  }));
}

std::int64_t parts_of(std::int64_t count, std::int64_t in_part) {
  return (count + in_part - 1) / in_part;
}

}  // namespace

bool has_fused_attention(const AttentionGeometry& o, DType dtype) {
  constexpr std::int64_t most = 1 << 30;  // places in a sequence are counted in int
  return is_floating(dtype) && o.width <= (dtype == DType::f64 ? 64 : 128) && o.queries <= most &&
         o.keys <= most;
}

void fused_attention(const AttentionGeometry& o, const Tokens& y, const Tensor& sums,
                     const Tokens& q, const Tokens& k, const Tokens& v) {
  with_width(y.data.dtype(), o.width, [&]<class T, int width>() {
    // Two blocks of rows, where their sums fit into registers.
    constexpr int blocks = on_tensor_cores<T> && width == 64 ? 2 : 1;
    const Sizes sizes = sizes_of(o);
    launch(y.data, parts_of(o.queries, warps * 16 * blocks) * sizes.pairs, threads,
           attend<T, width, blocks>, sizes, sequences<T>(y, o.queries, o.width),
           pointer<computed<T>>(sums), sequences<const T>(q, o.queries, o.width),
           sequences<const T>(k, o.keys, o.width), sequences<const T>(v, o.keys, o.width));
  });
}

void fused_attention_backward(const AttentionGeometry& o, const Tokens* dq, const Tokens* dk,
                              const Tokens* dv, const Tokens& dy, const Tokens& y,
                              const Tensor& sums, const Tokens& q, const Tokens& k,
                              const Tokens& v) {
  const Tensor dots = Tensor::empty(sums.shape(), sums.dtype(), sums.device());
  with_width(dy.data.dtype(), o.width, [&]<class T, int width>() {
    using C = computed<T>;
    const Sizes sizes = sizes_of(o);
    const auto queries = sequences<const T>(q, o.queries, o.width),
               keys = sequences<const T>(k, o.keys, o.width),
               values = sequences<const T>(v, o.keys, o.width),
               grads = sequences<const T>(dy, o.queries, o.width);
    Sequences<const T> result = sequences<const T>(y, o.queries, o.width), grad = grads;
    grad.aligned = result.aligned = grad.aligned && result.aligned;
    launch(dy.data, parts_of(sizes.pairs * o.queries * 8, block), block, attention_dots<T>, sizes,
           pointer<C>(dots), grad, result);
    if (dq != nullptr) {
      launch(dy.data, parts_of(o.queries, warps * 16) * sizes.pairs, threads,
             attend_backward_queries<T, width>, sizes, sequences<T>(dq, o.queries, o.width), grads,
             pointer<const C>(sums), pointer<const C>(dots), queries, keys, values);
    }
    if (dk != nullptr || dv != nullptr) {
      launch(dy.data, parts_of(o.keys, warps * 16) * sizes.pairs, threads,
             attend_backward_keys<T, width>, sizes, sequences<T>(dk, o.keys, o.width),
             sequences<T>(dv, o.keys, o.width), grads, pointer<const C>(sums),
             pointer<const C>(dots), queries, keys, values);
    }
  });
}

}  // namespace peal::cuda

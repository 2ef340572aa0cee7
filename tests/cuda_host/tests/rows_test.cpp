// SPDX-License-Identifier: Apache-2.0
// Entries that reduce, index or normalise: CUDA's kernels against the CPU's, all dtypes and odd
// sizes: rows longer than what threads keep, more rows than 65535, parts that don't divide.
#include "both.h"

#include <limits>

using namespace peal;
using namespace peal::test;

namespace {

constexpr float no_number = std::numeric_limits<float>::quiet_NaN(),
                infinity = std::numeric_limits<float>::infinity();

Shape kept(const Shape& shape, std::uint32_t mask) {
  Shape out;
  for (int d = 0; d < shape.dim(); ++d) {
    if (((mask >> d) & 1) == 0) out.push_back(shape[d]);
  }
  return out;
}

void check_sum(DType dtype, const Shape& shape, std::uint32_t mask) {
  CAPTURE(concat(dtype, " ", shape, " mask ", mask));
  const DType result = is_floating(dtype) ? dtype : DType::i64;
  on_both(&Kernels::sum, bound_of(dtype), 1, random(result, kept(shape, mask), 1),
          random(dtype, shape, 2), mask, 0.5);
}

void check_places(const Tensor& x, int dim) {
  CAPTURE(concat(x.dtype(), " ", x.shape(), " dim ", dim));
  const Tensor out = random(DType::i64, kept(x.shape(), 1u << dim), 1);
  on_both(&Kernels::argmax, 0, 1, out, x, dim);
  on_both(&Kernels::argmin, 0, 1, out, x, dim);
}

Tensor positive(const Tensor& x) {
  return map(x, [](double value) { return std::abs(value) + 0.1; });
}

}  // namespace

TEST_CASE("sums over any dimensions") {
  for (const DType dtype : all_types) {
    for (std::uint32_t mask = 0; mask < 16; ++mask) check_sum(dtype, {2, 3, 4, 5}, mask);
    for (std::uint32_t mask = 0; mask < 8; ++mask) check_sum(dtype, {9, 1, 16}, mask);
    check_sum(dtype, {}, 0);
    check_sum(dtype, {0, 3}, 1);
    check_sum(dtype, {3, 0}, 1);
    check_sum(dtype, {33, 64}, 2);
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
    check_sum(dtype, {20011}, 1);         // one result, in parts
    check_sum(dtype, {3, 9000}, 2);       // few rows, in parts
    check_sum(dtype, {1100, 33}, 1);      // columns, in parts
    check_sum(dtype, {3, 4, 2500}, 5);    // a channel's
    check_sum(dtype, {2, 600, 3, 5}, 2);  // columns inside
  }
  check_sum(DType::f32, {66001, 2}, 2);
}

TEST_CASE("places of extremes: ties, NaN and infinity as on the CPU") {
  for (const DType dtype : all_types) {
    for (int dim = 0; dim < 3; ++dim) check_places(random(dtype, {5, 7, 3}, 1), dim);
    check_places(random(dtype, {1}, 1), 0);
    check_places(random(dtype, {4, 2000}, 2), 1);
  }
  check_places(random(DType::u8, {20011}, 3), 0);
  check_places(random(DType::f32, {9001, 3}, 4), 0);
  const Tensor odd = tensor_of<float>(
      {1, no_number, 5, no_number, -infinity, infinity, infinity, 0, 2, 2, -3, -3}, {2, 6});
  check_places(odd, 0);
  check_places(odd, 1);
}

TEST_CASE("running sums along any dimension, both ways") {
  const auto check = [](DType dtype, const Shape& shape, int dim) {
    CAPTURE(concat(dtype, " ", shape, " dim ", dim));
    const Tensor x = random(dtype, shape, 1), out = random(dtype, shape, 2);
    for (const bool reversed : {false, true}) {
      on_both(&Kernels::cumsum, bound_of(dtype), 1, out, x, dim, reversed);
    }
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64}) {
    for (int dim = 0; dim < 3; ++dim) check(dtype, {5, 33, 3}, dim);
    check(dtype, {300, 65}, 1);
    check(dtype, {9, 700}, 0);
    check(dtype, {1}, 0);
    check(dtype, {0, 3}, 1);
  }
}

TEST_CASE("products, extremes, any and all over any dimensions") {
  const auto check = [](DType dtype, const Shape& shape, std::uint32_t mask) {
    CAPTURE(concat(dtype, " ", shape, " mask ", mask));
    const Tensor x = random(dtype, shape, 2);
    const auto out = [&](DType result) { return random(result, kept(shape, mask), 1); };
    on_both(&Kernels::reduce, bound_of(dtype), 1, Reduce::prod,
            out(is_floating(dtype) ? dtype : DType::i64), x, mask);
    for (const Reduce op : {Reduce::any, Reduce::all}) {
      on_both(&Kernels::reduce, 0, 1, op, out(DType::boolean), x, mask);
    }
    if (x.numel() == 0) return;
    for (const Reduce op : {Reduce::amax, Reduce::amin}) {
      on_both(&Kernels::reduce, 0, 1, op, out(dtype), x, mask);
    }
  };
  for (const DType dtype : all_types) {
    for (std::uint32_t mask = 0; mask < 8; ++mask) check(dtype, {2, 5, 4}, mask);
    check(dtype, {}, 0);
    check(dtype, {0, 3}, 1);
    check(dtype, {3, 0}, 1);
  }
  for (const DType dtype : {DType::f32, DType::u8}) {
    check(dtype, {20011}, 1);
    check(dtype, {1100, 3}, 1);
  }
  const Tensor odd = tensor_of<float>(
      {1, no_number, 5, no_number, -infinity, infinity, infinity, 0, 2, 2, -3, -3}, {2, 6});
  for (const Reduce op : {Reduce::amax, Reduce::amin, Reduce::any, Reduce::all}) {
    const DType result = op < Reduce::any ? DType::f32 : DType::boolean;
    on_both(&Kernels::reduce, 0, 1, op, random(result, {2}, 1), odd, 2u);
    on_both(&Kernels::reduce, 0, 1, op, random(result, {6}, 1), odd, 1u);
  }
}

TEST_CASE("running products, logarithms of sums, and places of extremes") {
  const auto check = [](const Tensor& x, int dim) {
    CAPTURE(concat(x.dtype(), " ", x.shape(), " dim ", dim));
    const DType dtype = x.dtype();
    for (const bool reversed : {false, true}) {
      for (const Scan op : {Scan::prod, Scan::logsumexp}) {
        if (!is_floating(dtype) && (op != Scan::prod || dtype != DType::i64)) continue;
        on_both(&Kernels::scan, bound_of(dtype), 1, op, random(dtype, x.shape(), 2), x, dim,
                reversed);
      }
      for (const Scan op : {Scan::max, Scan::min}) {
        on_both(&Kernels::scan, 0, 1, op, random(DType::i64, x.shape(), 2), x, dim, reversed);
      }
    }
  };
  for (const DType dtype : all_types) {
    for (int dim = 0; dim < 3; ++dim) check(random(dtype, {3, 9, 2}, 1), dim);
    check(random(dtype, {2, 0}, 1), 1);
  }
  check(random(DType::f32, {2, 300, 70}, 3), 1);
  const Tensor odd = tensor_of<float>(
      {1, no_number, 5, no_number, -infinity, infinity, infinity, 0, 2, 2, -3, -3}, {2, 6});
  check(odd, 0);
  check(odd, 1);
}

TEST_CASE("reading and adding by index") {
  struct Case {
    Shape x;
    int dim;
    std::int64_t count;
  };
  const std::vector<Case> cases = {{{7, 3}, 0, 5},    {{7, 16}, 0, 300},    {{3, 7, 5}, 1, 9},
                                   {{3, 4, 7}, 2, 1}, {{11, 1100}, 0, 40},  {{5}, 0, 700},
                                   {{4, 3}, 0, 0},    {{2, 300, 2}, 1, 600}};
  for (const Case& each : cases) {
    const std::int64_t size = each.x[each.dim];
    const Tensor index = indices({each.count}, size, 3);
    Shape picked = each.x;
    picked[each.dim] = each.count;
    const Tensor places = indices(picked, size, 4);
    for (const DType dtype : all_types) {
      CAPTURE(concat(dtype, " ", each.x, " dim ", each.dim, " ", each.count));
      const Tensor whole = random(dtype, each.x, 1), part = random(dtype, picked, 2);
      on_both(&Kernels::index_select, 0, 1, part, whole, index, each.dim);
      on_both(&Kernels::gather, 0, 1, part, whole, places, each.dim);
      if (!is_floating(dtype)) continue;
      on_both(&Kernels::index_add, bound_of(dtype), 1, whole, part, index, each.dim);
      on_both(&Kernels::scatter_add, bound_of(dtype), 1, whole, part, places, each.dim);
    }
  }
}

TEST_CASE("adding by index has the CPU's bits") {
  const Tensor index = indices({3000}, 7, 1);
  on_both(&Kernels::index_add, 0, 1, random(DType::f32, {7, 5}, 2),
          random(DType::f32, {3000, 5}, 3), index, 0);
}

TEST_CASE("softmax and its logarithm, and back") {
  const auto check = [](DType dtype, std::int64_t rows, std::int64_t width) {
    CAPTURE(concat(dtype, " ", rows, " x ", width));
    const double bound = bound_of(dtype);
    const Tensor out = random(dtype, {rows, width}, 1), x = random(dtype, {rows, width}, 2);
    const Tensor y = random(dtype, {rows, width}, 3);
    on_both(&Kernels::softmax, bound, 1, out, x);
    on_both(&Kernels::softmax_backward, bound, 1, out, x, y);
    on_both(&Kernels::log_softmax, bound, 1, out, x);
    on_both(&Kernels::log_softmax, bound, 1, random(computed_in(dtype), {rows, width}, 1), x);
    on_both(&Kernels::log_softmax_backward, bound, 1, out, x, y);
  };
  for (const DType dtype : floating_types) {
    for (const std::int64_t width : {1, 2, 31, 33, 257, 1024, 1025}) check(dtype, 3, width);
    check(dtype, 0, 4);
  }
  for (const std::int64_t width : {4096, 4097, 9001}) check(DType::f32, 2, width);
  on_both(&Kernels::softmax, 1e-5, 1, random(DType::f32, {66001, 2}, 1),
          random(DType::f32, {66001, 2}, 2));
  std::vector<float> values(3 * 5000, -infinity);  // a row without a number stays NaN
  values[4] = 1, values[4999] = 2, values[5000] = infinity, values[10000] = no_number;
  const Tensor long_rows = tensor_of<float>(values, {3, 5000});
  values.resize(4 * 8);
  const Tensor short_rows = tensor_of<float>(values, {4, 8});
  for (const Tensor& x : {long_rows, short_rows}) {
    on_both(&Kernels::softmax, 1e-5, 1, random(DType::f32, x.shape(), 1), x);
    on_both(&Kernels::log_softmax, 1e-5, 1, random(DType::f32, x.shape(), 1), x);
  }
}

TEST_CASE("losses of classes, and back") {
  const auto check = [](DType dtype, std::int64_t rows, std::int64_t width) {
    CAPTURE(concat(dtype, " ", rows, " x ", width));
    const DType within = computed_in(dtype);
    const Tensor target = indices({rows}, width, 1), dx = random(dtype, {rows, width}, 2);
    if (rows > 1) target.data<std::int64_t>()[1] = -100;
    const Tensor each = random(dtype, {rows}, 3), one = random(dtype, {}, 4);
    const Tensor wide = random(within, {rows}, 3), wide_one = random(within, {}, 4);
    const Tensor logs = random(within, {rows, width}, 5), logits = random(dtype, {rows, width}, 5);
    const ClassTargets sharp{-100, 0};
    on_both(&Kernels::nll, bound_of(within), 1, random(within, {rows}, 6), logs, target, sharp);
    on_both(&Kernels::nll, bound_of(within), 1, random(within, {rows}, 6), logits, target, sharp);
    const Tensor loss = random(within, {rows}, 6), kept = random(within, {2, rows}, 7);
    for (const double smoothing : {0.0, 0.1}) {
      const ClassTargets classes{-100, smoothing};
      on_both(&Kernels::cross_entropy, bound_of(within), 2, loss, kept, logits, target, classes);
      kernels(Device{}).cross_entropy("cross_entropy", loss, loss, kept, logits, target, classes);
      for (const Tensor& dloss : {each, one, wide, wide_one}) {
        on_both(&Kernels::nll_backward, bound_of(dtype), 1, dx, dloss, target, classes, 0.5);
        if (width == 1 && smoothing > 0) continue;  // what is left of 0 by rounding
        on_both(&Kernels::cross_entropy_backward, bound_of(dtype), 1, dx, logits, kept, target,
                dloss, classes, 0.5);
      }
    }
  };
  for (const DType dtype : floating_types) {
    check(dtype, 5, 7);
    check(dtype, 0, 3);
    check(dtype, 3, 1);
    check(dtype, 4, 1030);
  }
  check(DType::f32, 66001, 3);
}

TEST_CASE("layer_norm, and back") {
  const auto check = [](DType dtype, DType affine, std::int64_t rows, std::int64_t width) {
    CAPTURE(concat(dtype, " ", rows, " x ", width));
    const DType within = computed_in(dtype);
    const Shape matrix{rows, width};
    const double bound = width == 1 ? 2e-2 : bound_of(dtype);
    const Tensor x = random(dtype, matrix, 1), y = random(dtype, matrix, 2);
    const Tensor mean = random(within, {rows}, 3), inverse = positive(random(within, {rows}, 4));
    const Tensor weight = random(affine, {width}, 5), bias = random(affine, {width}, 6);
    on_both(&Kernels::layer_norm, bound, 3, y, mean, inverse, x, weight, bias, 1e-5);
    on_both(&Kernels::layer_norm, bound, 3, y, mean, inverse, x, Tensor(), Tensor(), 1e-5);
    on_both(&Kernels::layer_norm_backward, bound, 3, y, weight, bias, random(dtype, matrix, 7), x,
            mean, inverse, weight);
    on_both(&Kernels::layer_norm_backward, bound, 3, y, Tensor(), Tensor(),
            random(dtype, matrix, 7), x, mean, inverse, Tensor());
    on_both(&Kernels::layer_norm_backward, bound, 3, Tensor(), Tensor(), bias,
            random(dtype, matrix, 7), x, mean, inverse, weight);
  };
  for (const DType dtype : floating_types) {
    for (const std::int64_t width : {2, 31, 33, 768, 1025, 1032}) check(dtype, dtype, 3, width);
    check(dtype, computed_in(dtype), 5, 40);
    check(dtype, computed_in(dtype), 2, 4104);  // more than threads keep
    check(dtype, dtype, 0, 40);
    check(dtype, dtype, 200, 40);  // gradients in parts
  }
  check(DType::f32, DType::f32, 2, 4097);
  const Shape many{66001, 2};
  const Tensor stored = random(DType::f32, {many[0]}, 1);
  on_both(&Kernels::layer_norm, 2e-2, 3, random(DType::f32, many, 2), stored, stored,
          random(DType::f32, many, 3), Tensor(), Tensor(), 1e-5);
}

TEST_CASE("normalisation by channel, and back") {
  const auto check = [](DType dtype, DType affine, const Shape& shape) {
    CAPTURE(concat(dtype, " ", shape));
    const DType within = computed_in(dtype);
    const std::int64_t channels = shape[1];
    const double bound = bound_of(dtype);
    const Tensor x = map(random(dtype, shape, 1), [](double v) { return v + 3; });
    const Tensor y = random(dtype, shape, 2), dy = random(dtype, shape, 3);
    const Tensor mean = random(within, {channels}, 4),
                 variance = positive(random(within, {channels}, 5));
    const Tensor weight = random(affine, {channels}, 6), bias = random(affine, {channels}, 7);
    on_both(&Kernels::channel_statistics, bound_of(within), 2, mean, variance, x);
    on_both(&Kernels::batch_norm, bound, 1, y, x, mean, variance, weight, bias, 1e-5);
    on_both(&Kernels::batch_norm, bound, 1, y, x, mean, variance, Tensor(), Tensor(), 1e-5);
    for (const bool own : {false, true}) {
      on_both(&Kernels::batch_norm_backward, bound, 3, y, weight, bias, dy, x, mean, variance,
              weight, 1e-5, own);
      on_both(&Kernels::batch_norm_backward, bound, 3, y, Tensor(), bias, dy, x, mean, variance,
              Tensor(), 1e-5, own);
    }
    // Of three parts, one of them empty.
    const auto set = [](const Tensor& all, std::int64_t at, std::int64_t n, double (*f)(double)) {
      map(all.detach({n}, at), f);
    };
    const Tensor parts = positive(random(within, {3, 2 * channels + 1}, 8));
    set(parts, 2 * channels, 1, [](double) { return 41.0; });
    set(parts, 4 * channels + 1, 1, [](double) { return 0.0; });
    set(parts, 6 * channels + 2, 1, [](double) { return 7.0; });
    const Tensor merged = random(within, {3 * channels + 1}, 9);
    on_both(&Kernels::merge_statistics, bound_of(within), 1, merged, parts);
    set(merged, channels, 2 * channels + 1, [](double) { return 48.0; });
    const Tensor sums = random(within, {2, channels}, 10);
    for (const Tensor& scale : {weight, Tensor()}) {
      on_both(&Kernels::merged_batch_norm_backward, bound, 1, y, dy, x, merged, sums, scale, 1e-5);
    }
  };
  for (const DType dtype : floating_types) {
    check(dtype, dtype, {4, 3, 49});
    check(dtype, dtype, {5, 33, 1});
    check(dtype, computed_in(dtype), {5, 7, 2});
    check(dtype, dtype, {3, 4, 16});
  }
  check(DType::f32, DType::f32, {2, 3, 5000});  // channels in parts
  check(DType::f32, DType::f32, {300, 5, 3});   // columns in parts
  check(DType::f32, DType::f32, {700, 2, 30});
  check(DType::bf16, DType::f32, {41, 3, 264});  // packs in parts
}

TEST_CASE("pooling, and back") {
  const auto check_max = [](DType dtype, const Pool2dGeometry& o) {
    const Shape in{o.planes, o.in_height, o.in_width}, out{o.planes, o.out_height, o.out_width};
    CAPTURE(concat(dtype, " ", in, " to ", out));
    const Tensor x = random(dtype, in, 1), y = random(dtype, out, 2);
    const Tensor index = Tensor::empty(out, DType::u8, Device{});
    kernels(Device{}).max_pool2d("max_pool2d", x, o, y, x, index);  // places for backward
    on_both(&Kernels::max_pool2d_backward, bound_of(dtype), 1, o, random(dtype, in, 3), y, index);
    if (o.in_height > 4)
      x.detach({x.numel()}).rows(3, 4).copy_(map(random(dtype, {1}, 1), [](double) {
        return static_cast<double>(no_number);
      }));
    // y, x and index: x stays as it is.
    on_both(&Kernels::max_pool2d, 0, 3, o, y, x, index);
  };
  const auto check_average = [](DType dtype, const AveragePool2d& o) {
    const Shape in{o.planes, o.in_height, o.in_width}, out{o.planes, o.out_height, o.out_width};
    CAPTURE(concat(dtype, " ", in, " to ", out));
    on_both(&Kernels::avg_pool2d, bound_of(dtype), 1, o, random(dtype, out, 1),
            random(dtype, in, 2));
    on_both(&Kernels::avg_pool2d_backward, bound_of(dtype), 1, o, random(dtype, in, 1),
            random(dtype, out, 2));
  };
  for (const DType dtype : floating_types) {
    check_max(dtype, {3, 6, 8, 3, 4, {2, 2}, {2, 2}});
    check_max(dtype, {2, 7, 5, 3, 2, {3, 2}, {2, 2}});
    check_max(dtype, {2, 9, 8, 7, 6, {3, 3}, {1, 1}});                  // overlapping
    check_max(dtype, {2, 7, 7, 4, 4, {3, 3}, {2, 2}, {1, 1}, {1, 1}});  // padded
    check_max(dtype, {1, 9, 9, 4, 5, {3, 3}, {2, 1}, {1, 0}, {2, 2}});  // with holes
    check_max(dtype, {0, 4, 4, 2, 2, {2, 2}, {2, 2}});
    check_average(dtype, {3, 6, 8, 3, 4, false, {2, 2}, {2, 2}, {0, 0}, true});
    check_average(dtype, {2, 7, 7, 4, 4, false, {3, 3}, {2, 2}, {1, 1}, true});
    check_average(dtype, {2, 7, 7, 4, 4, false, {3, 3}, {2, 2}, {1, 1}, false});
    check_average(dtype, {2, 9, 7, 7, 5, false, {3, 3}, {1, 1}, {0, 0}, true});
    check_average(dtype, {4, 7, 5, 3, 2, true, {}, {}, {}, false});
    check_average(dtype, {4, 3, 3, 5, 7, true, {}, {}, {}, false});
    check_average(dtype, {5, 7, 7, 1, 1, true, {}, {}, {}, false});
    check_average(dtype, {2, 40, 40, 1, 1, true, {}, {}, {}, false});
  }
}

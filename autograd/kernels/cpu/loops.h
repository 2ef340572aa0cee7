// SPDX-License-Identifier: Apache-2.0
// Loops over contiguous elements, the hot inner part of the elementwise kernels. loops_body.h is
// compiled once for each vector level (autograd/core/cpu_level.h). Every loop is serial and takes
// raw ranges. Thread safety: the tables are constant.
#pragma once

#include <peal/autograd/core/cpu_level.h>
#include <peal/autograd/kernels/table.h>

#include <cstdint>

namespace peal::cpu {

// Which operand of a binary loop is one element, read again and again.
enum class Repeat : std::uint8_t { none, left, right };

template <class T>
struct Loops {
  // out[i] = a[i] op b[i]; out may be a or b.
  void (*binary)(Binary op, Repeat repeat, T* out, const T* a, const T* b, std::int64_t n);
  void (*unary)(Unary op, T* out, const T* x, double s, std::int64_t n);
  void (*axpy)(T* x, const T* y, double alpha, std::int64_t n);
  void (*fill)(T* out, double value, std::int64_t n);
};

// For float and double.
template <class T>
struct RealLoops {
  double (*sum)(const T* x, std::int64_t n);
  void (*add_to_doubles)(double* total, const T* x, std::int64_t n);
  T (*max)(const T* x, std::int64_t n);  // n >= 1
  void (*sgd)(T* p, const T* g, T* buffer, const SgdStep& options, std::int64_t n);
  void (*adam)(T* p, const T* g, T* m, T* v, const AdamStep& options, std::int64_t n);
  // Tensors of state that the rule has not are null.
  void (*rule_step)(T* p, const T* g, T* a, T* b, T* c, const RuleStep& options, std::int64_t n);
};

// For float, double and BFloat16: what keeps a byte beside each result.
template <class T>
struct MaskedLoops {
  // `first` is a multiple of 4: the place of element 0 in the range of words.
  void (*dropout)(T* y, std::uint8_t* mask, const T* x, RandomRange words, std::int64_t first,
                  std::uint32_t threshold, double scale, std::int64_t n);
  void (*dropout_backward)(T* dx, const T* dy, const std::uint8_t* mask, double scale,
                           std::int64_t n);
  // One plane; index is the place in the window, row by row. The gradients of BFloat16 are not
  // summed in f32, so its windows lie apart: kernel <= stride.
  void (*max_pool)(const Pool2dGeometry& geometry, T* y, std::uint8_t* index, const T* x);
  void (*max_pool_backward)(const Pool2dGeometry& geometry, T* dx, const T* dy,
                            const std::uint8_t* index);
};

// For float and BFloat16: functions of one element that are made of exponentials.
template <class T>
struct PointwiseLoops {
  // False, and nothing done, where the function is not one of these; out may be x, dx may be dy.
  bool (*math)(Pointwise op, T* out, const T* x, float s, float t, std::int64_t n);
  bool (*math_backward)(Pointwise op, T* dx, const T* dy, const T* x, float s, float t,
                        std::int64_t n);
};

// For Half and BFloat16: to f32, and back with one rounding. Tiny numbers are not flushed to zero.
template <class T>
struct WidthLoops {
  void (*widen)(float* out, const T* x, std::int64_t n);
  void (*narrow)(T* out, const float* x, std::int64_t n);
};

// Rows of n elements, of which the first `count` are seen, and if causal one more in each row.
// From one row of x to the next are whole vectors.
struct SoftmaxRows {
  std::int64_t rows, n, row_x, row_out, count;
  bool causal;
  float scale;
  // Of each row, where they are wanted: the largest of x, and the sum of exp(scale (x - largest)).
  float *largest = nullptr, *total = nullptr;
};

// For float alone: sums and shares of exponentials.
struct MathLoops {
  // out = exp(x - shift), and the sum of it; out may be x. Here and below shift is the largest
  // there is, or near it, and what is no normal number is 0.
  double (*exp_shifted)(float* out, const float* x, float shift, std::int64_t n);
  // The sum of exp(x - shift), which is stored nowhere.
  double (*sum_of_exp)(const float* x, float shift, std::int64_t n);
  // out = scale exp(x - shift) - less; out may be x.
  void (*exp_scaled)(float* out, const float* x, float shift, float scale, float less,
                     std::int64_t n);
  // out = softmax of scale x over what is seen, 0 elsewhere. x is overwritten, and may be out.
  // scale, count > 0.
  void (*softmax_scaled)(float* out, float* x, const SoftmaxRows& o);
  // x = factor exp(scale (x - shift)) over the first `count`, 0 from there to n. In whole vectors,
  // which x has room for.
  void (*exp_part)(float* x, float scale, float shift, float factor, std::int64_t count,
                   std::int64_t n);
};

// For float alone: n elements of one sequence's step (recurrent_step.h), those of its gates n
// apart. No two arrays overlap.
struct RecurrentLoops {
  // gates [4 n]: in place, their functions
  void (*lstm)(float* gates, const float* before, float* cell, float* h, std::int64_t n);
  // dc in place: of the cell, then of that before
  void (*lstm_backward)(float* dgates, float* dc, const float* dh, const float* gates,
                        const float* before, const float* cell, std::int64_t n);
  // gates and products [3 n]; inner: the products' last part
  void (*gru)(float* gates, float* inner, const float* products, const float* before, float* h,
              std::int64_t n);
  // dh in place: of the state, then what of it the state before gets without a product
  void (*gru_backward)(float* dgates, float* dproducts, float* dh, const float* gates,
                       const float* inner, const float* before, std::int64_t n);
};

// out [m, n] = onto + a b. Element i, p of a is a[i row_a + p step_a], so that a may lie
// transposed; row p of b is contiguous from b[p row_b]. Row i of onto begins at onto[i row_onto]:
// a bias has rows 0 apart. Meanwhile each tile asks for k / steps_a_line cache lines, from `ahead`,
// which may be anything, by `ahead_step` elements on: so that they are in a cache when they are
// read after.
struct SmallProduct {
  static constexpr std::int64_t steps_a_line = 2;
  std::int64_t m, n, k, row_a, step_a, row_b, row_out, row_onto = 0;
  const void* ahead = nullptr;
  std::int64_t ahead_step = 0;
};

// For float and double: products whose right operand stays in a cache, as attention has them.
template <class T>
struct ProductLoops {
  std::int64_t lanes;          // elements of a vector
  std::int64_t rows, columns;  // of a tile, the part of the result that is summed in registers
  // Reads b's rows in whole vectors: a multiple of `lanes` elements, n or more. `onto` may be null,
  // or out.
  void (*multiply)(T* out, const T* a, const T* b, const T* onto, const SmallProduct& o);
  // The same of a b that lies transposed: row j from b[j row_b] on. For few columns and long rows;
  // what an element is does not depend on those beside it. REQUIRES: step_a is 1.
  void (*multiply_dots)(T* out, const T* a, const T* b, const T* onto, const SmallProduct& o);
  // out [columns, rows] from x [rows, columns]
  void (*transpose)(T* out, const T* x, std::int64_t rows, std::int64_t columns, std::int64_t row_x,
                    std::int64_t row_out);
  // dx, in place, from dy: scale y (dy - sum(y dy)) over the first `count`, 0 from there to n
  void (*softmax_backward_scaled)(T* dx, const T* y, double scale, std::int64_t count,
                                  std::int64_t n);
  // The same of a part of a row, of whose whole sum(y dy) is `total`.
  void (*softmax_backward_part)(T* dx, const T* y, double total, double scale, std::int64_t count,
                                std::int64_t n);
  // x = scale x + added, and -infinity where `shown` is false; either may be null. Whether anything
  // is left that is not -infinity.
  bool (*change_scores)(T* x, double scale, const T* added, const bool* shown, std::int64_t n);
};

// For float and double: what normalisations are made of.
template <class T>
struct NormLoops {
  double (*squares)(const T* x, double mean, std::int64_t n);  // sum of (x - mean)^2
  // sum of a and of a (x - mean), where a = dy, or dy w where w is not null
  void (*moments)(const T* dy, const T* w, const T* x, double mean, double* sums, std::int64_t n);
  // y = (x - mean) inverse w + b; w and b, or either, may be null
  void (*normalise)(T* y, const T* x, double mean, double inverse, const T* w, const T* b,
                    std::int64_t n);
  // out = p dy w + q x + r; w may be null, out may be dy
  void (*combine)(T* out, const T* dy, const T* w, const T* x, double p, double q, double r,
                  std::int64_t n);
  double (*dot)(const T* a, const T* b, std::int64_t n);
  // out [count] = how far a [n] is from each of `rows` [count, n]
  void (*distances)(T* out, const T* a, const T* rows, std::int64_t count, std::int64_t n);
  // da and drows += what comes from those distances, 0 where one is 0; the rows `step` apart
  void (*distances_backward)(T* da, T* drows, const T* dout, const T* out, const T* a,
                             const T* rows, std::int64_t count, std::int64_t n, std::int64_t step);
  // plain += dy and centred += dy (x - mean) inverse, element by element
  void (*add_moments)(T* plain, T* centred, const T* dy, const T* x, T mean, T inverse,
                      std::int64_t n);
};

// Of the current level.
template <class T>
const NormLoops<T>& norm_loops();
template <class T>
const ProductLoops<T>& product_loops();
const MathLoops& math_loops();
const RecurrentLoops& recurrent_loops();
template <class T>
const WidthLoops<T>& width_loops();
template <class T>
const Loops<T>& loops();
template <class T>
const RealLoops<T>& real_loops();
template <class T>
const MaskedLoops<T>& masked_loops();
template <class T>
const PointwiseLoops<T>& pointwise_loops();

// Of a given one, for the tests. REQUIRES: level <= best_level().
template <class T>
const NormLoops<T>& norm_loops(Level level);
template <class T>
const ProductLoops<T>& product_loops(Level level);
const MathLoops& math_loops(Level level);
template <class T>
const WidthLoops<T>& width_loops(Level level);
template <class T>
const Loops<T>& loops(Level level);
template <class T>
const RealLoops<T>& real_loops(Level level);
template <class T>
const MaskedLoops<T>& masked_loops(Level level);
template <class T>
const PointwiseLoops<T>& pointwise_loops(Level level);

}  // namespace peal::cpu

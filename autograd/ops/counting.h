// SPDX-License-Identifier: Apache-2.0
// Which values there are, how many, and between which bounds. Not recorded. Results whose size
// depends on the values make the host wait for a device. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <concepts>
#include <cstdint>

namespace peal {

// The values [n] of x in order, each once (a NaN is equal to none); of each element of x which of
// them it is; how often each comes. i64.
struct Unique {
  Tensor values, inverse, counts;
};
Unique unique(const Tensor& x);
// The same of runs of equal elements, in the order in which they come.
Unique unique_consecutive(const Tensor& x);
// Both of the slices at the indices of a dimension, in the order of words: the first element that
// differs decides. values has x's shape but for that dimension; inverse and counts have one.
Unique unique(const Tensor& x, int dim);
// unique(x, true) would be along dimension 1: values are always sorted, and all three come.
template <std::same_as<bool> B>
Unique unique(const Tensor& x, B sorted) = delete;
Unique unique_consecutive(const Tensor& x, int dim);

// How often 0, 1, ... up to the largest of x [n] come, integers that are not negative: i64, or the
// sums of their weights [n] (f32 or f64). At least `minlength` of them.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, std::int64_t minlength = 0);
// How many of x lie in each of `bins` equal parts of [low, high], in x's type, which is floating;
// others do not count. Where low is high, from the smallest to the largest of x.
Tensor histc(const Tensor& x, std::int64_t bins = 100, double low = 0, double high = 0);

// Where each value belongs in a sorted line: before those that equal it, or after them where
// `right`. sorted is [n] for values of any shape, or has their sizes but for the last. i64 of the
// values' shape.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false);
Tensor searchsorted(const Tensor& sorted, Scalar value, bool right = false);
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right = false);

// Of each element whether it is among the tests, of any shape, or not so where `invert`: bool in
// the elements' shape. A NaN is among none. (PyTorch's assume_unique changes no result.)
Tensor isin(const Tensor& elements, const Tensor& tests, bool invert = false);
Tensor isin(const Tensor& elements, Scalar test, bool invert = false);
Tensor isin(Scalar element, const Tensor& tests, bool invert = false);

}  // namespace peal

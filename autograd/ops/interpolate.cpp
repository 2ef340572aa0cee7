// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/adaptive_pool.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/interpolate.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/ops/windows.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace peal {
namespace {

using Mode = InterpolateMode;

// Of each element of a result, along one dimension: `most` elements it is made of, and what each
// counts (empty: all of it, where there is one). Filled up: some may stand there for none, which
// count 0, be they an infinity.
struct Taps {
  std::int64_t most;
  std::vector<std::int64_t> from;
  std::vector<double> weights;
  bool filled_up = false;
};

// From which place of the input an element is read: by what a step is, in the input.
struct Steps1d {
  std::int64_t in, out;
  double scale;  // what was given, as the input's share of the result; 0: none
  bool aligned;
  double step() const {
    if (aligned) {
      return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
    }
    return scale > 0 ? scale : static_cast<double>(in) / static_cast<double>(out);
  }
  double place(std::int64_t i) const {
    return aligned ? step() * static_cast<double>(i)
                   : step() * (static_cast<double>(i) + 0.5) - 0.5;
  }
};

// PyTorch counts these in f32, whatever the type of the elements is.
Taps nearest_taps(const Steps1d& o, bool exact) {
  const auto step = static_cast<float>(
      o.scale > 0 ? o.scale : static_cast<float>(o.in) / static_cast<float>(o.out));
  Taps taps{1, {}, {}};
  for (std::int64_t i = 0; i < o.out; ++i) {
    const double middle = exact ? static_cast<double>(i) + 0.5 : static_cast<double>(i);
    const auto at = exact ? static_cast<float>(middle * static_cast<double>(step))
                          : static_cast<float>(i) * step;
    taps.from.push_back(std::min(static_cast<std::int64_t>(std::floor(at)), o.in - 1));
  }
  return taps;
}

Taps linear_taps(const Steps1d& o) {
  Taps taps{2, {}, {}};
  for (std::int64_t i = 0; i < o.out; ++i) {
    const double place = o.in == o.out ? static_cast<double>(i) : std::max(o.place(i), 0.0);
    const std::int64_t first = std::min(static_cast<std::int64_t>(place), o.in - 1);
    const double second = std::clamp(place - static_cast<double>(first), 0.0, 1.0);
    taps.from.insert(taps.from.end(), {first, std::min(first + 1, o.in - 1)});
    taps.weights.insert(taps.weights.end(), {1 - second, second});
  }
  return taps;
}

// The weight of an element at this distance.
double cubic(double distance, double a) {
  const double d = std::abs(distance);
  if (d < 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

Taps cubic_taps(const Steps1d& o) {
  Taps taps{4, {}, {}};
  for (std::int64_t i = 0; i < o.out; ++i) {
    const double place = o.place(i), first = std::floor(place);
    for (std::int64_t k = -1; k < 3; ++k) {
      const auto at = static_cast<std::int64_t>(first) + k;
      taps.from.push_back(std::clamp<std::int64_t>(at, 0, o.in - 1));
      taps.weights.push_back(cubic(place - first - static_cast<double>(k), -0.75));
    }
  }
  return taps;
}

// A filter as wide as a step, as PIL has it: its cubic one has a = -1/2.
Taps filtered_taps(const Steps1d& o, bool is_cubic) {
  const double step = o.step(), wide = std::max(step, 1.0), reach = (is_cubic ? 2 : 1) * wide;
  std::vector<std::vector<double>> weights;
  std::vector<std::int64_t> firsts;
  Taps taps{1, {}, {}, true};
  for (std::int64_t i = 0; i < o.out; ++i) {
    const double middle = step * (static_cast<double>(i) + 0.5);
    const auto first = std::max<std::int64_t>(static_cast<std::int64_t>(middle - reach + 0.5), 0);
    const auto end = std::min(static_cast<std::int64_t>(middle + reach + 0.5), o.in);
    std::vector<double> row;
    double total = 0;
    for (std::int64_t at = first; at < end; ++at) {
      const double distance = (static_cast<double>(at) - middle + 0.5) / wide;
      row.push_back(is_cubic ? cubic(distance, -0.5) : std::max(1 - std::abs(distance), 0.0));
      total += row.back();
    }
    for (double& weight : row) weight = total == 0 ? weight : weight / total;
    taps.most = std::max(taps.most, static_cast<std::int64_t>(row.size()));
    firsts.push_back(std::min(first, o.in - 1));
    weights.push_back(std::move(row));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i].resize(static_cast<std::size_t>(taps.most));
    taps.weights.insert(taps.weights.end(), weights[i].begin(), weights[i].end());
    for (std::int64_t k = 0; k < taps.most; ++k) {
      taps.from.push_back(std::min(firsts[i] + k, o.in - 1));
    }
  }
  return taps;
}

Tensor resampled(const Tensor& x, int dim, const Taps& taps) {
  const Tensor found = index_select(x, dim, index_of_places(taps.from, x.device()));
  if (taps.weights.empty()) return found;
  const auto out = static_cast<std::int64_t>(taps.from.size()) / taps.most;
  Shape apart, weights{out, taps.most};
  for (int i = 0; i < x.dim(); ++i) {
    apart.push_back(i == dim ? out : x.size(i));
    if (i == dim) apart.push_back(taps.most);
    if (i > dim) weights.push_back(1);
  }
  const Tensor w =
      reshaped(Tensor::from(taps.weights, {out, taps.most}, x.device()).to(x.dtype()), weights);
  const Tensor each = reshaped(found, apart);
  return sum((taps.filled_up ? where(eq(w, 0), 0.0, each) : each) * w, {dim + 1});
}

Tensor mean_of_shares(const Tensor& x, const std::vector<std::int64_t>& sizes) {
  if (sizes.size() == 1) return adaptive_avg_pool1d(x, sizes[0]);
  if (sizes.size() == 2) return adaptive_avg_pool2d(x, {sizes[0], sizes[1]});
  return adaptive_avg_pool3d(x, {sizes[0], sizes[1], sizes[2]});
}

bool interpolates(Mode mode) {
  return mode == Mode::linear || mode == Mode::bilinear || mode == Mode::trilinear ||
         mode == Mode::bicubic;
}

}  // namespace

std::vector<std::int64_t> interpolated_sizes(const Shape& x, const InterpolateOptions& o) {
  constexpr std::string_view op = "interpolate";
  PEAL_CHECK(x.dim() >= 3 && x.dim() <= 5, op,
             ": expected [N, C] and 1 to 3 dimensions more, got shape ", x);
  const auto dims = static_cast<std::size_t>(x.dim() - 2);
  const std::size_t wanted = o.mode == Mode::linear                                ? 1
                             : o.mode == Mode::bilinear || o.mode == Mode::bicubic ? 2
                             : o.mode == Mode::trilinear                           ? 3
                                                                                   : dims;
  PEAL_CHECK(dims == wanted, op, ": this mode is for ", wanted,
             " dimensions behind [N, C], got shape ", x);
  PEAL_CHECK(bool(o.size) != bool(o.scale_factor), op,
             ": expected either a size or a scale_factor");
  PEAL_CHECK(!o.align_corners || interpolates(o.mode), op,
             ": align_corners is for linear, bilinear, trilinear and bicubic");
  PEAL_CHECK(!o.antialias || o.mode == Mode::bilinear || o.mode == Mode::bicubic, op,
             ": antialias is for bilinear and bicubic");
  PEAL_CHECK(!o.recompute_scale_factor.value_or(false) || o.scale_factor, op,
             ": recompute_scale_factor is for a scale_factor");
  const std::size_t given = o.size ? o.size.values.size() : o.scale_factor.values.size();
  PEAL_CHECK((o.size ? o.size.one : o.scale_factor.one) || given == dims, op, ": expected one or ",
             dims, " numbers for shape ", x, ", got ", given);
  std::vector<std::int64_t> sizes;
  for (std::size_t d = 0; d < dims; ++d) {
    const std::int64_t in = x[2 + static_cast<int>(d)];
    sizes.push_back(o.size ? o.size.at(d)
                           : static_cast<std::int64_t>(
                                 std::floor(static_cast<double>(in) * o.scale_factor.at(d))));
    PEAL_CHECK(in >= 1 && sizes.back() >= 1, op, ": expected sizes of at least 1, got ",
               sizes.back(), " from ", in, " of shape ", x);
  }
  return sizes;
}

Tensor interpolate(const Tensor& x, const InterpolateOptions& o) {
  constexpr std::string_view op = "interpolate";
  const OpName name(op);
  TraceSpan span(op);
  const std::vector<std::int64_t> sizes = interpolated_sizes(x.shape(), o);
  if (o.mode == Mode::area) return mean_of_shares(x, sizes);
  const bool weighed = interpolates(o.mode);
  if (weighed) check_floating(op, x);
  Tensor y = weighed ? cast(x, computed_in(x.dtype())) : x;
  for (int d = static_cast<int>(sizes.size()) - 1; d >= 0; --d) {
    const auto at = static_cast<std::size_t>(d);
    const bool counted = o.scale_factor && !o.recompute_scale_factor.value_or(false);
    const Steps1d steps{x.size(2 + d), sizes[at], counted ? 1 / o.scale_factor.at(at) : 0,
                        weighed && o.align_corners.value_or(false)};
    const Taps taps = !weighed                  ? nearest_taps(steps, o.mode == Mode::nearest_exact)
                      : o.antialias             ? filtered_taps(steps, o.mode == Mode::bicubic)
                      : o.mode == Mode::bicubic ? cubic_taps(steps)
                                                : linear_taps(steps);
    y = resampled(y, 2 + d, taps);
  }
  return weighed ? cast(y, x.dtype()) : y;
}

}  // namespace peal

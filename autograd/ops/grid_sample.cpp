// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/binary_math.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/grid_sample.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

#include <vector>

namespace peal {
namespace {

// An element that a place is made of, along one dimension: which, in range, and what it counts.
struct GridTap {
  Tensor from, weight, inside;
};

// One dimension of an image.
class GridLine {
 public:
  GridLine(std::int64_t size, const GridSampleOptions& options)
      : size_(static_cast<double>(size)), o_(options) {}

  // `at` is [-1, 1] from end to end.
  std::vector<GridTap> taps(const Tensor& at) const {
    const double half = (o_.align_corners ? size_ - 1 : size_) / 2;
    Tensor place = (at + 1.0) * half;
    if (!o_.align_corners) place = place - 0.5;
    // From here on nothing changes any more; infinite places are there as well.
    if (o_.padding_mode != GridPadding::reflection) place = clamp(place, -3, size_ + 2);
    if (o_.mode == GridMode::bicubic) return cubic_taps(place);
    place = folded(place);
    if (o_.mode == GridMode::nearest) {
      const Tensor nearest = round(place), fixed = nearest.detach();
      return {tap(fixed, nearest - fixed + 1.0)};
    }
    const Tensor first = floor(place.detach()), second = place - first;
    return {tap(first, 1.0 - second), tap(first + 1.0, second)};
  }

 private:
  // Where it is within the image, for what is outside of it.
  Tensor folded(const Tensor& place) const {
    if (o_.padding_mode == GridPadding::zeros) return place;
    Tensor inside = place;
    const double low = o_.align_corners ? 0 : -0.5, span = o_.align_corners ? size_ - 1 : size_;
    if (o_.padding_mode == GridPadding::reflection && span > 0) {
      const Tensor away = abs(place - low), rest = fmod(away, span);
      const Tensor forth = eq(fmod(floor(away.detach() / span), 2.0), 0.0);
      inside = where(forth, rest, span - rest) + low;
    }
    return clamp(inside, 0, size_ - 1);
  }

  GridTap tap(const Tensor& place, const Tensor& weight) const {
    const Tensor inside = ge(place, 0) & le(place, size_ - 1);
    return {cast(where(inside, place, 0.0), DType::i64), weight, inside};
  }

  // Keys, "Cubic convolution interpolation for digital image processing", 1981.
  std::vector<GridTap> cubic_taps(const Tensor& place) const {
    constexpr double a = -0.75;
    const Tensor first = floor(place.detach()), t = place - first, u = 1.0 - t;
    const auto near = [](const Tensor& d) { return ((a + 2) * d - (a + 3)) * d * d + 1.0; };
    const auto far = [](const Tensor& d) {  // of d less 1
      const Tensor e = d + 1.0;
      return ((a * e - 5 * a) * e + 8 * a) * e - 4 * a;
    };
    return {tap(folded(first - 1.0), far(t)), tap(folded(first), near(t)),
            tap(folded(first + 1.0), near(u)), tap(folded(first + 2.0), far(u))};
  }

  double size_;
  GridSampleOptions o_;
};

// Made of ops, which have gradients of gradients, and which every device has.
Tensor sampled_by_ops(const Tensor& x, const Tensor& grid, const GridSampleOptions& options) {
  const std::int64_t n = x.size(0), channels = x.size(1), height = x.size(2), width = x.size(3);
  const std::int64_t places = grid.size(1) * grid.size(2);
  const auto along = [&](int which, std::int64_t size) {
    return GridLine(size, options).taps(reshaped(select(grid, 3, which), {n, places}));
  };
  const std::vector<GridTap> rows = along(1, height), columns = along(0, width);
  // All channels of an element beside each other, so that each place reads a few rows.
  const Tensor elements = reshaped(permute(x, {0, 2, 3, 1}), {n * height * width, channels});
  const Tensor image = reshaped(arange(n, DType::i64, x.device()) * (height * width), {n, 1});
  Tensor y;
  for (const GridTap& row : rows) {
    const Tensor line = image + row.from * width;
    for (const GridTap& column : columns) {
      const Tensor from = reshaped(line + column.from, {n * places});
      const Tensor weight = reshaped(row.weight * column.weight, {n * places, 1});
      Tensor value = index_select(elements, 0, from);
      if (options.padding_mode == GridPadding::zeros) {
        value = where(reshaped(row.inside & column.inside, {n * places, 1}), value, 0.0);
      }
      const Tensor part = value * weight;
      y = y.defined() ? y + part : part;
    }
  }
  return as_result(permute(reshaped(y, {n, grid.size(1), grid.size(2), channels}), {0, 3, 1, 2}));
}

Tensor sampled_by_kernel(std::string_view op, const Tensor& x, const Tensor& grid,
                         const GridSampleOptions& options) {
  const GridGeometry o{.batch = x.size(0),
                       .channels = x.size(1),
                       .in_height = x.size(2),
                       .in_width = x.size(3),
                       .out_height = grid.size(1),
                       .out_width = grid.size(2),
                       .taps = static_cast<GridTaps>(options.mode),
                       .edge = static_cast<GridEdge>(options.padding_mode),
                       .align_corners = options.align_corners};
  const Tensor y =
      Tensor::empty({o.batch, o.channels, o.out_height, o.out_width}, x.dtype(), x.device());
  kernels(x.device()).grid_sample(op, x, o, y, x, grid);
  return record(op, y, {x, grid},
                [op, o, options, x = save(x), grid = save(grid)](const Tensor& g, Needs needs) {
                  Tensors grads(2);
                  Tensors inputs{x(), grid()};
                  if (backward_is_recorded()) {
                    Tensors wanted;
                    for (std::size_t i = 0; i < 2; ++i) {
                      // Not the graph before them, which is under way.
                      inputs[i] = reshaped(inputs[i], inputs[i].shape());
                      if (needs[i]) wanted.push_back(inputs[i]);
                    }
                    const Tensors found =
                        autograd::grad({sampled_by_ops(inputs[0], inputs[1], options)}, wanted,
                                       {.grad_outputs = {g}, .create_graph = true});
                    for (std::size_t i = 0, next = 0; i < 2; ++i) {
                      if (needs[i]) grads[i] = found[next++];
                    }
                    return grads;
                  }
                  for (std::size_t i = 0; i < 2; ++i) {
                    if (needs[i])
                      grads[i] = Tensor::empty(inputs[i].shape(), g.dtype(), g.device());
                  }
                  kernels(g.device())
                      .grid_sample_backward(op, g, o, grads[0], grads[1], g, inputs[0], inputs[1]);
                  return grads;
                });
}

}  // namespace

Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options) {
  if (context().autocast && x.dtype() != grid.dtype() && widens(x, grid)) {
    return grid_sample(widened(x), widened(grid), options);
  }
  constexpr std::string_view op = "grid_sample";
  const OpName name(op);
  const TraceSpan span(op);
  check_alike(op, x, grid);
  check_floating(op, x);
  PEAL_CHECK(x.dim() == 4 && x.size(2) > 0 && x.size(3) > 0, op,
             ": expected an image [N, C, H, W] with H and W above 0, got shape ", x.shape());
  PEAL_CHECK(grid.dim() == 4 && grid.size(0) == x.size(0) && grid.size(3) == 2, op,
             ": expected a grid [", x.size(0), ", h, w, 2] for an image of shape ", x.shape(),
             ", got shape ", grid.shape());
  const DType within = computed_in(x.dtype());
  const Tensor image = cast(x, within), places = cast(grid, within);
  const Tensor y = kernels(x.device()).grid_sample ? sampled_by_kernel(op, image, places, options)
                                                   : sampled_by_ops(image, places, options);
  return cast(y, x.dtype());
}

Tensor affine_grid(const Tensor& theta, const Shape& size, bool align_corners) {
  constexpr std::string_view op = "affine_grid";
  const OpName name(op);
  const TraceSpan span(op);
  check_floating(op, theta);
  PEAL_CHECK(theta.dim() == 3 && theta.size(1) == 2 && theta.size(2) == 3, op,
             ": expected a theta [N, 2, 3], got shape ", theta.shape());
  PEAL_CHECK(size.dim() == 4 && size[0] == theta.size(0) && size[2] > 0 && size[3] > 0, op,
             ": expected a size [", theta.size(0), ", C, H, W] with H and W above 0, got ", size);
  const Tensor wide = cast(theta, computed_in(theta.dtype()));
  // The places of `count` elements, of which one alone is in the middle.
  const auto line = [&](std::int64_t count, const Shape& shape) {
    const double parts = static_cast<double>(align_corners ? count - 1 : count);
    const Tensor twice = arange(count, wide.dtype(), wide.device()) * 2.0;
    const Tensor whole = align_corners ? twice : twice + 1.0;
    return reshaped(parts > 0 ? whole / parts - 1.0 : whole * 0.0, shape);
  };
  const auto part = [&](std::int64_t column) {
    return reshaped(select(wide, 2, column), {size[0], 1, 1, 2});
  };
  const Tensor x = line(size[3], {1, 1, size[3], 1}), y = line(size[2], {1, size[2], 1, 1});
  return cast(x * part(0) + (y * part(1) + part(2)), theta.dtype());
}

}  // namespace peal

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/pad.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>

namespace peal {
namespace {

Tensor padded_by_number(const Tensor& x, int dim, std::int64_t before, std::int64_t after,
                        double value) {
  const std::int64_t cut = std::max<std::int64_t>(-before, 0);
  const std::int64_t left = x.size(dim) - cut - std::max<std::int64_t>(-after, 0);
  PEAL_CHECK(left >= 0, "pad: ", before, " and ", after, " cut off more than dimension ", dim,
             " of shape ", x.shape(), " has");
  const Tensor inner = left == x.size(dim) ? x : as_result(narrow(x, dim, cut, left));
  Tensors parts;
  const auto add = [&](std::int64_t count) {
    if (count <= 0) return;
    Shape shape = x.shape();
    shape[dim] = count;
    parts.push_back(full(shape, value, x.dtype(), x.device()));
  };
  add(before);
  parts.push_back(inner);
  add(after);
  return parts.size() == 1 ? inner : cat(parts, dim);
}

// Which element of a line of `size` stands at i, of those from -before on.
std::int64_t source_of(PadMode mode, std::int64_t i, std::int64_t size) {
  if (mode == PadMode::replicate) return std::clamp<std::int64_t>(i, 0, size - 1);
  if (mode == PadMode::circular) return (i + size) % size;
  return i < 0 ? -i : i < size ? i : 2 * (size - 1) - i;
}

Tensor padded_by_own(const Tensor& x, int dim, std::int64_t before, std::int64_t after,
                     PadMode mode) {
  const std::int64_t size = x.size(dim);
  const std::int64_t most = mode == PadMode::reflect    ? size - 1
                            : mode == PadMode::circular ? size
                            : size > 0                  ? std::numeric_limits<std::int64_t>::max()
                                                        : 0;
  PEAL_CHECK(before >= 0 && after >= 0 && before <= most && after <= most,
             "pad: expected at least 0 and, of this mode, at most ", most,
             " elements on each side of dimension ", dim, " of shape ", x.shape(), ", got ", before,
             " and ", after);
  std::vector<std::int64_t> from;
  for (std::int64_t i = -before; i < size + after; ++i) from.push_back(source_of(mode, i, size));
  return index_select(x, dim, Tensor::from(from, {std::ssize(from)}, x.device()));
}

// What a shuffle starts from: everything before the last three dimensions as one.
std::int64_t images_of(std::string_view op, const Tensor& x, std::int64_t factor) {
  PEAL_CHECK(x.dim() >= 3, op, ": expected [..., C, H, W], got shape ", x.shape());
  PEAL_CHECK(factor >= 1, op, ": expected a factor of at least 1, got ", factor);
  std::int64_t images = 1;
  for (int i = 0; i < x.dim() - 3; ++i) images *= x.size(i);
  return images;
}

Shape with_images(const Tensor& x, std::int64_t c, std::int64_t h, std::int64_t w) {
  Shape shape = x.shape();
  shape[-3] = c;
  shape[-2] = h;
  shape[-1] = w;
  return shape;
}

}  // namespace

Tensor padded(const Tensor& x, const std::vector<std::int64_t>& pads, PadMode mode, double value) {
  constexpr std::string_view op = "pad";
  const OpName name(op);
  PEAL_CHECK(pads.size() % 2 == 0 && static_cast<int>(pads.size()) <= 2 * x.dim(), op,
             ": expected two numbers a dimension of shape ", x.shape(), ", got ", pads.size());
  Tensor y = x;
  for (std::size_t i = 0; i < pads.size(); i += 2) {
    const int dim = x.dim() - 1 - static_cast<int>(i / 2);
    if (pads[i] == 0 && pads[i + 1] == 0) continue;
    y = mode == PadMode::constant ? padded_by_number(y, dim, pads[i], pads[i + 1], value)
                                  : padded_by_own(y, dim, pads[i], pads[i + 1], mode);
  }
  return y;
}

Tensor pad(const Tensor& x, const std::vector<std::int64_t>& pads, PadMode mode, double value) {
  const Tensor y = padded(x, pads, mode, value);
  return y.storage() == x.storage() ? y.clone() : y;
}

Tensor pixel_shuffle(const Tensor& x, std::int64_t factor) {
  constexpr std::string_view op = "pixel_shuffle";
  const OpName name(op);
  const std::int64_t r = factor, images = images_of(op, x, r), h = x.size(-2), w = x.size(-1);
  PEAL_CHECK(x.size(-3) % (r * r) == 0, op, ": ", r, " x ", r, " pixels do not divide ", x.size(-3),
             " channels");
  const std::int64_t c = x.size(-3) / (r * r);
  const Tensor apart = reshaped(x, {images, c, r, r, h, w});
  return reshaped(as_result(permute(apart, {0, 1, 4, 2, 5, 3})), with_images(x, c, h * r, w * r));
}

Tensor pixel_unshuffle(const Tensor& x, std::int64_t factor) {
  constexpr std::string_view op = "pixel_unshuffle";
  const OpName name(op);
  const std::int64_t r = factor, images = images_of(op, x, r), c = x.size(-3);
  PEAL_CHECK(x.size(-2) % r == 0 && x.size(-1) % r == 0, op, ": a factor of ", r,
             " does not divide the image of shape ", x.shape());
  const std::int64_t h = x.size(-2) / r, w = x.size(-1) / r;
  const Tensor apart = reshaped(x, {images, c, h, r, w, r});
  return reshaped(as_result(permute(apart, {0, 1, 3, 5, 2, 4})), with_images(x, c * r * r, h, w));
}

Tensor channel_shuffle(const Tensor& x, std::int64_t groups) {
  constexpr std::string_view op = "channel_shuffle";
  const OpName name(op);
  PEAL_CHECK(x.dim() >= 3, op, ": expected [N, C, ...], got shape ", x.shape());
  PEAL_CHECK(groups >= 1 && x.size(1) % groups == 0, op, ": ", groups, " groups do not divide ",
             x.size(1), " channels");
  std::int64_t plane = 1;
  for (int i = 2; i < x.dim(); ++i) plane *= x.size(i);
  const Tensor apart = reshaped(x, {x.size(0), groups, x.size(1) / groups, plane});
  return reshaped(as_result(permute(apart, {0, 2, 1, 3})), x.shape());
}

}  // namespace peal

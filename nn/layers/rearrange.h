// SPDX-License-Identifier: Apache-2.0
// Modules without parameters that move elements, or nothing: Identity, Unflatten, shuffles. Thread
// safety: as of Module.
#pragma once

#include <peal/autograd/ops/pad.h>
#include <peal/autograd/ops/shape.h>
#include <peal/nn/module.h>

#include <utility>
#include <vector>

namespace peal::nn {

class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
};

// Dimension `dim` becomes several, whose sizes are `sizes`; one of them may be -1.
class Unflatten : public Module {
 public:
  Unflatten(int dim, std::vector<std::int64_t> sizes) : dim_(dim), sizes_(std::move(sizes)) {}
  Tensor forward(const Tensor& x) override {
    const int at = dim_ < 0 ? dim_ + x.dim() : dim_;
    PEAL_CHECK(at >= 0 && at < x.dim(), "Unflatten: dimension ", dim_, " of shape ", x.shape());
    std::int64_t known = 1, unknown = 0;
    for (const std::int64_t size : sizes_) size == -1 ? ++unknown : known *= size;
    PEAL_CHECK(
        unknown <= 1 && known > 0 && (unknown == 1 ? x.size(at) % known == 0 : x.size(at) == known),
        "Unflatten: sizes of ", known, " elements do not make up dimension ", dim_, " of shape ",
        x.shape());
    std::vector<std::int64_t> shape(x.shape().begin(), x.shape().begin() + at);
    for (const std::int64_t size : sizes_) shape.push_back(size == -1 ? x.size(at) / known : size);
    shape.insert(shape.end(), x.shape().begin() + at + 1, x.shape().end());
    return reshape(x, shape);
  }
  std::string extra_repr() const override;

 private:
  int dim_;
  std::vector<std::int64_t> sizes_;
};

class PixelShuffle : public Module {
 public:
  explicit PixelShuffle(std::int64_t factor) : factor_(factor) {}
  Tensor forward(const Tensor& x) override { return pixel_shuffle(x, factor_); }
  std::string extra_repr() const override;

 private:
  std::int64_t factor_;
};

class PixelUnshuffle : public Module {
 public:
  explicit PixelUnshuffle(std::int64_t factor) : factor_(factor) {}
  Tensor forward(const Tensor& x) override { return pixel_unshuffle(x, factor_); }
  std::string extra_repr() const override;

 private:
  std::int64_t factor_;
};

class ChannelShuffle : public Module {
 public:
  explicit ChannelShuffle(std::int64_t groups) : groups_(groups) {}
  Tensor forward(const Tensor& x) override { return channel_shuffle(x, groups_); }
  std::string extra_repr() const override;

 private:
  std::int64_t groups_;
};

}  // namespace peal::nn

// SPDX-License-Identifier: Apache-2.0
// Padding as modules: of x [N, C] or [C] and 1, 2 or 3 dimensions more, as many elements on all
// sides or {left, right, top, bottom, front, back}, as far as there are dimensions. Thread safety:
// as of Module.
#pragma once

#include <peal/autograd/ops/pad.h>
#include <peal/nn/module.h>
#include <peal/nn/python_text.h>

#include <concepts>
#include <initializer_list>
#include <vector>

namespace peal::nn {

// How many elements, before and after each of `dims` dimensions.
template <int dims>
struct Sides {
  template <std::integral Number>
  requires(!std::same_as<Number, bool>) Sides(Number all)  // NOLINT: meant as a conversion
      : counts(2 * dims, static_cast<std::int64_t>(all)) {}
  Sides(std::initializer_list<std::int64_t> each) : counts(each) {
    PEAL_CHECK(each.size() == 2 * dims, "padding of ", dims, " dimensions: expected ", 2 * dims,
               " numbers, got ", each.size());
  }
  std::vector<std::int64_t> counts;
};

template <int dims, PadMode mode>
class Padding : public Module {
 public:
  explicit Padding(Sides<dims> sides) : sides_(std::move(sides.counts)) {}
  Tensor forward(const Tensor& x) override { return padded(x); }
  std::string extra_repr() const override { return python_text(sides_); }
  std::string repr_name() const override {
    const char* const kind = mode == PadMode::constant    ? "Zero"
                             : mode == PadMode::reflect   ? "Reflection"
                             : mode == PadMode::replicate ? "Replication"
                                                          : "Circular";
    return concat(kind, "Pad", dims, "d");
  }

 protected:
  Tensor padded(const Tensor& x, double value = 0) const {
    PEAL_CHECK(x.dim() == dims + 1 || x.dim() == dims + 2, "padding of ", dims,
               " dimensions: expected [N, C] or [C] and ", dims, " more, got shape ", x.shape());
    return pad(x, sides_, mode, value);
  }

 private:
  std::vector<std::int64_t> sides_;
};

template <int dims>
class ConstantPad : public Padding<dims, PadMode::constant> {
 public:
  ConstantPad(Sides<dims> sides, double value)
      : Padding<dims, PadMode::constant>(std::move(sides)), value_(value) {}
  Tensor forward(const Tensor& x) override { return this->padded(x, value_); }
  std::string extra_repr() const override {
    return "padding=" + Padding<dims, PadMode::constant>::extra_repr() +
           ", value=" + python_text(value_);
  }
  std::string repr_name() const override { return concat("ConstantPad", dims, "d"); }

 private:
  double value_;
};

using ConstantPad1d = ConstantPad<1>;
using ConstantPad2d = ConstantPad<2>;
using ConstantPad3d = ConstantPad<3>;
using ZeroPad1d = Padding<1, PadMode::constant>;
using ZeroPad2d = Padding<2, PadMode::constant>;
using ZeroPad3d = Padding<3, PadMode::constant>;
using ReflectionPad1d = Padding<1, PadMode::reflect>;
using ReflectionPad2d = Padding<2, PadMode::reflect>;
using ReflectionPad3d = Padding<3, PadMode::reflect>;
using ReplicationPad1d = Padding<1, PadMode::replicate>;
using ReplicationPad2d = Padding<2, PadMode::replicate>;
using ReplicationPad3d = Padding<3, PadMode::replicate>;
using CircularPad1d = Padding<1, PadMode::circular>;
using CircularPad2d = Padding<2, PadMode::circular>;
using CircularPad3d = Padding<3, PadMode::circular>;

}  // namespace peal::nn

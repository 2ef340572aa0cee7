// SPDX-License-Identifier: Apache-2.0
// Batch norm folded into the layer before it.
#include <peal/autograd/ops/ops.h>
#include <peal/nn/layers/fusion.h>
#include <peal/nn/models/resnet.h>
#include <peal/nn/models/xresnet.h>
#include <peal/tests/errors.h>

#include <algorithm>
#include <type_traits>

using namespace peal;
using namespace peal::testing;

namespace {

// Parameters and statistics that a trained layer might have.
void as_trained(const nn::BatchNorm& norm) {
  norm.running_mean.copy_(randn(norm.running_mean.shape()));
  norm.running_var.copy_(rand(norm.running_var.shape()) + 0.5);
  if (!norm.weight.defined()) return;
  const NoGrad guard;
  norm.weight.detach().copy_(rand(norm.weight.shape()) + 0.5);
  if (norm.bias.defined()) norm.bias.detach().copy_(randn(norm.bias.shape()));
}
void train_all(nn::Module& model) {
  model.apply([](nn::Module& module) {
    if (const auto* norm = module.as<nn::BatchNorm>()) as_trained(*norm);
  });
}

double distance(const Tensor& a, const Tensor& b) {
  return amax(abs(a - b)).item<double>() / amax(abs(a)).item<double>();
}

template <class Layer>
Layer evaluating(Layer layer) {
  layer.eval();
  return layer;
}

template <class Conv, class Norm>
void check_folded(Conv conv, Norm norm, const Tensor& x) {
  as_trained(norm);
  conv.eval();
  norm.eval();
  Conv fused = [&] {
    if constexpr (std::is_same_v<Conv, nn::Linear>) {
      return nn::fuse_linear_bn_eval(conv, norm);
    } else {
      return nn::fuse_conv_bn_eval(conv, norm);
    }
  }();
  CHECK(distance(norm(conv(x)), fused(x)) < 2e-6);
  CHECK_FALSE(fused.training());
  CHECK(fused.weight.requires_grad());
  const auto before = conv.weight.template to_vector<float>();
  fused.weight.detach().zero_();
  CHECK(conv.weight.template to_vector<float>() == before);
}

// The first layer's result goes past the norm, too.
struct Bypassing : nn::Module {
  nn::Conv2d conv = add("conv", nn::Conv2d(3, 3, 1));
  nn::BatchNorm2d norm = add("norm", nn::BatchNorm2d(3));
  Tensor forward(const Tensor& x) override {
    const Tensor y = conv(x);
    return y + norm(y);
  }
};

// A forward that wants its norm, and looks whether what the forward before gave on its way is still
// held by somebody.
struct Needing : nn::Module {
  nn::Conv2d conv = add("conv", nn::Conv2d(3, 3, 1));
  nn::Module norm = add("norm", nn::Module(nn::BatchNorm2d(3)));
  bool needs = false, held = false;
  std::weak_ptr<Storage> last{};
  Tensor forward(const Tensor& x) override {
    PEAL_CHECK(!needs || norm.as<nn::BatchNorm>() != nullptr, "where is the norm");
    held = !last.expired();
    const Tensor y = conv(x);
    last = y.storage();
    return norm(y);
  }
};

}  // namespace

TEST_CASE("a batch norm folded into the layer before it") {
  manual_seed(3);
  check_folded(nn::Conv2d(3, 8, 3, {.stride = 2, .padding = 1}), nn::BatchNorm2d(8),
               randn({2, 3, 9, 7}));
  check_folded(nn::Conv2d(4, 6, {3, 1}, {.groups = 2, .bias = false}), nn::BatchNorm2d(6),
               randn({2, 4, 9, 7}));
  check_folded(nn::Conv2d(3, 5, 3, {.padding = 1, .dilation = 1, .padding_mode = PadMode::reflect}),
               nn::BatchNorm2d(5, {.eps = 0.1, .affine = false}), randn({2, 3, 9, 7}));
  check_folded(nn::Conv1d(3, 4, 3, {.padding = "same"}), nn::BatchNorm1d(4), randn({2, 3, 9}));
  check_folded(nn::Conv3d(2, 4, 2), nn::BatchNorm3d(4), randn({2, 2, 4, 3, 5}));
  check_folded(nn::Linear(5, 7), nn::BatchNorm1d(7), randn({6, 5}));
  check_folded(nn::Linear(5, 7, false), nn::BatchNorm1d(7), randn({6, 5}));
  check_folded(nn::Linear(5, 7), nn::BatchNorm1d(7, {.bias = false}), randn({6, 5}));
}

TEST_CASE("what cannot be folded is told") {
  const nn::Conv2d conv = evaluating(nn::Conv2d(3, 4, 3));
  const auto error = [&](const nn::BatchNorm& norm) {
    return error_of([&] { nn::fuse_conv_bn_eval(conv, norm); });
  };
  check_has(error(nn::BatchNorm2d(4)), "fuse_conv_bn_eval: expected both in evaluation");
  check_has(error(evaluating(nn::BatchNorm2d(5))),
            "fuse_conv_bn_eval: expected a norm of 4 channels, as come out of the layer, got 5");
  check_has(error(evaluating(nn::BatchNorm2d(4, {.track = false}))), "no running statistics");
  check_has(
      error_of([] { nn::fuse_linear_bn_eval(nn::Linear(3, 4), evaluating(nn::BatchNorm1d(4))); }),
      "fuse_linear_bn_eval: expected both in evaluation");
}

TEST_CASE("all batch norms of a model folded") {
  manual_seed(4);
  const auto check = [](nn::Module model, const Shape& shape, std::size_t pairs) {
    train_all(model);
    check_has(error_of([&] { nn::fuse_eval(model, randn(shape)); }), "call eval() before");
    model.eval();
    const NoGrad guard;
    const Tensor x = randn(shape), before = model(x);
    const auto found = nn::fuse_eval(model, randn(shape));
    CHECK(found.size() == pairs);
    CHECK(distance(before, model(x)) < 1e-4);
    const NamedTensors state = model.state_dict();
    CHECK(std::none_of(state.begin(), state.end(), [](const auto& each) {
      return each.first.find("running_mean") != std::string::npos;
    }));
    CHECK(nn::fuse_eval(model, x).empty());
  };
  check(nn::ResNet18({.num_classes = 5, .small_images = true}), {2, 3, 16, 16}, 20);
  check(nn::XResNet18({.num_classes = 5}), {2, 3, 33, 33}, 22);
  check(nn::Sequential(nn::Linear(5, 8), nn::BatchNorm1d(8), nn::ReLU(), nn::Linear(8, 2)), {4, 5},
        1);
}

TEST_CASE("what a forward gave on its way is let go of before the next one") {
  Needing model;
  model.eval();
  CHECK(nn::fuse_eval(model, randn({2, 3, 4, 4})).size() == 1);
  CHECK_FALSE(model.held);
}

TEST_CASE("a model is left as it was where something else reads what a layer gives") {
  manual_seed(5);
  Bypassing model;
  train_all(model);
  model.eval();
  const Tensor x = randn({2, 3, 4, 4});
  const auto before = model(x).to_vector<float>();
  check_has(error_of([&] { nn::fuse_eval(model, x); }),
            "something else reads what one of the layers before them gives");
  CHECK(model(x).to_vector<float>() == before);
  CHECK(model.norm.running_mean.numel() == 3);

  // So it is where the forward with folded layers throws, and where some layer trains.
  Needing needing;
  needing.needs = true;
  needing.eval();
  check_has(error_of([&] { nn::fuse_eval(needing, x); }), "where is the norm");
  CHECK(needing.norm.as<nn::BatchNorm>() != nullptr);
  CHECK(needing.get_submodule("conv").same_as(needing.conv));
  CHECK(needing.state_dict().size() == 7);
  nn::Sequential half(nn::Conv2d(3, 3, 1), nn::BatchNorm2d(3), nn::Conv2d(3, 3, 1),
                      nn::BatchNorm2d(3));
  half.eval();
  half[3].train();
  check_has(error_of([&] { nn::fuse_eval(half, x); }),
            "fuse_eval: '3' is in training; call eval() before");
  CHECK(half[1].as<nn::BatchNorm>() != nullptr);
  CHECK(amax(abs(half[3].as<nn::BatchNorm>()->running_mean)).item<float>() == 0);

  // Who looks at a layer goes on doing so, and one that is called twice stays.
  nn::Sequential looked(nn::Conv2d(3, 3, 1), nn::BatchNorm2d(3));
  looked[1].add_hook([](nn::Module&, const Tensor&, const Tensor&) { return Tensor(); });
  looked.eval();
  CHECK(nn::fuse_eval(looked, x).empty());
  nn::Sequential twice(nn::Conv2d(3, 3, 1), nn::BatchNorm2d(3));
  nn::Sequential both(twice, twice);
  both.eval();
  CHECK(nn::fuse_eval(both, x).empty());
}

TEST_CASE("an x without samples shows no difference, and nothing is folded by it") {
  nn::Sequential model(nn::Linear(3, 4), nn::BatchNorm1d(4));
  model.eval();
  check_has(error_of([&] {
              nn::fuse_eval(model, Tensor::zeros({0, 3}));
            }),
            "fuse_eval: outputs of shape [0, 4] show no difference");
  CHECK(model.get_submodule("1").as<nn::BatchNorm>() != nullptr);
}

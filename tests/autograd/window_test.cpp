// SPDX-License-Identifier: Apache-2.0
// One number for a pair counts for height and width alike, as in PyTorch: in convolutions, in
// pools, and for their kernels. A pool's stride is the kernel's size only where none is given.
#include <doctest/doctest.h>
#include <peal/autograd/ops/convolution.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/pool.h>
#include <peal/tests/errors.h>

#include <concepts>
#include <string>

using namespace peal;
using testing::error_of;

namespace {

template <class Options>
concept takes_half = requires {
  Options{.stride = 1.5};
};
static_assert(Pair(3) == Pair(3, 3) && Pair(3, 4)[0] == 3 && Pair(3, 4)[1] == 4);
static_assert(std::convertible_to<int, Pair> && std::convertible_to<std::size_t, Pair>);
static_assert(!std::constructible_from<Pair, double> && !std::constructible_from<Pair, bool>);
static_assert(Conv2dOptions{.padding = 1}.padding == Pair(1, 1));
static_assert(Conv2dOptions{.padding = {0, 1}}.padding == Pair(0, 1));
static_assert(!MaxPool2dOptions{}.stride.has_value());
static_assert(*MaxPool2dOptions{.stride = 2}.stride == Pair(2, 2));
static_assert(*AvgPool2dOptions{.stride = {2, 1}}.stride == Pair(2, 1));
static_assert(!takes_half<Conv2dOptions> && !takes_half<MaxPool2dOptions>);

Tensor image() { return arange(81, DType::f32).detach({1, 1, 9, 9}); }

}  // namespace

TEST_CASE("a bare number for conv2d's stride, padding and dilation") {
  const Tensor x = image(), w = full({1, 1, 3, 3}, 1.0);
  CHECK(conv2d(x, w, {}, {.padding = 1}).shape() == Shape{1, 1, 9, 9});
  CHECK(conv2d(x, w, {}, {.dilation = 2}).shape() == Shape{1, 1, 5, 5});
  CHECK(conv2d(x, w, {}, {.stride = 2}).shape() == Shape{1, 1, 4, 4});
  CHECK(conv2d(x, w, {}, {.stride = {2}}).to_vector<float>() ==
        conv2d(x, w, {}, {.stride = {2, 2}}).to_vector<float>());
  CHECK(conv2d(x, w, {}, {.stride = {2, 1}}).shape() == Shape{1, 1, 4, 7});
}

TEST_CASE("a bare number for a pool's kernel, stride, padding and dilation") {
  const Tensor x = image();
  CHECK(max_pool2d(x, {3, 3}, {.stride = 2}).shape() == Shape{1, 1, 4, 4});
  CHECK(max_pool2d(x, 2).shape() == Shape{1, 1, 4, 4});
  CHECK(max_pool2d(x, {2}).shape() == Shape{1, 1, 4, 4});
  CHECK(max_pool2d(x, {2, 3}).to_vector<float>() ==
        max_pool2d(x, {2, 3}, {.stride = {2, 3}}).to_vector<float>());
  CHECK(max_pool2d(x, {3, 3}, {.stride = 2, .padding = 1}).shape() == Shape{1, 1, 5, 5});
  CHECK(max_pool2d(x, {3, 3}, {.stride = 1, .dilation = 2}).shape() == Shape{1, 1, 5, 5});
  CHECK(avg_pool2d(x, {3, 3}, {.stride = 2, .padding = 1}).shape() == Shape{1, 1, 5, 5});
  CHECK(avg_pool2d(x, 3).to_vector<float>() ==
        std::vector<float>{10, 13, 16, 37, 40, 43, 64, 67, 70});
  CHECK(adaptive_avg_pool2d(x, 1).to_vector<float>() == std::vector<float>{40});
}

TEST_CASE("a stride of zero is an error, as in PyTorch, and stands for nothing else") {
  CHECK(error_of([] {
          conv2d(image(), full({1, 1, 3, 3}, 1.0), {}, {.stride = 0});
        }) == "conv2d: expected strides >= 1 and padding >= 0, got 0 and 0");
  CHECK(error_of([] {
          max_pool2d(image(), 3, {.stride = {2, 0}});
        }) == "max_pool2d: a window of 3 x 3 with stride 0 does not fit into shape [1, 1, 9, 9]");
  CHECK(error_of([] { avg_pool2d(image(), 3, {.stride = 0}); }) ==
        "avg_pool2d: a window of 3 x 3 with stride 0 and padding 0 does not fit into shape "
        "[1, 1, 9, 9]");
}

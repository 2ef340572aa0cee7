// SPDX-License-Identifier: Apache-2.0
// One number for a pair counts for height and width alike, as in PyTorch: in convolutions, in
// pools, and for their kernels. A pool's stride is the kernel's size only where none is given.
#include <doctest/doctest.h>
#include <peal/autograd/ops/adaptive_pool.h>
#include <peal/autograd/ops/convolution.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/fractional_pool.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/interpolate.h>
#include <peal/autograd/ops/nearness.h>
#include <peal/autograd/ops/pool.h>
#include <peal/autograd/ops/unpool.h>
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

TEST_CASE("what other sizes, shares and the way back refuse") {
  using Mode = InterpolateMode;
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(error_of([] { interpolate(image(), {}); }), "expected either a size or a scale_factor");
  has(error_of([] { interpolate(image(), {.size = 4, .scale_factor = 2}); }), "expected either");
  has(error_of([] { interpolate(image(), {.size = 4, .mode = Mode::linear}); }),
      "this mode is for 1 dimensions behind [N, C]");
  has(error_of([] { interpolate(image(), {.size = {4, 3, 2}}); }), "expected one or 2 numbers");
  has(error_of([] { interpolate(image(), {.scale_factor = 0.01}); }), "got 0 from 9");
  has(error_of([] { interpolate(image(), {.size = 4, .align_corners = true}); }),
      "align_corners is for linear");
  has(error_of([] {
        adaptive_max_pool2d(image(), {2, 0});
      }),
      "adaptive_max_pool2d: expected sizes of at least 1, got 0");
  has(error_of([] { avg_pool2d(image(), 3, {.divisor_override = 0}); }), "the divisor is 0");
  const Extreme found = max_pool2d_with_indices(image(), 2);
  has(error_of([&] { max_unpool2d(found.values, found.indices, 2, {.output_size = Pair(9, 12)}); }),
      "expected an output_size within 2 of 8 in dimension 3, got 12");
  CHECK(interpolate(arange(3).detach({1, 1, 3}), {.size = 6}).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{0, 0, 1, 1, 2, 2});
}

TEST_CASE("windows at random places lie within the image, the last one at its end") {
  manual_seed(2);
  const Tensor x = arange(2 * 3 * 64, DType::f32).reshape({2, 3, 8, 8});
  const auto [values, indices] =
      fractional_max_pool2d_with_indices(x, {3, 2}, {.output_size = Pair(4, 5)});
  CHECK(values.shape() == Shape{2, 3, 4, 5});
  for (int plane = 0; plane < 6; ++plane) {
    const auto at = indices.reshape({6, 20}).rows(plane, plane + 1).to_vector<std::int64_t>();
    for (std::size_t i = 0; i < 20; ++i) {
      const std::int64_t row = at[i] / 8, column = at[i] % 8;  // of rising values the last cell
      CHECK(row >= 2);
      if (i / 5 == 3) CHECK(row == 7);
      if (i % 5 == 4) CHECK(column == 7);
      if (i % 5 > 0) CHECK((column - at[i - 1] % 8 == 1 || column - at[i - 1] % 8 == 2));
    }
  }
  CHECK(equal(values.reshape({6, 20}), gather(x.reshape({6, 64}), 1, indices.reshape({6, 20}))));
  const auto indices_again = [&] {
    return fractional_max_pool2d_with_indices(x, {3, 2}, {.output_ratio = {{.5, .7}}}).indices;
  };
  CHECK(indices_again().shape() == indices.shape());
  CHECK(!equal(indices_again(), indices));
  const auto has = [&](Pair kernel, const FractionalMaxPool2dOptions& o, const char* part) {
    const std::string text = error_of([&] { fractional_max_pool2d(x, kernel, o); });
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(2, {}, "fractional_max_pool2d: expected either an output_size or an output_ratio");
  has(2, {.output_size = 3, .output_ratio = {{.5, .5}}}, "expected either");
  has(2, {.output_ratio = {{.5, 1}}}, "expected an output_ratio between 0 and 1, got 0.5 and 1");
  has(2, {.output_size = 8}, "8 x 8 windows of 2 x 2 do not fit into shape [2, 3, 8, 8]");
  has(2, {.output_size = 3, .random_samples = ones({2, 2})},
      "expected random_samples of shape [2, 3, 2], got [2, 2]");
}

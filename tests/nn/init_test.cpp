// SPDX-License-Identifier: Apache-2.0
// Initialisers: PyTorch's gains, fans and deviations, measured over many draws; and the rules of
// freezing.
#include <peal/autograd/ops/ops.h>
#include <peal/nn/init.h>
#include <peal/nn/models/mlp.h>
#include <peal/tests/errors.h>

#include <algorithm>
#include <cmath>

using namespace peal;
using namespace peal::testing;
namespace init = peal::nn::init;

namespace {

struct Moments {
  double mean, deviation, low, high;
};

Moments moments(const Tensor& x) {
  const Tensor wide = cast(x, DType::f64);
  const double average = mean(wide).item<double>();
  return {average, std::sqrt(mean(wide * wide).item<double>() - average * average),
          min(wide).item<double>(), max(wide).item<double>()};
}

// Uniform of this deviation about 0.
void check_uniform(const Tensor& x, double deviation) {
  const Moments m = moments(x);
  CHECK(std::abs(m.mean) < 0.02 * deviation);
  CHECK(m.deviation == doctest::Approx(deviation).epsilon(0.02));
  CHECK(m.high <= std::sqrt(3.0) * deviation);
  CHECK(m.high > 0.99 * std::sqrt(3.0) * deviation);
}

// Normal of this deviation about 0, so with tails.
void check_normal(const Tensor& x, double deviation) {
  const Moments m = moments(x);
  CHECK(std::abs(m.mean) < 0.02 * deviation);
  CHECK(m.deviation == doctest::Approx(deviation).epsilon(0.02));
  CHECK(m.high > 3 * deviation);
}

}  // namespace

TEST_CASE("gains and fans are PyTorch's") {
  using init::Nonlinearity;
  CHECK(init::calculate_gain(Nonlinearity::linear) == 1);
  CHECK(init::calculate_gain(Nonlinearity::sigmoid) == 1);
  CHECK(init::calculate_gain(Nonlinearity::tanh) == 5.0 / 3);
  CHECK(init::calculate_gain(Nonlinearity::relu) == std::sqrt(2.0));
  CHECK(init::calculate_gain(Nonlinearity::leaky_relu) == 1.4141428569978354);
  CHECK(init::calculate_gain(Nonlinearity::leaky_relu, 0.2) == 1.3867504905630728);
  CHECK(init::calculate_gain(Nonlinearity::selu) == 0.75);
  CHECK(init::fan_in({64, 16, 3, 5}) == 240);
  CHECK(init::fan_out({64, 16, 3, 5}) == 960);
}

TEST_CASE("deviations follow the fans, in every floating type") {
  manual_seed(1);
  const Tensor weight = Tensor::empty({64, 80, 3, 3});
  init::xavier_uniform_(weight);
  check_uniform(weight, std::sqrt(2.0 / (9 * (64 + 80))));
  init::xavier_normal_(weight, 5.0 / 3);
  check_normal(weight, 5.0 / 3 * std::sqrt(2.0 / (9 * (64 + 80))));
  init::kaiming_uniform_(weight);
  check_uniform(weight, std::sqrt(2.0 / (9 * 80)));
  init::kaiming_uniform_(weight, {.a = std::sqrt(5.0)});
  check_uniform(weight, init::fan_in_bound(weight.shape()) / std::sqrt(3.0));
  init::kaiming_normal_(weight,
                        {.mode = init::FanMode::fan_out, .nonlinearity = init::Nonlinearity::relu});
  check_normal(weight, std::sqrt(2.0 / (9 * 64)));
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16}) {
    const Tensor x = Tensor::empty({200, 200}, dtype);
    init::normal_(x, 3, 0.5);
    CHECK(moments(x).mean == doctest::Approx(3).epsilon(0.01));
    CHECK(moments(x).deviation == doctest::Approx(0.5).epsilon(0.02));
    init::uniform_(x);
    CHECK(moments(x).mean == doctest::Approx(0.5).epsilon(0.02));
    init::constant_(x, 2);
    CHECK(moments(x).low == 2);
  }
}

TEST_CASE("trunc_normal_ is a normal distribution that was cut") {
  manual_seed(2);
  const Tensor x = Tensor::empty({100000}, DType::f64);
  init::trunc_normal_(x);
  const Moments m = moments(x);
  CHECK((m.low >= -2 && m.low < -1.99 && m.high <= 2 && m.high > 1.99));
  CHECK(std::abs(m.mean) < 0.01);
  CHECK(m.deviation == doctest::Approx(0.8796256610342398).epsilon(0.01));
  std::vector<double> values = x.to_vector<double>();
  std::sort(values.begin(), values.end());
  // The quartile of a normal distribution within +-2.
  CHECK(values[75000] == doctest::Approx(0.6389).epsilon(0.02));
  init::trunc_normal_(x, 1, 0.02, -2, 1.01);
  CHECK(moments(x).high <= 1.01);
  CHECK(moments(x).low > 0.88);
}

TEST_CASE("orthogonal_ makes orthonormal rows, or columns where there are fewer") {
  manual_seed(3);
  for (const Shape& shape : {Shape{5, 17}, Shape{17, 5}, Shape{6, 6}, Shape{8, 3, 2, 2}}) {
    const Tensor w = Tensor::empty(shape, DType::f64);
    init::orthogonal_(w, 3);
    const Tensor matrix = reshape(w, {shape[0], -1});
    const bool tall = matrix.size(0) > matrix.size(1);
    const Tensor gram = tall ? matmul(matrix, matrix, true) : matmul(matrix, matrix, false, true);
    for (std::int64_t i = 0; i < gram.size(0); ++i) {
      for (std::int64_t j = 0; j < gram.size(0); ++j) {
        CHECK(std::abs(gram.data<double>()[i * gram.size(0) + j] - (i == j ? 9 : 0)) < 1e-12);
      }
    }
  }
}

TEST_CASE("initialisers write parameters where they lie, and refuse what has no fan") {
  nn::Linear layer(3, 4);
  const void* place = layer.weight.raw();
  const auto version = layer.weight.storage()->version();
  init::kaiming_normal_(layer.weight);
  CHECK(layer.weight.raw() == place);
  CHECK(layer.weight.storage()->version() > version);
  check_has(error_of([&] { init::xavier_uniform_(layer.bias); }),
            "xavier_uniform_: a weight has at least two dimensions");
  check_has(error_of([&] { init::trunc_normal_(layer.bias, 0, 0); }), "a deviation above 0");
}

// A path without what is wanted would be taken for `true`.
template <class M>
concept FrozenByPathAlone = requires(M& module) {
  module.requires_grad_("fc1");
};
static_assert(!FrozenByPathAlone<nn::Sequential>);

TEST_CASE("a module is frozen and thawed whole or by path") {
  nn::Sequential net = nn::mlp({3, 4, 4, 2});
  const std::string first = net.named_parameters()[0].first;
  const std::string path = first.substr(0, first.find('.'));
  net.requires_grad_(path, false);
  const auto wanted = [&] {
    std::string all;
    for (const auto& [name, p] : net.named_parameters()) all += p.requires_grad() ? '1' : '0';
    return all;
  };
  CHECK(wanted() == "001111");
  sum(net(ones({1, 3}))).backward();
  CHECK_FALSE(net.parameters()[0].grad().defined());
  CHECK(net.parameters()[2].grad().defined());
  net.requires_grad_(false);
  CHECK_FALSE(net(ones({1, 3})).requires_grad());
  net.requires_grad_(first, true);
  CHECK(wanted() == "100000");
  check_has(error_of([&] { net.requires_grad_("fc", false); }), "no parameter at 'fc'");
}

TEST_CASE("fixed values: zeros, ones, the identity, and a convolution's identity") {
  const auto f64 = [](const Shape& shape) { return full(shape, 9, DType::f64); };
  const Tensor x = f64({2, 2}), wide = f64({2, 3});
  init::ones_(x);
  CHECK(x.to_vector<double>() == std::vector<double>{1, 1, 1, 1});
  init::zeros_(x);
  CHECK(x.to_vector<double>() == std::vector<double>{0, 0, 0, 0});
  init::eye_(wide);
  CHECK(wide.to_vector<double>() == std::vector<double>{1, 0, 0, 0, 1, 0});
  check_has(error_of([&] { init::eye_(f64({2})); }), "eye_: expected a matrix, got shape [2]");
  // [4, 2, 3]: two groups of two outputs each, in the middle of the kernel.
  const Tensor weight = f64({4, 2, 3});
  init::dirac_(weight, 2);
  CHECK(weight.to_vector<double>() == std::vector<double>{0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0,
                                                          0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0});
  const Tensor kernel = f64({3, 3, 3, 5});
  init::dirac_(kernel);
  const Tensor image = randn({1, 3, 6, 7}, DType::f64);
  CHECK(conv2d(image, kernel, {}, {.padding = {1, 2}}).to_vector<double>() ==
        image.to_vector<double>());
  check_has(error_of([&] { init::dirac_(f64({3, 2, 1}), 2); }), "2 groups do not divide 3");
  check_has(error_of([&] { init::dirac_(f64({3, 2})); }), "of 3 to 5 dimensions, got [3, 2]");
}

TEST_CASE("a sparse matrix has so many zeros in each column, and is normal elsewhere") {
  manual_seed(3);
  const Tensor x = Tensor::empty({201, 50}, DType::f64);
  init::sparse_(x, 0.3, 2);
  const std::vector<double> values = x.to_vector<double>();
  double squares = 0;
  std::size_t first_rows = 0;
  for (std::size_t column = 0; column < 50; ++column) {
    int zeros = 0;
    for (std::size_t row = 0; row < 201; ++row) {
      const double value = values[row * 50 + column];
      zeros += value == 0 ? 1 : 0;
      first_rows += value == 0 && row < 61 ? 1 : 0;
      squares += value * value;
    }
    CHECK(zeros == 61);
  }
  CHECK(std::sqrt(squares / (140 * 50)) == doctest::Approx(2).epsilon(0.05));
  CHECK(first_rows < 61 * 50 / 2);  // not always the same ones
  check_has(error_of([&] { init::sparse_(x, 1.5); }), "a sparsity in [0, 1], got shape [201, 50]");
}

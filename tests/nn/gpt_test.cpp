// SPDX-License-Identifier: Apache-2.0
// GPT-2's dropout: where it is, that evaluation has none, and attention's against its parts.
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/nn/models/gpt.h>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

using namespace peal;

namespace {

using Floats = std::vector<float>;

nn::GptSettings small() {
  return {.vocabulary = 13, .width = 8, .heads = 2, .layers = 2, .positions = 6};
}
Tensor tokens() { return Tensor::from(std::vector<std::int64_t>{1, 5, 12, 0, 7, 7, 3, 2}, {2, 4}); }
Floats values_of(const Tensor& x) { return x.to_vector<float>(); }

nn::GPT made(const nn::GptSettings& settings) {
  manual_seed(3);
  return nn::GPT(settings);
}

}  // namespace

TEST_CASE("a GPT with dropout is the one without in evaluation, and has its keys") {
  nn::GptSettings settings = small();
  settings.embd_pdrop = settings.attn_pdrop = settings.resid_pdrop = 0.1;
  nn::GPT plain = made(small()), dropping = made(settings);
  const NamedTensors a = plain.state_dict(), b = dropping.state_dict();
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i].first == b[i].first);
  plain.eval();
  dropping.eval();
  CHECK(values_of(plain(tokens())) == values_of(dropping(tokens())));
  plain.train();  // and without dropout training changes nothing
  dropping.train();
  plain.eval();
  const Floats first = values_of(dropping(tokens())), second = values_of(dropping(tokens()));
  CHECK(first != second);
  CHECK(first != values_of(plain(tokens())));
}

TEST_CASE("each of the three probabilities drops in its own place") {
  const Floats plain = values_of(made(small())(tokens()));
  for (const auto place : {&nn::GptSettings::embd_pdrop, &nn::GptSettings::attn_pdrop,
                           &nn::GptSettings::resid_pdrop}) {
    nn::GptSettings settings = small();
    settings.*place = 0.5;
    nn::GPT gpt = made(settings);
    const Floats dropped = values_of(gpt(tokens()));
    CHECK(dropped != plain);
    for (const float value : dropped) CHECK(std::isfinite(value));
  }
  // All of what blocks add is dropped: what remains are the embeddings.
  nn::GptSettings settings = small();
  settings.resid_pdrop = 1;
  nn::GPT gpt = made(settings);
  const Tensor x = tokens(), places = arange(4, DType::i64);
  const Tensor expected =
      gpt.lm_head(gpt.transformer.ln_f(gpt.transformer.wte(x) + gpt.transformer.wpe(places)));
  CHECK(values_of(gpt(x)) == values_of(expected));
}

TEST_CASE("attention drops probabilities, and scales the others") {
  manual_seed(5);
  const std::int64_t heads = 2, width = 3, batch = 2, length = 5;
  const Shape shape{batch, length, heads * width};
  const Tensor q = randn(shape), k = randn(shape), v = randn(shape);
  const Tensor g = randn(shape);
  for (const bool causal : {false, true}) {
    // With values of one, each result is the sum of the probabilities that are left, scaled.
    manual_seed(6);
    const Tensor left =
        scaled_dot_product_attention(q, k, ones(shape), heads, causal, /*dropout=*/0.5);
    double total = 0;
    for (int i = 0; i < 200; ++i) {
      total +=
          mean(scaled_dot_product_attention(q, k, ones(shape), heads, causal, 0.5)).item<double>();
    }
    CHECK(total / 200 == doctest::Approx(1).epsilon(0.05));
    CHECK(values_of(left) != values_of(ones(shape)));
    // None dropped is the op itself, and all dropped is nothing.
    CHECK(values_of(scaled_dot_product_attention(q, k, v, heads, causal, 0)) ==
          values_of(scaled_dot_product_attention(q, k, v, heads, causal)));
    CHECK(values_of(scaled_dot_product_attention(q, k, v, heads, causal, 1)) ==
          Floats(static_cast<std::size_t>(shape.numel()), 0));
    // Gradients of the same draw, by differences, in f64.
    Tensors leaves;
    for (const Tensor& x : {q, k, v}) leaves.push_back(cast(x, DType::f64).set_requires_grad());
    const auto value = [&] {
      manual_seed(7);
      return sum(scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], heads, causal, 0.3) *
                 cast(g, DType::f64));
    };
    value().backward();
    for (const Tensor& leaf : leaves) {
      for (const std::int64_t i : {std::int64_t{0}, std::int64_t{7}, leaf.numel() - 1}) {
        const NoGrad guard;
        double& element = leaf.data<double>()[i];
        const double before = element, step = 1e-5;
        element = before + step;
        const double above = value().item<double>();
        element = before - step;
        const double below = value().item<double>();
        element = before;
        CHECK(leaf.grad().data<double>()[i] ==
              doctest::Approx((above - below) / (2 * step)).epsilon(1e-5));
      }
    }
  }
  const Tensor together = cat({q, k, v}, -1);
  manual_seed(8);
  const Floats apart = values_of(scaled_dot_product_attention(q, k, v, heads, true, 0.3));
  manual_seed(8);
  CHECK(values_of(self_attention(together, heads, true, 0.3)) == apart);
}

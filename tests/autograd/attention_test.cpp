// SPDX-License-Identifier: Apache-2.0
// Attention in tiles: what it holds grows with the tokens and not with their square; masks and
// dropout inside the op against the same by ops of whole scores, of which there is the same draw.
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/ops.h>

#include "arrays.h"
#include "gradcheck.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

using namespace peal;
using namespace peal::test;

namespace {

using Attention = std::function<Tensor(const Tensor& q, const Tensor& k, const Tensor& v)>;

// The most that the allocator gave out meanwhile, with all that was there before.
std::size_t peak_of(std::int64_t tokens, DType dtype, const Attention& attention) {
  const auto leaf = [&] { return cast(randn({2, 1, tokens, 16}), dtype).set_requires_grad(); };
  const Tensor q = leaf(), k = leaf(), v = leaf();
  cpu_reset_peak();
  const std::size_t before = cpu_allocator_statistics().in_use;
  sum(attention(q, k, v)).backward();
  return cpu_allocator_statistics().peak - before;
}

Tensor boolean(const Tensor& x) { return gt(x, full({}, -0.4, x.dtype())); }

// By ops of whole scores; as much is drawn.
Tensor by_ops(const Tensors& x, const AttentionOptions& o) {
  return matmul(dropout(attention_probabilities(x[0], x[1], o), o.dropout_p), x[2]);
}

Tensor seeded(const std::function<Tensor()>& f) {
  manual_seed(7);
  return f();
}

struct Sizes {
  std::int64_t queries, keys, width;
};
// Tiles of queries and keys that are whole and not, rows that begin between blocks of four words.
const Sizes all_sizes[] = {{3, 5, 4}, {13, 401, 3}, {150, 390, 4}, {300, 770, 8}};

// Results and gradients of both ways.
template <class T>
double difference(const Tensors& inputs, const AttentionOptions& o) {
  Tensors x[2];
  Tensor y[2];
  for (int i = 0; i < 2; ++i) {
    for (const Tensor& each : inputs) x[i].push_back(each.clone().set_requires_grad());
    y[i] = seeded([&] {
      return i == 0 ? scaled_dot_product_attention(x[i][0], x[i][1], x[i][2], o) : by_ops(x[i], o);
    });
    y[i].backward(normal<T>(y[i].shape(), 9));
  }
  double worst = distance(y[0], y[1]);
  for (std::size_t i = 0; i < 3; ++i) {
    worst = std::max(worst, distance(x[0][i].grad(), x[1][i].grad()));
  }
  return worst;
}

template <class T>
double difference(const Sizes& s, const AttentionOptions& o) {
  return difference<T>(
      {normal<T>({2, 3, s.queries, s.width}, 1), normal<T>({2, 3, s.keys, s.width}, 2),
       normal<T>({2, 3, s.keys, s.width}, 3)},
      o);
}

// Normal numbers in sixteenths, but the last of each four: all scores are the product of these and
// a small rest. No sum of these rounds, so both ways have the same scores.
template <class T>
Tensor alike(std::int64_t tokens, double last, unsigned seed) {
  const Tensor x = normal<T>({2, 3, tokens, 4}, seed);
  T* at = x.data<T>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    at[i] = i % 4 == 3 ? static_cast<T>(last) : std::round(at[i] * 16) / 16;
  }
  return x;
}

template <class T>
double difference_of_alike(const Sizes& s, double last, const AttentionOptions& o) {
  return difference<T>(
      {alike<T>(s.queries, last, 1), alike<T>(s.keys, last, 2), normal<T>({2, 3, s.keys, 4}, 3)},
      o);
}

}  // namespace

TEST_CASE("attention: four times the tokens take not 16 times the memory") {
  const auto mask_of = [](std::int64_t tokens) { return boolean(randn({2, 1, 1, tokens})); };
  const std::pair<const char*, std::function<Attention(std::int64_t)>> ways[] = {
      {"plain",
       [](std::int64_t) {
         return [](const Tensor& q, const Tensor& k, const Tensor& v) {
           return scaled_dot_product_attention(q, k, v, AttentionOptions());
         };
       }},
      {"causal, of all heads",
       [](std::int64_t) {
         return [](const Tensor& q, const Tensor& k, const Tensor& v) {
           const auto heads = [](const Tensor& x) { return reshape(x, {2, x.size(2), 16}); };
           return scaled_dot_product_attention(heads(q), heads(k), heads(v), 2, true);
         };
       }},
      {"mask of keys",
       [&](std::int64_t tokens) {
         return [mask = mask_of(tokens)](const Tensor& q, const Tensor& k, const Tensor& v) {
           return scaled_dot_product_attention(q, k, v, {.attn_mask = mask});
         };
       }},
      {"dropout",
       [](std::int64_t) {
         return [](const Tensor& q, const Tensor& k, const Tensor& v) {
           return scaled_dot_product_attention(q, k, v, {.dropout_p = 0.2});
         };
       }},
      {"dropout, side by side", [](std::int64_t) {
         return [](const Tensor& q, const Tensor& k, const Tensor& v) {
           const auto heads = [](const Tensor& x) { return reshape(x, {2, x.size(2), 16}); };
           return self_attention(cat({heads(q), heads(k), heads(v)}, -1), 2, true, 0.1);
         };
       }}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto& [name, way] : ways) {
      CAPTURE(concat(name, " ", dtype));
      const std::size_t few = peak_of(512, dtype, way(512)), many = peak_of(2048, dtype, way(2048));
      CAPTURE(few);
      CHECK(many < 8 * few);  // blocks are rounded up, and threads may hold theirs at once
    }
  }
}

TEST_CASE("attention: masks and dropout inside the op are those of whole scores") {
  const double lowest = std::numeric_limits<float>::lowest();
  for (const Sizes& s : all_sizes) {
    CAPTURE(concat(s.queries, " x ", s.keys));
    const Tensor whole = normal<double>({s.queries, s.keys}, 4);
    const std::pair<const char*, AttentionOptions> cases[] = {
        {"plain", {}},
        {"causal alone", {.is_causal = true}},
        {"no mask", {.dropout_p = 0.3}},
        {"causal", {.dropout_p = 0.3, .is_causal = true}},
        {"bool", {.attn_mask = boolean(whole)}},
        {"numbers", {.attn_mask = whole, .dropout_p = 0.5}},
        {"one for all queries", {.attn_mask = boolean(normal<double>({s.keys}, 5))}},
        {"of each sequence", {.attn_mask = boolean(normal<double>({2, 1, 1, s.keys}, 5))}},
        {"of each head", {.attn_mask = normal<double>({3, s.queries, s.keys}, 5)}},
        {"of all",
         {.attn_mask = boolean(normal<double>({2, 3, s.queries, s.keys}, 5)), .dropout_p = 0.1}},
        {"few keys", {.attn_mask = gt(whole, full({}, 2.0, DType::f64))}},
        {"numbers to infinity", {.attn_mask = log(relu(whole))}},
        {"hidden from some, dropped from others",
         {.attn_mask = boolean(minimum(whole, normal<double>({s.queries, 1}, 5))),
          .dropout_p = 0.3}},
        {"as good as hidden", {.attn_mask = full({s.keys}, -1e9, DType::f64)}},
        {"as far as f32 goes", {.attn_mask = full({s.keys}, lowest, DType::f64)}}};
    for (const auto& [name, options] : cases) {
      CAPTURE(concat(name));
      CHECK(difference<double>(s, options) < 1e-12);
      CHECK(difference<float>(s, options) < 2e-6);
    }
  }
}

TEST_CASE("attention: scores of a row that are large and alike share as small ones do") {
  for (const Sizes& s : all_sizes) {
    CAPTURE(concat(s.queries, " x ", s.keys));
    const std::tuple<const char*, double, AttentionOptions> cases[] = {
        {"large", 128, {}},
        {"large, causal", 128, {.is_causal = true}},
        {"large, with dropout", 128, {.dropout_p = 0.3}},
        {"the least of f16", 0, {.attn_mask = full({s.keys}, -65504, DType::f64)}},
        {"as good as hidden", 0, {.attn_mask = full({s.keys}, -1e9, DType::f64)}}};
    for (const auto& [name, last, options] : cases) {
      CAPTURE(concat(name));
      CHECK(difference_of_alike<double>(s, last, options) < 1e-12);
      // What is large times what should add up to nothing is off by as much in both ways.
      CHECK(difference_of_alike<float>(s, last, options) < (last == 0 ? 2e-6 : 1e-4));
    }
  }
}

TEST_CASE("attention: the largest scores share, however large they are") {
  constexpr std::int64_t queries = 64, width = 3;
  for (const std::int64_t keys : {5, 500}) {  // shares that are kept, and that are made again
    const Tensor q = Tensor::zeros({queries, width}), k = Tensor::zeros({keys, width}),
                 v = full({keys, width}, 6, DType::f32);
    for (std::int64_t i = 0; i < queries; ++i) {
      q.data<float>()[i * width] = 1e5f * static_cast<float>(i + 1);
    }
    // Two that are alike, of 1e10 times i + 1 over the root of 3, and 0 elsewhere.
    for (const std::int64_t large : {1, 3}) {
      k.data<float>()[large * width] = 1e5f;
      v.data<float>()[large * width + 1] = static_cast<float>(2 * large);
    }
    for (const Tensor& x : {q, k, v}) x.set_requires_grad();
    const Tensor y = scaled_dot_product_attention(q, k, v, AttentionOptions());
    y.backward(full(y.shape(), 1, DType::f32));
    const std::vector<float> found = y.detach().to_vector<float>(),
                             grads = v.grad().to_vector<float>();
    for (std::int64_t i = 0; i < y.numel(); ++i) {
      CHECK(found[static_cast<std::size_t>(i)] == (i % width == 1 ? 4.0f : 6.0f));
    }
    for (std::int64_t i = 0; i < v.numel(); ++i) {
      const bool shares = i / width == 1 || i / width == 3;
      CHECK(grads[static_cast<std::size_t>(i)] == (shares ? 32.0f : 0.0f));
    }
  }
}

TEST_CASE("attention: of the shares that are kept, backward reads only what forward wrote") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const auto& [queries, keys] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 1}, {3, 5}, {13, 24}, {13, 384}, {29, 13}, {128, 128}, {150, 150}}) {
      CAPTURE(queries);
      CAPTURE(keys);
      const AttentionGeometry o{2, queries, keys, 3, 20, true};
      const auto made = [&](std::int64_t tokens) { return cast(randn({2, tokens, 60}), dtype); };
      const Tensor q = made(queries), k = made(keys), v = made(keys), dy = made(queries);
      // `before`: what lies where the shares go.
      const auto gradients = [&](double before) {
        const AttentionResult result{zeros(q.shape(), dtype),
                                     full({2, 3, queries, keys}, before, dtype)};
        const Tensors x = {zeros(q.shape(), dtype), zeros(k.shape(), dtype),
                           zeros(v.shape(), dtype)};
        const Kernels& table = kernels(Device{});
        table.attention("attention", q, o, result, q, k, v);
        table.attention_backward("attention", q, o, x[0], x[1], x[2], dy, result, q, k, v);
        return cat(x, 1);
      };
      CHECK(distance(gradients(std::numeric_limits<double>::quiet_NaN()), gradients(0)) == 0);
    }
  }
}

TEST_CASE("attention: a result that backward reads must not change before") {
  const auto leaf = [](std::int64_t tokens) { return normal<float>({tokens, 8}, 1); };
  const std::pair<std::int64_t, AttentionOptions> cases[] = {
      {400, {}}, {5, {.attn_mask = full({5}, 0, DType::f32)}}, {5, {.dropout_p = 0.5}}};
  for (const auto& [keys, options] : cases) {
    const Tensor q = leaf(4).set_requires_grad(), k = leaf(keys);
    const Tensor y = scaled_dot_product_attention(q, k, k, options);
    Tensor elements = y.detach();
    elements += 1;
    CHECK_THROWS_WITH_AS(sum(y).backward(), doctest::Contains("written in place"), Error);
  }
}

TEST_CASE("attention: more queries than keys, each with its past") {
  for (const double p : {0.0, 0.3}) {
    const AttentionOptions options{.dropout_p = p, .is_causal = true};
    CHECK(difference<double>({500, 400, 4}, options) < 1e-12);
    CHECK(difference<float>({500, 400, 4}, options) < 2e-6);
  }
}

TEST_CASE("attention: what is not a number stays so, in its row alone") {
  const Tensor mask = normal<float>({4, 400}, 5), whole = mask.clone().set_requires_grad();
  const Tensor q = normal<float>({4, 8}, 1), k = normal<float>({400, 8}, 2);
  q.data<float>()[8] = NAN;                   // in row 1
  for (const Tensor& each : {mask, whole}) {  // inside the op, and by ops
    const Tensor y = scaled_dot_product_attention(q, k, k, {.attn_mask = each}).detach();
    for (std::int64_t i = 0; i < y.numel(); ++i) {
      CHECK(std::isnan(y.data<float>()[i]) == (i / 8 == 1));
    }
  }
}

TEST_CASE("attention: a query that sees nothing gets zeros, and gives none") {
  for (const std::int64_t keys : {5, 500}) {
    const Tensor q = normal<float>({4, 8}, 1), k = normal<float>({keys, 8}, 2);
    for (const Tensor& mask :
         {cast(Tensor::zeros({keys}), DType::boolean), full({4, keys}, -INFINITY, DType::f32)}) {
      const Tensor leaf = q.clone().set_requires_grad(), v = k.clone().set_requires_grad();
      const Tensor y = scaled_dot_product_attention(leaf, v, v, {.attn_mask = mask});
      sum(y).backward();
      for (const Tensor& x : {y, leaf.grad(), v.grad()}) {
        CHECK(x.detach().to_vector<float>() ==
              std::vector<float>(static_cast<std::size_t>(x.numel()), 0.0f));
      }
    }
  }
}

TEST_CASE("attention: hidden keys do not matter, whatever their scores") {
  const Tensor q = normal<float>({4, 8}, 1), v = normal<float>({400, 8}, 3);
  const Tensor hidden = cast(arange(400, DType::i64), DType::boolean);  // all but the first
  Tensor k = normal<float>({400, 8}, 2);
  const AttentionOptions options{.attn_mask = hidden};
  const auto expected = scaled_dot_product_attention(q, k, v, options).to_vector<float>();
  k.data<float>()[0] = NAN;
  CHECK(scaled_dot_product_attention(q, k, v, options).to_vector<float>() == expected);
}

TEST_CASE("attention: gradients of tiles, of masks and of what is dropped") {
  const Tensor mask = boolean(normal<double>({3, 400}, 5));
  const auto gradients_of = [&](const AttentionOptions& options) {
    const Tensors x{normal<double>({2, 3, 2}, 1), normal<double>({2, 400, 2}, 2),
                    normal<double>({2, 400, 2}, 3)};
    return gradient_error(
        [&](const Tensors& in) {
          return seeded([&] { return scaled_dot_product_attention(in[0], in[1], in[2], options); });
        },
        x);
  };
  CHECK(gradients_of({}) < 1e-7);
  CHECK(gradients_of({.attn_mask = mask}) < 1e-7);
  CHECK(gradients_of({.dropout_p = 0.4}) < 1e-7);
}

TEST_CASE("attention: gradients of gradients, with a mask and dropout") {
  const AttentionOptions options{.attn_mask = boolean(normal<double>({2, 1, 4, 7}, 5)),
                                 .dropout_p = 0.3};
  std::vector<double> all[2];
  for (int i = 0; i < 2; ++i) {
    const Tensors x{normal<double>({2, 3, 4, 5}, 1).set_requires_grad(),
                    normal<double>({2, 3, 7, 5}, 2).set_requires_grad(),
                    normal<double>({2, 3, 7, 5}, 3).set_requires_grad()};
    const Tensor y = seeded([&] {
      return i == 0 ? scaled_dot_product_attention(x[0], x[1], x[2], options) : by_ops(x, options);
    });
    const Tensors first = autograd::grad({sum(y * y)}, x, {.create_graph = true});
    Tensor total = full({}, 0, DType::f64);
    for (const Tensor& grad : first) total = total + sum(grad * grad);
    for (const Tensor& grad : autograd::grad({total}, x)) {
      const auto values = doubles(grad);
      all[i].insert(all[i].end(), values.begin(), values.end());
    }
  }
  CHECK(distance(all[0], all[1]) < 1e-12);
}

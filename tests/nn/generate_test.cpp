// SPDX-License-Identifier: Apache-2.0
// Text from a GPT: what is kept of tokens before changes nothing, and tokens are drawn as options
// say.
#include <peal/autograd/ops/ops.h>
#include <peal/nn/models/generate.h>
#include <peal/tests/errors.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

using namespace peal;
using namespace peal::testing;

namespace {

using Ids = std::vector<std::int64_t>;
using Shares = std::vector<double>;

nn::GPT small_gpt(double dropped = 0) {
  manual_seed(3);
  nn::GPT gpt({.vocabulary = 11,
               .width = 8,
               .heads = 2,
               .layers = 2,
               .positions = 6,
               .resid_pdrop = dropped});
  for (const auto& [name, parameter] : gpt.named_parameters()) {
    if (parameter.dim() == 2) nn::init::normal_(parameter, 0, 0.5);  // so that tokens differ
  }
  return gpt;
}

Tensor prompt(const Ids& ids, std::int64_t rows = 1) {
  return Tensor::from(ids, {rows, std::ssize(ids) / rows}, Device{});
}

Ids text_of(nn::GPT& gpt, const Tensor& tokens, const nn::GenerateOptions& options) {
  return nn::generate(gpt, tokens, options).to_vector<std::int64_t>();
}

Shares shares_of(const std::vector<float>& logits, const nn::GenerateOptions& options) {
  return nn::token_shares(logits, options);
}

void check_near(const Shares& got, const Shares& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == doctest::Approx(expected[i]).epsilon(1e-6));
  }
}

float largest_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  return max(abs(a - b)).item<float>();
}

}  // namespace

TEST_CASE("logits of tokens that follow those in a cache are those of all of them together") {
  nn::GPT gpt = small_gpt();
  const Tensor tokens = prompt({1, 5, 10, 0, 7, 7, 3, 2, 9, 4, 4, 6}, 2);
  const NoGrad guard;
  const Tensor whole = gpt(tokens);
  for (const std::vector<std::int64_t>& parts :
       {Ids{6}, Ids{1, 1, 1, 1, 1, 1}, Ids{3, 1, 1, 1}, Ids{2, 3, 1}}) {
    nn::GptCache cache;
    Tensors found;
    std::int64_t at = 0;
    for (const std::int64_t part : parts) {
      found.push_back(gpt.continued(slice(tokens, 1, at, at + part), cache));
      at += part;
      CHECK(cache.length == at);
    }
    CHECK(cache.layers.at(1).keys.shape() == Shape{2, 6, 8});
    nn::GptCache again;
    at = 0;
    for (const std::int64_t part : parts) {
      const Tensor logits = gpt.next(slice(tokens, 1, at, at + part), &again);
      at += part;
      CHECK(largest_difference(logits, select(whole, 1, at - 1)) < 1e-5f);
    }
    CHECK(largest_difference(cat(found, 1), whole) < 1e-5f);
    check_has(error_of([&] {
                gpt.continued(prompt({1, 1}, 2), cache);
              }),
              "GPT: expected tokens [B, T], T at most 0 after 6 in the cache, got shape [2, 1]");
  }
  CHECK(largest_difference(gpt.next(tokens), select(whole, 1, -1)) < 1e-5f);
  check_has(error_of([&] {
              gpt.next(Tensor::zeros({2, 0}, DType::i64));
            }),
            "GPT: expected tokens [B, T], T above 0, got shape [2, 0]");
  nn::GptCache cache;
  gpt.continued(prompt({1, 2}, 2), cache);
  check_has(error_of([&] { gpt.continued(prompt({1}), cache); }),
            "GPT: the cache has 2 rows, got tokens of shape [1, 1]");
}

TEST_CASE("hooks of a model that goes on from a cache run") {
  nn::GPT gpt = small_gpt();
  int calls = 0;
  const auto count = [&](nn::Module&, const Tensors&, const Tensors&) -> nn::Module::Replaced {
    ++calls;
    return {};
  };
  gpt.register_forward_hook(count);
  gpt.transformer.register_forward_hook(count);
  gpt.child("transformer.h.1.attn").register_forward_hook(count);
  nn::GptCache cache;
  gpt.continued(prompt({1, 2}), cache);
  CHECK(calls == 3);
}

TEST_CASE("a step of generation makes the logits of one place a row") {
  nn::GPT gpt = small_gpt();
  std::vector<Shape> seen;
  gpt.lm_head.register_forward_hook(
      [&](nn::Module&, const Tensors& in, const Tensors&) -> nn::Module::Replaced {
        seen.push_back(in.at(0).shape());
        return {};
      });
  int whole = 0;
  gpt.register_forward_hook(
      [&](nn::Module&, const Tensors&, const Tensors&) -> nn::Module::Replaced {
        ++whole;
        return {};
      });
  for (const bool cached : {true, false}) {
    text_of(gpt, prompt({1, 2, 3, 4, 5, 6}, 2), {.max_new_tokens = 6, .use_cache = cached});
  }
  CHECK(seen == std::vector<Shape>(12, Shape{2, 1, 8}));
  CHECK(whole == 12);
}

TEST_CASE("text is the same with a cache and without, past the model's last position too") {
  nn::GPT gpt = small_gpt(/*dropped=*/0.5);  // which evaluation does without
  for (const nn::GenerateOptions& options : std::vector<nn::GenerateOptions>{
           {.max_new_tokens = 12, .temperature = 0},
           {.max_new_tokens = 12, .seed = 7},
           {.max_new_tokens = 12, .temperature = 0.7, .top_k = 5, .top_p = 0.9, .seed = 8},
           {.max_new_tokens = 12, .repetition_penalty = 1.7, .seed = 9}}) {
    nn::GenerateOptions plain = options;
    plain.use_cache = false;
    for (const Tensor& start :
         {prompt({1}), prompt({4, 2, 2, 8, 0, 1}, 3), prompt({1, 2, 3, 4, 5, 6, 7, 8}, 1)}) {
      const Ids text = text_of(gpt, start, options);
      CHECK(std::ssize(text) == start.size(0) * (start.size(1) + 12));
      CHECK(text == text_of(gpt, start, plain));
    }
  }
  // Each token comes from the last six before it alone, at positions 0 to 5.
  const Ids text = text_of(gpt, prompt({3, 1, 4}), {.max_new_tokens = 12, .temperature = 0});
  gpt.eval();
  for (std::size_t i = 3; i < text.size(); ++i) {
    const auto last = text.begin() + static_cast<std::ptrdiff_t>(i);
    const Tensor logits =
        gpt(prompt(Ids(last - std::min<std::ptrdiff_t>(6, last - text.begin()), last)));
    CHECK(argmax(select(logits, 1, -1), -1).item<std::int64_t>() == text[i]);
  }
}

TEST_CASE("a seed decides a text, and the modes of modules stay") {
  nn::GPT gpt = small_gpt();
  gpt.transformer.ln_f.eval();
  const auto text = [&](std::uint64_t seed) {
    return text_of(gpt, prompt({1, 2}), {.max_new_tokens = 30, .seed = seed});
  };
  manual_seed(1);
  const std::uint64_t before = context().generator.offset;
  CHECK(text(1) == text(1));
  CHECK(text(1) != text(2));
  CHECK(context().generator.offset == before);
  const auto unseeded = [&] { return text_of(gpt, prompt({1, 2}), {.max_new_tokens = 30}); };
  const Ids first = unseeded();
  CHECK(first != unseeded());  // goes on with the context's
  manual_seed(1);
  CHECK(first == unseeded());
  CHECK(gpt.training());
  CHECK_FALSE(gpt.transformer.ln_f.training());
  CHECK(gpt.lm_head.training());
}

TEST_CASE("a stop token ends its row, and all rows the text") {
  nn::GPT gpt = small_gpt();
  const Tensor start = prompt({1, 2, 3, 4}, 2);
  const nn::GenerateOptions free{.max_new_tokens = 20, .seed = 4};
  const Ids text = text_of(gpt, start, free);  // [2, 22]
  const std::int64_t stop = text[4];           // the third of row 0
  nn::GenerateOptions stopping = free;
  stopping.stop_token = stop;
  const Tensor stopped = nn::generate(gpt, start, stopping);
  const std::int64_t length = stopped.size(1);
  const Ids found = stopped.to_vector<std::int64_t>();
  for (std::int64_t row = 0; row < 2; ++row) {
    bool over = false;
    for (std::int64_t i = 0; i < length; ++i) {
      const auto at = [&](const Ids& ids, std::int64_t each) {
        return ids[static_cast<std::size_t>(row * each + i)];
      };
      CHECK(at(found, length) == (over ? stop : at(text, 22)));
      over = over || (i >= 2 && at(found, length) == stop);
    }
    CHECK((over || length == 22));
  }
  stopping.max_new_tokens = 0;
  CHECK(text_of(gpt, start, stopping) == Ids{1, 2, 3, 4});
}

TEST_CASE("temperature, top_k and top_p cut and sharpen the shares") {
  const float l2 = std::log(2.f), l4 = std::log(4.f);
  const std::vector<float> logits{l2, 0, l4, 0};  // 2 1 4 1
  check_near(shares_of(logits, {}), {0.25, 0.125, 0.5, 0.125});
  check_near(shares_of(logits, {.temperature = 0.5}), {4. / 22, 1. / 22, 16. / 22, 1. / 22});
  check_near(shares_of(logits, {.temperature = 0}), {0, 0, 1, 0});
  check_near(shares_of(logits, {.top_k = 3}), {2. / 7, 1. / 7, 4. / 7, 0});  // of equals the first
  check_near(shares_of(logits, {.top_k = 9}), {0.25, 0.125, 0.5, 0.125});
  check_near(shares_of(logits, {.top_p = 0.1}), {0, 0, 1, 0});
  check_near(shares_of(logits, {.top_p = 0.6}), {1. / 3, 0, 2. / 3, 0});  // with that past 0.6
  check_near(shares_of(logits, {.top_k = 3, .top_p = 0.8}), {1. / 3, 0, 2. / 3, 0});  // of 7
  check_near(shares_of(logits, {.temperature = 0.5, .top_p = 0.75}), {4. / 20, 0, 16. / 20, 0});
  const float low = -std::numeric_limits<float>::infinity();
  check_near(shares_of({low, 0, low}, {}), {0, 1, 0});
  check_has(error_of([&] { shares_of({low, low}, {}); }), "of which one is finite");
  check_has(error_of([&] { shares_of({0, std::nanf("")}, {}); }), "the model gives NaN");
}

TEST_CASE("tokens come as often as their shares say, and rows that have one less often") {
  nn::GPT gpt({.vocabulary = 3,
               .width = 2,
               .heads = 1,
               .layers = 0,
               .positions = 4,
               .tie_word_embeddings = false});
  // Logits that do not depend on the tokens: ln_f gives its bias.
  nn::init::zeros_(gpt.transformer.ln_f.weight);
  nn::init::ones_(gpt.transformer.ln_f.bias);
  gpt.lm_head.weight.copy_(Tensor::from<float>({0, 0, std::log(2.f), 0, std::log(5.f), 0}, {3, 2}));
  Ids counts(3);
  for (const std::int64_t id :
       text_of(gpt, Tensor::zeros({500, 1}, DType::i64), {.max_new_tokens = 10, .seed = 1})) {
    ++counts[static_cast<std::size_t>(id)];
  }
  counts[0] -= 500;
  CHECK(std::abs(counts[0] - 625) < 100);
  CHECK(std::abs(counts[1] - 1250) < 130);
  CHECK(std::abs(counts[2] - 3125) < 150);
  // The likeliest one is divided until the next is ahead; what is not above 0 is multiplied.
  CHECK(text_of(gpt, prompt({0}), {.max_new_tokens = 3, .temperature = 0}) == Ids{0, 2, 2, 2});
  CHECK(
      text_of(gpt, prompt({0}), {.max_new_tokens = 3, .temperature = 0, .repetition_penalty = 3}) ==
      Ids{0, 2, 1, 2});
}

TEST_CASE("what cannot be generated is said") {
  nn::GPT gpt = small_gpt();
  const auto said = [&](const Tensor& tokens, const nn::GenerateOptions& options) {
    return error_of([&] { nn::generate(gpt, tokens, options); });
  };
  check_has(said(Tensor::zeros({3}, DType::i64), {}), "expected tokens [B, T] of i64");
  check_has(said(Tensor::zeros({1, 0}, DType::i64), {}), "got i64 [1, 0]");
  check_has(said(prompt({1}), {.temperature = -1}), "a temperature of 0 or more, got -1");
  check_has(said(prompt({1}), {.top_k = -1}), "expected a top_k of 1 or more, or 0 for all");
  check_has(said(prompt({1}), {.top_p = 0}), "expected a top_p in (0, 1], got 0");
  check_has(said(prompt({1}), {.repetition_penalty = 0}), "a repetition_penalty above 0, got 0");
  check_has(said(prompt({1}), {.stop_token = 11}), "a stop_token from 0 to 10, got 11");
  check_has(said(prompt({1}), {.max_new_tokens = -1}), "expected max_new_tokens of 0 or more");
  // Also what is before the window, and is not embedded.
  for (const std::int64_t token : {-1, 11, 999999}) {
    check_has(said(prompt({token, 1, 2, 3, 4, 5, 6}), {.repetition_penalty = 1.2}),
              concat("generate: expected tokens from 0 to 10, got ", token));
  }
}

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/ops.h>
#include <peal/nn/models/generate.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <unordered_set>

namespace peal::nn {
namespace {

using Row = std::vector<std::int64_t>;

void check_generation(const GPT& gpt, const Tensor& tokens, const GenerateOptions& o) {
  PEAL_CHECK(tokens.dim() == 2 && tokens.numel() > 0 && tokens.dtype() == DType::i64,
             "generate: expected tokens [B, T] of i64 with B and T above 0, got ", tokens.dtype(),
             " ", tokens.shape());
  PEAL_CHECK(o.max_new_tokens >= 0, "generate: expected max_new_tokens of 0 or more, got ",
             o.max_new_tokens);
  PEAL_CHECK(o.temperature >= 0 && std::isfinite(o.temperature),
             "generate: expected a temperature of 0 or more, got ", o.temperature);
  PEAL_CHECK(o.top_k >= 0, "generate: expected a top_k of 1 or more, or 0 for all, got ", o.top_k);
  PEAL_CHECK(o.top_p > 0 && o.top_p <= 1, "generate: expected a top_p in (0, 1], got ", o.top_p);
  PEAL_CHECK(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty),
             "generate: expected a repetition_penalty above 0, got ", o.repetition_penalty);
  const std::int64_t words = gpt.transformer.wte.weight.size(0);
  PEAL_CHECK(!o.stop_token || (*o.stop_token >= 0 && *o.stop_token < words),
             "generate: expected a stop_token from 0 to ", words - 1, ", got ",
             o.stop_token.value_or(0));
  for (const std::int64_t token : tokens.to_vector<std::int64_t>()) {
    PEAL_CHECK(token >= 0 && token < words, "generate: expected tokens from 0 to ", words - 1,
               ", got ", token);
  }
}

// While it lives the model is in evaluation; then as before.
class InEvaluation {
 public:
  explicit InEvaluation(Module& model) : modules_(model.modules()) {
    for (const Module& each : modules_) were_.push_back(each.training());
    model.eval();
  }
  ~InEvaluation() {
    for (std::size_t i = 0; i < modules_.size(); ++i) modules_[i].train(were_[i]);
  }
  InEvaluation(const InEvaluation&) = delete;
  InEvaluation& operator=(const InEvaluation&) = delete;

 private:
  std::vector<Module> modules_;  // parents before children, as train() goes down
  std::vector<bool> were_;
};

void penalise(std::span<float> logits, const Row& text, double penalty) {
  if (penalty == 1) return;
  for (const std::int64_t word : std::unordered_set<std::int64_t>(text.begin(), text.end())) {
    float& logit = logits[static_cast<std::size_t>(word)];
    const double value = logit;
    logit = static_cast<float>(value > 0 ? value / penalty : value * penalty);
  }
}

// The token at which the shares up to it exceed u in [0, 1).
std::int64_t token_at(const std::vector<double>& shares, double u) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] == 0) continue;
    last = i;
    u -= shares[i];
    if (u < 0) break;
  }
  return static_cast<std::int64_t>(last);  // also where rounding leaves something
}

// The last `length` tokens of all rows.
Tensor ends_of(const std::vector<Row>& rows, std::int64_t length, Device device) {
  Row all;
  for (const Row& row : rows) all.insert(all.end(), row.end() - length, row.end());
  return Tensor::from(all, {std::ssize(rows), length}, device);
}

}  // namespace

std::vector<double> token_shares(std::span<const float> logits, const GenerateOptions& o) {
  std::vector<std::size_t> order(logits.size());  // likeliest first, as far as that counts
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto likelier = [&](std::size_t a, std::size_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  for (const float logit : logits) {
    PEAL_CHECK(!std::isnan(logit),
               "generate: the model gives NaN for a token; what was it trained "
               "with?");
  }
  std::size_t kept = order.size();
  if (o.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(o.top_k));
  if (o.temperature == 0) kept = std::min<std::size_t>(kept, 1);
  if (kept < order.size() || o.top_p < 1) {
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                      likelier);
  }
  order.resize(kept);
  const auto first = std::min_element(order.begin(), order.end(), likelier);
  PEAL_CHECK(first != order.end() && std::isfinite(logits[*first]),
             "generate: expected logits of which one is finite, and none infinite, got ",
             logits.size(), " of which none is");
  const double most = logits[*first], heat = o.temperature == 0 ? 1 : o.temperature;
  std::vector<double> weights;
  for (const std::size_t i : order) weights.push_back(std::exp((logits[i] - most) / heat));
  double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (o.top_p < 1) {
    double before = 0;
    std::size_t i = 0;
    for (; i < kept && before < o.top_p * all; ++i) before += weights[i];
    kept = i;
    all = before;
  }
  std::vector<double> shares(logits.size());
  for (std::size_t i = 0; i < kept; ++i) shares[order[i]] = weights[i] / all;
  return shares;
}

Tensor generate(GPT& gpt, const Tensor& tokens, const GenerateOptions& options) {
  check_generation(gpt, tokens, options);
  const NoGrad guard;
  const InEvaluation evaluation(gpt);
  const std::int64_t batch = tokens.size(0), most = gpt.positions();
  std::vector<Row> rows;
  for (std::int64_t i = 0; i < batch; ++i) {
    rows.push_back(tokens.rows(i, i + 1).to_vector<std::int64_t>());
  }
  Generator own{options.seed.value_or(0)};
  Generator& generator = options.seed ? own : context().generator;
  std::vector<bool> ended(rows.size());
  GptCache cache;
  for (std::int64_t step = 0; step < options.max_new_tokens; ++step) {
    const std::int64_t length = std::ssize(rows[0]);
    const bool cached = options.use_cache && length <= most;
    if (!cached) cache = {};
    const Tensor seen =
        ends_of(rows, cached ? length - cache.length : std::min(length, most), tokens.device());
    const Tensor logits = gpt.next(seen, cached ? &cache : nullptr);
    auto last = cast(logits, DType::f32).to_vector<float>();
    std::vector<float> u(rows.size());
    if (options.temperature > 0) {
      u = rand({batch}, DType::f32, Device{}, generator).to_vector<float>();
    }
    const std::size_t words = last.size() / rows.size();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::span<float> mine(last.data() + i * words, words);
      penalise(mine, rows[i], options.repetition_penalty);
      rows[i].push_back(ended[i] ? *options.stop_token
                                 : token_at(token_shares(mine, options), u[i]));
      ended[i] = ended[i] || rows[i].back() == options.stop_token;
    }
    if (std::all_of(ended.begin(), ended.end(), [](bool over) { return over; })) break;
  }
  return ends_of(rows, std::ssize(rows[0]), tokens.device());
}

}  // namespace peal::nn

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/ops.h>
#include <peal/nn/models/text_classifier.h>

#include <algorithm>
#include <limits>

namespace peal::nn {

SentenceEncoder::SentenceEncoder(const AwdLstmSettings& settings, std::int64_t bptt,
                                 std::int64_t max_len)
    : module(add("module", AwdLstm(settings))),
      bptt_(bptt),
      max_len_(max_len),
      pad_(settings.pad_token) {
  PEAL_CHECK(bptt > 0 && max_len > 0, "SentenceEncoder: expected positive lengths, got bptt ", bptt,
             " and max_len ", max_len);
}

SentenceEncoder::Result SentenceEncoder::encode(const Tensor& tokens) {
  PEAL_CHECK(tokens.dim() == 2 && tokens.numel() > 0,
             "SentenceEncoder: expected tokens [N, T], got shape ", tokens.shape());
  const std::int64_t n = tokens.size(0), length = tokens.size(1);
  const std::vector<std::int64_t> words = tokens.to_vector<std::int64_t>();
  module.reset();
  Tensors parts;
  std::int64_t first_kept = 0;
  for (std::int64_t at = 0; at < length; at += bptt_) {
    const std::int64_t end = std::min(at + bptt_, length);
    // Texts that have begun; they come first.
    std::int64_t here = 0;
    for (std::int64_t row = 0; row < n; ++row) {
      if (words[static_cast<std::size_t>(row * length + at)] == pad_) continue;
      PEAL_CHECK(here == row, "SentenceEncoder: text ", row, " has a token at place ", at,
                 ", where a part begins, and text ", here,
                 " has none; expected the longest first, each to the last part of bptt = ", bptt_,
                 " (data::pad_parts)");
      ++here;
    }
    PEAL_CHECK(here > 0, "SentenceEncoder: no text has a token at place ", at,
               ", where a part begins: texts begin at a multiple of bptt = ", bptt_,
               ", padding before them, the longest first");
    const Tensor made = module(slice(tokens.rows(0, here), 1, at, end));
    if (length - at > max_len_) {
      first_kept = end;
      continue;
    }
    parts.push_back(here == n ? made
                              : cat({made, Tensor::zeros({n - here, end - at, made.size(2)},
                                                         made.dtype(), made.device())}));
  }
  return {cat(parts, 1), eq(slice(tokens, 1, first_kept), pad_)};
}

Tensor masked_concat_pool(const Tensor& outputs, const Tensor& padding, std::int64_t bptt) {
  PEAL_CHECK(outputs.dim() == 3 && padding.shape() == Shape({outputs.size(0), outputs.size(1)}),
             "masked_concat_pool: expected outputs [N, L, D] and padding [N, L], got ",
             outputs.shape(), " and ", padding.shape());
  const std::int64_t n = outputs.size(0), length = outputs.size(1), width = outputs.size(2);
  const Tensor hidden = unsqueeze(padding, 2);
  const Tensor count = sum(cast(logical_not(padding), outputs.dtype()), {1}, true);  // [N, 1]
  const Tensor mean = sum(where(hidden, 0, outputs), {1}) / count;
  const Tensor largest =
      max(where(hidden, -std::numeric_limits<double>::infinity(), outputs), 1).values;
  // Where in [N L, D] each text ends: behind the last token among the last bptt, as padding may
  // stand before a text there as well.
  const Tensor end = slice(padding, 1, std::max<std::int64_t>(0, length - bptt));
  const Tensor places = arange(end.size(1), DType::i64, end.device());
  const Tensor token = max(where(end, -1, expand_as(places, end)), 1).values;
  const Tensor last = arange(n, DType::i64, end.device()) * length + length - end.size(1) + token;
  return cat({index_select(reshape(outputs, {n * length, width}), 0, last), largest, mean}, 1);
}

PoolingLinearClassifier::PoolingLinearClassifier(const std::vector<std::int64_t>& widths,
                                                 const std::vector<double>& ps, std::int64_t bptt)
    : bptt_(bptt) {
  PEAL_CHECK(ps.size() + 1 == widths.size(), "PoolingLinearClassifier: expected ",
             widths.size() - 1, " probabilities for as many layers, got ", ps.size());
  Sequential layers;
  for (std::size_t i = 0; i < ps.size(); ++i) {
    layers.push_back(LinBnDrop(widths[i], widths[i + 1], {.p = ps[i], .act = i + 1 < ps.size()}));
  }
  layers_ = add("layers", layers);
}

Tensor PoolingLinearClassifier::classify(const Tensor& outputs, const Tensor& padding) {
  return layers_(masked_concat_pool(outputs, padding, bptt_));
}

namespace {

PoolingLinearClassifier head_of(const AwdLstmSettings& encoder, std::int64_t classes,
                                const TextClassifierSettings& settings) {
  std::vector<std::int64_t> widths{3 * encoder.emb_sz};
  widths.insert(widths.end(), settings.lin_ftrs.begin(), settings.lin_ftrs.end());
  widths.push_back(classes);
  std::vector<double> ps{encoder.output_p};
  ps.insert(ps.end(), settings.ps.begin(), settings.ps.end());
  return PoolingLinearClassifier(widths, ps, settings.seq_len);
}

}  // namespace

AwdTextClassifier::AwdTextClassifier(const AwdLstmSettings& settings, std::int64_t classes,
                                     const TextClassifierSettings& options)
    : encoder(add("0", SentenceEncoder(settings, options.seq_len, options.max_len))),
      head(add("1", head_of(settings, classes, options))) {}

Tensor AwdTextClassifier::forward(const Tensor& tokens) {
  const auto [outputs, padding] = encoder.call(&SentenceEncoder::encode, tokens);
  return head.call(&PoolingLinearClassifier::classify, outputs, padding);
}

std::vector<std::vector<Tensor>> AwdTextClassifier::layer_groups() const {
  std::vector<std::vector<Tensor>> all = encoder.module.layer_groups();
  std::rotate(all.begin(), all.end() - 1, all.end());
  all.push_back(head.parameters());
  return all;
}

}  // namespace peal::nn

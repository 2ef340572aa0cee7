// SPDX-License-Identifier: Apache-2.0
// ULMFiT's classifier (Howard and Ruder, "Universal language model fine-tuning for text
// classification", 2018) as fastai has it (fastai/text/models/core.py), with its names of
// parameters: the encoder of a language model runs over each text in parts, and a few linear layers
// look at its last output, the largest and the mean.
//
//   nn::AwdTextClassifier model(nn::awd_lstm_classifier(vocabulary), 2);
//   model.encoder.module.load_state_dict(language_model.encoder.state_dict());
//   Tensor loss = cross_entropy(model(tokens), classes);   // tokens [N, T]
//
// Texts of a batch are padded as data::pad_parts() does, nearly as fastai: all begin at a multiple
// of bptt, so whole parts of padding stand before the shorter ones and what is left over behind
// them, and longer ones come first; all reach into the last part. Thread safety: as of Module.
#pragma once

#include <peal/nn/models/awd_lstm.h>
#include <peal/nn/models/tabular.h>

#include <cstdint>
#include <tuple>
#include <vector>

namespace peal::nn {

// Child "module" is the encoder. Each call begins anew.
class SentenceEncoder : public Module {
 public:
  SentenceEncoder(const AwdLstmSettings& settings, std::int64_t bptt, std::int64_t max_len);

  struct Result {
    Tensor outputs, padding;  // [N, L, emb_sz]; [N, L], bool: what is padding
    auto fields() { return std::tie(outputs, padding); }
  };
  // Tokens [N, T] -> of the parts that begin in the last max_len tokens, L of them.
  Result encode(const Tensor& tokens);

  AwdLstm module;

 private:
  std::int64_t bptt_, max_len_, pad_;
};

// [N, 3 D]: of outputs [N, L, D] the last, the largest and the mean of those that are no padding. A
// text ends among the last bptt tokens.
Tensor masked_concat_pool(const Tensor& outputs, const Tensor& padding, std::int64_t bptt);

// Child "layers": LinBnDrops of these widths, dropout ps before each.
class PoolingLinearClassifier : public Module {
 public:
  PoolingLinearClassifier(const std::vector<std::int64_t>& widths, const std::vector<double>& ps,
                          std::int64_t bptt);
  Tensor classify(const Tensor& outputs, const Tensor& padding);

 private:
  Sequential layers_;
  std::int64_t bptt_;
};

struct TextClassifierSettings {
  std::int64_t seq_len = 72, max_len = 72 * 20;  // bptt, and how many last tokens count
  std::vector<std::int64_t> lin_ftrs = {50};
  std::vector<double> ps = {0.1};  // dropout before all linear layers but the first
};

// Child "0" is a SentenceEncoder, "1" a PoolingLinearClassifier; output_p is dropped before its
// first linear layer.
class AwdTextClassifier : public Module {
 public:
  AwdTextClassifier(const AwdLstmSettings& encoder, std::int64_t classes,
                    const TextClassifierSettings& settings = {});

  // Tokens [N, T] -> logits [N, classes].
  Tensor forward(const Tensor& tokens) override;
  // fastai's groups for gradual unfreezing: the embedding, a layer each, the linear layers.
  std::vector<std::vector<Tensor>> layer_groups() const;

  SentenceEncoder encoder;
  PoolingLinearClassifier head;
};

}  // namespace peal::nn

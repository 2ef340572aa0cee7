// SPDX-License-Identifier: Apache-2.0
// AWD-LSTM (Merity et al., "Regularizing and optimizing LSTM language models", 2018) as fastai has
// it (fastai/text/models/awdlstm.py), with its names of parameters: an embedding of which whole
// words are dropped, LSTMs of which weights are dropped, dropout that is the same at every step
// before, between and after them, and a decoder that has the embedding's weight.
//
//   nn::AwdLanguageModel model(nn::awd_lstm_language_model(vocabulary));
//   const auto [logits, raw, dropped] = model.run(tokens);      // tokens [N, T] of N streams
//   Tensor loss = cross_entropy(reshape(logits, {-1, vocabulary}), flatten(targets));
//   loss = loss + nn::activation_regularization(raw, dropped, 2, 1);
//
// From one call to the next it goes on where the streams stopped: the last states are kept, without
// a gradient, as long as reset() is not called; so its batches have to be consecutive parts of the
// streams. Where the number of streams changes, the first ones go on, and new ones begin with
// zeros. Thread safety: as of Module; copies share the states.
#pragma once

#include <peal/nn/layers/layers.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace peal::nn {

// Probabilities: of words, of what goes in, of weights from state to state, between layers, of
// what goes out.
struct AwdLstmSettings {
  std::int64_t vocabulary;
  std::int64_t emb_sz = 400, n_hid = 1152, n_layers = 3, pad_token = 1;
  bool bidir = false;
  double output_p, hidden_p, input_p, embed_p, weight_p;
  bool tie_weights = true, out_bias = true;
};
// fastai's settings of both models, all probabilities times drop_mult.
AwdLstmSettings awd_lstm_language_model(std::int64_t vocabulary, double drop_mult = 1);
AwdLstmSettings awd_lstm_classifier(std::int64_t vocabulary, double drop_mult = 1);

// Dropout with one mask for all steps: of x [N, T, D], or [T, N, D] with time_dim 0 (Gal and
// Ghahramani, "A theoretically grounded application of dropout in recurrent neural networks",
// 2016).
class RNNDropout : public Module {
 public:
  explicit RNNDropout(double p, int time_dim = 1);
  Tensor forward(const Tensor& x) override;

 private:
  double p_;
  int time_dim_;
};

// Looks words up in an embedding of which, while training, whole rows are zeroed and the others
// scaled.
class EmbeddingDropout : public Module {
 public:
  EmbeddingDropout(Embedding emb, double p, std::int64_t pad_token);
  // index of i64 -> [..., width]
  Tensor forward(const Tensor& index) override;

 private:
  Embedding emb_;
  double p_;
  std::int64_t pad_token_;
};

// The encoder.
class AwdLstm : public Module {
 public:
  explicit AwdLstm(const AwdLstmSettings& settings);

  // Tokens [N, T] -> [N, T, emb_sz].
  Tensor forward(const Tensor& tokens) override;
  // For training by parts: what belongs to layer k (its weights), and the embedding.
  std::vector<std::vector<Tensor>> layer_groups() const;

  Embedding encoder;

 protected:
  // The next call begins from zeros.
  void reset_state() override;

 private:
  struct State {
    std::vector<Tensor> h, c;  // a layer each, [directions, N, hidden]; none after reset()
  };
  void resize(std::int64_t batch);

  AwdLstmSettings settings_;
  EmbeddingDropout encoder_dp_;
  std::vector<WeightDrop<LSTM>> rnns_;
  RNNDropout input_dp_;
  std::vector<RNNDropout> hidden_dps_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// A linear layer behind dropout, with the weight of `tie_encoder` where that is one.
class LinearDecoder : public Module {
 public:
  LinearDecoder(std::int64_t n_out, std::int64_t n_hid, double output_p,
                const Embedding* tie_encoder = nullptr, bool bias = true);

  struct Result {
    Tensor logits, raw, dropped;  // dropped: raw, the input, after dropout
    auto fields() { return std::tie(logits, raw, dropped); }
  };
  Result decode(const Tensor& x);
  Tensor forward(const Tensor& x) override { return decode(x).logits; }

 private:
  RNNDropout output_dp_;
  Linear decoder_;
};

// Child "0" is the encoder, "1" the decoder.
class AwdLanguageModel : public Module {
 public:
  explicit AwdLanguageModel(const AwdLstmSettings& settings);

  // Tokens [N, T] -> logits [N, T, vocabulary], and what the regularisation wants.
  LinearDecoder::Result run(const Tensor& tokens);
  Tensor forward(const Tensor& tokens) override { return run(tokens).logits; }
  // fastai's groups for gradual unfreezing: a layer each, then embedding and decoder.
  std::vector<std::vector<Tensor>> layer_groups() const;

  AwdLstm encoder;
  LinearDecoder decoder;
};

// What is added to the loss of outputs [N, T, D] (Merity et al., "Revisiting activation
// regularization for language RNNs", 2017): alpha times the mean square of the dropped ones, beta
// times that of how much the raw ones change from step to step.
Tensor activation_regularization(const Tensor& raw, const Tensor& dropped, double alpha = 2,
                                 double beta = 1);

// The state of a language model with these words as that of one with others (ULMFiT's fine-tuning;
// fastai: match_embeds): embedding, decoder and bias have the rows of the words that both know, and
// for a new one the mean of all. Error where the embedding has another number of rows than `from`.
NamedTensors match_words(const NamedTensors& state, const std::vector<std::string>& from,
                         const std::vector<std::string>& to);

// State dictionaries of fastai before 2.0 name each dropped weight twice; this leaves those out
// that a
// `_raw` stands for.
NamedTensors clean_raw_keys(const NamedTensors& state);

}  // namespace peal::nn

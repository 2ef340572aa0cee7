// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/ops/strided.h>
#include <peal/nn/init.h>
#include <peal/nn/models/awd_lstm.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace peal::nn {
namespace {

AwdLstmSettings times(AwdLstmSettings settings, double drop_mult) {
  for (double* p : {&settings.output_p, &settings.hidden_p, &settings.input_p, &settings.embed_p,
                    &settings.weight_p}) {
    *p *= drop_mult;
  }
  return settings;
}

// What a layer gives, of one direction.
std::int64_t layer_width(const AwdLstmSettings& o, std::int64_t layer) {
  return (layer + 1 < o.n_layers ? o.n_hid : o.emb_sz) / (o.bidir ? 2 : 1);
}

LSTM layer_of(const AwdLstmSettings& o, std::int64_t layer) {
  return LSTM(layer == 0 ? o.emb_sz : o.n_hid, layer_width(o, layer), {.bidirectional = o.bidir});
}

// fastai's ModuleList.
struct Numbered : Module {
  template <class M>
  M push_back(M module) {
    return add(std::to_string(child_count()), std::move(module));
  }
};

Tensor shown_rows(const Shape& shape, double p, const Tensor& like) {
  return dropout(ones(shape, like.dtype(), like.device()), p);
}

}  // namespace

AwdLstmSettings awd_lstm_language_model(std::int64_t vocabulary, double drop_mult) {
  return times({.vocabulary = vocabulary,
                .output_p = 0.1,
                .hidden_p = 0.15,
                .input_p = 0.25,
                .embed_p = 0.02,
                .weight_p = 0.2},
               drop_mult);
}

AwdLstmSettings awd_lstm_classifier(std::int64_t vocabulary, double drop_mult) {
  return times({.vocabulary = vocabulary,
                .output_p = 0.4,
                .hidden_p = 0.3,
                .input_p = 0.4,
                .embed_p = 0.05,
                .weight_p = 0.5},
               drop_mult);
}

RNNDropout::RNNDropout(double p, int time_dim) : p_(p), time_dim_(time_dim) {
  PEAL_CHECK(p >= 0 && p <= 1, "RNNDropout: the probability must be in [0, 1], got ", p);
}

Tensor RNNDropout::forward(const Tensor& x) {
  PEAL_CHECK(x.dim() == 3, "RNNDropout: expected three dimensions, got shape ", x.shape());
  if (!training() || p_ == 0) return x;
  Shape one_step = x.shape();
  one_step[time_dim_] = 1;
  return x * shown_rows(one_step, p_, x);
}

EmbeddingDropout::EmbeddingDropout(Embedding emb, double p, std::int64_t pad_token)
    : emb_(add("emb", std::move(emb))), p_(p), pad_token_(pad_token) {}

Tensor EmbeddingDropout::forward(const Tensor& index) {
  const Tensor& weight = emb_.weight;
  if (!training() || p_ == 0) return embedding(index, weight, pad_token_);
  return embedding(index, weight * shown_rows({weight.size(0), 1}, p_, weight), pad_token_);
}

AwdLstm::AwdLstm(const AwdLstmSettings& settings)
    : encoder(add("encoder", Embedding(settings.vocabulary, settings.emb_sz,
                                       {.padding_idx = settings.pad_token}))),
      settings_(settings),
      encoder_dp_(
          add("encoder_dp", EmbeddingDropout(encoder, settings.embed_p, settings.pad_token))),
      input_dp_(settings.input_p, 0) {
  PEAL_CHECK(settings.n_layers > 0 &&
                 (!settings.bidir || (settings.n_hid % 2 == 0 && settings.emb_sz % 2 == 0)),
             "AwdLstm: expected layers, and even widths where it is bidirectional, got ",
             settings.n_layers, " layers of ", settings.n_hid, " and ", settings.emb_sz);
  Numbered layers, dropouts;
  for (std::int64_t i = 0; i < settings.n_layers; ++i) {
    // As in fastai, the weight of the forward direction alone.
    rnns_.push_back(
        layers.push_back(WeightDrop(layer_of(settings, i), settings.weight_p, {"weight_hh_l0"})));
    hidden_dps_.push_back(dropouts.push_back(RNNDropout(settings.hidden_p, 0)));
  }
  add("rnns", layers);
  input_dp_ = add("input_dp", RNNDropout(settings.input_p, 0));
  add("hidden_dps", dropouts);
  init::uniform_(encoder.weight, -0.1, 0.1);
}

void AwdLstm::reset_state() { *state_ = {}; }

void AwdLstm::resize(std::int64_t batch) {
  if (state_->h.empty()) {
    state_->h.resize(rnns_.size());
    state_->c.resize(rnns_.size());
    return;  // undefined ones are zeros
  }
  const std::int64_t before = state_->h[0].size(1);
  if (before == batch) return;
  for (std::vector<Tensor>* kind : {&state_->h, &state_->c}) {
    for (Tensor& state : *kind) {
      state = before > batch
                  ? slice(state, 1, 0, batch)
                  : cat({state, Tensor::zeros({state.size(0), batch - before, state.size(2)},
                                              state.dtype(), state.device())},
                        1);
    }
  }
}

Tensor AwdLstm::forward(const Tensor& tokens) {
  PEAL_CHECK(tokens.dim() == 2 && tokens.numel() > 0, "AwdLstm: expected tokens [N, T], got shape ",
             tokens.shape());
  resize(tokens.size(0));
  // Steps first, as the layers have them.
  Tensor x = input_dp_(encoder_dp_(transpose(tokens, 0, 1)));
  for (std::size_t i = 0; i < rnns_.size(); ++i) {
    const LSTM::Result made =
        rnns_[i].call(&WeightDrop<LSTM>::unroll<Tensor, Tensor>, x, state_->h[i], state_->c[i]);
    state_->h[i] = made.h.detach();
    state_->c[i] = made.c.detach();
    x = i + 1 < rnns_.size() ? hidden_dps_[i](made.output) : made.output;
  }
  return as_result(transpose(x, 0, 1));
}

std::vector<std::vector<Tensor>> AwdLstm::layer_groups() const {
  std::vector<std::vector<Tensor>> all;
  for (const auto& rnn : rnns_) all.push_back(rnn.parameters());
  all.push_back({encoder.weight});
  return all;
}

LinearDecoder::LinearDecoder(std::int64_t n_out, std::int64_t n_hid, double output_p,
                             const Embedding* tie_encoder, bool bias)
    : output_dp_(output_p), decoder_(n_hid, n_out, bias) {
  const Linear own = decoder_;
  if (own.bias.defined()) init::constant_(own.bias, 0);
  init::uniform_(own.weight, -0.1, 0.1);
  decoder_ = add("decoder", tie_encoder != nullptr ? Linear(tie_encoder->weight, own.bias) : own);
  output_dp_ = add("output_dp", output_dp_);
}

LinearDecoder::Result LinearDecoder::decode(const Tensor& x) {
  const Tensor dropped = output_dp_(x);
  return {decoder_(dropped), x, dropped};
}

AwdLanguageModel::AwdLanguageModel(const AwdLstmSettings& settings)
    : encoder(add("0", AwdLstm(settings))),
      decoder(add("1", LinearDecoder(settings.vocabulary, settings.emb_sz, settings.output_p,
                                     settings.tie_weights ? &encoder.encoder : nullptr,
                                     settings.out_bias))) {}

LinearDecoder::Result AwdLanguageModel::run(const Tensor& tokens) {
  return decoder.call(&LinearDecoder::decode, encoder(tokens));
}

std::vector<std::vector<Tensor>> AwdLanguageModel::layer_groups() const {
  std::vector<std::vector<Tensor>> all = encoder.layer_groups();
  for (const auto& [name, parameter] : decoder.named_parameters()) {
    const bool tied = parameter.same_as(encoder.encoder.weight);
    if (!tied) all.back().push_back(parameter);
  }
  return all;
}

Tensor activation_regularization(const Tensor& raw, const Tensor& dropped, double alpha,
                                 double beta) {
  const auto mean_square = [](const Tensor& x) {
    const Tensor wide = x.dtype() == DType::f64 ? x : cast(x, DType::f32);
    return mean(wide * wide);
  };
  Tensor loss = mean_square(dropped) * alpha;
  const std::int64_t steps = raw.size(1);
  if (beta == 0 || steps < 2) return loss;
  return loss + mean_square(slice(raw, 1, 1, steps) - slice(raw, 1, 0, steps - 1)) * beta;
}

NamedTensors match_words(const NamedTensors& state, const std::vector<std::string>& from,
                         const std::vector<std::string>& to) {
  std::unordered_map<std::string_view, std::int64_t> places;
  std::int64_t at = 0;
  for (const std::string& word : from) places.emplace(word, at++);
  std::vector<std::int64_t> rows;  // the mean is the last
  for (const std::string& word : to) {
    const auto found = places.find(word);
    rows.push_back(found == places.end() ? std::ssize(from) : found->second);
  }
  const Tensor which = Tensor::from(rows, {std::ssize(rows)}, Device{});
  NamedTensors matched;
  for (const auto& [name, tensor] : state) {
    const bool of_words = name == "0.encoder.weight" || name == "0.encoder_dp.emb.weight" ||
                          name == "1.decoder.weight" || name == "1.decoder.bias";
    PEAL_CHECK(!of_words || tensor.size(0) == std::ssize(from), "match_words: ", name, " has ",
               tensor.shape(), ", and there are ", from.size(), " words that it is of");
    matched.emplace_back(
        name, of_words ? index_select(cat({tensor, mean(tensor, {0}, true)}), 0, which) : tensor);
  }
  return matched;
}

NamedTensors clean_raw_keys(const NamedTensors& state) {
  const auto has = [&](const std::string& key) {
    return std::any_of(state.begin(), state.end(),
                       [&](const auto& entry) { return entry.first == key; });
  };
  NamedTensors kept;
  for (const auto& [name, tensor] : state) {
    const std::size_t at = name.rfind(".module.");
    const bool twice =
        at != std::string::npos && has(concat(name.substr(0, at + 1), name.substr(at + 8), "_raw"));
    if (!twice) kept.emplace_back(name, tensor);
  }
  return kept;
}

}  // namespace peal::nn

// SPDX-License-Identifier: Apache-2.0
// Writes AWD-LSTMs, as language model and as classifier, what they make of batches, gradients and
// the masks that dropout drew, for torch_awd_lstm.py to compare with fastai's formulas in PyTorch.
// usage: torch_awd_lstm FOLDER
#include <peal/autograd/core/safetensors.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/models/awd_lstm.h>
#include <peal/nn/models/text_classifier.h>

#include <cstdio>
#include <filesystem>

using namespace peal;

namespace {

constexpr std::int64_t words = 13;

class Writer {
 public:
  explicit Writer(const nn::Module& model) {
    for (const auto& [name, tensor] : model.state_dict()) add("state." + name, tensor);
  }
  void add(const std::string& name, const Tensor& tensor) {
    all_.emplace_back(name, tensor.detach().clone());
  }
  void gradients(const nn::Module& model) {
    for (const auto& [name, parameter] : model.named_parameters()) {
      if (parameter.grad().defined()) add("grad." + name, parameter.grad());
    }
  }
  void save(const std::filesystem::path& path) const { save_safetensors(path, all_); }

 private:
  NamedTensors all_;
};

nn::AwdLstmSettings small(bool bidir, bool dropped) {
  const double on = dropped ? 1 : 0;
  return {.vocabulary = words,
          .emb_sz = 6,
          .n_hid = 8,
          .n_layers = 3,
          .bidir = bidir,
          .output_p = 0.3 * on,
          .hidden_p = 0.25 * on,
          .input_p = 0.4 * on,
          .embed_p = 0.2 * on,
          .weight_p = 0.5 * on};
}

Tensor tokens_of(std::int64_t n, std::int64_t length, std::int64_t seed) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < n * length; ++i) all.push_back((i * i * 7 + i * 3 + seed) % words);
  return Tensor::from(all, {n, length});
}

// The masks that the encoder draws for tokens [n, length], and the decoder.
void add_masks(Writer& out, const std::string& prefix, const nn::AwdLstmSettings& o, std::int64_t n,
               bool decodes, DType dtype) {
  int count = 0;
  const auto draw = [&](const Shape& shape, double p) {
    out.add(concat(prefix, count++), dropout(ones(shape, dtype), p));
  };
  const std::int64_t directions = o.bidir ? 2 : 1;
  draw({o.vocabulary, 1}, o.embed_p);
  draw({1, n, o.emb_sz}, o.input_p);
  for (std::int64_t i = 0; i < o.n_layers; ++i) {
    const std::int64_t width = i + 1 < o.n_layers ? o.n_hid : o.emb_sz;
    draw({4 * width / directions, width / directions}, o.weight_p);
    if (i + 1 < o.n_layers) draw({1, n, o.n_hid}, o.hidden_p);
  }
  if (decodes) draw({n, 1, o.emb_sz}, o.output_p);
}

// Two batches of as many streams, one of fewer, one of more, and the second again after a reset.
void write_language_model(const std::filesystem::path& path, bool bidir, bool dropped,
                          DType dtype) {
  const nn::AwdLstmSettings o = small(bidir, dropped);
  nn::AwdLanguageModel model(o);
  model.to(dtype);
  Writer out(model);
  int batch = 0;
  Tensor total;
  for (const std::int64_t n : {3, 3, 2, 4, 3}) {
    if (batch == 4) model.reset();
    const Tensor tokens = tokens_of(n, 5, batch), target = tokens_of(n, 5, batch + 1);
    const auto seed = static_cast<std::uint64_t>(batch);
    if (dropped) {
      manual_seed(seed);
      add_masks(out, concat("mask.", batch, "."), o, n, true, dtype);
    }
    manual_seed(seed);
    const auto [logits, raw, after] = model.run(tokens);
    const Tensor loss = cross_entropy(reshape(logits, {-1, words}), flatten(target)) +
                        nn::activation_regularization(raw, after, 2, 1);
    total = total.defined() ? total + loss : loss;
    out.add(concat("tokens.", batch), tokens);
    out.add(concat("target.", batch), target);
    out.add(concat("logits.", batch), logits);
    out.add(concat("loss.", batch), loss);
    ++batch;
  }
  total.backward();
  out.gradients(model);
  model.eval();
  model.reset();
  out.add("eval", model(tokens_of(3, 5, 0)));
  out.save(path);
}

// Texts of 11, 8, 7 and 3 tokens by parts of 4.
void write_classifier(const std::filesystem::path& path, std::int64_t max_len, bool dropped,
                      DType dtype) {
  const nn::AwdLstmSettings o = small(false, dropped);
  nn::AwdTextClassifier model(o, 3, {.seq_len = 4, .max_len = max_len, .lin_ftrs = {5}, .ps = {0}});
  model.to(dtype);
  Writer out(model);
  std::vector<std::int64_t> all;
  for (const std::int64_t length : {11, 8, 7, 3}) {
    const std::int64_t before = (12 - length) / 4 * 4;
    for (std::int64_t i = 0; i < 12; ++i) {
      all.push_back(i < before || i >= before + length ? 1 : 2 + (i * 5 + length) % (words - 2));
    }
  }
  const Tensor tokens = Tensor::from(all, {4, 12});
  const Tensor target = Tensor::from<std::int64_t>({2, 0, 1, 2}, {4});
  // The last linear layers' dropout is not replayed, so there is none of it here.
  const Tensor logits = model(tokens);
  const Tensor loss = cross_entropy(logits, target);
  loss.backward();
  out.add("tokens", tokens);
  out.add("target", target);
  out.add("logits", logits);
  out.gradients(model);
  for (const auto& [name, tensor] : model.state_dict()) out.add("after." + name, tensor);
  model.eval();
  out.add("eval", model(tokens));
  out.save(path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  try {
    for (const DType dtype : {DType::f64, DType::f32}) {
      manual_seed(1);
      for (const bool bidir : {false, true}) {
        for (const bool dropped : {false, true}) {
          write_language_model(folder / concat("language.", bidir, ".", dropped, ".", dtype), bidir,
                               dropped, dtype);
        }
      }
      for (const std::int64_t max_len : {4, 8, 100}) {
        write_classifier(folder / concat("classifier.", max_len, ".", dtype), max_len, false,
                         dtype);
      }
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

// SPDX-License-Identifier: Apache-2.0
// The language model: AWD-LSTM on streams of all texts.
#include <peal/autograd/intra_op.h>
#include <peal/autograd/ops/ops.h>
#include <peal/data/text/language_model_set.h>
#include <peal/data/text/tokenizer.h>
#include <peal/nn/metrics/classification.h>

#include <peal/examples/text/stages.h>

#include <algorithm>
#include <utility>

namespace texts {
namespace {

// Rows are streams, which ranks share; of a short text there are fewer.
std::int64_t rows_of(const std::vector<data::TokenIds>& texts, const launch::Job& job,
                     std::int64_t batch_size, const Options& o) {
  std::int64_t tokens = 0;
  for (const data::TokenIds& text : texts) tokens += std::ssize(text);
  return std::clamp<std::int64_t>(tokens / job.world() / o.seq_len, 1, batch_size) * job.world();
}

data::DatasetRef stream_set(std::vector<data::TokenIds> texts, std::int64_t rows, const Options& o,
                            bool shuffle) {
  return std::make_shared<data::LanguageModelSet>(
      std::move(texts), data::LanguageModelOptions{rows, o.seq_len, shuffle});
}

std::unique_ptr<data::DataLoader> stream_loader(const data::DatasetRef& set, std::int64_t rows,
                                                launch::Job& job, const Options& o, bool exact) {
  return std::make_unique<data::DataLoader>(
      set, data::LoaderOptions{.batch_size = rows,
                               .shard = job.place(),
                               .way = data::Way::split,
                               .seed = static_cast<std::uint64_t>(o.run.seed),
                               .exact = exact,
                               .device = job.device(o.run.device)});
}

launch::LossAndOutput next_words(nn::Module& model, const data::Batch& batch) {
  const auto [logits, raw, dropped] = model.call(&nn::AwdLanguageModel::run, batch.x);
  Tensor loss = cross_entropy(flatten(logits, 0, 1), flatten(batch.y));
  if (model.training()) loss = loss + nn::activation_regularization(raw, dropped);
  return {loss, transpose(logits, 1, 2)};
}

}  // namespace

void language_model(launch::Job& job, Options& o) {
  PEAL_CHECK(o.run.save_strategy != "steps",
             "09_train_text: save_strategy steps: a language model keeps the words before a batch, "
             "which are in no checkpoint; save after epochs (save_strategy epoch)");
  const std::string& before = o.resumed.empty() ? o.from : o.resumed;
  if (!before.empty()) take_sizes(before, "lm", o);
  const auto train = o.run.do_train ? data::read_texts(o.data, "train") : data::TextFiles{};
  const auto test = o.run.do_train ? data::read_texts(o.data, "test") : data::read_texts(o.data);
  const auto words = o.resumed.empty()
                         ? data::Vocabulary(data::tokenize_all(train.texts, num_threads()),
                                            {o.max_words, o.min_count})
                         : data::Vocabulary::load(words_beside(o.resumed));

  manual_seed(static_cast<std::uint64_t>(o.run.seed));  // parameters are drawn from it
  nn::AwdLanguageModel net(sized(nn::awd_lstm_language_model(words.size(), o.drop), o));
  if (o.resumed.empty() && !o.from.empty()) {
    net.load_state_dict(nn::match_words(state_of(o.from, "model."),
                                        data::Vocabulary::load(words_beside(o.from)).words(),
                                        words.words()));
  }
  auto judged = numbers_of(test, words, job);
  const std::int64_t test_rows = rows_of(judged, job, o.run.per_device_eval_batch_size, o);
  launch::TrainerOptions options{
      .eval_dataset = stream_set(std::move(judged), test_rows, o, false),
      .eval_dataloader =
          [&](const data::DatasetRef& set) { return stream_loader(set, test_rows, job, o, true); },
      .compute_loss = next_words,
      .compute_metrics = {{"perplexity", std::make_shared<nn::Perplexity>()}}};
  std::int64_t rows = 0;
  if (o.run.do_train) {
    auto learnt = numbers_of(train, words, job);
    rows = rows_of(learnt, job, o.run.per_device_train_batch_size, o);
    options.train_dataset = stream_set(std::move(learnt), rows, o, true);
    options.train_dataloader = [&, set = options.train_dataset] {
      return stream_loader(set, rows, job, o, false);
    };
  }
  run(job, o, words, net, options, 0);
}

}  // namespace texts

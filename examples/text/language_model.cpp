// SPDX-License-Identifier: Apache-2.0
// The language model: AWD-LSTM on streams of all texts.
#include <peal/autograd/intra_op.h>
#include <peal/autograd/ops/ops.h>
#include <peal/data/text/language_model_set.h>
#include <peal/data/text/tokenizer.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/optim/adam.h>

#include <peal/examples/text/stages.h>

#include <algorithm>
#include <utility>

namespace texts {
namespace {

// Rows are streams, which ranks share; of a short text there are fewer.
data::LoaderOptions streams(const std::vector<data::TokenIds>& texts, launch::Job& job,
                            const Options& o, Device device) {
  std::int64_t tokens = 0;
  for (const data::TokenIds& text : texts) tokens += std::ssize(text);
  const std::int64_t most =
      std::clamp<std::int64_t>(tokens / job.world() / o.seq_len, 1, o.run.batch_size);
  return {.batch_size = most * job.world(),
          .shard = job.place(),
          .way = data::Way::split,
          .seed = o.run.seed,
          .device = device};
}

data::DatasetRef stream_set(std::vector<data::TokenIds> texts, const data::LoaderOptions& options,
                            const Options& o, bool shuffle) {
  return std::make_shared<data::LanguageModelSet>(
      std::move(texts), data::LanguageModelOptions{options.batch_size, o.seq_len, shuffle});
}

Tensor next_words(nn::DistributedDataParallel& model, const data::Batch& batch) {
  return transpose(model.call(&nn::AwdLanguageModel::run, batch.x).logits, 1, 2);
}

}  // namespace

void language_model(launch::Job& job, Options& o) {
  PEAL_CHECK(o.run.save_every == 0, "09_train_text: --save-every ", o.run.save_every,
             ": a language model keeps the words before a batch, which are in no checkpoint; "
             "leave it out, and it is saved after each epoch");
  const std::string& before = o.run.resume.empty() ? o.from : o.run.resume;
  if (!before.empty()) settings_of(before, o);
  const bool judges = !o.run.evaluate.empty();
  const auto train = judges ? data::TextFiles{} : data::read_texts(o.data, "train");
  const auto test = judges ? data::read_texts(o.run.evaluate) : data::read_texts(o.data, "test");
  const auto words = o.run.resume.empty()
                         ? data::Vocabulary(data::tokenize_all(train.texts, num_threads()),
                                            {o.max_words, o.min_count})
                         : data::Vocabulary::load(words_beside(o.run.resume));
  auto told = numbers_of(test, words, job);
  const Device device = job.device(o.run.device);
  const auto test_options = streams(told, job, o, device);
  data::DataLoader testing(stream_set(std::move(told), test_options, o, false), test_options);

  manual_seed(o.run.seed);  // parameters are drawn where the model is made
  nn::AwdLanguageModel net(sized(nn::awd_lstm_language_model(words.size(), o.drop), o));
  if (!judges && o.run.resume.empty() && !o.from.empty()) {
    net.load_state_dict(nn::match_words(state_of(o.from, "model."),
                                        data::Vocabulary::load(words_beside(o.from)).words(),
                                        words.words()));
  }
  net.to(device);
  nn::DistributedDataParallel model(net, job.group());
  const std::vector<launch::NamedMetric> metrics{
      {"perplexity", std::make_shared<nn::Perplexity>()}};
  if (judges) {
    nn::load_model(o.run.resume, model);
    const Autocast precision = launch::autocast(o.run);
    const auto found =
        launch::evaluate(model, testing, job.group(), metrics,
                         [&](const data::Batch& batch) { return next_words(model, batch); });
    if (job.is_main()) print(concat(test.name, ": ", launch::in_words(found)));
    return;
  }
  auto learnt = numbers_of(train, words, job);
  const auto train_options = streams(learnt, job, o, device);
  data::DataLoader training(stream_set(std::move(learnt), train_options, o, true), train_options);
  const double rate = o.run.lr.value_or(1e-2);
  nn::AdamW optimizer(model.named_parameters(), {.lr = rate, .beta2 = 0.99, .weight_decay = 0.1});
  nn::LRScheduler scheduler(optimizer, cycles(rate, training.size(), o.run.epochs, 0));
  fit(job, o, words, model, optimizer, scheduler, training, testing,
      {.forward = next_words, .metrics = metrics},
      [&](nn::DistributedDataParallel& ddp, const data::Batch& batch) {
        const auto [logits, raw, dropped] = ddp.call(&nn::AwdLanguageModel::run, batch.x);
        return cross_entropy(flatten(logits, 0, 1), flatten(batch.y)) +
               nn::activation_regularization(raw, dropped);
      });
}

}  // namespace texts

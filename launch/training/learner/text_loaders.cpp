// SPDX-License-Identifier: Apache-2.0
// The loaders of learners for texts.
#include <peal/autograd/core/error.h>
#include <peal/data/batches.h>
#include <peal/data/text/language_model_set.h>
#include <peal/data/text/text_set.h>
#include <peal/launch/training/learner/text.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace peal::launch {
namespace {

std::unique_ptr<data::DataLoader> stream_loader(const Job& job, std::vector<data::TokenIds> texts,
                                                const TextLoadersOptions& options, bool trains) {
  std::int64_t tokens = 0;
  for (const data::TokenIds& text : texts) tokens += std::ssize(text);
  const std::int64_t rows =
      std::clamp<std::int64_t>(tokens / job.world() / options.seq_len, 1, options.batch_size) *
      job.world();
  auto set = std::make_shared<data::LanguageModelSet>(
      std::move(texts), data::LanguageModelOptions{rows, options.seq_len, trains});
  return std::make_unique<data::DataLoader>(std::move(set),
                                            data::LoaderOptions{.batch_size = rows,
                                                                .shard = job.place(),
                                                                .way = data::Way::split,
                                                                .seed = options.seed,
                                                                .exact = !trains,
                                                                .device = options.device});
}

// Texts of like length together, long and short batches in a drawn order. What fills no batch of
// all ranks is left out, other texts in each epoch: not the shortest of them.
data::BatchPlan plan_by_length(std::vector<std::int64_t> lengths, std::int64_t batch_size,
                               std::uint64_t seed, Place place) {
  const std::int64_t size = batch_size * place.world;
  return [lengths = std::move(lengths), size, seed, place](std::int64_t epoch) {
    const data::ShardOptions draw{.seed = seed, .epoch = epoch};
    auto order = data::shard(std::ssize(lengths), 1, 0, draw);
    if (std::ssize(order) > size) {
      order.resize(order.size() - order.size() % static_cast<std::size_t>(size));
    }
    const auto whole = data::by_length(order, lengths, size, 10);
    data::Batches mixed;
    for (const std::int64_t k : data::shard(std::ssize(whole), 1, 0, draw)) {
      mixed.push_back(whole[static_cast<std::size_t>(k)]);
    }
    return data::split_batches(mixed, size, place);
  };
}

}  // namespace

DataLoaders language_model_loaders(const Job& job, std::vector<data::TokenIds> training,
                                   std::vector<data::TokenIds> validation,
                                   const TextLoadersOptions& options) {
  return {job,
          stream_loader(job, std::move(training), options, true),
          stream_loader(job, std::move(validation), options, false),
          {.batch_size = options.batch_size, .device = options.device}};
}

std::unique_ptr<data::DataLoader> text_loader(Place place, LabelledTexts texts,
                                              const TextLoadersOptions& options) {
  auto set = std::make_shared<data::TextSet>(std::move(texts.texts), std::move(texts.classes),
                                             data::pad_parts(options.seq_len));
  return std::make_unique<data::DataLoader>(std::move(set),
                                            data::LoaderOptions{.batch_size = options.batch_size,
                                                                .shard = place,
                                                                .exact = true,
                                                                .device = options.device});
}

DataLoaders text_classifier_loaders(const Job& job, LabelledTexts training,
                                    LabelledTexts validation, const TextLoadersOptions& options) {
  PEAL_CHECK(!training.classes.empty(),
             "[launch] text_classifier_loaders: expected a class for each of ",
             training.texts.size(), " texts to learn from, got none");
  const auto learnt = std::make_shared<data::TextSet>(
      std::move(training.texts), std::move(training.classes), data::pad_parts(options.seq_len));
  auto loader = std::make_unique<data::DataLoader>(
      learnt, plan_by_length(learnt->lengths(), options.batch_size, options.seed, job.place()),
      data::LoaderOptions{.device = options.device});
  return {job,
          std::move(loader),
          text_loader(job.place(), std::move(validation), options),
          {.batch_size = options.batch_size, .device = options.device}};
}

}  // namespace peal::launch

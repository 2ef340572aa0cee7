// SPDX-License-Identifier: Apache-2.0
// The classifier: on the encoder of a language model, thawed layer by layer.
#include <peal/autograd/ops/ops.h>
#include <peal/data/text/text_set.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/models/text_classifier.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <fmt/ranges.h>

#include <peal/examples/text/stages.h>

#include <cmath>
#include <sstream>
#include <utility>

namespace texts {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  return all;
}

// Of texts whose classes nobody knows.
void print_classes(const Tensor& predictions, const data::TextFiles& files,
                   const std::vector<std::string>& classes) {
  const auto [share, which] = max(softmax(cast(predictions, DType::f32)), -1);
  for (std::int64_t i = 0; i < files.size(); ++i) {
    const auto likeliest = static_cast<std::size_t>(which.data<std::int64_t>()[i]);
    print(fmt::format("{}: {} ({:.1f} %)", files.sources[static_cast<std::size_t>(i)],
                      classes[likeliest], 100 * share.data<float>()[i]));
  }
}

// Texts of like length together, long and short batches in a drawn order.
data::BatchPlan plan_by_length(std::vector<std::int64_t> lengths, const Options& o, Place place) {
  const std::int64_t size = o.run.per_device_train_batch_size * place.world;
  const auto seed = static_cast<std::uint64_t>(o.run.seed);
  return [=, lengths = std::move(lengths)](std::int64_t epoch) {
    const data::ShardOptions draw{.seed = seed, .epoch = epoch};
    auto order = data::shard(std::ssize(lengths), 1, 0, draw);
    // What fills no batch is left out, other texts in each epoch: not the shortest of them.
    if (std::ssize(order) > size)
      order.resize(order.size() - order.size() % static_cast<std::size_t>(size));
    const auto whole = data::by_length(order, lengths, size, 10);
    data::Batches mixed;
    for (const std::int64_t k : data::shard(std::ssize(whole), 1, 0, draw))
      mixed.push_back(whole[static_cast<std::size_t>(k)]);
    return data::split_batches(mixed, size, place);
  };
}

// In the first epochs only what is far from the words learns.
struct Thaw : launch::TrainerCallback {
  Thaw(std::vector<std::vector<Tensor>> g, int after) : groups(std::move(g)), unfreeze(after) {}
  void on_epoch_begin(launch::Trainer& trainer, launch::TrainerControl&) override {
    const auto epoch = static_cast<std::size_t>(trainer.epoch);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const bool learns = trainer.epoch >= unfreeze || g + epoch + 1 >= groups.size();
      for (const Tensor& parameter : groups[g]) parameter.set_requires_grad(learns);
    }
  }
  std::vector<std::vector<Tensor>> groups;
  int unfreeze;
};

}  // namespace

void classifier(launch::Job& job, Options& o) {
  const std::string& before = o.resumed.empty() ? o.from : o.resumed;
  PEAL_CHECK(
      !before.empty(),
      "09_train_text: a classifier begins with a language model: name its checkpoint by --from");
  take_sizes(before, o.resumed.empty() ? "lm" : "classifier", o);
  const auto words = data::Vocabulary::load(words_beside(before));
  const bool trains = o.run.do_train;
  const auto train = trains ? data::read_texts(o.data, "train") : data::TextFiles{};
  const auto test = trains ? data::read_texts(o.data, "test") : data::read_texts(o.data);
  const auto classes =
      trains ? train.classes() : lines_of(launch::setting_in(o.resumed, "classes"));

  manual_seed(static_cast<std::uint64_t>(o.run.seed));  // parameters are drawn from it
  nn::AwdTextClassifier net(sized(nn::awd_lstm_classifier(words.size(), o.drop), o),
                            std::ssize(classes), {.seq_len = o.seq_len, .max_len = 20 * o.seq_len});
  if (o.resumed.empty()) net.encoder.module.load_state_dict(state_of(o.from, "model.0."));
  if (job.world() > 1) nn::convert_sync_batchnorm(net, job.group());

  const auto parts = data::pad_parts(o.seq_len);
  const bool unknown = test.labels.empty();
  launch::TrainerOptions options{
      .eval_dataset = std::make_shared<data::TextSet>(
          numbers_of(test, words, job),
          unknown ? std::vector<std::int64_t>(test.texts.size()) : test.class_numbers(classes),
          parts),
      .compute_metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
      .settings = {{"classes", fmt::format("{}", fmt::join(classes, "\n"))},
                   {"unfreeze", std::to_string(o.unfreeze)}}};
  if (unknown) {
    launch::Trainer trainer(job, net, o.run, options);
    trainer.load_model();
    const auto found = trainer.predict(options.eval_dataset);
    if (job.is_main()) print_classes(found.predictions, test, classes);
    return;
  }
  // The closer to the words, the slower.
  const auto groups = net.layer_groups();
  for (std::size_t g = 0; g < groups.size(); ++g)
    options.layer_groups.push_back(
        {groups[g],
         std::pow(2.6, 1.0 + static_cast<double>(g) - static_cast<double>(groups.size()))});
  options.callbacks = {std::make_shared<Thaw>(groups, o.unfreeze)};
  if (trains) {
    const auto set = std::make_shared<data::TextSet>(numbers_of(train, words, job),
                                                     train.class_numbers(classes), parts);
    options.train_dataset = set;
    options.train_dataloader = [&, set] {
      return std::make_unique<data::DataLoader>(
          set, plan_by_length(set->lengths(), o, job.place()),
          data::LoaderOptions{.device = job.device(o.run.device)});
    };
  }
  run(job, o, words, net, options, o.unfreeze);
}

}  // namespace texts

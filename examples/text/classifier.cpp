// SPDX-License-Identifier: Apache-2.0
// The classifier: on the encoder of a language model, thawed layer by layer.
#include <peal/autograd/ops/ops.h>
#include <peal/data/text/text_set.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/models/text_classifier.h>
#include <peal/nn/optim/adam.h>
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
void print_classes(nn::Module& model, const data::TextFiles& files,
                   const std::vector<data::TokenIds>& texts,
                   const std::vector<std::string>& classes, Device device) {
  model.eval();
  const NoGrad guard;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Tensor x = Tensor::from(texts[i], {1, std::ssize(texts[i])}, Device{}).to(device);
    const auto [share, which] = max(softmax(model(x)), -1);
    print(fmt::format("{}: {} ({:.1f} %)", files.sources[i],
                      classes[static_cast<std::size_t>(which.item<std::int64_t>())],
                      100 * share.item<double>()));
  }
}

}  // namespace

void classifier(launch::Job& job, Options& o) {
  PEAL_CHECK(
      !o.from.empty() || !o.run.resume.empty(),
      "09_train_text: a classifier begins with a language model: name its checkpoint by --from");
  const std::string& before = o.run.resume.empty() ? o.from : o.run.resume;
  Metadata saved = settings_of(before, o);
  const std::string stage = o.run.resume.empty() ? "lm" : "classifier";
  PEAL_CHECK(saved["stage"] == stage, "09_train_text: ", before,
             ": expected a checkpoint of the stage ", stage, ", got one of ", saved["stage"]);
  const auto words = data::Vocabulary::load(words_beside(before));
  const bool judges = !o.run.evaluate.empty();
  const Device device = job.device(o.run.device);
  const auto train = judges ? data::TextFiles{} : data::read_texts(o.data, "train");
  const auto test = judges ? data::read_texts(o.run.evaluate) : data::read_texts(o.data, "test");
  const auto classes = judges ? lines_of(saved["classes"]) : train.classes();
  auto told = numbers_of(test, words, job);

  manual_seed(o.run.seed);
  nn::AwdTextClassifier net(sized(nn::awd_lstm_classifier(words.size(), o.drop), o),
                            std::ssize(classes), {.seq_len = o.seq_len, .max_len = 20 * o.seq_len});
  if (o.run.resume.empty()) {
    net.encoder.module.load_state_dict(state_of(o.from, "model.0."));
  } else {
    nn::load_model(o.run.resume, net);
  }
  net.to(device);
  if (judges && test.labels.empty()) {
    if (!job.is_main()) return;
    const auto busy = job.group().busy("predicts");  // the others wait at the end
    const Autocast precision = launch::autocast(o.run);
    return print_classes(net, test, told, classes, device);
  }
  if (job.world() > 1) nn::convert_sync_batchnorm(net, job.group());
  nn::DistributedDataParallel model(net, job.group());
  const auto parts = data::pad_parts(o.seq_len);
  data::DataLoader testing(
      std::make_shared<data::TextSet>(std::move(told), test.class_numbers(classes), parts),
      {.batch_size = o.run.batch_size, .shard = job.place(), .exact = true, .device = device});
  if (judges) {
    const Autocast precision = launch::autocast(o.run);
    const auto found = launch::evaluate(model, testing, job.group(),
                                        {{"accuracy", std::make_shared<nn::Accuracy>()}});
    if (job.is_main()) print(concat(test.name, ": ", launch::in_words(found)));
    return;
  }
  const auto set = std::make_shared<data::TextSet>(numbers_of(train, words, job),
                                                   train.class_numbers(classes), parts);
  data::DataLoader training(
      set,
      [&, lengths = set->lengths()](std::int64_t epoch) {
        const std::int64_t size = o.run.batch_size * job.world();
        const data::ShardOptions draw{.seed = o.run.seed, .epoch = epoch};
        auto order = data::shard(set->size(), 1, 0, draw);
        // What fills no batch is left out, other texts in each epoch: not the shortest of them.
        if (std::ssize(order) > size)
          order.resize(order.size() - order.size() % static_cast<std::size_t>(size));
        const auto whole = data::by_length(order, lengths, size, 10);
        data::Batches mixed;  // long and short ones
        for (const std::int64_t k : data::shard(std::ssize(whole), 1, 0, draw))
          mixed.push_back(whole[static_cast<std::size_t>(k)]);
        return data::split_batches(mixed, size, job.place());
      },
      {.device = device});
  // The closer to the words, the slower; and in the first epochs only what is far from them learns.
  const auto groups = net.layer_groups();
  const double rate = o.run.lr.value_or(1e-2);
  std::vector<nn::ParameterGroup<nn::AdamWOptions>> learning;
  std::vector<nn::Schedule> schedules;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const double own = rate / std::pow(2.6, groups.size() - 1 - g);
    learning.push_back({groups[g], {.lr = own, .beta2 = 0.99, .weight_decay = 0.1}});
    schedules.push_back(cycles(own, training.size(), o.run.epochs, o.unfreeze));
  }
  nn::AdamW optimizer(learning);
  nn::LRScheduler scheduler(optimizer, schedules);
  const auto thaw = [&](int epoch) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const bool learns =
          epoch >= o.unfreeze || g + static_cast<std::size_t>(epoch) + 1 >= groups.size();
      for (const Tensor& parameter : groups[g]) parameter.set_requires_grad(learns);
    }
  };
  fit(job, o, words, model, optimizer, scheduler, training, testing,
      {.settings = {{"classes", fmt::format("{}", fmt::join(classes, "\n"))},
                    {"unfreeze", std::to_string(o.unfreeze)}},
       .before_epoch = thaw},
      [](nn::DistributedDataParallel& ddp, const data::Batch& batch) {
        return cross_entropy(ddp(batch.x), batch.y);
      });
}

}  // namespace texts

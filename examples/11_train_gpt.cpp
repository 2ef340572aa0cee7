// SPDX-License-Identifier: Apache-2.0
// A GPT on a text of any kind, by characters, or by byte pairs or pieces (sentencepiece) that it
// learns of it.
//
//   launch/tools/peal-mpirun -n 2 build/release/examples/11_train_gpt --data shakespeare.txt
//     --epochs 5 --save shakespeare.safetensors
//   build/release/examples/11_train_gpt --resume shakespeare.safetensors --generate "ROMEO:"
//   build/release/examples/11_train_gpt --resume shakespeare.safetensors --evaluate hamlet.txt
//
// The last tenth of the text is what the model is judged on after each epoch. The characters,
// merges or pieces are saved beside the model.
#include <peal/autograd/ops/ops.h>
#include <peal/data/formats/gzip.h>
#include <peal/data/loader.h>
#include <peal/data/text/byte_pairs.h>
#include <peal/data/text/sentence_piece.h>
#include <peal/data/text/token_file.h>
#include <peal/launch/job.h>
#include <peal/launch/training/epoch_trainer.h>
#include <peal/launch/training/export_run.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/models/generate.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/scheduler.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace peal;

namespace {

struct Choices {
  std::string data, prompt, run_file;
  std::int64_t byte_pairs = 0, pieces = 0, layers = 4, heads = 4, width = 128, block = 64;
  std::int64_t length = 300, top_k = 0;
  int until = 0;
  double dropout = 0, temperature = 0.8, top_p = 1;
};

void print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);  // at once, where it goes to a file
}

std::string read_text(const std::string& path, const launch::Job& job) {
  launch::check_all_read(path, job.world());
  const auto bytes = data::read_file(path);
  PEAL_CHECK(!bytes.empty(), "11_train_gpt: ", path, " is empty; expected a text");
  return {bytes.begin(), bytes.end()};
}

// How a text becomes numbers.
using Vocabulary =
    std::variant<data::CharacterVocabulary, data::BytePairs, data::SentencePieceProcessor>;

Vocabulary learnt_of(const std::string& text, const std::string& learnt, const Choices& c) {
  if (c.byte_pairs > 0) return data::BytePairs::train({learnt}, c.byte_pairs);
  if (c.pieces == 0) return data::CharacterVocabulary(text);
  // Ends of lines, and what the last tenth alone has, are bytes.
  return data::SentencePieceProcessor::train({learnt}, c.pieces,
                                             {.normalization_rule_name = "identity",
                                              .remove_extra_whitespaces = false,
                                              .byte_fallback = true});
}

std::int64_t size_of(const Vocabulary& vocabulary) {
  return std::visit([](const auto& kind) { return kind.size(); }, vocabulary);
}
data::TokenIds encoded(const Vocabulary& vocabulary, const std::string& text,
                       const std::string& from) try {
  return std::visit([&](const auto& kind) { return kind.encode(text); }, vocabulary);
} catch (const Error& error) {
  throw Error(concat("11_train_gpt: ", from, ": ", error.what()));
}
std::string beside(const std::string& model) { return launch::beside(model, ".vocabulary"); }
void save(const Vocabulary& vocabulary, const std::string& path) {
  std::visit([&](const auto& kind) { kind.save(path); }, vocabulary);
}

// Windows that tell each token once. Where a text is judged, all of them but the first, which none
// stands before; where one is learnt, there are only whole windows.
enum class Last { judged, learnt };
std::shared_ptr<data::TokenWindows> windows_of(const data::TokenIds& ids, std::int64_t vocabulary,
                                               std::int64_t block, Last last,
                                               const std::string& from) {
  PEAL_CHECK(ids.size() > 1, "11_train_gpt: ", from,
             ": expected a text of two tokens or more, got ", ids.size());
  return std::make_shared<data::TokenWindows>(
      std::make_shared<data::TokenFile>(data::TokenFile::in_memory(ids, vocabulary)),
      std::min(block, std::ssize(ids) - 1), 0, last == Last::judged);
}

// Of logits [B, T, vocabulary] and tokens [B, T].
struct TokenPerplexity : nn::Perplexity {
  void add(const Tensor& logits, const Tensor& tokens, std::vector<double>& sums) override {
    Perplexity::add(flatten(logits, 0, 1), flatten(tokens), sums);
  }
};
struct TokenLoss : TokenPerplexity {
  double of(const std::vector<double>& sums) const override {
    return std::log(Perplexity::of(sums));
  }
};
std::vector<launch::NamedMetric> metrics() {
  return {{"loss", std::make_shared<TokenLoss>()},
          {"perplexity", std::make_shared<TokenPerplexity>()}};
}

void print_sample(launch::Job& job, nn::GPT& gpt, const Vocabulary& vocabulary, const Choices& c,
                  std::uint64_t seed) {
  if (c.prompt.empty() || !job.is_main()) return;
  const auto busy = job.group().busy("generates");  // the others wait at the end
  const data::TokenIds ids = encoded(vocabulary, c.prompt, "--generate");
  const Device device = gpt.lm_head.weight.device();
  const Tensor text = nn::generate(gpt, Tensor::from(ids, {1, std::ssize(ids)}, device),
                                   {.max_new_tokens = c.length,
                                    .temperature = c.temperature,
                                    .top_k = c.top_k,
                                    .top_p = c.top_p,
                                    .seed = seed});
  const auto all = text.to_vector<std::int64_t>();
  print(std::visit([&](const auto& kind) { return kind.decode(all); }, vocabulary));
}

// What is asked of a model that there is.
void use(launch::Job& job, const launch::RunArguments& arguments, const Choices& c) {
  PEAL_CHECK(!c.prompt.empty() || !arguments.evaluate.empty(),
             "11_train_gpt: what shall it learn? Name a text by --data");
  PEAL_CHECK(!arguments.resume.empty(),
             "11_train_gpt: --evaluate and --generate use a model that "
             "there is: name its checkpoint by --resume");
  const Metadata saved = load_safetensors(arguments.resume).metadata;
  const auto setting = [&](const std::string& name) {
    const auto found = saved.find(name);
    PEAL_CHECK(found != saved.end(), "11_train_gpt: ", arguments.resume, " has no setting '", name,
               "'; is it a checkpoint of another program, or of an older version of this one?");
    return std::stoll(found->second);
  };
  const std::string words = beside(arguments.resume);
  const auto load = [&]() -> Vocabulary {
    if (setting("byte_pairs") > 0) return data::BytePairs::load(words);
    // A checkpoint from before there were pieces has none.
    if (saved.contains("pieces") && setting("pieces") > 0) {
      return data::SentencePieceProcessor::load(words);
    }
    return data::CharacterVocabulary::load(words);
  };
  const Vocabulary vocabulary = load();
  nn::GPT gpt({.vocabulary = size_of(vocabulary),
               .width = setting("width"),
               .heads = setting("heads"),
               .layers = setting("layers"),
               .positions = setting("block")});
  nn::load_model(arguments.resume, gpt);
  const Device device = job.device(arguments.device);
  gpt.to(device);
  if (!arguments.evaluate.empty()) {
    const auto ids = encoded(vocabulary, read_text(arguments.evaluate, job), arguments.evaluate);
    data::DataLoader loader(
        windows_of(ids, size_of(vocabulary), gpt.positions(), Last::judged, arguments.evaluate),
        {.batch_size = 32, .shard = job.place(), .exact = true, .device = device});
    const Autocast precision = launch::autocast(arguments);
    const auto found = launch::evaluate(gpt, loader, job.group(), metrics());
    if (job.is_main()) {
      print(concat(arguments.evaluate, ": ", ids.size(), " tokens, ", launch::in_words(found)));
    }
  }
  print_sample(job, gpt, vocabulary, c, arguments.seed);
}

void learn(launch::Job& job, const launch::RunArguments& arguments, const Choices& c) {
  const Device device = job.device(arguments.device);
  const std::string text = read_text(c.data, job);
  std::size_t cut = text.size() - text.size() / 10;
  while (cut < text.size() && (text[cut] & 0xC0) == 0x80) ++cut;  // not within a character
  const std::string first = text.substr(0, cut), last = text.substr(cut);
  PEAL_CHECK(c.byte_pairs == 0 || c.pieces == 0,
             "11_train_gpt: by --byte-pairs or by --pieces, not by both");
  const Vocabulary vocabulary = learnt_of(text, first, c);
  const data::TokenIds train_ids = encoded(vocabulary, first, c.data),
                       test_ids = encoded(vocabulary, last, c.data);
  data::DataLoader training(
      windows_of(train_ids, size_of(vocabulary), c.block, Last::learnt, c.data),
      {.batch_size = arguments.batch_size,
       .shuffle = true,
       .shard = job.place(),
       .seed = arguments.seed,
       .device = device});
  data::DataLoader testing(
      windows_of(test_ids, size_of(vocabulary), c.block, Last::judged,
                 "the last tenth of " + c.data),
      {.batch_size = 32, .shard = job.place(), .exact = true, .device = device});

  manual_seed(arguments.seed);  // parameters are drawn where the model is made
  nn::GPT gpt({.vocabulary = size_of(vocabulary),
               .width = c.width,
               .heads = c.heads,
               .layers = c.layers,
               .positions = c.block,
               .embd_pdrop = c.dropout,
               .attn_pdrop = c.dropout,
               .resid_pdrop = c.dropout});
  gpt.to(device);
  nn::DistributedDataParallel model(gpt, job.group());
  const double rate = arguments.lr.value_or(1e-3);
  nn::AdamW optimizer(model.named_parameters(), {.lr = rate, .beta2 = 0.99, .weight_decay = 0.1});
  // Up and down again over all epochs, also of a run that stops before.
  nn::LRScheduler scheduler(optimizer,
                            nn::one_cycle_lr({.max_lr = rate,
                                              .total_steps = training.size() * arguments.epochs + 1,
                                              .pct_start = 0.1}));
  if (!c.run_file.empty()) {
    launch::export_run(c.run_file, model, training, testing, arguments.epochs, scheduler);
  }
  launch::RunArguments now = arguments;
  if (c.until > 0) now.epochs = std::min(c.until, arguments.epochs);
  launch::EpochTrainer trainer(job, now, model, optimizer,
                               {.settings = {{"data", c.data},
                                             {"tokens", std::to_string(train_ids.size())},
                                             {"byte_pairs", std::to_string(c.byte_pairs)},
                                             {"pieces", std::to_string(c.pieces)},
                                             {"layers", std::to_string(c.layers)},
                                             {"heads", std::to_string(c.heads)},
                                             {"width", std::to_string(c.width)},
                                             {"block", std::to_string(c.block)},
                                             {"dropout", std::to_string(c.dropout)}},
                                .tell = print,
                                .parts = {{"scheduler", scheduler}},
                                .metrics = metrics(),
                                .after_step = [&] { scheduler.step(); },
                                .before_save = [&] { save(vocabulary, beside(arguments.save)); }});
  trainer.fit(training, testing, [](const Tensor& logits, const Tensor& tokens) {
    return cross_entropy(flatten(logits, 0, 1), flatten(tokens));
  });
  print_sample(job, gpt, vocabulary, c, arguments.seed);
}

}  // namespace

int main(int argc, char** argv) {
  launch::RunArguments arguments;
  Choices c;
  launch::CommandLine line(
      "Trains a GPT on a text; start it with peal-run or mpirun for several ranks.");
  line.option("--data", &c.data, "text to learn");
  line.option("--byte-pairs", &c.byte_pairs, "merges to learn of the text (0: by characters)")
      .not_negative();
  line.option("--pieces", &c.pieces, "pieces of sentencepiece to learn of the text (0: none)")
      .not_negative();
  line.option("--layers", &c.layers, "blocks of the model").positive();
  line.option("--heads", &c.heads, "of attention, in a block").positive();
  line.option("--width", &c.width, "numbers that a token is, between blocks").positive();
  line.option("--block", &c.block, "tokens that it looks at together").positive();
  line.option("--dropout", &c.dropout, "share that is dropped, everywhere").between(0, 1);
  line.option("--until", &c.until,
              "epoch to stop after, for a run to be taken up later (0: the last)");
  line.option("--generate", &c.prompt, "beginning of a text to go on with, at the end");
  line.option("--length", &c.length, "tokens to generate").not_negative();
  line.option("--temperature", &c.temperature, "0: the likeliest token").not_negative();
  line.option("--top-k", &c.top_k, "so many likeliest tokens (0: all)").not_negative();
  line.option("--top-p", &c.top_p, "the likeliest tokens that reach it together").between(0, 1);
  line.option(
      "--export", &c.run_file,
      "file for first weights, batches and rates, of one rank (bench/peers/gpt_accuracy.py)");
  launch::add_training_options(line, arguments);
  if (const auto status = line.parse(argc, argv)) return *status;
  return launch::run_main([&](launch::Job& job) {
    launch::find_resume(job, arguments);
    c.data.empty() || !arguments.evaluate.empty() ? use(job, arguments, c)
                                                  : learn(job, arguments, c);
  });
}

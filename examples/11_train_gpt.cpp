// SPDX-License-Identifier: Apache-2.0
// A GPT on a text of any kind, by characters, or by byte pairs or pieces (sentencepiece) that it
// learns of it.
//
// The book (docs/book): chapter 7, data-parallel training.
//
//   launch/tools/peal-mpirun -n 2 build/release/examples/11_train_gpt --data shakespeare.txt
//     --num_train_epochs 5 --output_dir run --save_strategy epoch
//   build/release/examples/11_train_gpt --resume_from_checkpoint run --generate "ROMEO:"
//   build/release/examples/11_train_gpt --resume_from_checkpoint run --do_train false
//     --data hamlet.txt
//
// The last tenth of the text is what the model is judged on after each epoch. The characters,
// merges or pieces are saved beside the checkpoints. The Trainer's arguments are options, all of
// them: docs/training-arguments.md.
#include <peal/autograd/ops/ops.h>
#include <peal/data/formats/gzip.h>
#include <peal/data/loader.h>
#include <peal/data/text/byte_pairs.h>
#include <peal/data/text/sentence_piece.h>
#include <peal/data/text/token_file.h>
#include <peal/examples/trainer_program.h>
#include <peal/launch/job.h>
#include <peal/launch/print.h>
#include <peal/launch/training/read_by_all.h>
#include <peal/launch/training/trainer/export_run.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/models/generate.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace peal;
using launch::print;

namespace {

struct Choices {
  std::string data, prompt, run_file;
  std::int64_t byte_pairs = 0, pieces = 0, layers = 4, heads = 4, width = 128, block = 64;
  std::int64_t length = 300, top_k = 0;
  double dropout = 0, temperature = 0.8, top_p = 1;
};

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

void print_sample(launch::Job& job, nn::GPT& gpt, const Vocabulary& vocabulary, const Choices& c,
                  std::int64_t seed) {
  if (c.prompt.empty() || !job.is_main()) return;
  const auto busy = job.group().busy("generates");  // the others wait at the end
  const data::TokenIds ids = encoded(vocabulary, c.prompt, "--generate");
  const Device device = gpt.lm_head.weight.device();
  const Tensor text = nn::generate(gpt, Tensor::from(ids, {1, std::ssize(ids)}, device),
                                   {.max_new_tokens = c.length,
                                    .temperature = c.temperature,
                                    .top_k = c.top_k,
                                    .top_p = c.top_p,
                                    .seed = static_cast<std::uint64_t>(seed)});
  const auto all = text.to_vector<std::int64_t>();
  print(std::visit([&](const auto& kind) { return kind.decode(all); }, vocabulary));
}

// Of training, and of what is judged: what both have.
launch::TrainerOptions trainer_options() {
  return {.loss =
              [](const Tensor& logits, const Tensor& tokens) {
                return cross_entropy(flatten(logits, 0, 1), flatten(tokens));
              },
          .compute_metrics = {{"perplexity", std::make_shared<TokenPerplexity>()}},
          .tell = print};
}

// What is asked of a model that there is.
void use(launch::Job& job, const launch::TrainingArguments& arguments, const Choices& c) {
  PEAL_CHECK(!c.prompt.empty() || !c.data.empty(),
             "11_train_gpt: what shall it learn? Name a text by --data");
  const std::string model = launch::checkpoint_to_judge(job, arguments);
  const auto setting = [&](const char* name) {
    return std::stoll(launch::setting_in(model, name));
  };
  const Vocabulary vocabulary = [&]() -> Vocabulary {
    if (setting("byte_pairs") > 0) return data::BytePairs::load(beside(model));
    if (setting("pieces") > 0) return data::SentencePieceProcessor::load(beside(model));
    return data::CharacterVocabulary::load(beside(model));
  }();
  nn::GPT gpt({.vocabulary = size_of(vocabulary),
               .width = setting("width"),
               .heads = setting("heads"),
               .layers = setting("layers"),
               .positions = setting("block")});
  nn::load_model(model, gpt);
  gpt.to(job.device(arguments.device));
  if (!c.data.empty()) {
    const auto ids = encoded(vocabulary, read_text(c.data, job), c.data);
    launch::TrainerOptions options = trainer_options();
    options.eval_dataset =
        windows_of(ids, size_of(vocabulary), gpt.positions(), Last::judged, c.data);
    if (job.is_main()) print(concat(c.data, ": ", ids.size(), " tokens"));
    launch::Trainer(job, gpt, arguments, options).evaluate();
  }
  print_sample(job, gpt, vocabulary, c, arguments.seed);
}

void learn(launch::Job& job, const launch::TrainingArguments& arguments, const Choices& c) {
  const std::string text = read_text(c.data, job);
  std::size_t cut = text.size() - text.size() / 10;
  while (cut < text.size() && (text[cut] & 0xC0) == 0x80) ++cut;  // not within a character
  const std::string first = text.substr(0, cut), last = text.substr(cut);
  PEAL_CHECK(c.byte_pairs == 0 || c.pieces == 0,
             "11_train_gpt: by --byte-pairs or by --pieces, not by both");
  const Vocabulary vocabulary = learnt_of(text, first, c);
  const data::TokenIds train_ids = encoded(vocabulary, first, c.data),
                       test_ids = encoded(vocabulary, last, c.data);

  manual_seed(static_cast<std::uint64_t>(arguments.seed));  // parameters are drawn from it
  nn::GPT gpt({.vocabulary = size_of(vocabulary),
               .width = c.width,
               .heads = c.heads,
               .layers = c.layers,
               .positions = c.block,
               .embd_pdrop = c.dropout,
               .attn_pdrop = c.dropout,
               .resid_pdrop = c.dropout});
  launch::TrainerOptions options = trainer_options();
  options.train_dataset = windows_of(train_ids, size_of(vocabulary), c.block, Last::learnt, c.data);
  options.eval_dataset = windows_of(test_ids, size_of(vocabulary), c.block, Last::judged,
                                    "the last tenth of " + c.data);
  // Up and down again over all epochs.
  options.lr_scheduler = [](std::int64_t done, std::int64_t updates) {
    return nn::one_cycle_lr({.max_lr = 1, .total_steps = updates + 1, .pct_start = 0.1})(1, done);
  };
  options.settings = {{"data", c.data},
                      {"tokens", std::to_string(train_ids.size())},
                      {"byte_pairs", std::to_string(c.byte_pairs)},
                      {"pieces", std::to_string(c.pieces)},
                      {"layers", std::to_string(c.layers)},
                      {"heads", std::to_string(c.heads)},
                      {"width", std::to_string(c.width)},
                      {"block", std::to_string(c.block)},
                      {"dropout", std::to_string(c.dropout)}};
  options.save_processing = [&](const std::string& folder) { save(vocabulary, beside(folder)); };
  if (!c.run_file.empty()) options.callbacks = {std::make_shared<launch::ExportRun>(c.run_file)};
  launch::Trainer(job, gpt, arguments, options).train();
  print_sample(job, gpt, vocabulary, c, arguments.seed);
}

}  // namespace

int main(int argc, char** argv) {
  launch::TrainingArguments arguments = trainer_program::defaults;
  arguments.per_device_train_batch_size = 32;
  arguments.per_device_eval_batch_size = 32;
  arguments.learning_rate = 1e-3;
  arguments.weight_decay = 0.1;
  arguments.adam_beta2 = 0.99;
  Choices c;
  launch::CommandLine line(
      "Trains a GPT on a text, or with --do_train false judges the model of "
      "--resume_from_checkpoint by one; start it with peal-run or mpirun for several ranks.");
  line.option("--data", &c.data, "text to learn, or to judge by; none: only --generate");
  line.option("--byte-pairs", &c.byte_pairs, "merges to learn of the text (0: by characters)")
      .not_negative();
  line.option("--pieces", &c.pieces, "pieces of sentencepiece to learn of the text (0: none)")
      .not_negative();
  line.option("--layers", &c.layers, "blocks of the model").positive();
  line.option("--heads", &c.heads, "of attention, in a block").positive();
  line.option("--width", &c.width, "numbers that a token is, between blocks").positive();
  line.option("--block", &c.block, "tokens that it looks at together").positive();
  line.option("--dropout", &c.dropout, "share that is dropped, everywhere").between(0, 1);
  line.option("--generate", &c.prompt, "beginning of a text to go on with, at the end");
  line.option("--length", &c.length, "tokens to generate").not_negative();
  line.option("--temperature", &c.temperature, "0: the likeliest token").not_negative();
  line.option("--top-k", &c.top_k, "so many likeliest tokens (0: all)").not_negative();
  line.option("--top-p", &c.top_p, "the likeliest tokens that reach it together").between(0, 1);
  line.option(
      "--export", &c.run_file,
      "file for first weights, batches and rates, of one rank (bench/peers/gpt_accuracy.py)");
  if (const auto status = launch::parse_arguments(line, arguments, argc, argv)) return *status;
  return launch::run_main([&](launch::Job& job) {
    c.data.empty() || !arguments.do_train ? use(job, arguments, c) : learn(job, arguments, c);
  });
}

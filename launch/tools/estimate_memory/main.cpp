// SPDX-License-Identifier: Apache-2.0
// peal estimate-memory: what models take, before anything is trained (accelerate estimate-memory),
// and what a rank has of them where they are shared out (nn/parallel/sharded/memory_estimate.h).
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/nearest.h>
#include <peal/autograd/core/out_of_memory.h>
#include <peal/launch/command_line.h>
#include <peal/launch/tools/estimate_memory/available_memory.h>
#include <peal/launch/tools/estimate_memory/draw.h>
#include <peal/launch/tools/estimate_memory/models.h>
#include <peal/launch/tools/peal/config.h>
#include <peal/nn/empty_weights.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/parallel/sharded/activation_memory.h>
#include <peal/nn/parallel/sharded/memory_estimate.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <fstream>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace peal::launch {
namespace {

constexpr double mebibyte = 1 << 20;

double megabytes(std::int64_t bytes) { return static_cast<double>(bytes) / mebibyte; }

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream text(list);
  for (std::string word; std::getline(text, word, ',');) words.push_back(word);
  return words;
}

DType dtype_named(const std::string& name) {
  if (name == "f32" || name == "float32") return DType::f32;
  if (name == "f16" || name == "fp16" || name == "float16") return DType::f16;
  if (name == "bf16" || name == "bfloat16") return DType::bf16;
  fail(concat("--dtypes: expected some of f32, f16, bf16, got '", name, "'",
              did_you_mean(name, {"f32", "f16", "bf16"})));
}

std::int64_t bytes_of(const std::vector<Tensor>& tensors) {
  std::int64_t sum = 0;
  for (const Tensor& tensor : tensors) sum += static_cast<std::int64_t>(tensor.view().bytes());
  return sum;
}

// Of modules that have none below them: what is there at once where layers are loaded one by one.
std::int64_t largest_layer(const nn::Module& model) {
  std::int64_t largest = 0;
  for (const nn::Module& module : model.modules()) {
    if (module.children().empty()) largest = std::max(largest, bytes_of(module.parameters()));
  }
  return largest;
}

// Its sizes, without the memory that they are the sizes of.
nn::Module outline_of(const KnownModel& known) {
  const auto empty = nn::init_empty_weights();
  return known.make();
}

// With Adam: the weights, as many gradients, and two moments.
void print_model(const KnownModel& known, const std::vector<std::string>& dtypes) {
  nn::Module model = outline_of(known);
  for (const std::string& name : dtypes) {
    model.to(dtype_named(name));
    const std::int64_t total = bytes_of(model.parameters());
    fmt::print("{:<12} {:<6} {:>13.2f} {:>11.2f} {:>19.2f}\n", known.name, name,
               megabytes(largest_layer(model)), megabytes(total), megabytes(4 * total));
  }
}

// Of that many samples; 0 where the machine has no memory for one.
std::int64_t activations_of(const KnownModel& known, DType dtype, std::int64_t samples) {
  const AvailableMemory guard;
  try {
    nn::Module model = known.make();
    model.to(dtype);
    return nn::activation_memory(
        model, [&](std::int64_t count) { known.batch(model, count); }, samples, known.measured);
  } catch (const OutOfMemory&) {
    return 0;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

using Ranks = std::vector<nn::MemoryEstimate>;

Ranks estimate(const nn::Module& model, const std::string& strategy, int ranks,
               std::int64_t activations) {
  const nn::AdamW optimizer(model.named_parameters(), {});
  if (strategy == "fsdp") {
    return nn::estimate_memory(optimizer, model, nn::wrap_by_size(1 << 20), ranks, activations);
  }
  return nn::estimate_memory(optimizer,
                             strategy == "zero1"   ? nn::Sharded::state
                             : strategy == "zero2" ? nn::Sharded::gradients
                                                   : nn::Sharded::nothing,
                             ranks, activations);
}

void print_shares(const KnownModel& known, const std::vector<std::string>& dtypes,
                  const std::vector<std::string>& strategies, int ranks, std::int64_t batch,
                  std::vector<MemoryBar>& bars) {
  nn::Module model = outline_of(known);
  for (const std::string& name : dtypes) {
    model.to(dtype_named(name));
    const std::int64_t activations =
        batch > 0 ? activations_of(known, dtype_named(name), batch) : 0;
    for (const std::string& strategy : strategies) {
      const Ranks all = estimate(model, strategy, ranks, activations);
      const nn::MemoryEstimate most =
          *std::ranges::max_element(all, {}, &nn::MemoryEstimate::total);
      fmt::print("{:<12} {:<6} {:<8} {:>11.2f} {:>11.2f} {:>11.2f} {:>11.2f} {:>11.2f}{}\n",
                 known.name, name, strategy, megabytes(most.parameters), megabytes(most.gradients),
                 megabytes(most.state), megabytes(most.total()), megabytes(most.in_step),
                 activations > 0 ? fmt::format(" {:>11.2f}", megabytes(activations)) : "");
      bars.push_back({fmt::format("{} {} {}", known.name, name, strategy), most});
    }
    if (batch > 0 && activations == 0) {
      fmt::print("{} {}: this machine has no memory for a step of it; activations are left out\n",
                 known.name, name);
    }
  }
}

void write_picture(const std::string& path, const std::string& picture) {
  std::ofstream file(path);
  file << picture;
  file.close();
  PEAL_CHECK(file.good(), "--draw: cannot write ", path);
  fmt::print("wrote {}\n", path);
}

std::vector<std::string> strategies_of(const std::string& said) {
  const std::vector<std::string> all{"ddp", "zero1", "zero2", "fsdp"};
  if (said == "all") return all;
  for (const std::string& word : words_of(said)) {
    PEAL_CHECK(std::ranges::count(all, word) > 0,
               "--strategy: expected ddp, zero1, zero2, fsdp "
               "or all, got '",
               word, "'", did_you_mean(word, all));
  }
  return words_of(said);
}

int run(int argc, char** argv) {
  std::vector<std::string> models;
  std::string dtypes = "f32,f16", strategy, picture, list;
  int ranks = 0;
  std::int64_t batch = 0;
  for (const KnownModel& known : known_models()) list += " " + known.name;
  CommandLine line(
      concat("peal estimate-memory [options] MODEL...\n\nWhat these models take, in MB of 2^20 "
             "bytes. Models:",
             list));
  line.option("models", &models, "names").required();
  line.option("--dtypes", &dtypes, "types of the parameters, apart by commas");
  line.option("--strategy", &strategy,
              "ddp, zero1, zero2, fsdp, some of them apart by commas, or all: what a rank has when "
              "it trains with AdamW (the config file's strategy, where there are --ranks)");
  line.option("--ranks", &ranks, "that share it (the config file's)").positive();
  line.option("--batch", &batch,
              "samples of a rank (images of 224 x 224, sentences of 1024 tokens): what activations "
              "of a step take, too, for which each model is run: with as many, 64 images or two "
              "sentences at most")
      .positive();
  line.option("--draw", &picture, "a picture of that goes to this file (SVG)");
  if (const auto status = line.parse(argc, argv)) return *status == 0 ? 0 : 2;

  const auto types = words_of(dtypes);
  for (const std::string& name : types) dtype_named(name);
  std::vector<const KnownModel*> known;
  for (const std::string& name : models) known.push_back(&model_named(name));
  if (strategy.empty() && ranks == 0) {
    PEAL_CHECK(picture.empty(), "--draw: expected --strategy or --ranks, whose memory is drawn");
    PEAL_CHECK(batch == 0, "--batch: expected --strategy or --ranks, of which each has it");
    fmt::print("{:<12} {:<6} {:>13} {:>11} {:>19}\n", "model", "dtype", "largest layer",
               "total size", "training using Adam");
    for (const KnownModel* const model : known) print_model(*model, types);
    return 0;
  }
  const FoundConfig found = strategy.empty() || ranks == 0 ? find_config("") : FoundConfig{};
  if (strategy.empty()) strategy = found.path ? found.config.strategy : "all";
  if (ranks == 0) ranks = found.config.ranks_per_node * found.config.nodes;
  const auto strategies = strategies_of(strategy);
  const std::string ranks_text = fmt::format("{} {}", ranks, ranks == 1 ? "rank" : "ranks");
  std::vector<MemoryBar> bars;
  fmt::print(
      "{}, MB of the one that has the most:\n{:<12} {:<6} {:<8} {:>11} {:>11} {:>11} "
      "{:>11} {:>11}{}\n",
      ranks_text, "model", "dtype", "strategy", "parameters", "gradients", "AdamW", "in all",
      "in a step", batch > 0 ? " activations" : "");
  for (const KnownModel* const model : known) {
    print_shares(*model, types, strategies, ranks, batch, bars);
  }
  if (batch > 0) {
    fmt::print(
        "Activations, of {} a rank, and buffers come on top; what fsdp gathers in a step "
        "does, too.\n",
        batch == 1 ? "1 sample" : fmt::format("{} samples", batch));
  } else {
    fmt::print("Activations and buffers come on top; what fsdp gathers in a step does, too.\n");
  }
  if (!picture.empty()) {
    write_picture(picture, svg(bars, "Of " + ranks_text + ", the one that has the most"));
  }
  return 0;
}

}  // namespace
}  // namespace peal::launch

int main(int argc, char** argv) {
  try {
    return peal::launch::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "peal estimate-memory: {}\n", error.what());
    return 2;
  }
}

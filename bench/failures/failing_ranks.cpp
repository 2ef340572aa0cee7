// SPDX-License-Identifier: Apache-2.0
// Ranks that compute without an end, sums whose values are known or a training, with whole models
// or with sharded ones, until one of them is killed, stopped or fails by itself; each writes down
// what it saw and when (records.h):
//
//   begins   its process; the first round is done
//   step     of a training: its number, and a hash of the parameters after it
//   saved    of a sharded one: the step whose checkpoint is there; loaded: with which it goes on
//   fails    it does so now, as it was told
//   wrong    a sum that is not as it should be, or one of a group that has failed
//   error    a peal::Error, the others' failure       other   any other exception
//
// For deaths.py, which starts it, kills and judges.
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/bench/failures/failure.h>
#include <peal/launch/command_line.h>
#include <peal/launch/job.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/sharded/fsdp.h>
#include <peal/nn/parallel/sharded/sharded_checkpoint.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace peal;
using failures::Fate;
using failures::Records;

// Whole numbers below 2^24, so that a sum of any order is exact; each round has others.
float value(std::int64_t i, std::int64_t round, int rank) {
  return static_cast<float>((i + 7 * round) % 509 * (rank + 1) + round % 1021);
}

void fill(const Tensor& data, std::int64_t round, int rank) {
  float* const values = data.data<float>();
  for (std::int64_t i = 0; i < data.numel(); ++i) values[i] = value(i, round, rank);
}

void check(const Tensor& data, std::int64_t round, int world, const Records& records) {
  const float* const values = data.data<float>();
  for (std::int64_t i = 0; i < data.numel(); ++i) {
    float want = 0;
    for (int rank = 0; rank < world; ++rank) want += value(i, round, rank);
    if (values[i] == want) continue;
    return records.write("wrong", concat("round ", round, ", element ", i, " of ", data.numel(),
                                         ": expected ", want, ", got ", values[i]));
  }
}

void sum_for_ever(const comm::ProcessGroup& group, Fate& fate, const Records& records) {
  const std::vector<Tensor> buffers{Tensor::zeros({10}), Tensor::zeros({5000}),
                                    Tensor::zeros({100'003}), group.allocate({100'003})};
  for (std::int64_t round = 0;; ++round) {
    std::vector<comm::Work> works;
    for (const Tensor& data : buffers) {
      fill(data, round, group.rank());
      fate.look();
      works.push_back(group.all_reduce(data));
      if (round % 2 == 0) works.back().wait();  // every other round has several under way
    }
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      fate.look();
      works[i].wait();
      check(buffers[i], round, group.world(), records);
    }
    if (round == 0) fate.begin();
  }
}

std::size_t hash_of(const Tensors& parameters) {
  std::string bytes;
  for (const Tensor& parameter : parameters) {
    bytes.append(reinterpret_cast<const char*>(parameter.data<float>()),
                 static_cast<std::size_t>(parameter.numel()) * sizeof(float));
  }
  return std::hash<std::string_view>()(bytes);
}

// On random samples, whose class is where the largest number lies; its rank may end at each look.
template <class Model>
void train_a_step(Model& model, nn::AdamW& optimizer, Fate& fate) {
  const Tensor x = randn({16, 64});
  const Tensor y = argmax(x, 1);
  for (std::int64_t i = 0; i < y.numel(); ++i) y.data<std::int64_t>()[i] %= 8;
  model.zero_grad();
  fate.look();
  const Tensor loss = cross_entropy(model(x), y);
  fate.look();
  loss.backward();
  fate.look();
  optimizer.step();
}

void train_for_ever(const comm::ProcessGroup& group, Fate& fate, const Records& records) {
  manual_seed(1);
  nn::DistributedDataParallel model(nn::mlp({64, 256, 64, 8}), group);
  nn::AdamW optimizer(model.parameters(), {.lr = 1e-3});
  manual_seed(100 + static_cast<std::uint64_t>(group.rank()));
  for (std::int64_t step = 0;; ++step) {
    train_a_step(model, optimizer, fate);
    records.write("step", concat(step, " ", hash_of(model.parameters())));
    if (step == 0) fate.begin();
  }
}

std::size_t hash_of(const NamedTensors& state) {
  Tensors tensors;
  for (const auto& [name, tensor] : state) tensors.push_back(tensor);
  return hash_of(tensors);
}

// With a checkpoint of each second step, from which it goes on where there is one. `steps`: so many
// more, 0: without an end.
void train_sharded(const comm::ProcessGroup& group, Fate& fate, const Records& records,
                   const std::string& checkpoint, std::int64_t steps) {
  manual_seed(1);
  nn::FullyShardedDataParallel model(nn::mlp({64, 256, 64, 8}), group,
                                     {.wrap = nn::wrap_by_type({"Linear"})});
  nn::AdamW optimizer(model.local_parameters(), {.lr = 1e-3});
  const std::vector<nn::Part> parts{{"model", model}, {"optimizer", model.saved(optimizer)}};
  std::int64_t step = 0;
  if (std::filesystem::exists(std::filesystem::path(checkpoint) / nn::sharded_index_name)) {
    step = std::stoll(nn::load_sharded(checkpoint, parts, group).metadata.at("step")) + 1;
    records.write("loaded", concat(step - 1));
  }
  for (const std::int64_t first = step; steps == 0 || step < first + steps; ++step) {
    manual_seed(static_cast<std::uint64_t>(100 * step + group.rank()));
    train_a_step(model, optimizer, fate);
    records.write("step", concat(step, " ", hash_of(model.state_dict())));
    if (step == first) fate.begin();
    if (step % 2 == 1) {
      nn::save_sharded(checkpoint, parts, group, {{"step", std::to_string(step)}});
      records.write("saved", concat(step));
    }
  }
}

// Of a group that has failed, nothing more comes.
void try_again(const comm::ProcessGroup& group, const Records& records) {
  try {
    group.all_reduce(Tensor::zeros({10})).wait();
    records.write("wrong", "a sum of a group that has failed");
  } catch (const Error&) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string what, folder;
  std::int64_t steps = 0;
  failures::Failure failure;
  launch::CommandLine line("Ranks that compute until one fails; for deaths.py.");
  line.option("what", &what, "sums, training or sharded")
      .required()
      .one_of({"sums", "training", "sharded"});
  line.option("folder", &folder, "where each rank writes down what it saw").required();
  line.option("--steps", &steps, "of a sharded training, which then ends").not_negative();
  line.option("--way", &failure.way, "how a rank fails by itself")
      .one_of({"none", "exception", "exit", "memory"});
  line.option("--rank", &failure.rank, "which").not_negative();
  line.option("--after", &failure.after, "seconds after its first round").not_negative();
  line.option("--group", &failure.group, "a control group with little memory, for --way memory");
  if (const auto status = line.parse(argc, argv)) return *status;

  return launch::run_main([&](launch::Job& job) {
    const Records records(folder, job.rank());
    Fate fate(failure, job.rank(), records);
    try {
      if (what == "sharded") {
        train_sharded(job.group(), fate, records, folder + "/checkpoint", steps);
      } else {
        (what == "sums" ? sum_for_ever : train_for_ever)(job.group(), fate, records);
      }
    } catch (const Error& error) {
      records.write("error", error.what());
      try_again(job.group(), records);
      throw;
    } catch (const std::exception& error) {
      records.write("other", error.what());
      throw;
    }
  });
}

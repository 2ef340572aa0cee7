// SPDX-License-Identifier: Apache-2.0
// A small model, trained by four ranks in four ways: what each rank then has, what it has sent, and
// that all four end with the model of one rank. docs/book/11-zero-and-fsdp.md
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/start/threads.h>
#include <peal/examples/book/book.h>
#include <peal/nn/nn.h>

#include <algorithm>
#include <string>
#include <vector>

namespace book {
namespace {

using namespace peal;

constexpr int world = 4, steps = 3, rows = 8;

// 26122 parameters: 64 x 128, 128 x 128, 128 x 10, and their biases.
nn::Sequential small_model() {
  manual_seed(1);
  return nn::mlp({64, 128, 128, 10});
}

// Rows first to last of the batch of a step.
Tensor loss_of(nn::Module& model, int step, int first, int last) {
  manual_seed(100 + static_cast<std::uint64_t>(step));
  const Tensor x = randn({rows, 64}), target = randint(0, 10, {rows});
  return cross_entropy(model(x.rows(first, last)), target.rows(first, last));
}

std::int64_t bytes_of(const Tensor& tensor) {
  return tensor.defined() && tensor.dim() > 0 ? static_cast<std::int64_t>(tensor.view().bytes())
                                              : 0;
}

// What lies here of it.
std::int64_t state_of(const nn::Optimizer& optimizer) {
  std::int64_t bytes = 0;
  for (const auto& [key, tensor] : optimizer.local_state_dict()) bytes += bytes_of(tensor);
  return bytes;
}

nn::MemoryEstimate measured(const NamedTensors& parameters, nn::Optimizer& optimizer) {
  nn::MemoryEstimate here;
  for (const auto& [name, parameter] : parameters) {
    here.parameters += bytes_of(parameter);
    here.gradients += bytes_of(parameter.grad());
  }
  here.state = state_of(optimizer);
  return here;
}

// What a way of training leaves on a rank.
struct Seen {
  std::string way;
  nn::MemoryEstimate memory;
  comm::OperationCounters sent;  // of the last step
  NamedTensors model;            // whole
};

template <class M>
Seen train_by(const std::string& way, const comm::ProcessGroup& group, M& model,
              nn::Optimizer& optimizer, const NamedTensors& parameters) {
  comm::OperationCounters before;
  for (int step = 0; step < steps; ++step) {
    if (step == steps - 1) before = group.counters();
    optimizer.zero_grad();
    const int share = rows / world, first = share * group.rank();
    loss_of(model, step, first, first + share).backward();
    optimizer.step();
  }
  Seen seen{way, measured(parameters, optimizer), group.counters() - before, {}};
  for (const auto& [name, tensor] : model.state_dict())
    seen.model.emplace_back(name, tensor.clone());
  return seen;
}

using Zero = nn::ZeroRedundancyOptimizer<nn::AdamW>;
const nn::AdamWOptions adamw{.lr = 1e-2};

Seen by_ddp(const comm::ProcessGroup& group) {
  nn::Sequential model = small_model();
  nn::DistributedDataParallel ddp(model, group);
  nn::AdamW optimizer(ddp.named_parameters(), adamw);
  return train_by("ddp", group, ddp, optimizer, model.named_parameters());
}

Seen by_zero1(const comm::ProcessGroup& group) {
  nn::Sequential model = small_model();
  nn::DistributedDataParallel ddp(model, group);
  Zero optimizer(group, ddp.named_parameters(), adamw);
  return train_by("zero1", group, ddp, optimizer, model.named_parameters());
}

Seen by_zero2(const comm::ProcessGroup& group) {
  nn::Sequential model = small_model();
  Zero optimizer(group, model.named_parameters(), adamw);
  nn::ShardedDDP ddp(model, optimizer);
  return train_by("zero2", group, ddp, optimizer, model.named_parameters());
}

Seen by_fsdp(const comm::ProcessGroup& group) {
  nn::Sequential model = small_model();
  nn::FullyShardedDataParallel fsdp(model, group, {.wrap = nn::wrap_by_name({"1", "3"})});
  nn::AdamW optimizer(fsdp.local_parameters(), adamw);
  return train_by("fsdp", group, fsdp, optimizer, fsdp.local_parameters());
}

double farthest(const NamedTensors& a, const NamedTensors& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, max(abs(a[i].second - b[i].second)).item<double>());
  }
  return most;
}

NamedTensors by_one_rank() {
  nn::Sequential model = small_model();
  nn::AdamW optimizer(model.named_parameters(), adamw);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(model, step, 0, rows).backward();
    optimizer.step();
  }
  return model.state_dict();
}

void print_sent(const Seen& seen) {
  std::string line;
  for (const comm::Collective what : comm::all_collectives) {
    const comm::OperationCounter& counter = seen.sent[what];
    if (counter.bytes < 1000) continue;  // words, by which ranks agree on something
    line += fmt::format("  {} of {} bytes", name(what), counter.bytes);
  }
  fmt::print("{:<6}{}\n", seen.way, line);
}

}  // namespace

void memory_of_ranks() {
  std::vector<std::vector<Seen>> of_ranks(world);
  std::string owners;
  comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
    auto& mine = of_ranks[static_cast<std::size_t>(group.rank())];
    for (const auto way : {by_ddp, by_zero1, by_zero2, by_fsdp}) mine.push_back(way(group));
    if (group.rank() > 0) return;
    nn::Sequential model = small_model();
    std::vector<std::int64_t> counts;
    std::vector<std::string> names;
    for (const auto& [name, parameter] : model.named_parameters()) {
      names.push_back(name);
      counts.push_back(parameter.numel());
    }
    owners = describe(nn::place_greedily(counts, world), names);
  });
  fmt::print("way     rank  parameters   gradients       AdamW      in all\n");
  for (std::size_t way = 0; way < 4; ++way) {
    for (int rank = 0; rank < world; ++rank) {
      const Seen& seen = of_ranks[static_cast<std::size_t>(rank)][way];
      fmt::print("{:<6} {:>5} {:>11} {:>11} {:>11} {:>11}\n", rank == 0 ? seen.way : "", rank,
                 seen.memory.parameters, seen.memory.gradients, seen.memory.state,
                 seen.memory.total());
    }
  }
  fmt::print("\nin the last step a rank called\n");
  for (const Seen& seen : of_ranks[0]) print_sent(seen);
  fmt::print("\n{}", owners);
  const NamedTensors one = by_one_rank();
  fmt::print("\nbeside one rank with all {} rows, parameters differ by less than 1e-5:", rows);
  for (const Seen& seen : of_ranks[0]) {
    fmt::print(" {} {}", seen.way, farthest(seen.model, one) < 1e-5 ? "yes" : "no");
  }
  fmt::print("\n");
}

void sharded_step() {
  std::string plan, first, second, hidden, pieces;
  comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
    nn::Sequential model = small_model();
    nn::FullyShardedDataParallel fsdp(model, group, {.wrap = nn::wrap_by_name({"1", "3"})});
    nn::AdamW optimizer(fsdp.local_parameters(), adamw);
    std::vector<std::string> steps_done;
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      loss_of(fsdp, step, 2 * group.rank(), 2 * group.rank() + 2).backward();
      steps_done.push_back(describe(fsdp.actions()));
      optimizer.step();
    }
    std::string mine;
    for (const auto& [name, piece] : fsdp.local_parameters()) {
      mine += fmt::format(" {} {}", name, piece.numel());
    }
    const auto of_all = group.all_gather_object(mine);
    if (group.rank() > 0) return;
    plan = fsdp.explain();
    first = steps_done[0], second = steps_done[1];
    for (int rank = 0; rank < world; ++rank) {
      pieces += fmt::format("rank {}:{}\n", rank, of_all[static_cast<std::size_t>(rank)]);
    }
    try {
      (void)sum(model.named_parameters()[0].second).item<double>();
    } catch (const Error& error) {
      hidden = error.what();
    }
  });
  fmt::print(
      "{}\n{}\nthe first step:\n{}\n\nthe second:\n{}\n\nwho reads a parameter between "
      "steps:\n{}\n",
      plan, pieces, first, second, hidden);
}

}  // namespace book

// SPDX-License-Identifier: Apache-2.0
// Layers that are cut over ranks, by hand and by a plan of names. docs/book/12-pipelines.md
#include <fmt/ranges.h>
#include <peal/comm/group/device_mesh.h>
#include <peal/comm/start/threads.h>
#include <peal/examples/book/book.h>
#include <peal/nn/nn.h>

#include <string>
#include <vector>

namespace book {
namespace {

using namespace peal;

std::string numbers(const Tensor& tensor) {
  std::string text;
  for (const float value : tensor.to_vector<float>()) text += fmt::format(" {:g}", value);
  return text;
}

// y = relu(x A) B with whole numbers, in one piece and in two.
void print_by_hand() {
  const Tensor x = tensor({{1., 2.}});
  const Tensor A = tensor({{1., 0., 2., -1.}, {0., 1., 1., 1.}});
  const Tensor B = tensor({{1., 0.}, {0., 1.}, {1., 1.}, {2., 0.}});
  fmt::print("one rank:    relu(x A) ={}, y ={}\n", numbers(relu(matmul(x, A))),
             numbers(matmul(relu(matmul(x, A)), B)));
  std::vector<std::string> lines(2);
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    const int rank = group.rank();
    const Tensor columns = A.narrow(1, 2 * rank, 2), rows = B.rows(2 * rank, 2 * rank + 2);
    const Tensor h = relu(matmul(x, columns)), y = matmul(h, rows);
    std::string line =
        fmt::format("rank {} of 2: relu(x A) ={}, its y ={}", rank, numbers(h), numbers(y));
    group.all_reduce(y).wait();
    lines[static_cast<std::size_t>(rank)] = line + fmt::format(", sum ={}", numbers(y));
  });
  for (const std::string& line : lines) fmt::print("{}\n", line);
}

nn::GPT small_gpt() {
  manual_seed(5);
  return nn::GPT({.vocabulary = 64, .width = 32, .heads = 4, .layers = 2, .positions = 16});
}

// The trained loss after each step, of batches of the rank's own row of the mesh.
std::vector<double> train_gpt(nn::Module& called, nn::Optimizer& optimizer, int first, int last) {
  std::vector<double> losses;
  for (int step = 0; step < 4; ++step) {
    manual_seed(100);
    const Tensor tokens = randint(0, 64, {4, 9}).rows(first, last);
    const Tensor x = tokens.narrow(1, 0, 8), target = tokens.narrow(1, 1, 8);
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(called(x).reshape({-1, 64}), target.reshape({-1}));
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

const nn::TensorParallelPlan cuts_of_gpt{
    {"transformer.wte", nn::RowwiseParallel{}},
    {"transformer.h.*.attn.c_attn", nn::ColwiseParallel{.parts = 3, .heads = 4}},
    {"transformer.h.*.attn.c_proj", nn::RowwiseParallel{}},
    {"transformer.h.*.mlp.c_fc", nn::ColwiseParallel{}},
    {"transformer.h.*.mlp.c_proj", nn::RowwiseParallel{}},
    {"lm_head", nn::ColwiseParallel{.gather_output = true}}};

}  // namespace

void cut_layers() {
  print_by_hand();
  nn::GPT whole = small_gpt();
  nn::AdamW alone(whole.named_parameters(), {.lr = 1e-2});
  const std::vector<double> expected = train_gpt(whole, alone, 0, 4);

  fmt::print("\nGPT on a mesh of 2 x 2: replicas by parts\n");
  comm::run_ranks(4, [&](const comm::ProcessGroup& group) {
    const comm::DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
    nn::GPT gpt = small_gpt();
    nn::TensorParallel tp = nn::parallelize_module(gpt, mesh.get_group("tp"), cuts_of_gpt);
    nn::DistributedDataParallel ddp(tp, mesh.get_group("dp"));
    nn::AdamW optimizer(tp.named_parameters(), {.lr = 1e-2});
    const int first = 2 * mesh.get_local_rank("dp");
    const std::vector<double> losses = train_gpt(ddp, optimizer, first, first + 2);
    std::vector<double> means;
    for (const double loss : losses) {
      const Tensor both = tensor(loss);
      mesh.get_group("dp").all_reduce(both, comm::ReduceOp::avg).wait();
      means.push_back(both.item<double>());
    }
    if (group.rank() > 0) return;
    for (const auto& [name, parameter] : tp.named_parameters()) {
      if (name.find("h.1") != std::string::npos || name.find("ln_f") != std::string::npos) continue;
      const auto cut = tp.cut_of(name);
      fmt::print("{:<36} {:<10} {}\n", name, fmt::format("{}", fmt::join(parameter.shape(), " x ")),
                 cut ? fmt::format("of {}", fmt::join(cut->whole, " x ")) : "whole");
    }
    fmt::print("step  one rank  four ranks\n");
    for (std::size_t step = 0; step < means.size(); ++step) {
      fmt::print("{:>4} {:>9.3f} {:>11.3f}\n", step, expected[step], means[step]);
    }
  });
}

}  // namespace book

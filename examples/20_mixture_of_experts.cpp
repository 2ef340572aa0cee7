// SPDX-License-Identifier: Apache-2.0
// A mixture of experts whose experts lie on different ranks (expert parallelism; Lepikhin et al.,
// "GShard", 2020; Fedus et al., "Switch Transformers", 2021). A gate sends each token to the expert
// that it finds best; tokens travel there by an all_to_all, and what the expert makes of them comes
// back by another. So a model has as many experts as the ranks together have memory for, and each
// token costs one of them.
//
//   rank 0   tokens 0 .. 31    experts 0, 1   |  each rank has other tokens, the same gate,
//   rank 1   tokens 32 .. 63   experts 2, 3   |  and experts of its own
//
// Here ranks are threads, and the same training is done by 1, 2 and 4 of them: the losses are the
// same.
//
// Run it:   build/release/examples/20_mixture_of_experts
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/comm/start/threads.h>
#include <peal/nn/nn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

using namespace peal;

namespace {

constexpr std::int64_t experts = 4, width = 8, tokens = 64, steps = 60;
using Counts = std::vector<std::int64_t>;

// So many rows of x go to each rank, and so many come from each; gradients travel the other way.
Tensor exchanged(const Tensor& x, const Counts& going, const Counts& coming,
                 const comm::ProcessGroup& group) {
  const auto elements = [&](Counts rows) {
    for (std::int64_t& count : rows) count *= x.size(1);
    return rows;
  };
  std::int64_t rows = 0;
  for (const std::int64_t count : coming) rows += count;
  const Tensor y = Tensor::empty({rows, x.size(1)}, x.dtype(), x.device());
  group
      .all_to_all_single(y.view(), x.detach().contiguous().view(), elements(coming),
                         elements(going), "tokens of a mixture of experts")
      .wait();
  return record("exchanged", y, {x},
                [=](const Tensor& g) { return exchanged(g, coming, going, group); });
}

Tensor indices(const Counts& list) {
  return Tensor::from(list, {static_cast<std::int64_t>(list.size())});
}

struct MixtureOfExperts : nn::Module {
  comm::ProcessGroup group;
  nn::Linear gate = add("gate", nn::Linear(width, experts));
  nn::ModuleList own = add("experts", nn::ModuleList());

  // Every rank draws all experts' values and keeps its own: the model begins the same, however it
  // is cut.
  explicit MixtureOfExperts(comm::ProcessGroup over) : group(std::move(over)) {
    const std::int64_t each = experts / group.world();
    for (std::int64_t e = 0; e < experts; ++e) {
      const nn::Sequential expert{nn::Linear(width, 4 * width), nn::ReLU(),
                                  nn::Linear(4 * width, width)};
      if (e / each == group.rank()) own.push_back(expert);
    }
  }

  Tensor forward(const Tensor& x) override {
    const Tensor scores = softmax(gate(x), 1), choice = argmax(scores, 1);
    const Counts expert_of = choice.to_vector<std::int64_t>();
    // Tokens by expert, and where each comes to lie.
    Counts order, place(expert_of.size()), per_expert(experts, 0);
    for (std::int64_t e = 0; e < experts; ++e) {
      for (std::size_t t = 0; t < expert_of.size(); ++t) {
        if (expert_of[t] != e) continue;
        place[t] = static_cast<std::int64_t>(order.size());
        order.push_back(static_cast<std::int64_t>(t));
        ++per_expert[static_cast<std::size_t>(e)];
      }
    }
    const Tensor answers = through_experts(index_select(x, 0, indices(order)), per_expert);
    // The gate learns by what its choice is worth.
    const Tensor worth = gather(scores, 1, unsqueeze(choice, 1));
    return index_select(answers, 0, indices(place)) * worth;
  }

 private:
  // What the experts of all ranks make of these, which lie by expert.
  Tensor through_experts(const Tensor& sorted, const Counts& per_expert) {
    const auto world = static_cast<std::size_t>(group.world());
    const std::size_t each = per_expert.size() / world;
    // Each rank hears how many come from whom, by expert.
    const Tensor mine = indices(per_expert), theirs = Tensor::zeros(mine.shape(), DType::i64);
    group.all_to_all(theirs.view(), mine.view(), "numbers of tokens").wait();
    const Counts arriving = theirs.to_vector<std::int64_t>();
    Counts going(world, 0), coming(world, 0);
    for (std::size_t e = 0; e < per_expert.size(); ++e) {
      going[e / each] += per_expert[e];
      coming[e / each] += arriving[e];
    }
    const Tensor here = exchanged(sorted, going, coming, group);
    // By rank they came, and then by expert; each expert takes its own.
    std::vector<Counts> rows(each);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < arriving.size(); ++i) {
      for (std::int64_t k = 0; k < arriving[i]; ++k) rows[i % each].push_back(at++);
    }
    Tensors made{here.rows(0, 0)};  // so that a rank without tokens goes back the same way
    Counts back(static_cast<std::size_t>(at));
    std::int64_t next = 0;
    for (std::size_t e = 0; e < each; ++e) {
      if (rows[e].empty()) continue;
      made.push_back(own[static_cast<std::int64_t>(e)](index_select(here, 0, indices(rows[e]))));
      for (const std::int64_t row : rows[e]) back[static_cast<std::size_t>(row)] = next++;
    }
    return exchanged(index_select(cat(made, 0), 0, indices(back)), coming, going, group);
  }
};

// Each fourth of the tokens wants another function, which the gate has to find out.
std::pair<Tensor, Tensor> batch_of(std::int64_t step) {
  manual_seed(static_cast<std::uint64_t>(step));
  const Tensor x = randn({tokens, width}, DType::f64);
  const Tensor sign = cast(narrow(x, 1, 0, 1) > 0.0, DType::f64) * 2.0 - 1.0;
  return {x, x * sign + narrow(x, 1, 1, 1)};
}

std::vector<double> losses_of(int world) {
  std::vector<double> losses;
  comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
    manual_seed(1);
    MixtureOfExperts model(group);
    model.to(DType::f64);
    nn::Adam optimizer(model.named_parameters(), {.lr = 0.01});
    const std::int64_t each = tokens / world;
    for (std::int64_t step = 0; step < steps; ++step) {
      const auto [x, y] = batch_of(step);
      const std::int64_t at = each * group.rank();
      optimizer.zero_grad();
      // One divisor, that of all tokens: so an expert's gradient is right as it comes.
      const Tensor mine = x.rows(at, at + each).clone();
      mine.set_requires_grad();  // as what comes out of layers before: so all ranks go back alike
      const Tensor off = model(mine) - y.rows(at, at + each);
      const Tensor loss = sum(square(off)) / static_cast<double>(tokens * width);
      loss.backward();
      // The gate is the same on all ranks, and has a part of its gradient on each.
      for (const Tensor& p : model.gate.parameters()) group.all_reduce(p.grad().view()).wait();
      optimizer.step();
      const Tensor all = loss.detach().clone();
      group.all_reduce(all.view()).wait();
      if (group.rank() == 0) losses.push_back(all.item<double>());
    }
  });
  return losses;
}

}  // namespace

int main() {
  const std::vector<double> one = losses_of(1);
  for (std::size_t step = 0; step < one.size(); step += 12) {
    std::printf("step %2zu   loss %.4f\n", step, one[step]);
  }
  std::printf("step %2zu   loss %.4f\n", one.size() - 1, one.back());
  for (const int world : {2, 4}) {
    const std::vector<double> some = losses_of(world);
    double most = 0;
    for (std::size_t i = 0; i < one.size(); ++i) most = std::max(most, std::abs(some[i] - one[i]));
    std::printf("%d ranks of %d experts each: losses differ by %.1e at most\n", world,
                static_cast<int>(experts) / world, most);
    if (!(most < 1e-10)) return 1;
  }
  return one.back() < one.front() / 2 ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0
// Functional collectives: gradients against one process that has all ranks' samples, under DDP too,
// and what ranks are told whose calls differ.
#include <peal/autograd/grad.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/parallel/functional_collectives.h>
#include <peal/nn/parallel/join.h>
#include <peal/tests/errors.h>

#include <string>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// [rows, columns], of numbers of the rank's own.
Tensor numbers(int rank, std::int64_t rows, std::int64_t columns) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    values.push_back(static_cast<double>((rank * 31 + i * 7) % 23) / 8.0 - 1.25);
  }
  return Tensor::from(values, {rows, columns});
}

double apart_by(const Tensor& a, const Tensor& b) { return max(abs(a - b)).item<double>(); }

// Two towers, of which the second is left out by some.
struct Towers : nn::Module {
  nn::Linear in = add("in", nn::Linear(3, 4));
  nn::Linear more = add("more", nn::Linear(4, 2));
  Towers() { to(DType::f64); }
  Tensor forward(const Tensor& x) override { return tanh(in(x)); }
  Tensor second(const Tensor& y) { return more(y); }
};

// Each sample against all, as contrastive losses have it; and for some ranks the second tower's.
Tensor loss_against(Towers& net, const Tensor& own, const Tensor& all, int rank, bool second) {
  Tensor loss = sum(log_softmax(matmul(own, all, false, true), 1)) * (1.0 + rank);
  if (second) loss = loss + sum(net.second(own) * net.second(own));
  return loss;
}

}  // namespace

TEST_CASE("gradients of functional collectives are those of the sum of the ranks' losses") {
  for (int world = 1; world <= 4; ++world) {
    CAPTURE(world);
    ranks(world, [&](const Group& group, int rank) {
      const std::int64_t n = 12;  // which 1, 2, 3 and 4 divide
      // By rank: x, and what its loss multiplies its result with.
      Tensors x, weights, wide_weights, part_weights;
      for (int r = 0; r < world; ++r) {
        x.push_back(numbers(r, n, 2).set_requires_grad());
        weights.push_back(numbers(r + 5, n, 2));
        wide_weights.push_back(numbers(r + 9, n * world, 2));
        part_weights.push_back(numbers(r + 3, n / world, 2));
      }
      const Tensor own = numbers(rank, n, 2).set_requires_grad();
      const auto mine = static_cast<std::size_t>(rank);
      const auto check = [&](const Tensor& loss, const Tensor& loss_of_all) {
        own.zero_grad();
        loss.backward();
        const Tensor expected = autograd::grad({loss_of_all}, {x[mine]}, {.retain_graph = true})[0];
        CHECK(apart_by(own.grad(), expected) < 1e-12);
      };
      Tensor total = x[0];
      for (std::size_t r = 1; r < x.size(); ++r) total = total + x[r];
      const Tensor all = cat(x);
      const auto over_ranks = [&](const std::function<Tensor(int r)>& loss_of) {
        Tensor sum_of = loss_of(0);
        for (int r = 1; r < world; ++r) sum_of = sum_of + loss_of(r);
        return sum_of;
      };
      const auto at = [](const Tensors& list, int r) { return list[static_cast<std::size_t>(r)]; };

      for (const auto op : {comm::ReduceOp::sum, comm::ReduceOp::avg}) {
        const double by = op == comm::ReduceOp::avg ? 1.0 / world : 1.0;
        check(sum(tanh(nn::all_reduce(own, group, op)) * weights[mine]),
              over_ranks([&](int r) { return sum(tanh(total * by) * at(weights, r)); }));
      }
      check(sum(tanh(nn::all_gather(own, group)) * wide_weights[mine]),
            over_ranks([&](int r) { return sum(tanh(all) * at(wide_weights, r)); }));
      check(sum(tanh(nn::all_gather(own, group, -1))), sum(tanh(all)) * static_cast<double>(world));
      check(sum(tanh(nn::reduce_scatter(own, group)) * part_weights[mine]), over_ranks([&](int r) {
              return sum(tanh(narrow(total, 0, r * n / world, n / world)) * at(part_weights, r));
            }));
      check(sum(tanh(nn::all_to_all(own, group)) * weights[mine]), over_ranks([&](int r) {
              Tensors parts;
              for (const Tensor& each : x)
                parts.push_back(narrow(each, 0, r * n / world, n / world));
              return sum(tanh(cat(parts)) * at(weights, r));
            }));

      // Gradients of gradients.
      const Tensor y = nn::all_gather(own, group);
      const Tensor first =
          autograd::grad({sum(y * y * y)}, {own}, {.create_graph = true})[0];  // 3 x^2 a rank
      check(sum(first), sum(x[mine] * x[mine]) * (3.0 * world));
    });
  }
}

TEST_CASE("a loss over the samples of all ranks trains under DDP as in one process") {
  for (const bool find_unused : {false, true}) {
    CAPTURE(find_unused);
    ranks(3, [&](const Group& group, int rank) {
      Towers net, alone;
      alone.load_state_dict(net.state_dict());
      DDP ddp(net, group, {.buckets = apart, .find_unused_parameters = find_unused});
      // Rank 1 comes to the collective's gradient before any of its own.
      const auto second = [&](int r) { return !find_unused || r != 1; };
      for (int step = 0; step < 3; ++step) {
        net.zero_grad();
        alone.zero_grad();
        const Tensor own = ddp(numbers(rank + step, 4, 3));
        loss_against(net, own, nn::all_gather(own, group), rank, second(rank)).backward();
        Tensors all;
        for (int r = 0; r < 3; ++r) all.push_back(alone(numbers(r + step, 4, 3)));
        Tensor loss = Tensor::zeros({}, DType::f64);
        for (int r = 0; r < 3; ++r) {
          loss =
              loss + loss_against(alone, all[static_cast<std::size_t>(r)], cat(all), r, second(r));
        }
        (loss / 3.0).backward();
        const NamedTensors mine = net.named_parameters(), theirs = alone.named_parameters();
        for (std::size_t p = 0; p < mine.size(); ++p) {
          CHECK(apart_by(mine[p].second.grad(), theirs[p].second.grad()) < 1e-12);
          CHECK(same_everywhere(mine[p].second.grad(), group));
        }
      }
    });
  }
}

TEST_CASE("functional collectives that cannot be are errors, on all ranks where they differ") {
  two([](const Group& group, int) {
    const Tensor x = Tensor::zeros({3, 2});
    CHECK(contains(error_of([&] { nn::all_reduce(x, group, comm::ReduceOp::max, "mine"); }),
                   "mine: all_reduce: expected sum or avg, got max"));
    CHECK(contains(error_of([&] { nn::reduce_scatter(x, group, 0); }), "do not divide among 2"));
    CHECK(contains(error_of([&] { nn::all_to_all(x, group); }), "do not divide among 2"));
    CHECK(contains(error_of([&] { nn::all_gather(x, group, 2); }), "got shape [3, 2]"));
  });
  const std::string sizes = failure([](const Group& group, int rank) {
    nn::all_gather(Tensor::zeros({3 + rank, 2}), group, 0, "the pairs");
  });
  CHECK(contains(sizes, "the pairs, all_gather"));
  CHECK(contains(sizes, "same arguments"));
  const std::string without_batch = failure([](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group);
    for (nn::Join join(ddp); join.next(rank == 0);) {
      if (!join.active()) {
        join.follow();
      } else {
        sum(nn::all_gather(ddp(full({2, 3}, 1.)), group, 0, "the pairs")).backward();
      }
    }
  });
  CHECK(contains(without_batch, "the pairs, all_gather"));
  CHECK(contains(without_batch, "what ranks without a batch do"));
}

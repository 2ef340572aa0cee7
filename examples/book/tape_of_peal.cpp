// SPDX-License-Identifier: Apache-2.0
// What peal's tape says and keeps: an op of one's own, the order of gradients, memory that is
// computed anew. docs/book/06-autograd-by-hand.md
#include <fmt/core.h>
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/examples/book/book.h>
#include <peal/nn/models/mlp.h>

#include <cstddef>
#include <functional>
#include <string>

namespace book {
namespace {

using namespace peal;

// An op of one's own: x * x * x, with how a gradient passes through it.
Tensor cube(const Tensor& x) {
  const Tensor y = x.detach() * x.detach() * x.detach();
  return record("cube", y, {x}, [x = save(x)](const Tensor& g) { return g * x() * x() * 3.0; });
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

// The most bytes that a step has, beyond what was there before.
std::size_t most_in_step(const std::function<Tensor()>& loss) {
  const std::size_t before = cpu_allocator_statistics().in_use;
  cpu_reset_peak();
  loss().backward();
  return cpu_allocator_statistics().peak - before;
}

}  // namespace

void tape_of_peal() {
  const Tensor x = tensor(2.0).set_requires_grad();
  cube(x).backward();
  fmt::print("the slope of x * x * x at 2: {:g}\n", x.grad().item<double>());
  cube(x).backward();
  fmt::print("after another backward: {:g}\n\n", x.grad().item<double>());

  fmt::print("{}\n\n", message_of([] {
               const Tensor w = tensor({1.0, 2.0}).set_requires_grad();
               const Tensor h = w * 1.0, y = cube(h);
               mul_(h.detach(), 2.0);  // the same bytes
               sum(y).backward();
             }));

  manual_seed(1);
  nn::Sequential net = nn::mlp({16, 16, 16, 4});
  std::string order;
  for (const auto& [name, parameter] : net.named_parameters()) {
    parameter.register_hook([&order, name = name](const Tensor&) { order += " " + name; });
  }
  mean(net(randn({8, 16}))).backward();
  fmt::print("gradients come in this order:{}\n\n", order);

  // Sixteen layers of 256 x 256 on 1024 rows: each keeps 1 MiB for backward.
  nn::Sequential deep{nn::Flatten()};
  for (int i = 0; i < 16; ++i) deep.push_back(nn::Linear(256, 256)), deep.push_back(nn::ReLU());
  const Tensor rows = randn({1024, 256});
  mean(deep(rows)).backward();  // gradients have their memory from here on
  const auto pieces = [&](int count) {
    const int layers = 32 / count;
    Tensor h = rows;
    for (int piece = 0; piece < count; ++piece) {
      h = checkpoint(
          [&deep, piece, layers](const Tensor& in) {
            Tensor out = in;
            for (int i = piece * layers; i < (piece + 1) * layers; ++i) out = deep[1 + i](out);
            return out;
          },
          h);
    }
    return mean(h);
  };
  fmt::print("a step needs at most {:.0f} MiB, and in 4 pieces that are computed anew {:.0f} MiB\n",
             static_cast<double>(most_in_step([&] { return mean(deep(rows)); })) / (1 << 20),
             static_cast<double>(most_in_step([&] { return pieces(4); })) / (1 << 20));
}

}  // namespace book

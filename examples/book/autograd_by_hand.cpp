// SPDX-License-Identifier: Apache-2.0
// A tape of forty lines, and then peal's, on the same sum. docs/book/06-autograd-by-hand.md
#include <fmt/core.h>
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/examples/book/book.h>
#include <peal/nn/models/mlp.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace book {
namespace {

// One line of the tape: a value, and of which lines before it, with which slope, it was made.
struct Line {
  struct From {
    std::size_t line;
    double slope;
  };
  const char* op;
  double value;
  std::vector<From> inputs = {};
  double gradient = 0;
};

// A number on the tape is its line.
class Tape {
 public:
  std::size_t leaf(double value) { return add({"leaf", value}); }
  std::size_t times(std::size_t a, std::size_t b) {
    return add({"times", value(a) * value(b), {{a, value(b)}, {b, value(a)}}});
  }
  std::size_t plus(std::size_t a, std::size_t b) {
    return add({"plus", value(a) + value(b), {{a, 1}, {b, 1}}});
  }
  std::size_t tanh(std::size_t a) {
    const double y = std::tanh(value(a));
    return add({"tanh", y, {{a, 1 - y * y}}});
  }

  // From the last line to the first: all that used a line stands below it.
  void backward() {
    lines_.back().gradient = 1;
    for (std::size_t i = lines_.size(); i-- > 0;) {
      for (const Line::From& from : lines_[i].inputs) {
        lines_[from.line].gradient += from.slope * lines_[i].gradient;
      }
    }
  }

  double value(std::size_t line) const { return lines_[line].value; }
  double gradient(std::size_t line) const { return lines_[line].gradient; }
  void print() const {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      std::string from;
      for (const Line::From& each : lines_[i].inputs) {
        from += fmt::format("  line {}, slope {:.4f}", each.line, each.slope);
      }
      fmt::print("{}  {:<6} {:>8.4f}  gradient {:>8.4f}{}\n", i, lines_[i].op, lines_[i].value,
                 lines_[i].gradient, from);
    }
  }

 private:
  std::size_t add(Line line) {
    lines_.push_back(std::move(line));
    return lines_.size() - 1;
  }
  std::vector<Line> lines_;
};

// z = tanh(a b + a), for any of the two kinds of numbers.
double plain(double a, double b) { return std::tanh(a * b + a); }

}  // namespace

void tape_by_hand() {
  Tape tape;
  const std::size_t a = tape.leaf(0.5), b = tape.leaf(-2);
  tape.tanh(tape.plus(tape.times(a, b), a));
  tape.backward();
  tape.print();

  const double h = 1e-6;
  fmt::print("\nby small steps: dz/da = {:.4f}, dz/db = {:.4f}\n",
             (plain(0.5 + h, -2) - plain(0.5 - h, -2)) / (2 * h),
             (plain(0.5, -2 + h) - plain(0.5, -2 - h)) / (2 * h));

  peal::Tensor x = peal::tensor(0.5).set_requires_grad();
  peal::Tensor y = peal::tensor(-2.0).set_requires_grad();
  peal::tanh(x * y + x).backward();
  fmt::print("by peal:        dz/da = {:.4f}, dz/db = {:.4f}\n", x.grad().item<double>(),
             y.grad().item<double>());
}

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

// SPDX-License-Identifier: Apache-2.0
// A tape of forty lines, beside peal's on the same sum. docs/book/06-autograd-by-hand.md
#include <fmt/core.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/examples/book/book.h>

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

}  // namespace book

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/stateful.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/nn/optim/lbfgs.h>

#include <algorithm>
#include <cmath>

namespace peal::nn {
namespace {

namespace lbfgs_at {  // of settings
enum : std::size_t {
  lr,
  max_iter,
  max_eval,
  tolerance_grad,
  tolerance_change,
  history_size,
  strong_wolfe,
  maximize
};
}

double value(const Tensor& x) { return x.item<double>(); }
double product(const Tensor& a, const Tensor& b) { return value(sum(a * b)); }
double largest(const Tensor& x) { return x.numel() == 0 ? 0 : value(max(abs(x))); }

}  // namespace

LBFGS::LBFGS(const Parameters& parameters, const LBFGSOptions& o)
    : Optimizer({"LBFGS",
                 {{"lr"},
                  {"max_iter", 1},
                  {"max_eval", 1},
                  {"tolerance_grad"},
                  {"tolerance_change"},
                  {"history_size", 1}},
                 {"strong_wolfe", "maximize"},
                 {},
                 {},
                 {},
                 true}) {
  const std::int64_t most = o.max_eval == 0 ? o.max_iter * 5 / 4 : o.max_eval;
  add_group(parameters, {o.lr, static_cast<double>(o.max_iter), static_cast<double>(most),
                         o.tolerance_grad, o.tolerance_change, static_cast<double>(o.history_size),
                         o.strong_wolfe ? 1.0 : 0.0, o.maximize ? 1.0 : 0.0});
  PEAL_CHECK(!this->parameters().empty(),
             "LBFGS: there are no parameters; its steps look at all of a model's");
  const Tensor& first = this->parameters().front();
  for (std::size_t i = 0; i < this->parameters().size(); ++i) {
    const Tensor& each = this->parameters()[i];
    PEAL_CHECK(!is_low_precision(each.dtype()) && each.dtype() == first.dtype() &&
                   each.device() == first.device(),
               "LBFGS: ", called(i), " is ", each.dtype(), " on ", each.device(),
               "; all have to be f32, or all f64, on one device, and the first is ", first.dtype(),
               " on ", first.device());
  }
}

void LBFGS::check(std::span<const double> settings) const {
  Optimizer::check(settings);
  for (const std::size_t k : {lbfgs_at::max_iter, lbfgs_at::max_eval, lbfgs_at::history_size}) {
    PEAL_CHECK(std::floor(settings[k]) == settings[k],
               "LBFGS: max_iter, max_eval and history_size are whole numbers, got ", settings[k]);
  }
}

void LBFGS::step() {
  fail(
      "LBFGS: step() wants a closure that gives the loss: step([&] { zero_grad(); ...; return "
      "loss; })");
}

Tensor LBFGS::all_gradients() const {
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const Tensor& p = parameters()[i];
    const Tensor g = gradient(i);
    all.push_back(g.defined() ? reshape(g, {p.numel()})
                              : Tensor::zeros({p.numel()}, p.dtype(), p.device()));
  }
  return cat(all, 0);
}

void LBFGS::move(const Tensor& direction, double step) const {
  std::int64_t at = 0;
  for (const Tensor& p : parameters()) {
    add_(p, view_as(direction.rows(at, at + p.numel()), p), step);
    at += p.numel();
  }
}

LinePoint LBFGS::run(const std::function<Tensor()>& closure) const {
  const GradMode guard(true);
  const double loss = value(closure().detach());
  const NoGrad none;
  return {0, setting("maximize") != 0 ? -loss : loss, all_gradients(), 0};
}

// Of the last iteration, which led to this gradient.
void LBFGS::remember(const Tensor& gradient) {
  const Tensor y = gradient - memory_.gradient, s = memory_.direction * memory_.step;
  const double ys = product(y, s);
  if (!(ys > 1e-10)) return;
  if (memory_.changes.size() >= static_cast<std::size_t>(setting("history_size"))) {
    memory_.changes.pop_front();
  }
  memory_.changes.push_back({y, s, 1 / ys});
  memory_.scale = ys / product(y, y);
}

Tensor LBFGS::newton_direction(const Tensor& gradient) const {
  const std::deque<Change>& changes = memory_.changes;
  std::vector<double> share(changes.size());
  const Tensor r = -gradient;
  for (std::size_t i = changes.size(); i-- > 0;) {
    share[i] = product(changes[i].step, r) * changes[i].inverse;
    add_(r, changes[i].gradient, -share[i]);
  }
  mul_(r, memory_.scale);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const double back = product(changes[i].gradient, r) * changes[i].inverse;
    add_(r, changes[i].step, share[i] - back);
  }
  return r;
}

Tensor LBFGS::step(const std::function<Tensor()>& closure) {
  PEAL_CHECK(closure != nullptr, "LBFGS: step: there is no closure");
  PEAL_CHECK(Graph::capturing() == nullptr,
             "LBFGS: its step reads the loss on the host and cannot lie in a captured graph");
  const NoGrad guard;
  const double lr = setting("lr"), tolerance_grad = setting("tolerance_grad"),
               tolerance_change = setting("tolerance_change");
  const auto max_iter = static_cast<std::int64_t>(setting("max_iter")),
             max_eval = static_cast<std::int64_t>(setting("max_eval"));
  const bool searches = setting("strong_wolfe") != 0;
  Tensor first_loss;
  LinePoint here = run([&] { return first_loss = closure(); });
  std::int64_t evaluations = 1;
  ++evaluations_;
  if (largest(here.gradient) <= tolerance_grad) return first_loss;
  for (std::int64_t i = 1; i <= max_iter; ++i) {
    ++iterations_;
    if (!memory_.direction.defined()) {
      memory_.direction = -here.gradient;
    } else {
      remember(here.gradient);
      memory_.direction = newton_direction(here.gradient);
    }
    const double loss_before = here.loss;
    memory_.step =
        memory_.gradient.defined() ? lr : std::min(1.0, 1 / value(sum(abs(here.gradient)))) * lr;
    memory_.gradient = here.gradient;
    const Tensor& direction = memory_.direction;
    here.slope = product(here.gradient, direction);
    if (here.slope > -tolerance_change) break;
    std::int64_t asked = 0;
    if (searches) {
      std::vector<Tensor> before;
      for (const Tensor& p : parameters()) before.push_back(p.detach().clone());
      const auto at = [&](double step) {
        move(direction, step);
        LinePoint there = run(closure);
        for (std::size_t k = 0; k < before.size(); ++k) parameters()[k].copy_(before[k]);
        there.step = step;
        there.slope = product(there.gradient, direction);
        return there;
      };
      here.step = 0;
      const LineSearchResult found =
          strong_wolfe(at, here, memory_.step, largest(direction),
                       {.tolerance_change = 1e-9, .most = max_eval - evaluations});
      here = found.best;
      asked = found.evaluations;
      memory_.step = here.step;
      move(direction, here.step);
    } else {
      move(direction, memory_.step);
      if (i != max_iter) {
        here = run(closure);
        asked = 1;
      }
    }
    evaluations += asked;
    evaluations_ += asked;
    const bool flat = largest(here.gradient) <= tolerance_grad;
    if (i == max_iter || evaluations >= max_eval || flat) break;
    if (largest(direction) * std::abs(memory_.step) <= tolerance_change) break;
    if (std::abs(here.loss - loss_before) < tolerance_change) break;
  }
  return first_loss;
}

NamedTensors LBFGS::own_state() const {
  if (iterations_ == 0) return {};
  const auto scalar = [](auto x) { return Tensor::scalar(x, Device{}); };
  NamedTensors state{
      {"groups.0.n_iter", scalar(iterations_)},
      {"groups.0.func_evals", scalar(evaluations_)},
      {"groups.0.d", memory_.direction},
      {"groups.0.t", scalar(memory_.step)},
      {"groups.0.prev_flat_grad", memory_.gradient},
      {"groups.0.H_diag", scalar(memory_.scale)},
      {"groups.0.history", scalar(static_cast<std::int64_t>(memory_.changes.size()))}};
  for (std::size_t i = 0; i < memory_.changes.size(); ++i) {
    const Change& change = memory_.changes[i];
    state.emplace_back(concat("groups.0.old_dirs.", i), change.gradient);
    state.emplace_back(concat("groups.0.old_stps.", i), change.step);
    state.emplace_back(concat("groups.0.ro.", i), scalar(change.inverse));
  }
  return state;
}

std::function<void()> LBFGS::read_own_state(StateReader& reader) {
  Memory memory;
  std::int64_t iterations = 0, evaluations = 0;
  if (reader.has("groups.0.n_iter")) {
    const Tensor& first = parameters().front();
    std::int64_t count = 0;
    for (const Tensor& p : parameters()) count += p.numel();
    const auto take = [&](const std::string& key) {
      const Tensor tensor = reader.tensor(key, {count}, first.dtype());
      return tensor.defined() ? tensor.to(first.device()).clone() : tensor;
    };
    iterations = reader.number<std::int64_t>("groups.0.n_iter");
    evaluations = reader.number<std::int64_t>("groups.0.func_evals");
    memory.direction = take("groups.0.d");
    memory.step = reader.number<double>("groups.0.t");
    memory.gradient = take("groups.0.prev_flat_grad");
    memory.scale = reader.number<double>("groups.0.H_diag");
    const auto changes = reader.number<std::int64_t>("groups.0.history");
    for (std::int64_t i = 0; i < changes; ++i) {
      const Tensor gradient = take(concat("groups.0.old_dirs.", i)),
                   step = take(concat("groups.0.old_stps.", i));
      if (!gradient.defined()) break;  // a fault already: a wrong count asks for no more
      memory.changes.push_back({gradient, step, reader.number<double>(concat("groups.0.ro.", i))});
    }
  }
  return [this, memory, iterations, evaluations] {
    memory_ = memory;
    iterations_ = iterations;
    evaluations_ = evaluations;
  };
}

}  // namespace peal::nn

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/stateful.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/comm/group/agree.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/missing.h>
#include <peal/nn/parallel/power_sgd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace peal::nn {
namespace power_sgd {

// What is kept of a parameter between steps.
struct Kept {
  Tensor owner;         // another in its place begins anew; undefined: as loaded
  Tensor error{}, q{};  // [rows, columns] as the gradient, [r * columns]
};

}  // namespace power_sgd

namespace {

using power_sgd::Kept;

// A part of a bucket, and where it lies in the messages: a matrix's P^T [r, rows] in the first and
// Q^T [r, columns] in the second, anything else whole in the first.
struct Part {
  Tensor grad;
  Kept* kept = nullptr;
  std::int64_t rows = 0, columns = 0, r = 0;  // r = 0: as it is
  std::int64_t first = 0, second = 0;
};

struct Layout {
  std::vector<Part> parts;
  std::int64_t first = 0, second = 0;  // elements of the messages
};

Layout layout_of(const GradBucket& bucket, const PowerSGDOptions& options) {
  Layout all;
  for (const Tensor& parameter : bucket.parameters) {
    Part part{parameter.grad()};
    const Shape& shape = part.grad.shape();
    const std::int64_t count = part.grad.numel();
    if (shape.dim() >= 2 && count > 0) {
      part.rows = shape[0];
      part.columns = count / shape[0];
      part.r = std::min({options.matrix_approximation_rank, part.rows, part.columns});
      const auto sent = static_cast<double>((part.rows + part.columns) * part.r);
      if (sent * options.min_compression_rate >= static_cast<double>(count)) part.r = 0;
    }
    part.first = all.first;
    part.second = all.second;
    all.first += part.r > 0 ? part.r * part.rows : count;
    all.second += part.r * part.columns;
    all.parts.push_back(part);
  }
  return all;
}

constexpr double infinity = std::numeric_limits<double>::infinity();

// Where power iteration begins: numbers without a pattern, in rows that are independent.
Tensor start_of(std::int64_t rows, std::int64_t n, std::int64_t phase, const Tensor& like) {
  std::vector<float> values;
  for (std::int64_t k = 1; k <= rows; ++k) {
    for (std::int64_t j = 1; j <= n; ++j) {
      values.push_back(static_cast<float>(std::cos(static_cast<double>(k * j + phase))));
    }
  }
  return cast(Tensor::from(values, {rows, n}, like.device()), like.dtype());
}

// Rows of unit length at right angles, by modified Gram-Schmidt; twice, as what is left of a row
// that nearly depends on others is mostly rounding. A row of zeros begins anew, as a gradient
// that was zero once would never be sent again; and so does one that overflowed.
void make_orthogonal(const Tensor& rows, bool restart) {
  const std::int64_t n = rows.size(1);
  const Tensor start = restart ? start_of(rows.size(0), n, 0, rows) : rows;
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    Tensor row = rows.detach({n}, i * n).clone();
    const Tensor size = sum(abs(row));
    row = where(gt(size, 0) & lt(size, infinity), row, start.detach({n}, i * n));
    for (int pass = 0; pass < 2; ++pass) {
      for (std::int64_t j = 0; j < i; ++j) {
        const Tensor before = rows.detach({n}, j * n);
        row = row - before * sum(before * row);
      }
    }
    rows.detach({n}, i * n).copy_(row / (sqrt(sum(row * row)) + 1e-8));
  }
}

}  // namespace

struct PowerSGD::State : std::enable_shared_from_this<State> {
  comm::ProcessGroup group;
  PowerSGDOptions options;
  std::int64_t iteration = 0;
  std::map<std::string, Kept> kept;  // by parameter
  OneWrapper wrapper;
  bool agreed = false, loaded = false;

  void agree();
  void find_kept(const GradBucket& bucket, std::vector<Part>& parts);
  void check_loaded();
  comm::Work run(GradBucket& bucket);
};

// Of factors that began otherwise on some ranks, the average means nothing.
void PowerSGD::State::agree() {
  if (std::exchange(agreed, true)) return;
  comm::agree(
      group, "[ddp] PowerSGD",
      concat("matrix_approximation_rank ", options.matrix_approximation_rank,
             "\nstart_powerSGD_iter ", options.start_powerSGD_iter, "\nmin_compression_rate ",
             options.min_compression_rate, "\nuse_error_feedback ", options.use_error_feedback,
             "\nwarm_start ", options.warm_start, "\niteration ", iteration),
      "give it the same options, and load the same iteration's state, on every rank");
}

comm::Work PowerSGD::State::run(GradBucket& bucket) {
  wrapper.check(bucket, "PowerSGD");
  agree();
  const Tensor memory = bucket.buffer;
  const bool starts = iteration >= options.start_powerSGD_iter;
  if (bucket.is_last) ++iteration;
  if (!starts || size_of(memory.dtype()) < 4) {
    return group.all_reduce(memory, comm::ReduceOp::avg, bucket.label);
  }
  Layout layout = layout_of(bucket, options);
  find_kept(bucket, layout.parts);
  if (bucket.is_last && std::exchange(loaded, false)) check_loaded();
  if (layout.second == 0) {
    return group.all_reduce(memory, comm::ReduceOp::avg, bucket.label);
  }
  // A gradient that is the mean over all ranks: what was left out of one counts as much in the
  // next.
  const bool keeps = options.use_error_feedback;
  const double factor = keeps && bucket.factor ? bucket.factor() : 1;
  // What is kept of a parameter that no rank uses in this step is for its next.
  if (bucket.may_be_unused && factor != 0) {
    std::vector<std::pair<Kept*, Kept>> before;
    for (const Part& part : layout.parts) {
      before.emplace_back(part.kept, part.kept != nullptr ? *part.kept : Kept());
    }
    bucket.taken_back = [before = std::move(before), keep = shared_from_this()](std::size_t place) {
      const auto& [kept, was] = before[place];
      if (kept != nullptr) *kept = was;
    };
  }
  const Tensor first = Tensor::empty({layout.first}, memory.dtype(), memory.device());
  const Tensor q = Tensor::empty({layout.second}, memory.dtype(), memory.device());
  const auto p_of = [first](const Part& part) {
    return first.detach({part.r, part.rows}, part.first);
  };
  const auto q_of = [q](const Part& part) { return q.detach({part.r, part.columns}, part.second); };
  const auto matrix_of = [](const Part& part) {
    return part.grad.detach({part.rows, part.columns});
  };
  for (const Part& part : layout.parts) {
    if (part.r == 0) {
      first.detach(part.grad.shape(), part.first).copy_(part.grad);
      continue;
    }
    Kept& here = *part.kept;
    if (keeps && factor != 0) {
      if (here.error.defined()) add_(part.grad, here.error, 1 / factor);
      here.error = part.grad.clone();
    }
    if (!here.q.defined() || !options.warm_start) {
      here.q = start_of(1, part.r * part.columns, options.warm_start ? 0 : iteration, memory);
    }
    q_of(part).copy_(here.q.detach({part.r, part.columns}));
    make_orthogonal(q_of(part), true);
    p_of(part).copy_(matmul(q_of(part), matrix_of(part), false, true));
  }
  const std::uint64_t tag = bucket.label.tag;
  return group.all_reduce(first, comm::ReduceOp::avg, bucket.label)
      .then([=, keep = shared_from_this()] {
        for (const Part& part : layout.parts) {
          if (part.r == 0) continue;
          make_orthogonal(p_of(part), false);
          q_of(part).copy_(matmul(p_of(part), matrix_of(part)));
        }
        return keep->group.all_reduce(q, comm::ReduceOp::avg, {"PowerSGD's second factors", tag});
      })
      .then([=, keep = shared_from_this()] {
        // What overflowed is lost, not kept.
        const Tensor none = Tensor::zeros({}, q.dtype(), q.device());
        for (const Part& part : layout.parts) {
          if (part.r == 0) {
            part.grad.copy_(first.detach(part.grad.shape(), part.first));
            continue;
          }
          matrix_of(part).copy_(matmul(p_of(part), q_of(part), true));
          if (factor == 0) continue;  // nothing to keep: no sample, or it fails
          Kept& here = *part.kept;
          here.q = q_of(part).detach({part.r * part.columns});
          if (!keeps) continue;
          add_(here.error, part.grad, -1);
          if (factor != 1) mul_(here.error, factor);
          here.error.copy_(where(lt(abs(here.error), infinity), here.error, none));
        }
        return comm::Work();
      });
}

// A state that was loaded lies where it was read.
void PowerSGD::State::find_kept(const GradBucket& bucket, std::vector<Part>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Part& part = parts[i];
    if (part.r == 0) continue;
    const std::string& name = bucket.names[i];
    const Tensor& parameter = bucket.parameters[i];
    Kept& here = kept[name];
    if (here.owner.defined() && !here.owner.same_as(parameter)) here = {};
    here.owner = parameter;
    part.kept = &here;
    const Device device = part.grad.device();
    if (here.error.defined()) here.error = here.error.to(device);
    if (here.q.defined()) here.q = here.q.to(device);
    const std::int64_t second = part.r * part.columns;
    // Each rank has loaded a state of its own: what one alone finds, the others wait for.
    if (here.q.defined() && here.q.numel() != second) {
      fail_everywhere(group,
                      concat("PowerSGD: ", bucket.label.text, ": ", name, " has second factors of ",
                             second, " elements, and the state has ", here.q.numel(),
                             "; the options differ from those of the run that saved it"));
    }
    if (here.error.defined() && here.error.shape() != part.grad.shape()) {
      fail_everywhere(
          group, concat("PowerSGD: ", bucket.label.text, ": ", name, " is ", part.grad.shape(),
                        ", and the state's is ", here.error.shape(), "; it is of another model"));
    }
  }
}

// When all buckets have taken theirs.
void PowerSGD::State::check_loaded() {
  std::vector<std::string> left;
  for (const auto& [name, here] : kept) {
    if (!here.owner.defined()) left.push_back(name);
  }
  if (left.empty()) return;
  log_warning("[ddp] rank ", group.global_rank(group.rank()),
              ": PowerSGD: the state that was "
              "loaded has ",
              first_names(left),
              ", which no bucket compresses; that part is of no "
              "use here (is it of another model, or of an older peal, which kept it by bucket?)");
}

PowerSGD::PowerSGD(comm::ProcessGroup group, const PowerSGDOptions& options)
    : state_(std::make_shared<State>()) {
  PEAL_CHECK(options.matrix_approximation_rank > 0 && options.start_powerSGD_iter >= 0,
             "PowerSGD: expected a matrix_approximation_rank of 1 or more and a "
             "start_powerSGD_iter of 0 or more, got ",
             options.matrix_approximation_rank, " and ", options.start_powerSGD_iter);
  PEAL_CHECK(options.start_powerSGD_iter > 0 || !(options.use_error_feedback || options.warm_start),
             "PowerSGD: with error feedback or a warm start the first step is averaged as it is: "
             "expected a start_powerSGD_iter of 1 or more");
  state_->group = std::move(group);
  state_->options = options;
}

CommHook PowerSGD::hook() const {
  return [state = state_](GradBucket& bucket) { return state->run(bucket); };
}

std::int64_t PowerSGD::iteration() const { return state_->iteration; }

NamedTensors PowerSGD::state_dict() const {
  NamedTensors all{{"iteration", Tensor::scalar(state_->iteration, Device{})}};
  for (const auto& [name, here] : state_->kept) {
    if (here.error.defined()) all.emplace_back(name + ".error", here.error);
    if (here.q.defined()) all.emplace_back(name + ".q", here.q);
  }
  return all;
}

void PowerSGD::load_state_dict(const NamedTensors& state) {
  StateReader reader("PowerSGD", state);
  const auto iteration = reader.number<std::int64_t>("iteration");
  std::map<std::string, Kept> kept;
  for (const auto& [name, tensor] : state) {
    const std::size_t dot = name.rfind('.');
    const std::string what = dot == std::string::npos ? "" : name.substr(dot + 1);
    if (what != "error" && what != "q") continue;
    Kept& here = kept[name.substr(0, dot)];
    (what == "q" ? here.q : here.error) =
        reader.tensor(name, tensor.shape(), tensor.dtype()).clone();
  }
  reader.finish();
  state_->iteration = iteration;
  state_->agreed = false;
  state_->loaded = true;
  state_->kept = std::move(kept);
}

}  // namespace peal::nn

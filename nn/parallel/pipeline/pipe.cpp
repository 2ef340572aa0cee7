// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/comm/group/agree.h>
#include <peal/nn/optim/optimizer.h>
#include <peal/nn/parallel/clip_over_ranks.h>
#include <peal/nn/parallel/cut_parameters.h>
#include <peal/nn/parallel/make_equal.h>
#include <peal/nn/parallel/pipeline/parcel.h>
#include <peal/nn/parallel/pipeline/pipe.h>
#include <peal/nn/parallel/pipeline/pipe_step.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace peal::nn {

namespace pipeline = comm::pipeline;

namespace {

using Layers = std::vector<std::pair<std::string, Module>>;

void check_balance(const std::vector<int>& balance, int parts, std::size_t layers) {
  const bool covers = std::accumulate(balance.begin(), balance.end(), std::int64_t{0}) ==
                          static_cast<std::int64_t>(layers) &&
                      std::ranges::all_of(balance, [](int n) { return n > 0; });
  PEAL_CHECK(balance.size() == static_cast<std::size_t>(parts) && covers,
             "pipe: expected a balance of ", parts, " parts that have the ", layers,
             " layers between them, at least one each");
}

void check_tags(const pipeline::Problem& problem, std::size_t skips) {
  constexpr std::int64_t tags = 1 << 16;
  const std::int64_t lines = problem.parts() + static_cast<std::int64_t>(skips);
  PEAL_CHECK(4 * lines * problem.micro_batches <= tags, "pipe: expected at most ", tags / 4,
             " parts and skips times micro-batches, got ", lines, " times ", problem.micro_batches);
}

// What all ranks have to have alike.
std::string lines_of(const PipeOptions& options, const std::vector<int>& balance,
                     const Sequential& model, std::size_t layers,
                     const std::vector<SkipRoute>& skips, const std::string& ties) {
  constexpr const char* checkpoints[] = {"never", "except_last", "always"};
  std::string lines =
      concat(name(options.kind), ", ", options.micro_batches, " micro-batches, ", options.chunks,
             " chunks, checkpoint ", checkpoints[static_cast<std::size_t>(options.checkpoint)],
             options.deferred_batch_norm ? ", deferred_batch_norm" : "",
             options.keep_outputs ? ", keep_outputs" : "", "\n", layers, " layers, of the parts:");
  for (const int layers : balance) lines += concat(" ", layers);
  for (const SkipRoute& skip : skips) {
    lines += concat("\nskip ", skip.name, " from layer ", skip.from, " to ", skip.to);
  }
  lines += ties;
  for (const auto& [name, tensor] : model.named_parameters()) {
    lines += concat("\n", name, " ", tensor.shape(), " ", tensor.dtype());
  }
  return lines;
}

int part_of(int layer, const std::vector<int>& balance) {
  int part = 0;
  for (int end = balance[0]; layer >= end; end += balance[static_cast<std::size_t>(part)]) ++part;
  return part;
}

}  // namespace

Pipe::Pipe(comm::ProcessGroup group, Sequential model, const PipeOptions& options)
    : group_(std::move(group)), options_(options) {
  Layers layers = model.named_children();
  std::vector<int> balance = options.balance;
  std::vector<SkipRoute> skips;
  std::string ties;
  const std::string wrong = failure_in([&] {
    problem_ =
        pipeline::make_problem(options.kind, group_.world(), options.micro_batches, options.chunks);
    if (balance.empty()) {
      balance = balance_by_count(static_cast<int>(layers.size()), problem_.parts());
    }
    check_balance(balance, problem_.parts(), layers.size());
    CutParameters(model).check_apart(group_);
    for (int layer = 0; layer < static_cast<int>(layers.size()); ++layer) {
      names_.push_back(layers[static_cast<std::size_t>(layer)].first);
      rank_of_.push_back(problem_.rank_of(part_of(layer, balance)));
    }
    ties = add_ties(layers);
    skips = skip_routes(layers);
    check_tags(problem_, skips.size());
    add_skips(skips, balance);
    if (options.deferred_batch_norm) {
      convert_deferred_batch_norm(model);
      layers = model.named_children();
    }
  });
  comm::agree_unless(group_, "[pipe] the pipeline",
                     lines_of(options, balance, model, layers.size(), skips, ties), wrong,
                     "build the same model, with the same options, on every rank");
  Layers own;
  for (int part = 0; part < problem_.parts(); ++part) {
    std::vector<Layer>& kept = parts_.emplace_back();
    for (int i = 0; i < balance[static_cast<std::size_t>(part)]; ++i, ++layers_) {
      const auto& [name, layer] = layers[static_cast<std::size_t>(layers_)];
      if (problem_.rank_of(part) != group_.rank()) continue;
      kept.push_back({layers_, layer});
      own.emplace_back(name, layer);
    }
  }
  local_ = Sequential(own);
  // Of a model that was made empty nobody needs the rest.
  make_values(group_, local_.named_parameters(), "pipe");
  make_ties_equal();
}

// Those that stay within a part are nobody's business.
void Pipe::add_skips(const std::vector<SkipRoute>& routes, const std::vector<int>& balance) {
  for (const auto& [name, from, to] : routes) {
    const pipeline::Skip skip{part_of(from, balance), part_of(to, balance)};
    if (skip.from == skip.to) continue;
    skips_.push_back(
        {name, skip.from, skip.to, problem_.parts() + static_cast<int>(skips_.size())});
    if (skip.to == skip.from + 1 || std::ranges::count(problem_.skips, skip) > 0) continue;
    problem_.skips.push_back(skip);
  }
}

const Pipe::Plan& Pipe::plan_of(int micro_batches) {
  const auto known = plans_.find(micro_batches);
  if (known != plans_.end()) return known->second;
  Plan plan{problem_, {}};
  plan.problem.micro_batches = micro_batches;
  plan.program = pipeline::schedule(plan.problem)[static_cast<std::size_t>(group_.rank())];
  return plans_.emplace(micro_batches, std::move(plan)).first->second;
}

bool Pipe::checkpoints(int micro_batch, int of) const {
  switch (options_.checkpoint) {
    case CheckpointMode::never:
      return false;
    case CheckpointMode::except_last:
      return micro_batch + 1 < of;
    case CheckpointMode::always:
      return true;
  }
  return false;
}

struct Pipe::Given {
  PipeCall::What what;
  Tensor x, target;
  const Loss* loss = nullptr;
  double divisor = 0;

  void check() const {
    const bool trains = what == PipeCall::What::step;
    PEAL_CHECK(!trains || context().grad_enabled,
               "pipe: step() under NoGrad trains nothing; for the loss alone call evaluate()");
    PEAL_CHECK(x.defined() && (target.defined() || loss == nullptr), "pipe: expected ",
               loss == nullptr ? "x" : "x and target", " on every rank, got no ",
               x.defined() ? "target" : "x",
               "; a rank that reads neither gives some of as many rows");
    PEAL_CHECK(x.dim() > 0, "pipe: expected rows, got x of shape ", x.shape());
    PEAL_CHECK(loss == nullptr || (target.dim() > 0 && x.size(0) == target.size(0)),
               "pipe: expected as many rows of the target as of x, got shapes ",
               loss == nullptr ? Shape() : target.shape(), " and ", x.shape());
    PEAL_CHECK(x.device() == Device{}, "pipe: expected x on the CPU, got ", x.device(),
               "; pipelines of devices are not there yet");
    PEAL_CHECK(x.size(0) > 0, "pipe: expected a row at least, got shape ", x.shape());
    PEAL_CHECK(divisor >= 0, "pipe: expected a divisor above 0, or 0 for the rows of x, got ",
               divisor);
  }
};

double Pipe::run(const Given& given) {
  double mean = 0;
  ++calls_;
  try {
    given.check();
    const std::int64_t rows = given.x.size(0);
    const Plan& plan =
        plan_of(static_cast<int>(std::min<std::int64_t>(rows, problem_.micro_batches)));
    const bool keeps = given.loss == nullptr || options_.keep_outputs;
    if (options_.deferred_batch_norm) drop_batch_norm(local_);  // of a step that failed, say
    PipeStep step(*this, plan,
                  {.x = given.x.detach(),
                   .target = given.target,
                   .loss = given.loss,
                   .divisor = given.divisor > 0 ? given.divisor : static_cast<double>(rows),
                   .keeps_outputs = keeps},
                  given.what);
    const bool trains = given.what == PipeCall::What::step;
    const Tensors before = trains ? set_ties_aside() : Tensors();
    mean = step.run();
    if (trains) {
      add_up_ties(before);
      stash_ = step.stash();
    }
    const bool last = problem_.rank_of(problem_.last_part()) == group_.rank();
    outputs_ = keeps && last ? cat(step.outputs()) : Tensor();
    if (options_.deferred_batch_norm) commit_batch_norm(local_);
  } catch (...) {
    group_.abort(
        concat("[pipe] rank ", group_.global_rank(group_.rank()), ": ", words_of_failure()));
    throw;
  }
  context().generator.reserve(1);  // the next step draws others
  return mean;
}

double Pipe::run_with_loss(const Given& given) {
  const Tensor total = Tensor::scalar(run(given), Device{});  // 0 but where the last part is
  group_.all_reduce(total.view(), comm::ReduceOp::sum, "the loss of a pipe").wait();
  return total.item<double>();
}

double Pipe::step(const Tensor& x, const Tensor& target, const Loss& loss, double divisor) {
  return run_with_loss({PipeCall::What::step, x, target, &loss, divisor});
}

double Pipe::evaluate(const Tensor& x, const Tensor& target, const Loss& loss, double divisor) {
  const NoGrad guard;
  return run_with_loss({PipeCall::What::evaluate, x, target, &loss, divisor});
}

Tensor Pipe::forward(const Tensor& x, bool broadcast) {
  const NoGrad guard;
  run({.what = PipeCall::What::forward, .x = x, .target = {}});
  const Tensor kept = shared_outputs(broadcast);
  outputs_ = {};
  return kept;
}

Tensor Pipe::outputs(bool broadcast) const {
  PEAL_CHECK(options_.keep_outputs, "pipe: outputs() needs PipeOptions::keep_outputs");
  return shared_outputs(broadcast);
}

Tensor Pipe::shared_outputs(bool broadcast) const {
  if (!broadcast) return outputs_;
  const int root = problem_.rank_of(problem_.last_part());
  return broadcast_tensor(group_, outputs_, root, "the outputs of a pipe");
}

Parameters Pipe::parameters() const {
  Parameters all = local_.named_parameters();
  all.part_of_model = group_.world() > 1;
  return all;
}

double Pipe::clip_grad_norm_(double max_norm, double norm_type) {
  Tensors gradients, counted_elsewhere;  // none of these on rank 0, which would count them
  const CutParameters cuts(local_);
  CutGradients cut{{}, {}, cuts.group()};
  for (const auto& [name, parameter] : local_.named_parameters()) {
    const Tensor grad = parameter.grad();
    if (!grad.defined() || grad.numel() == 0) continue;
    const auto tie = std::ranges::find(ties_, name, &Tie::name);
    const bool counts = tie == ties_.end() || tie->is_home(group_.rank());
    if (cuts.has(name)) {
      (counts ? cut.gradients : cut.replicated).push_back(grad);
    } else {
      (counts ? gradients : counted_elsewhere).push_back(grad);
    }
  }
  return clip_over_ranks(gradients, group_, max_norm, norm_type, "the norm of a pipe's gradients",
                         counted_elsewhere, cut);
}

}  // namespace peal::nn

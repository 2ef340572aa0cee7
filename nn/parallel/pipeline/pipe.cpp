// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/schedule/mix.h>
#include <peal/comm/schedule/schedule.h>
#include <peal/nn/parallel/clip_over_ranks.h>
#include <peal/nn/parallel/pipeline/pipe.h>

#include <algorithm>
#include <exception>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

namespace peal::nn {

namespace pipeline = comm::pipeline;

// What the sender of a message is in: tags are the same in every call.
struct PipeCall {
  std::int64_t number, trains, rows;
  bool operator==(const PipeCall&) const = default;
};
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

void check_tags(const pipeline::Problem& problem) {
  constexpr std::int64_t tags = 1 << 16;
  PEAL_CHECK(std::int64_t{4} * problem.parts() * problem.micro_batches <= tags,
             "pipe: expected at most ", tags / 4, " parts times micro-batches, got ",
             problem.parts(), " times ", problem.micro_batches);
}

// What belongs to two parts would be two tensors, of which each gets a part of the gradient.
void check_ties(const Layers& layers, const std::vector<int>& balance) {
  std::map<const TensorBody*, std::pair<int, std::string>> owner;
  std::size_t next = 0;
  for (int part = 0; part < static_cast<int>(balance.size()); ++part) {
    for (int i = 0; i < balance[static_cast<std::size_t>(part)]; ++i) {
      const auto& [name, layer] = layers[next++];
      auto owned = layer.named_parameters();
      const auto buffers = layer.named_buffers();
      owned.insert(owned.end(), buffers.begin(), buffers.end());
      for (const auto& [below, tensor] : owned) {
        const std::string whole = name + "." + below;
        const auto [first, fresh] = owner.try_emplace(&tensor.body(), part, whole);
        PEAL_CHECK(fresh || first->second.first == part, "pipe: ", whole, " of part ", part,
                   " is tied to ", first->second.second, " of part ", first->second.first,
                   "; balance the model so that both are in one part, or untie them");
      }
    }
  }
}

// What all ranks have to have alike.
std::string lines_of(const PipeOptions& options, const std::vector<int>& balance,
                     const Sequential& model, std::size_t layers) {
  std::string lines = concat(name(options.kind), ", ", options.micro_batches, " micro-batches, ",
                             options.chunks, " chunks\n", layers, " layers, of the parts:");
  for (const int layers : balance) lines += concat(" ", layers);
  for (const auto& [name, tensor] : model.named_parameters()) {
    lines += concat("\n", name, " ", tensor.shape(), " ", tensor.dtype());
  }
  return lines;
}

std::string in_words(const PipeCall& call) {
  return concat(call.trains != 0 ? "step()" : "evaluate()", " of ", call.rows, " rows, its call ",
                call.number);
}

// That, and a tensor's type and shape, as one message of a size that is known.
constexpr std::int64_t header_words = 5 + Shape::max_dims;
Tensor header_of(const Tensor& tensor, const PipeCall& call) {
  std::vector<std::int64_t> words{call.number, call.trains, call.rows,
                                  static_cast<std::int64_t>(tensor.dtype()), tensor.dim()};
  for (const std::int64_t size : tensor.shape()) words.push_back(size);
  words.resize(header_words);
  return Tensor::from(words, {header_words}, Device{});
}
PipeCall mark_of(const Tensor& header) {
  const auto* words = header.data<std::int64_t>();
  return {words[0], words[1], words[2]};
}
Tensor empty_of(const Tensor& header) {
  const auto* words = header.data<std::int64_t>();
  return Tensor::empty(Shape(std::span(words + 5, static_cast<std::size_t>(words[4]))),
                       static_cast<DType>(words[3]), Device{});
}

// While it lives, random numbers are those of a layer and a micro-batch in a step.
class Drawing {
 public:
  Drawing(const Generator& step, int layer, int micro_batch) : before_(context().generator) {
    std::uint64_t seed = 0;
    for (const std::uint64_t word : {step.seed, step.offset, static_cast<std::uint64_t>(layer),
                                     static_cast<std::uint64_t>(micro_batch)}) {
      comm::mix(seed, word);
    }
    context().generator = {seed, 0, step.shift};
  }
  ~Drawing() { context().generator = before_; }
  Drawing(const Drawing&) = delete;
  Drawing& operator=(const Drawing&) = delete;

 private:
  Generator before_;
};

}  // namespace

// One step of a rank: its program, and what is under way.
class PipeStep {
 public:
  PipeStep(Pipe& pipe, const Pipe::Plan& plan, const Tensor& x, const Tensor& target,
           const Pipe::Loss& loss, double divisor, bool trains)
      : pipe_(pipe),
        plan_(plan),
        problem_(plan.problem),
        x_(x.detach()),
        target_(target),
        loss_(loss),
        divisor_(divisor),
        trains_(trains),
        rows_(comm::Blocks::balanced(x.size(0), problem_.micro_batches)) {}

  double run() {
    for (const pipeline::Step& step : plan_.program) {
      if (!trains_ && step.action.pass != Pass::forward) continue;
      switch (step.verb) {
        case pipeline::Verb::run:
          compute(step.action);
          break;
        case pipeline::Verb::send:
          send(step);
          break;
        case pipeline::Verb::recv:
          ask(step);
          break;
      }
    }
    comm::Work::all(std::move(sent_)).wait();
    return sum_ / divisor_;
  }
  int stash() const { return most_; }

 private:
  using Label = std::tuple<bool, int, int>;  // an activation or a gradient, by what makes it
  using Pass = pipeline::Pass;
  struct Entry {
    Tensor input, output;  // output of the last part: the loss over the divisor
    Tensor seed;           // the gradient of the output; undefined for the loss
  };
  struct Asked {
    Tensor header;
    comm::Work work;
    int from;
  };

  static Label label(const pipeline::Action& a) {
    return {a.pass == Pass::forward, a.part, a.micro_batch};
  }
  // Its header has this one, its elements the next: all messages of a step differ.
  int tag(const Label& label) const {
    const auto [activation, part, i] = label;
    return 2 * (2 * (part * problem_.micro_batches + i) + (activation ? 1 : 0));
  }
  Tensor rows(const Tensor& whole, int i) const {
    const comm::Block block = rows_[i];
    return whole.rows(block.at, block.at + block.count);
  }

  void send(const pipeline::Step& step) {
    std::erase_if(sent_, [](const comm::Work& work) { return work.test(); });
    const auto node = made_.extract(label(step.action));
    const Tensor& tensor = node.mapped();
    const int to = step.peer, first = tag(node.key());
    sent_.push_back(pipe_.group_.send(header_of(tensor, call_).view(), to, first));
    if (tensor.numel() > 0) sent_.push_back(pipe_.group_.send(tensor.view(), to, first + 1));
  }

  void ask(const pipeline::Step& step) {
    const Label which = label(step.action);
    const Tensor header = Tensor::empty({header_words}, DType::i64, Device{});
    asked_[which] = {header, pipe_.group_.recv(header.view(), step.peer, tag(which)), step.peer};
  }

  // From this rank or another.
  Tensor take(const Label& which) {
    if (const auto here = made_.extract(which)) return here.mapped();
    const Asked asked = asked_.extract(which).mapped();
    asked.work.wait();
    const PipeCall theirs = mark_of(asked.header);
    PEAL_CHECK(theirs == call_, "pipe: all ranks make the same calls with as many rows: here ",
               in_words(call_), ", on rank ", pipe_.group_.global_rank(asked.from), " ",
               in_words(theirs));
    const Tensor tensor = empty_of(asked.header);
    if (tensor.numel() > 0) {
      pipe_.group_.recv(tensor.view(), asked.from, tag(which) + 1).wait();
    }
    return tensor;
  }

  void compute(const pipeline::Action& a) {
    if (a.pass == Pass::forward) return forward(a);
    const std::pair key(a.part, a.micro_batch);
    Entry& entry = kept_.at(key);
    if (a.pass != Pass::weight && a.part < problem_.last_part()) {
      entry.seed = take({false, a.part + 1, a.micro_batch});
    }
    if (a.pass == Pass::input) {
      if (a.part > 0) give_gradient(a, gradient_of_input(entry));
      return;
    }
    if (entry.output.requires_grad()) entry.output.backward(entry.seed);
    if (a.pass == Pass::backward && a.part > 0) give_gradient(a, entry.input.grad());
    kept_.erase(key);
    pipe_.group_.progress();
  }

  void forward(const pipeline::Action& a) {
    const int i = a.micro_batch;
    Entry entry;
    entry.input = a.part == 0 ? rows(x_, i) : take({true, a.part - 1, i});
    if (a.part > 0 && trains_) entry.input.set_requires_grad();
    Tensor y = entry.input;
    for (const auto& [place, module] : pipe_.parts_[static_cast<std::size_t>(a.part)]) {
      const Drawing drawing(start_, place, i);
      y = Module(module)(y);
      pipe_.group_.progress();
    }
    if (a.part == problem_.last_part()) {
      const Drawing drawing(start_, pipe_.layers_, i);
      const Tensor loss = loss_(y, rows(target_, i));
      PEAL_CHECK(loss.numel() == 1,
                 "pipe: expected a loss of one element, the sum over rows, got shape ",
                 loss.shape());
      sum_ += loss.item<double>();
      y = loss * (1 / divisor_);
    } else {
      PEAL_CHECK(is_floating(y.dtype()), "pipe: expected part ", a.part,
                 " to give a tensor of a floating type to the next, got ", y.dtype());
      made_[label(a)] = y.detach();
    }
    if (!trains_) return;
    entry.output = y;
    kept_[{a.part, i}] = std::move(entry);
    most_ = std::max(most_, static_cast<int>(kept_.size()));
  }

  static Tensor gradient_of_input(const Entry& entry) {
    if (!entry.output.requires_grad()) return {};
    return autograd::grad(
        {entry.output}, {entry.input},
        {.grad_outputs = {entry.seed}, .retain_graph = true, .allow_unused = true})[0];
  }

  // Zeros where the part's output does not depend on its input.
  void give_gradient(const pipeline::Action& a, const Tensor& gradient) {
    const Entry& entry = kept_.at({a.part, a.micro_batch});
    made_[label(a)] = gradient.defined() ? gradient.detach() : zeros_like(entry.input.detach());
  }

  Pipe& pipe_;
  const Pipe::Plan& plan_;
  const pipeline::Problem& problem_;
  Tensor x_, target_;
  const Pipe::Loss& loss_;
  double divisor_, sum_ = 0;
  bool trains_;
  const PipeCall call_{pipe_.calls_, trains_ ? 1 : 0, x_.size(0)};
  const Generator start_ = context().generator;
  comm::Blocks rows_;
  std::map<std::pair<int, int>, Entry> kept_;  // the stash, by part and micro-batch
  std::map<Label, Tensor> made_;               // to be sent, or for the next part of this rank
  std::map<Label, Asked> asked_;
  std::vector<comm::Work> sent_;
  int most_ = 0;
};

Pipe::Pipe(comm::ProcessGroup group, Sequential model, const PipeOptions& options)
    : group_(std::move(group)) {
  const Layers layers = model.named_children();
  std::vector<int> balance = options.balance;
  std::string wrong;
  try {
    problem_ =
        pipeline::make_problem(options.kind, group_.world(), options.micro_batches, options.chunks);
    check_tags(problem_);
    if (balance.empty()) {
      balance = balance_by_count(static_cast<int>(layers.size()), problem_.parts());
    }
    check_balance(balance, problem_.parts(), layers.size());
    check_ties(layers, balance);
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  comm::agree_unless(group_, "[pipe] the pipeline",
                     lines_of(options, balance, model, layers.size()), wrong,
                     "build the same model, with the same options, on every rank");
  Layers own;
  for (int part = 0; part < problem_.parts(); ++part) {
    std::vector<Layer>& kept = parts_.emplace_back();
    for (int i = 0; i < balance[static_cast<std::size_t>(part)]; ++i, ++layers_) {
      if (problem_.rank_of(part) != group_.rank()) continue;
      const auto& [name, layer] = layers[static_cast<std::size_t>(layers_)];
      kept.push_back({layers_, layer});
      own.emplace_back(name, layer);
    }
  }
  local_ = Sequential(own);
}

const Pipe::Plan& Pipe::plan_of(int micro_batches) {
  const auto known = plans_.find(micro_batches);
  if (known != plans_.end()) return known->second;
  Plan plan{problem_, {}};
  plan.problem.micro_batches = micro_batches;
  plan.program = pipeline::schedule(plan.problem)[static_cast<std::size_t>(group_.rank())];
  return plans_.emplace(micro_batches, std::move(plan)).first->second;
}

double Pipe::run(const Tensor& x, const Tensor& target, const Loss& loss, double divisor,
                 bool trains) {
  double mean = 0;
  ++calls_;
  try {
    PEAL_CHECK(!trains || context().grad_enabled,
               "pipe: step() under NoGrad trains nothing; for the loss alone call evaluate()");
    PEAL_CHECK(x.defined() && target.defined(),
               "pipe: expected x and target on every rank, got no ", x.defined() ? "target" : "x",
               "; a rank that reads neither gives some of as many rows");
    PEAL_CHECK(x.dim() > 0 && target.dim() > 0 && x.size(0) == target.size(0),
               "pipe: expected as many rows of the target as of x, got shapes ", target.shape(),
               " and ", x.shape());
    PEAL_CHECK(x.device() == Device{}, "pipe: expected x on the CPU, got ", x.device(),
               "; pipelines of devices are not there yet");
    PEAL_CHECK(x.size(0) > 0, "pipe: expected a row at least, got shape ", x.shape());
    PEAL_CHECK(divisor >= 0, "pipe: expected a divisor above 0, or 0 for the rows of x, got ",
               divisor);
    const Plan& plan =
        plan_of(static_cast<int>(std::min<std::int64_t>(x.size(0), problem_.micro_batches)));
    PipeStep step(*this, plan, x, target, loss,
                  divisor > 0 ? divisor : static_cast<double>(x.size(0)), trains);
    mean = step.run();
    if (trains) stash_ = step.stash();
  } catch (const std::exception& error) {
    group_.abort(concat("[pipe] rank ", group_.global_rank(group_.rank()), ": ", error.what()));
    throw;
  }
  context().generator.reserve(1);                       // the next step draws others
  const Tensor total = Tensor::scalar(mean, Device{});  // 0 but where the last part is
  group_.all_reduce(total.view(), comm::ReduceOp::sum, "the loss of a pipe").wait();
  return total.item<double>();
}

double Pipe::step(const Tensor& x, const Tensor& target, const Loss& loss, double divisor) {
  return run(x, target, loss, divisor, true);
}

double Pipe::evaluate(const Tensor& x, const Tensor& target, const Loss& loss, double divisor) {
  const NoGrad guard;
  return run(x, target, loss, divisor, false);
}

double Pipe::clip_grad_norm_(double max_norm, double norm_type) {
  Tensors gradients;
  for (const Tensor& parameter : local_.parameters()) {
    const Tensor grad = parameter.grad();
    if (grad.defined() && grad.numel() > 0) gradients.push_back(grad);
  }
  return clip_over_ranks(gradients, group_, max_norm, norm_type, "the norm of a pipe's gradients");
}

}  // namespace peal::nn

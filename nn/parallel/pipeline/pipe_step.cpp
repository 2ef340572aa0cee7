// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/pipeline/pipe_step.h>
#include <peal/nn/parallel/pipeline/skippable.h>

#include <algorithm>

namespace peal::nn {

namespace pipeline = comm::pipeline;

namespace {

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

Tensor placed_as_input(const Parcel& parcel, bool trains) {
  if (trains && parcel.wanted) parcel.tensor.set_requires_grad();
  return parcel.tensor;
}

}  // namespace

PipeStep::PipeStep(Pipe& pipe, const Pipe::Plan& plan, const Batch& batch, PipeCall::What what)
    : pipe_(pipe),
      plan_(plan),
      problem_(plan.problem),
      batch_(batch),
      call_{pipe.calls_, what, batch.x.size(0)},
      rows_(comm::Blocks::balanced(batch.x.size(0), problem_.micro_batches)),
      outputs_(batch.keeps_outputs ? static_cast<std::size_t>(problem_.micro_batches) : 0) {}

double PipeStep::run() {
  for (const pipeline::Step& step : plan_.program) {
    if (!trains() && step.action.pass != Pass::forward) continue;
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
  return sum_ / batch_.divisor;
}

// A header has this one, its elements the next: all messages of a step differ.
int PipeStep::tag(const Label& label) const {
  // By the number that all have: ranks with unequally many rows are to meet, and be told.
  const int place = label.line * pipe_.problem_.micro_batches + label.micro_batch;
  return 2 * (2 * place + (label.forward ? 1 : 0));
}

// Those of skips to the next part go along with its activation.
std::vector<PipeStep::Label> PipeStep::labels_of(const pipeline::Step& step) const {
  const pipeline::Action& a = step.action;
  const bool forward = a.pass == Pass::forward, skips = step.skip != pipeline::no_part;
  const int other = skips ? step.skip : a.part + (forward ? 1 : -1);
  const auto [from, to] = std::minmax(a.part, other);
  std::vector<Label> all;
  if (!skips) all.push_back({forward, from, a.micro_batch});
  for (const Pipe::Line& line : pipe_.skips_) {
    if (line.from == from && line.to == to) all.push_back({forward, line.number, a.micro_batch});
  }
  return all;
}

Tensor PipeStep::rows(const Tensor& whole, int i) const {
  const comm::Block block = rows_[i];
  return whole.rows(block.at, block.at + block.count);
}

void PipeStep::send(const pipeline::Step& step) {
  std::erase_if(sent_, [](const comm::Work& work) { return work.test(); });
  for (const Label& label : labels_of(step)) {
    const Parcel parcel = made_.extract(label).mapped();
    const int to = step.peer, first = tag(label);
    sent_.push_back(pipe_.group_.send(header_of(parcel, call_).view(), to, first));
    if (parcel.tensor.defined() && parcel.tensor.numel() > 0) {
      sent_.push_back(pipe_.group_.send(parcel.tensor.view(), to, first + 1));
    }
  }
}

void PipeStep::ask(const pipeline::Step& step) {
  for (const Label& label : labels_of(step)) {
    const Tensor header = empty_header();
    asked_[label] = {header, pipe_.group_.recv(header.view(), step.peer, tag(label)), step.peer};
  }
}

// From this rank or another.
Parcel PipeStep::take(const Label& which) {
  if (const auto here = made_.extract(which)) return here.mapped();
  const Asked asked = asked_.extract(which).mapped();
  asked.work.wait();
  const PipeCall theirs = call_of(asked.header);
  PEAL_CHECK(theirs == call_, "pipe: all ranks make the same calls with as many rows: here ",
             in_words(call_), ", on rank ", pipe_.group_.global_rank(asked.from), " ",
             in_words(theirs));
  const Parcel parcel = parcel_of(asked.header);
  if (parcel.tensor.defined() && parcel.tensor.numel() > 0) {
    pipe_.group_.recv(parcel.tensor.view(), asked.from, tag(which) + 1).wait();
  }
  return parcel;
}

void PipeStep::compute(const Action& a) {
  if (a.pass == Pass::forward) return forward(a);
  const std::pair key(a.part, a.micro_batch);
  Entry& entry = kept_.at(key);
  const auto walk = [&] {
    if (entry.end.defined() && entry.end.requires_grad()) entry.end.backward();
  };
  if (a.pass == Pass::weight) {
    walk();
  } else {
    entry.end = end_of(a, entry);
    // What is computed anew is so once: the first half of a backward then does all of it.
    const bool whole = a.pass == Pass::backward || entry.anew;
    if (whole) walk();
    if (a.part > 0) give_gradients(a, entry, gradients_of_inputs(entry, whole));
    if (whole) entry = {};
  }
  if (a.pass != Pass::input) kept_.erase(key);
  pipe_.group_.progress();
}

// Of those that want one, in order; undefined where the outputs do not depend on it. `walked`: a
// backward has left them.
Tensors PipeStep::gradients_of_inputs(const Entry& entry, bool walked) {
  Tensors wanted, gradients;
  for (const Tensor& input : entry.inputs) {
    if (!input.requires_grad()) continue;
    wanted.push_back(input);
    gradients.push_back(walked ? input.grad() : Tensor());
  }
  if (walked || wanted.empty() || !entry.end.requires_grad()) return gradients;
  return autograd::grad({entry.end}, wanted, {.retain_graph = true, .allow_unused = true});
}

void PipeStep::forward(const Action& a) {
  const int i = a.micro_batch;
  Entry entry;
  entry.inputs.push_back(a.part == 0 ? rows(batch_.x, i)
                                     : placed_as_input(take({true, a.part - 1, i}), trains()));
  for (const Pipe::Line& line : pipe_.skips_) {
    if (line.to != a.part) continue;
    entry.inputs.push_back(placed_as_input(take({true, line.number, i}), trains()));
  }
  const auto layers = [this, part = a.part, i](const Tensors& inputs) {
    return through(part, i, inputs);
  };
  entry.anew = trains() && pipe_.checkpoints(i, problem_.micro_batches);
  entry.outputs = entry.anew ? checkpoint(layers, entry.inputs) : layers(entry.inputs);
  std::size_t next = 1;
  for (const Pipe::Line& line : pipe_.skips_) {
    if (line.from != a.part) continue;
    const Tensor& y = entry.outputs[next++];
    made_[{true, line.number, i}] = {y.detach(), y.requires_grad()};
  }
  Tensor& y = entry.outputs[0];
  if (a.part == problem_.last_part()) {
    if (!outputs_.empty()) outputs_[static_cast<std::size_t>(i)] = y.detach();
    if (batch_.loss != nullptr) y = loss_of(y, i);
  } else {
    PEAL_CHECK(is_floating(y.dtype()), "pipe: expected part ", a.part,
               " to give a tensor of a floating type to the next, got ", y.dtype());
    made_[{true, a.part, i}] = {y.detach(), y.requires_grad()};
  }
  if (!trains()) return;
  kept_[{a.part, i}] = std::move(entry);
  most_ = std::max(most_, static_cast<int>(kept_.size()));
}

// A part's layers: from its input and the skips into it to its output and the skips out of it.
Tensors PipeStep::through(int part, int i, const Tensors& inputs) {
  SkipTable table;
  std::size_t next = 1;
  for (const Pipe::Line& line : pipe_.skips_) {
    if (line.to == part) table.put(line.name, inputs[next++]);
  }
  Tensors outputs{inputs[0]};
  const SkipTable::Use use(table);
  for (const auto& [place, module] : pipe_.parts_[static_cast<std::size_t>(part)]) {
    const Drawing drawing(start_, place, i);
    outputs[0] = Module(module)(outputs[0]);
    pipe_.group_.progress();
  }
  for (const Pipe::Line& line : pipe_.skips_) {
    if (line.from != part) continue;
    outputs.push_back(table.take(line.name));
    PEAL_CHECK(outputs.back().defined(), "pipe: expected a layer of part ", part, " to stash '",
               line.name, "' in its forward, as it declares, and it did not");
  }
  PEAL_CHECK(table.left().empty(), "pipe: expected a layer of part ", part, " to pop '",
             table.left(), "' in its forward, as it declares, and it did not");
  return outputs;
}

Tensor PipeStep::loss_of(const Tensor& y, int i) {
  const Drawing drawing(start_, pipe_.layers_, i);
  const Tensor loss = (*batch_.loss)(y, rows(batch_.target, i));
  PEAL_CHECK(loss.numel() == 1,
             "pipe: expected a loss of one element, the sum over rows, got shape ", loss.shape());
  sum_ += loss.item<double>();
  return loss * (1 / batch_.divisor);
}

Tensor PipeStep::end_of(const Action& a, const Entry& entry) {
  if (a.part == problem_.last_part()) return entry.outputs[0];
  Tensors seeds{take({false, a.part, a.micro_batch}).tensor};
  for (const Pipe::Line& line : pipe_.skips_) {
    if (line.from == a.part) seeds.push_back(take({false, line.number, a.micro_batch}).tensor);
  }
  return record_one("pipe", Tensor::zeros({}), entry.outputs,
                    [seeds = std::move(seeds)](const Tensors&, Needs) { return seeds; });
}

// Zeros where the outputs do not depend on an input.
void PipeStep::give_gradients(const Action& a, const Entry& entry, const Tensors& gradients) {
  std::size_t next_input = 0, next_gradient = 0;
  const auto give = [&](int line) {
    const Tensor& input = entry.inputs[next_input++];
    Tensor gradient;
    if (input.requires_grad()) {
      gradient = gradients[next_gradient++];
      gradient = gradient.defined() ? gradient.detach() : zeros_like(input.detach());
    }
    made_[{false, line, a.micro_batch}] = {gradient, false};
  };
  give(a.part - 1);
  for (const Pipe::Line& line : pipe_.skips_) {
    if (line.to == a.part) give(line.number);
  }
}

}  // namespace peal::nn

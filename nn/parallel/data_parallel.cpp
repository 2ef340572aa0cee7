// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/intra_op.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/tape.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/data_parallel.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <utility>

namespace peal::nn {
namespace {

// f(0) here, the others on threads of their own, which share the caller's cores; the first failure
// by number is thrown.
void each(std::size_t count, const std::function<void(std::size_t)>& f) {
  std::vector<std::exception_ptr> failures(count);
  const int cores = num_threads();
  const auto guarded = [&](std::size_t i) {
    try {
      set_num_threads(std::max(cores / static_cast<int>(count), 1));
      f(i);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < count; ++i) {
    threads.emplace_back(with_context([&guarded, i] { guarded(i); }));
  }
  guarded(0);
  set_num_threads(cores);
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < count; ++i) {
    if (!failures[i]) continue;
    try {
      std::rethrow_exception(failures[i]);
    } catch (const std::exception& error) {
      std::throw_with_nested(
          Error(concat("[data parallel] replica ", i, " of ", count, ": ", error.what())));
    }
  }
}

void check_alike(const NamedTensors& first, const NamedTensors& other, std::size_t replica) {
  const auto text = [](const NamedTensors& list, std::size_t i) -> std::string {
    if (i >= list.size()) return "none";
    return concat(list[i].first, " ", list[i].second.dtype(), " ", list[i].second.shape());
  };
  for (std::size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
    PEAL_CHECK(text(first, i) == text(other, i), "[data parallel] replica ", replica,
               " is no module like the first: expected ", text(first, i), ", got ", text(other, i));
  }
}

// One forward: what a backward goes back through.
struct Pass {
  Tensors x, y;                           // by replica, leaves and outputs
  std::vector<std::vector<Tensor>> mine;  // by replica, its trained parameters
  Tensors grads;                          // of the module's, once backward came to the outputs
};

constexpr std::size_t together = 60;  // inputs of a node that are parameters

// A tensor for each group of parameters, which the outputs are recorded to have come from: their
// gradients are what backward left in `pass`.
Tensors stand_ins(const std::vector<Tensor>& parameters, const std::shared_ptr<Pass>& pass) {
  Tensors all;
  for (std::size_t at = 0; at < parameters.size(); at += together) {
    const std::size_t count = std::min(together, parameters.size() - at);
    all.push_back(record_one(
        "replicate", Tensor::zeros({}, DType::f32, Device{}),
        std::span(parameters).subspan(at, count), [pass, at, count](const Tensors&, Needs) {
          const auto first = pass->grads.begin() + static_cast<std::ptrdiff_t>(at);
          return Tensors(first, first + static_cast<std::ptrdiff_t>(count));
        }));
  }
  return all;
}

Tensor sum_of(const Tensor& sum, const Tensor& next, Device device) {
  if (!next.defined()) return sum;
  const Tensor here = next.to(device);
  return sum.defined() ? sum + here : here;
}

// Through all replicas at once. Returns the gradient of x, where it is wanted.
Tensor go_back(Pass& pass, const Tensor& grad, bool scalars, bool wants_x) {
  const std::size_t count = pass.y.size();
  const std::size_t parameters = pass.mine[0].size();
  std::vector<Tensors> grads(count);
  each(count, [&](std::size_t r) {
    const Tensor& y = pass.y[r];
    Tensors inputs = pass.mine[r];
    if (wants_x) inputs.push_back(pass.x[r]);
    grads[r].resize(inputs.size());
    if (!y.requires_grad() || inputs.empty()) return;
    std::int64_t at = 0;
    for (std::size_t i = 0; i < r; ++i) at += scalars ? 1 : pass.y[i].numel();
    const Tensor seed = grad.detach(y.shape(), at).to(y.device());
    grads[r] = autograd::grad({y}, inputs,
                              {.grad_outputs = {seed}, .retain_graph = true, .allow_unused = true});
  });
  pass.grads.assign(parameters, Tensor());
  for (std::size_t p = 0; p < parameters; ++p) {
    for (const Tensors& of_replica : grads) {
      pass.grads[p] = sum_of(pass.grads[p], of_replica[p], pass.mine[0][p].device());
    }
  }
  if (!wants_x) return {};
  Tensors parts;
  for (std::size_t r = 0; r < count; ++r) {
    const Tensor& part = grads[r].back();
    parts.push_back(part.defined()
                        ? part.to(grad.device())
                        : Tensor::zeros(pass.x[r].shape(), pass.x[r].dtype(), grad.device()));
  }
  return cat(parts);
}

std::vector<Tensor> trained(const Module& module) {
  std::vector<Tensor> all = module.parameters();
  std::erase_if(all, [](const Tensor& p) { return !p.requires_grad(); });
  return all;
}

}  // namespace

struct DataParallel::Replicas {
  // What a replica's tensor was copied from, and what it was then: while neither is written there
  // is nothing to copy, and what an earlier forward saved of it stays valid.
  class Copied {
   public:
    void copy(const Tensor& from, const Tensor& to) {
      if (from_.is(from) && to_.is(to)) return;
      to.copy_(from);
      from_ = State(from);
      to_ = State(to);
    }

   private:
    struct State {
      State() = default;
      explicit State(const Tensor& t) : storage(t.storage()), version(t.storage()->version()) {}
      bool is(const Tensor& t) const {
        return storage.lock() == t.storage() && version == t.storage()->version();
      }
      std::weak_ptr<Storage> storage;
      std::uint64_t version = 0;
    };
    State from_, to_;
  };

  std::vector<Module> modules;
  std::vector<Device> devices;
  std::vector<std::vector<Copied>> parameters, buffers;  // by replica

  // The first module's parameters, buffers and modes.
  void refresh(std::size_t replica) {
    const NoGrad guard;
    Module& first = modules[0];
    Module& other = modules[replica];
    const NamedTensors from = first.named_parameters(), to = other.named_parameters();
    const NamedTensors from_buffers = first.named_buffers(), to_buffers = other.named_buffers();
    check_alike(from, to, replica);
    check_alike(from_buffers, to_buffers, replica);
    parameters.resize(modules.size());
    buffers.resize(modules.size());
    parameters[replica].resize(from.size());
    buffers[replica].resize(from_buffers.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (from[i].second.device() == to[i].second.device()) {
        to[i].second.rebind(from[i].second);
      } else {
        parameters[replica][i].copy(from[i].second, to[i].second);
      }
      to[i].second.set_requires_grad(from[i].second.requires_grad());
    }
    for (std::size_t i = 0; i < from_buffers.size(); ++i) {
      buffers[replica][i].copy(from_buffers[i].second, to_buffers[i].second);
    }
    other.train(first.training());
    auto modes = first.named_modules();
    auto others = other.named_modules();
    for (std::size_t i = 0; i < std::min(modes.size(), others.size()); ++i) {
      others[i].second.train(modes[i].second.training());
    }
  }
};

DataParallel::DataParallel(Module module, std::vector<Device> devices,
                           const std::function<Module()>& another)
    : Module(std::move(module)), replicas_(std::make_shared<Replicas>()) {
  stay();
  PEAL_CHECK(!devices.empty(), "[data parallel] expected a device at least, got none");
  for (const auto& [name, tensor] : named_parameters()) {
    PEAL_CHECK(tensor.device() == devices[0], "[data parallel] ", name, " is on ", tensor.device(),
               ", not on the first device, ", devices[0], "; move the module there first");
  }
  replicas_->devices = std::move(devices);
  replicas_->modules.push_back(static_cast<const Module&>(*this));
  for (std::size_t r = 1; r < replicas_->devices.size(); ++r) {
    Module& replica = replicas_->modules.emplace_back(another());
    replica.to(replicas_->devices[r]);
    check_alike(named_parameters(), replica.named_parameters(), r);
    check_alike(named_buffers(), replica.named_buffers(), r);
    for (const Tensor& parameter : replica.parameters()) {
      for (const Tensor& own : parameters()) {
        PEAL_CHECK(parameter.storage() != own.storage(), "[data parallel] replica ", r,
                   " has the first module's own parameters; let the function make a new module");
      }
    }
  }
}

Tensor DataParallel::forward(const Tensor& x) {
  std::vector<Module>& modules = replicas_->modules;
  if (modules.size() == 1) return modules[0].forward(x);
  PEAL_CHECK(x.dim() >= 1, "[data parallel] expected [B, ...], got a scalar");
  const auto devices = static_cast<std::int64_t>(modules.size());
  const std::int64_t size = std::max<std::int64_t>((x.size(0) + devices - 1) / devices, 1);
  const auto count =
      static_cast<std::size_t>(std::max<std::int64_t>((x.size(0) + size - 1) / size, 1));
  for (std::size_t r = 1; r < count; ++r) replicas_->refresh(r);

  const auto pass = std::make_shared<Pass>();
  pass->x.resize(count);
  pass->y.resize(count);
  const Generator generator = context().generator;
  each(count, [&](std::size_t r) {
    const std::int64_t begin = static_cast<std::int64_t>(r) * size;
    pass->x[r] = x.detach().rows(begin, std::min(begin + size, x.size(0)));
    if (r > 0) {
      pass->x[r] = pass->x[r].to(replicas_->devices[r]);
      context().device = replicas_->devices[r];
      std::uint64_t own = generator.seed;
      comm::mix(own, generator.offset);
      comm::mix(own, r);
      context().generator = {own, 0};
    }
    if (x.requires_grad()) pass->x[r].set_requires_grad();
    // Hooks of the first module's run once, around all.
    pass->y[r] = r == 0 ? modules[0].forward(pass->x[r]) : modules[r](pass->x[r]);
  });

  const bool scalars = pass->y[0].dim() == 0;
  Tensors outputs;
  for (const Tensor& y : pass->y) outputs.push_back(y.detach().to(pass->y[0].device()));
  const Tensor together = scalars ? stack(outputs) : cat(outputs);
  if (!context().grad_enabled) return together;
  for (std::size_t r = 0; r < count; ++r) pass->mine.push_back(trained(modules[r]));
  Tensors inputs = stand_ins(pass->mine[0], pass);
  inputs.insert(inputs.begin(), x);
  return record_one("gather_replicas", together, inputs,
                    [pass, scalars, many = inputs.size()](const Tensors& grads, Needs needs) {
                      Tensors back(many);
                      back[0] = go_back(*pass, grads[0], scalars, needs[0]);
                      for (std::size_t i = 1; i < many; ++i) {
                        back[i] = ones({}, DType::f32, Device{});
                      }
                      return back;
                    });
}

}  // namespace peal::nn

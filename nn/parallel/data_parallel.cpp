// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/tape.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/empty_weights.h>
#include <peal/nn/parallel/data_parallel.h>
#include <peal/nn/parallel/replicas.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

namespace peal::nn {
namespace {

// One forward: what a backward goes back through.
struct Pass {
  std::vector<Tensors> x, y;              // by replica, leaves and outputs
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

// The part of an output's gradient that is the replica's: rows, or of scalars one.
Tensor part_of(const Tensor& grad, const Pass& pass, std::size_t output, std::size_t replica) {
  const Tensor& y = pass.y[replica][output];
  std::int64_t at = 0;
  for (std::size_t r = 0; r < replica; ++r) at += pass.y[r][output].numel();
  return grad.detach(y.shape(), at).to(y.device());
}

// Through all replicas at once. Returns the gradients of the inputs that want one.
Tensors go_back(Pass& pass, const Tensors& grads, Needs needs) {
  const std::size_t count = pass.y.size(), parameters = pass.mine[0].size();
  const std::size_t given = pass.x[0].size();
  std::vector<Tensors> all(count);
  each_replica(count, [&](std::size_t r) {
    Tensors inputs = pass.mine[r], outputs, seeds;
    for (std::size_t i = 0; i < given; ++i) {
      if (needs[i]) inputs.push_back(pass.x[r][i]);
    }
    for (std::size_t o = 0; o < grads.size(); ++o) {
      if (!grads[o].defined() || !pass.y[r][o].requires_grad()) continue;
      outputs.push_back(pass.y[r][o]);
      seeds.push_back(part_of(grads[o], pass, o, r));
    }
    all[r].resize(inputs.size());
    if (outputs.empty() || inputs.empty()) return;
    all[r] = autograd::grad(outputs, inputs,
                            {.grad_outputs = seeds, .retain_graph = true, .allow_unused = true});
  });
  pass.grads.assign(parameters, Tensor());
  for (std::size_t p = 0; p < parameters; ++p) {
    for (const Tensors& of_replica : all) {
      pass.grads[p] = sum_of(pass.grads[p], of_replica[p], pass.mine[0][p].device());
    }
  }
  Tensors back(given);
  std::size_t next = parameters;
  for (std::size_t i = 0; i < given; ++i) {
    if (!needs[i]) continue;
    Tensors parts;
    const Device device = pass.x[0][i].device();
    for (std::size_t r = 0; r < count; ++r) {
      const Tensor& part = all[r][next];
      const Tensor& x = pass.x[r][i];
      parts.push_back(part.defined() ? part.to(device)
                                     : Tensor::zeros(x.shape(), x.dtype(), device));
    }
    back[i] = cat(parts);
    ++next;
  }
  return back;
}

std::vector<Tensor> trained(const Module& module) {
  std::vector<Tensor> all = module.parameters();
  std::erase_if(all, [](const Tensor& p) { return !p.requires_grad(); });
  return all;
}

std::int64_t rows_of(const Tensors& given) {
  PEAL_CHECK(!given.empty(), "[data parallel] expected a tensor to cut along dim 0, got none");
  for (const Tensor& x : given) {
    PEAL_CHECK(x.defined() && x.dim() >= 1, "[data parallel] expected [B, ...], got ",
               x.defined() ? "a scalar" : "an undefined tensor");
    PEAL_CHECK(x.size(0) == given[0].size(0),
               "[data parallel] inputs are cut along dim 0 alike: ", "expected ", given[0].size(0),
               " rows in each, got one of ", x.shape());
  }
  return given[0].size(0);
}

// Of what replicas gave, each along dim 0, or scalars as a vector.
Tensors together_of(const std::vector<Tensors>& y) {
  Tensors all;
  for (std::size_t o = 0; o < y[0].size(); ++o) {
    Tensors parts;
    for (std::size_t r = 0; r < y.size(); ++r) {
      PEAL_CHECK(y[r].size() == y[0].size() && y[r][o].defined() == y[0][o].defined(),
                 "[data parallel] replica ", r, " gives other outputs than replica 0: expected ",
                 y[0].size(), " tensors, got ", y[r].size(), " (or an undefined one)");
      if (y[r][o].defined()) parts.push_back(y[r][o].detach().to(y[0][o].device()));
    }
    if (parts.empty()) {
      all.emplace_back();
    } else {
      all.push_back(parts[0].dim() == 0 ? stack(parts) : cat(parts));
    }
  }
  return all;
}

}  // namespace

DataParallel::DataParallel(Module module, std::vector<Device> devices,
                           const std::function<Module()>& another)
    : Module(std::move(module)), replicas_(std::make_shared<Replicas>()) {
  stay();
  PEAL_CHECK(!devices.empty(), "[data parallel] expected a device at least, got none");
  for (const auto& [name, tensor] : named_parameters()) {
    PEAL_CHECK(tensor.device() == devices[0], "[data parallel] ", name, " is on ", tensor.device(),
               ", not on the first device, ", devices[0], "; move the module there first");
  }
  materialize_module(*this);
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
  // Hooks of the first module's run once, around all.
  return spread({x}, [](Module& module, std::size_t replica, const Tensors& in) -> Tensors {
    return {replica == 0 ? module.forward(in[0]) : module(in[0])};
  })[0];
}

std::size_t DataParallel::replicas() const { return replicas_->modules.size(); }

Tensors DataParallel::spread(const Tensors& given, const OnReplica& run) {
  std::vector<Module>& modules = replicas_->modules;
  if (modules.size() == 1) return run(modules[0], 0, given);
  const std::int64_t rows = rows_of(given);
  const auto devices = static_cast<std::int64_t>(modules.size());
  const std::int64_t size = std::max<std::int64_t>((rows + devices - 1) / devices, 1);
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>((rows + size - 1) / size, 1));
  for (std::size_t r = 1; r < count; ++r) replicas_->refresh(r);

  const auto pass = std::make_shared<Pass>();
  pass->x.resize(count);
  pass->y.resize(count);
  const Generator generator = context().generator;
  each_replica(count, [&](std::size_t r) {
    const std::int64_t begin = static_cast<std::int64_t>(r) * size;
    if (r > 0) {
      context().device = replicas_->devices[r];
      std::uint64_t own = generator.seed;
      comm::mix(own, generator.offset);
      comm::mix(own, r);
      context().generator = {own, 0};
    }
    for (const Tensor& x : given) {
      Tensor part = x.detach().rows(begin, std::min(begin + size, rows));
      if (r > 0) part = part.to(replicas_->devices[r]);
      if (x.requires_grad()) part.set_requires_grad();
      pass->x[r].push_back(part);
    }
    pass->y[r] = run(modules[r], r, pass->x[r]);
  });

  Tensors outputs = together_of(pass->y);
  if (!context().grad_enabled) return outputs;
  for (std::size_t r = 0; r < count; ++r) pass->mine.push_back(trained(modules[r]));
  Tensors inputs = given, recorded;
  for (const Tensor& each : stand_ins(pass->mine[0], pass)) inputs.push_back(each);
  std::vector<std::size_t> which;  // of the outputs have gradients
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (!outputs[o].defined() || !is_floating(outputs[o].dtype())) continue;
    which.push_back(o);
    recorded.push_back(outputs[o]);
  }
  if (recorded.empty()) return outputs;
  recorded = record(
      "gather_replicas", std::move(recorded), inputs,
      [pass, which, all = outputs.size(), many = inputs.size()](const Tensors& grads, Needs needs) {
        Tensors by_output(all);
        for (std::size_t k = 0; k < which.size(); ++k) by_output[which[k]] = grads[k];
        Tensors back = go_back(*pass, by_output, needs);
        while (back.size() < many) back.push_back(ones({}, DType::f32, Device{}));
        return back;
      });
  for (std::size_t k = 0; k < which.size(); ++k) outputs[which[k]] = recorded[k];
  return outputs;
}

}  // namespace peal::nn

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/intra_op.h>
#include <peal/nn/parallel/replicas.h>

#include <algorithm>
#include <exception>
#include <string>
#include <thread>

namespace peal::nn {

void each_replica(std::size_t count, const std::function<void(std::size_t)>& f) {
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
    try {
      threads.emplace_back(with_context([&guarded, i] { guarded(i); }));
    } catch (...) {  // no thread is to be had
      failures[i] = std::current_exception();
    }
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

void Replicas::refresh(std::size_t replica) {
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
  auto modes = first.named_modules();
  auto others = other.named_modules();
  for (std::size_t i = 0; i < std::min(modes.size(), others.size()); ++i) {
    others[i].second.train(modes[i].second.training());
  }
}

}  // namespace peal::nn

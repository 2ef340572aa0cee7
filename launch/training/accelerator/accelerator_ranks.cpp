// SPDX-License-Identifier: Apache-2.0
// What ranks do together beside training.
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/failure_while.h>
#include <peal/launch/print.h>
#include <peal/launch/training/accelerator/accelerator.h>

#include <new>

namespace peal::launch {

Tensor Accelerator::gather(const Tensor& tensor) const {
  std::vector<std::int64_t> shape(tensor.shape().begin(), tensor.shape().end());
  if (shape.empty()) shape.push_back(1);
  shape[0] *= job_.world();
  const Tensor all = Tensor::empty(Shape(shape), tensor.dtype(), tensor.device());
  group().all_gather(all, tensor.detach(), "gather").wait();
  return all;
}

Tensor Accelerator::gather_for_metrics(const Tensor& rows) const {
  PEAL_CHECK(!state_->loaders.empty(),
             "[accelerator] gather_for_metrics: no batch of a prepared loader is under way, which "
             "would say which samples came again; gather() takes rows as they are");
  PEAL_CHECK(rows.dim() > 0,
             "[accelerator] gather_for_metrics: expected a row for each sample, got a number, of "
             "which those that came again cannot be taken away any more; gather the rows, and "
             "then make the number of them");
  return gather_in_order(group(), rows.detach(), state_->loaders.back()->places());
}

Tensor Accelerator::reduce(const Tensor& tensor, comm::ReduceOp op) const {
  const Tensor all = tensor.detach().clone();
  group().all_reduce(all, op, "reduce").wait();
  return all;
}

void Accelerator::local_main_process_first(const std::function<void()>& f) const {
  std::string wrong;
  if (is_local_main_process()) {
    wrong = comm::failure_while(group(), "local_main_process_first", f);
  }
  comm::agree_unless(group(), "[accelerator] local_main_process_first", "", wrong, "");
  if (!is_local_main_process()) f();
}

void Accelerator::print(const std::string& text) const {
  if (is_main_process()) launch::print(text);
}

bool Accelerator::check_trigger() {
  const Tensor any = Tensor::scalar(triggered_ ? 1.0f : 0.0f, Device{});
  group().all_reduce(any, comm::ReduceOp::max, "check_trigger").wait();
  if (any.item<float>() == 0) return false;
  triggered_ = false;
  return true;
}

void set_seed(std::uint64_t seed, bool reproducible) {
  manual_seed(seed);
  context().deterministic = reproducible;
}

std::int64_t find_executable_batch_size(const comm::ProcessGroup& group, std::int64_t starting,
                                        const std::function<void(std::int64_t)>& f) {
  for (std::int64_t size = starting; size > 0; size = size * 9 / 10) {
    bool fits = true;
    try {
      f(size);
    } catch (...) {
      if (!ran_out_of_memory()) throw;
      fits = false;
    }
    const Tensor all = Tensor::scalar(fits ? 1.0f : 0.0f, Device{});
    group.all_reduce(all, comm::ReduceOp::min, "find_executable_batch_size").wait();
    if (all.item<float>() > 0) return size;
    if (group.rank() == 0) log_warning("a batch of ", size, " does not fit into memory");
  }
  fail(concat(
      "[accelerator] find_executable_batch_size: expected to begin with at least 1, and that a "
      "batch of 1 fits into memory; began with ",
      starting));
}

}  // namespace peal::launch

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/stateful.h>
#include <peal/comm/group/agree.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/local_sgd.h>

#include <unordered_map>
#include <utility>

namespace peal::nn {
namespace {

NamedTensors state_of(std::int64_t step) { return {{"step", Tensor::scalar(step, Device{})}}; }

std::int64_t step_of(std::string_view who, const NamedTensors& state) {
  StateReader reader(who, state);
  const auto step = reader.number<std::int64_t>("step");
  reader.finish();
  return step;
}

}  // namespace

struct PostLocalSGDState::Body {
  // Of ranks that train by themselves: a broadcast after each step would make one rank's parameters
  // those of all (an owner's, who steps for all: ZeroRedundancyOptimizer). One alone may be of what
  // has joined the model.
  class BroadcastWatch {
   public:
    void check(const comm::ProcessGroup& group, const GradBucket& bucket) {
      for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
        const Tensor& parameter = bucket.parameters[i];
        const std::uint64_t now = parameter.storage()->broadcasts();
        const auto [found, first] = seen_.try_emplace(&parameter.body(), Seen{parameter, now, 0});
        Seen& seen = found->second;
        seen.in_a_row = now > seen.broadcasts ? seen.in_a_row + 1 : 0;
        seen.broadcasts = now;
        if (seen.in_a_row < 2) continue;
        fail_everywhere(
            group, concat(bucket.label.text, ": ", bucket.names[i],
                          " was broadcast after each of the last two steps, in which each rank "
                          "had gradients of its own, so that those of all but one are lost: a "
                          "ZeroRedundancyOptimizer steps by the owner's gradients alone; take "
                          "its optimizer by itself"));
      }
    }

   private:
    struct Seen {
      Tensor parameter;  // holds the key
      std::uint64_t broadcasts;
      int in_a_row;
    };
    std::unordered_map<const TensorBody*, Seen> seen_;
  };

  comm::ProcessGroup group, subgroup;
  PostLocalSGDOptions options;
  std::int64_t step = 0;
  bool agreed = false;
  OneWrapper wrapper{};
  BroadcastWatch watch{};

  // Ranks that differ here would average over all on some of them, and over a part on others.
  void agree() {
    if (std::exchange(agreed, true)) return;
    comm::agree(group, "[ddp] PostLocalSGDState",
                concat("start_localSGD_iter ", options.start_localSGD_iter,
                       "\npost_local_gradient_allreduce ", options.post_local_gradient_allreduce,
                       "\nstep ", step),
                "give it the same options, and load the same state, on every rank");
  }
};

PostLocalSGDState::PostLocalSGDState(comm::ProcessGroup group, comm::ProcessGroup subgroup,
                                     const PostLocalSGDOptions& options)
    : body_(std::make_shared<Body>(Body{std::move(group), std::move(subgroup), options})) {}

std::int64_t PostLocalSGDState::step() const { return body_->step; }

NamedTensors PostLocalSGDState::state_dict() const { return state_of(body_->step); }

void PostLocalSGDState::load_state_dict(const NamedTensors& state) {
  body_->step = step_of("PostLocalSGDState", state);
  body_->agreed = false;
}

CommHook post_localSGD_hook(const PostLocalSGDState& state) {
  return [body = state.body_](GradBucket& bucket) {
    body->wrapper.check(bucket, "PostLocalSGDState");
    body->agree();
    auto& [group, subgroup, options, step, agreed, wrapper, watch] = *body;
    const bool all = step < options.start_localSGD_iter;
    if (bucket.is_last) ++step;
    if (all) return group.all_reduce(bucket.buffer, comm::ReduceOp::avg, bucket.label);
    if (!subgroup || !options.post_local_gradient_allreduce) {
      watch.check(group, bucket);
      bucket.averaged = Averaged::not_at_all;
      return comm::Work();
    }
    bucket.averaged = Averaged::over_some;
    return subgroup.all_reduce(bucket.buffer, comm::ReduceOp::avg, bucket.label);
  };
}

PeriodicModelAverager::PeriodicModelAverager(comm::ProcessGroup group,
                                             const PeriodicModelAveragerOptions& options)
    : group_(std::move(group)), options_(options) {
  PEAL_CHECK(options_.period > 0 && options_.warmup_steps >= 0,
             "PeriodicModelAverager: expected a period of 1 or more and warmup_steps of 0 or more, "
             "got ",
             options_.period, " and ", options_.warmup_steps);
}

void PeriodicModelAverager::average_parameters(const std::vector<Tensor>& parameters) {
  for (const Tensor& parameter : parameters) {
    PEAL_CHECK(!parameter.storage()->is_piece(),
               "PeriodicModelAverager: expected whole parameters, got one of [", parameter.numel(),
               "], this rank's piece of a sharded parameter; ",
               "ranks of one sharded model have no models of their own to average");
  }
  if (!std::exchange(agreed_, true)) {
    comm::agree(group_, "[ddp] PeriodicModelAverager",
                concat("period ", options_.period, "\nwarmup_steps ", options_.warmup_steps,
                       "\nstep ", step_),
                "give it the same options, and load the same state, on every rank");
  }
  const std::int64_t after = step_++ - options_.warmup_steps;
  if (after < 0 || after % options_.period != 0) return;
  std::vector<View> list;
  for (const Tensor& parameter : parameters) list.push_back(parameter.detach());
  if (!list.empty()) {
    group_.all_reduce_coalesced(list, comm::ReduceOp::avg, "parameters of local SGD").wait();
  }
}

NamedTensors PeriodicModelAverager::state_dict() const { return state_of(step_); }

void PeriodicModelAverager::load_state_dict(const NamedTensors& state) {
  step_ = step_of("PeriodicModelAverager", state);
  agreed_ = false;
}

}  // namespace peal::nn

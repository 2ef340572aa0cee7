// SPDX-License-Identifier: Apache-2.0
#include <peal/bench/sharded/strategies.h>

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace peal::bench {
namespace {

using comm::pipeline::Kind;

// Over all ranks of the group, which have an equal share each.
double mean_of(const Tensor& loss, const comm::ProcessGroup& group) {
  const Tensor all = loss.detach().clone();
  if (group) group.all_reduce(all.view(), comm::ReduceOp::avg).wait();
  return all.item<double>();
}

class Alone : public Training {
 public:
  Alone(const Net& net, std::int64_t rows)
      : net_(net),
        parts_(static_cast<int>(batch_rows / rows)),
        model_(net.make()),
        optimizer_(net.optimizer(model_.named_parameters(), nullptr).optimizer) {}

  double step(const Batch& batch) override {
    optimizer_->zero_grad();
    double total = 0;
    for (int i = 0; i < parts_; ++i) {
      const Batch part = batch.of(i, parts_);
      const Tensor loss = net_.loss(model_(part.x), part.y) / (batch_rows * net_.counted);
      loss.backward();
      total += loss.item<double>();
    }
    optimizer_->step();
    return total;
  }
  std::vector<nn::Part> parts() override { return {{"model", model_}, {"optimizer", *optimizer_}}; }

 private:
  Net net_;
  int parts_;
  nn::Sequential model_;
  std::unique_ptr<nn::Optimizer> optimizer_;
};

// Wrappers of a model that is called with this rank's rows.
class DataParallelTraining : public Training {
 public:
  double step(const Batch& batch) override {
    if (fsdp) fsdp->zero_grad();
    optimizer->zero_grad();
    const int place = data ? data.rank() : 0, places = data ? data.world() : 1;
    const Batch mine = batch.of(place, places);
    const auto rows = static_cast<double>(mine.x.size(0));
    nn::Module& called = fsdp ? static_cast<nn::Module&>(*fsdp) : *model;
    const Tensor loss = net.loss(called(mine.x), mine.y) / (rows * net.counted);
    loss.backward();
    optimizer->step();
    return mean_of(loss, data);
  }
  std::vector<nn::Part> parts() override {
    if (fsdp) return {{"model", *fsdp}, {"optimizer", fsdp->saved(*optimizer)}};
    if (tensor) return {{"model", *tensor}, {"optimizer", tensor->saved(*optimizer)}};
    return {{"model", *model}, {"optimizer", *optimizer}};
  }

  Net net;
  comm::ProcessGroup data;  // ranks with other rows
  std::optional<nn::Module> model;
  std::optional<nn::FullyShardedDataParallel> fsdp;
  std::optional<nn::TensorParallel> tensor;
  std::unique_ptr<nn::Optimizer> optimizer;
};

using Made = std::unique_ptr<DataParallelTraining>;

// With statistics of all ranks' rows, where it has any.
nn::Sequential made(const Net& net, const comm::ProcessGroup& data) {
  nn::Sequential model = net.make();
  if (net.batch_norm && data) nn::convert_sync_batchnorm(model, data);
  return model;
}

Made begun(const Net& net, const comm::ProcessGroup& data) {
  auto all = std::make_unique<DataParallelTraining>();
  all->net = net;
  all->data = data;
  return all;
}

enum class Stage { ddp, zero1, zero2 };

Strategy replicated(const std::string& name, Stage stage, bool recompute = false) {
  return {name, {1, 2, 3, 4}, [=](const Net& net, const comm::ProcessGroup& group) {
            Made all = begun(net, group);
            nn::Sequential model = made(net, group);
            if (recompute) nn::apply_activation_checkpointing(model, net.units);
            MadeOptimizer optimizer =
                net.optimizer(model.named_parameters(), stage == Stage::ddp ? nullptr : &group);
            if (stage == Stage::zero2) {
              all->model = nn::ShardedDDP(model, *optimizer.shards);
            } else {
              all->model = nn::DistributedDataParallel(model, group);
            }
            all->optimizer = std::move(optimizer.optimizer);
            return all;
          }};
}

struct Fsdp {
  bool units = true, recompute = false, hybrid = false;
  nn::ScheduleOptions schedule{};
};

Strategy fully_sharded(const std::string& name, const Fsdp& how) {
  const std::vector<int> worlds = how.hybrid ? std::vector{4} : std::vector{1, 2, 3, 4};
  return {name, worlds, [=](const Net& net, const comm::ProcessGroup& group) {
            Made all = begun(net, group);
            nn::Sequential model = made(net, group);
            if (how.recompute) nn::apply_activation_checkpointing(model, net.units);
            nn::FSDPOptions options{.schedule = how.schedule};
            if (how.units) options.wrap = nn::wrap_by_type(net.units);
            if (how.hybrid) {
              options.device_mesh = comm::DeviceMesh(group, {2, 2}, {"replicate", "shard"});
            }
            all->fsdp.emplace(model, group, options);
            all->optimizer = net.optimizer(all->fsdp->local_parameters(), nullptr).optimizer;
            return all;
          }};
}

void add_tensor_parallel(const Net& net, const std::string& name, nn::TensorParallelPlan Net::*plan,
                         std::vector<Strategy>& all) {
  if ((net.*plan).empty()) return;
  const auto cut = [plan](const Net& of, nn::Sequential model, const comm::ProcessGroup& tensor,
                          DataParallelTraining& training) {
    training.tensor = nn::parallelize_module(std::move(model), tensor, of.*plan);
    training.model = *training.tensor;
  };
  all.push_back({name, {1, 2, 4}, [=](const Net& of, const comm::ProcessGroup& group) {
                   Made training = begun(of, {});
                   cut(of, of.make(), group, *training);
                   training->optimizer =
                       of.optimizer(training->tensor->named_parameters(), nullptr).optimizer;
                   return training;
                 }});
  all.back().sharded = false;
  all.push_back(
      {"ddp 2 x " + name + " 2", {4}, [=](const Net& of, const comm::ProcessGroup& group) {
         const comm::DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
         Made training = begun(of, mesh.get_group("dp"));
         cut(of, made(of, mesh.get_group("dp")), mesh.get_group("tp"), *training);
         training->model = nn::DistributedDataParallel(*training->tensor, mesh.get_group("dp"));
         training->optimizer =
             of.optimizer(training->tensor->named_parameters(), nullptr).optimizer;
         return training;
       }});
  all.back().sharded = false;
  all.push_back(
      {"fsdp 2 x " + name + " 2", {4}, [=](const Net& of, const comm::ProcessGroup& group) {
         const comm::DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
         Made training = begun(of, mesh.get_group("dp"));
         cut(of, made(of, mesh.get_group("dp")), mesh.get_group("tp"), *training);
         training->fsdp.emplace(*training->tensor, mesh.get_group("dp"));
         training->optimizer = of.optimizer(training->fsdp->local_parameters(), nullptr).optimizer;
         return training;
       }});
  all.back().sharded = false;
}

// A pipe, or several on shares of a batch.
class PipeTraining : public Training {
 public:
  PipeTraining(const Net& net, const comm::ProcessGroup& pipeline, const comm::ProcessGroup& data,
               nn::PipeOptions options)
      : net_(net), data_(data), pipe_(pipeline, net.make(), options) {
    optimizer_ = net.optimizer(pipe_.parameters(), nullptr).optimizer;
  }

  double step(const Batch& batch) override {
    optimizer_->zero_grad();
    const Batch mine = data_ ? batch.of(data_.rank(), data_.world()) : batch;
    const auto rows = static_cast<double>(mine.x.size(0));
    const double loss = pipe_.step(mine.x, mine.y, net_.loss, rows * net_.counted);
    if (data_) {
      for (const Tensor& p : pipe_.local().parameters()) {
        data_.all_reduce(p.grad().view(), comm::ReduceOp::avg).wait();
      }
    }
    optimizer_->step();
    return mean_of(Tensor::scalar(loss, Device{}), data_);
  }
  std::vector<nn::Part> parts() override {
    return {{"model", pipe_.saved()}, {"optimizer", pipe_.saved(*optimizer_)}};
  }

 private:
  Net net_;
  comm::ProcessGroup data_;
  nn::Pipe pipe_;
  std::unique_ptr<nn::Optimizer> optimizer_;
};

void add_pipes(std::vector<Strategy>& all) {
  for (const Kind kind : comm::pipeline::all_kinds) {
    for (const auto mode : {nn::CheckpointMode::never, nn::CheckpointMode::always}) {
      const bool recompute = mode == nn::CheckpointMode::always;
      all.push_back({fmt::format("pipe {}{}", name(kind), recompute ? ", recomputed" : ""),
                     {1, 2, 3, 4},
                     [=](const Net& net, const comm::ProcessGroup& group) {
                       return std::make_unique<PipeTraining>(
                           net, group, comm::ProcessGroup{},
                           nn::PipeOptions{.kind = kind, .micro_batches = 4, .checkpoint = mode});
                     },
                     true});
    }
    all.push_back({fmt::format("2 x pipe {} 2", name(kind)),
                   {4},
                   [=](const Net& net, const comm::ProcessGroup& group) {
                     const comm::DeviceMesh mesh(group, {2, 2}, {"dp", "pp"});
                     return std::make_unique<PipeTraining>(
                         net, mesh.get_group("pp"), mesh.get_group("dp"),
                         nn::PipeOptions{.kind = kind, .micro_batches = 2});
                   },
                   true,
                   false});
    all.back().sharded = false;  // each of the pipes would save the whole model
  }
}

}  // namespace

NamedTensors Training::state(int rank) {
  const nn::Part model = parts().front();
  model.consolidate_state_dict();
  return rank == 0 ? model.state_dict() : NamedTensors();
}

std::unique_ptr<Training> train_alone(const Net& net, std::int64_t rows) {
  return std::make_unique<Alone>(net, rows);
}

std::vector<Strategy> strategies(const Net& net) {
  std::vector<Strategy> all{replicated("ddp", Stage::ddp), replicated("zero1", Stage::zero1),
                            replicated("zero2", Stage::zero2),
                            replicated("ddp, recomputed", Stage::ddp, true)};
  for (const bool reshard : {true, false}) {
    for (const bool forward : {true, false}) {
      for (const bool backward : {true, false}) {
        all.push_back(fully_sharded(fmt::format("fsdp{}{}{}", reshard ? "" : ", kept",
                                                forward ? "" : ", no forward prefetch",
                                                backward ? "" : ", no backward prefetch"),
                                    {.schedule = {reshard, forward, backward}}));
      }
    }
  }
  all.push_back(fully_sharded("fsdp, one unit", {.units = false}));
  all.push_back(fully_sharded("fsdp, recomputed", {.recompute = true}));
  all.push_back(fully_sharded("hsdp 2 x 2", {.hybrid = true}));
  add_tensor_parallel(net, "tp", &Net::tensor, all);
  add_tensor_parallel(net, "tp of sequences", &Net::sequence, all);
  add_pipes(all);
  return all;
}

}  // namespace peal::bench

// SPDX-License-Identifier: Apache-2.0
// What the product of DDP's options is compared with: a case, a model whose parts it takes or
// leaves, and one process that computes all ranks' gradients and does to them what the case says.
#pragma once

#include <peal/autograd/grad_slot.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/compress_hooks.h>
#include <peal/nn/parallel/mixed_precision.h>
#include <peal/nn/parallel/power_sgd.h>

#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "ddp_ranks.h"
#include "power_sgd_simulation.h"

namespace peal::testing::product {

enum class Hook { average, fp16, bf16, int8, power, noop, local };
inline constexpr Hook hooks[] = {Hook::average, Hook::fp16, Hook::bf16, Hook::int8,
                                 Hook::power,   Hook::noop, Hook::local};
inline constexpr int local_from = 2;  // backwards that communicate, of Hook::local
// One backward a step; three, of which two are under no_sync; three that all communicate.
enum class Micro { one, no_sync, all };
// What sums are divided by: the ranks; those that have a batch; the samples.
enum class Over { ranks, actives, samples };

struct Case {
  Micro micro;
  Over over;
  Hook hook;
  bool find_unused, static_graph, buffers, join, mixed, tied;
  int world = 2;
  bool low = false;  // mixed precision, in bf16
};

inline std::string text_of(const Case& c) {
  constexpr const char* names[] = {"average", "fp16", "bf16", "int8", "PowerSGD", "noop", "local"};
  constexpr const char* micros[] = {"one", "no_sync", "all"};
  constexpr const char* overs[] = {"", "actives ", "samples "};
  return concat(micros[static_cast<int>(c.micro)], " ", overs[static_cast<int>(c.over)],
                names[static_cast<int>(c.hook)], c.find_unused ? " find_unused" : "",
                c.static_graph ? " static_graph" : "", c.buffers ? " buffers" : "",
                c.join ? " join" : "", c.mixed ? " mixed" : "", c.tied ? " tied" : "",
                c.low ? " bf16" : "", c.world == 2 ? "" : " of 3");
}

inline constexpr int turns = 5;
inline const nn::MixedPrecision in_bf16{.param_dtype = DType::bf16};
inline int backwards(const Case& c) { return c.micro == Micro::one ? 1 : 3; }
inline bool communicates(const Case& c, int micro) {
  return c.micro != Micro::no_sync || micro == backwards(c) - 1;
}
inline bool active(const Case& c, int rank, int turn) {
  return !c.join || rank == 1 || turn < turns - 1;
}
// As many as 8 bits hold, and none at times.
inline double samples_of(int rank, int turn, int micro) {
  return (rank * 3 + turn * 5 + micro * 7) % 11;
}
// Whether the rank's model takes the part that not every model takes.
inline bool uses_extra(const Case& c, int rank, int turn) {
  if (c.static_graph) return rank == 1;
  return !c.find_unused || (rank == 1 && turn % 2 == 1);
}

struct Net : nn::Module {
  explicit Net(const Case& c) : tied(c.tied), mixed(c.mixed) {
    if (tied) add("again", nn::Module(mid));
    if (!mixed) return;
    nn::Linear made(4, 4);
    made.to(DType::f64);
    wide = add("wide", made);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = mid(relu(in(x))) * 0.5;
    if (tied) h = child("again")(h);
    if (mixed) h = cast((*wide)(cast(h, DType::f64)), DType::f32);
    Tensor y = out(h);
    if (*takes_extra) y = y + extra(h);
    y = y + cast(shift * 0.125, y.dtype());
    if (training()) add_(shift, full({2}, cast(x, DType::f32).data<float>()[0]));
    return y;
  }
  bool tied, mixed;
  std::shared_ptr<bool> takes_extra = std::make_shared<bool>(true);
  nn::Linear in = add("in", nn::Linear(3, 4)), mid = add("mid", nn::Linear(4, 4)),
             out = add("out", nn::Linear(4, 2)), extra = add("extra", nn::Linear(4, 2));
  std::optional<nn::Linear> wide;
  Tensor shift = add_buffer("shift", Tensor::zeros({2}));
};

inline Tensor batch(int rank, int turn, int micro) {
  std::vector<float> values;
  for (int i = 0; i < 6; ++i) {
    values.push_back(static_cast<float>((rank * 31 + turn * 7 + micro * 3 + i * 5) % 11) / 8 -
                     0.6F);
  }
  return Tensor::from(values, {2, 3});
}

inline Tensor loss_of(nn::Module& model, const Tensor& x) {
  const Tensor y = model(x);
  return sum(y * y) * 0.3;
}

inline const nn::PowerSGDOptions power_options{.start_powerSGD_iter = 2,
                                               .min_compression_rate = 0.5};

// All ranks in one process.
class Reference {
 public:
  Reference(const Case& c, const nn::Module& start, std::vector<nn::Bucket> plan)
      : case_(c),
        world_(c.world),
        plan_(std::move(plan)),
        power_{.r = 1, .min_compression_rate = 0.5},
        samples_(static_cast<std::size_t>(world_)),
        silent_(static_cast<std::size_t>(world_)) {
    for (int rank = 0; rank < world_; ++rank) {
      models_.push_back(std::make_unique<Net>(c));
      models_.back()->load_state_dict(start.state_dict());
      optimizers_.push_back(
          std::make_unique<nn::SGD>(models_.back()->parameters(), nn::SGDOptions{.lr = 0.0625}));
    }
    for (const Tensor& p : models_[0]->parameters()) shapes_.push_back(p.shape());
    for (const nn::Bucket& bucket : plan_)
      power_.add(bucket, shapes_, static_cast<std::size_t>(world_));
  }

  // "NAME.q", as PowerSGD's state has them.
  NamedTensors first_factors(const nn::Module& net) const {
    NamedTensors all;
    for (std::size_t b = 0; b < plan_.size(); ++b) {
      for (auto& each : power_.state_of(b, plan_[b], net.named_parameters())) {
        all.push_back(std::move(each));
      }
    }
    return all;
  }
  Net& model(int rank) { return *models_[static_cast<std::size_t>(rank)]; }

  // `plans`: by backward that communicated, from the start.
  void turn(int turn, const std::vector<std::vector<nn::Bucket>>& plans) {
    for (auto& optimizer : optimizers_) optimizer->zero_grad();
    samples_.assign(samples_.size(), 0);
    if (case_.over == Over::samples && expected_ == 0) {
      for (int rank = 0; rank < world_; ++rank) {
        if (active(case_, rank, turn)) expected_ += samples_of(rank, turn, 0);
      }
    }
    const double scale = expected_ > 0 ? std::exp2(std::round(std::log2(world_ / expected_))) : 1;
    int actives = 0;
    for (int rank = 0; rank < world_; ++rank) actives += active(case_, rank, turn) ? 1 : 0;
    for (int micro = 0; micro < backwards(case_); ++micro) {
      bool extra_anywhere = false;
      for (int rank = 0; rank < world_; ++rank) {
        if (!active(case_, rank, turn)) continue;
        *model(rank).takes_extra = uses_extra(case_, rank, turn);
        extra_anywhere = extra_anywhere || uses_extra(case_, rank, turn);
        const Tensor loss = loss_of_rank(rank, batch(rank, turn, micro));
        if (case_.over == Over::samples) {
          const double times = samples_of(rank, turn, micro) * scale;
          samples_[static_cast<std::size_t>(rank)] += times;
          loss.backward(full({}, times));
        } else {
          loss.backward();
        }
      }
      if (!communicates(case_, micro)) continue;
      const double total = std::accumulate(samples_.begin(), samples_.end(), 0.0);
      factor_ = static_cast<double>(world_) / (case_.over == Over::actives ? actives : world_);
      if (case_.over == Over::samples) {
        factor_ = total > 0 ? world_ / total : 0;
        if (total > 0) expected_ = total / scale;
      }
      // A rank without a batch has in the sum what it had before, or nothing where the sum is
      // divided by the number of the others.
      for (int rank = 0; rank < world_; ++rank) {
        silent_[static_cast<std::size_t>(rank)] =
            case_.over == Over::actives && actives < world_ && !active(case_, rank, turn);
      }
      plan_ = plans.at(static_cast<std::size_t>(synchronised_));
      for (std::size_t b = 0; b < plan_.size(); ++b) reduce(b, extra_anywhere);
      ++synchronised_;
      if (!case_.buffers) continue;
      const int root = active(case_, 0, turn) ? 0 : 1;
      for (int rank = 0; rank < world_; ++rank) {
        if (rank != root) model(rank).shift.copy_(model(root).shift);
      }
    }
    for (auto& optimizer : optimizers_) optimizer->step();
  }

 private:
  Tensor loss_of_rank(int rank, const Tensor& x) {
    if (!case_.low) return loss_of(model(rank), x);
    const auto rounded = nn::round_parameters(model(rank).named_parameters(), in_bf16);
    return loss_of(model(rank), cast(x, DType::bf16));
  }

  Tensor memory_of(int rank, const nn::Bucket& bucket) {
    const Tensor memory = Tensor::zeros({bucket.count}, bucket.dtype);
    if (silent_[static_cast<std::size_t>(rank)]) return memory;
    const std::vector<Tensor> parameters = model(rank).parameters();
    for (const auto& [parameter, at] : bucket.entries) {
      const Tensor grad = parameters[static_cast<std::size_t>(parameter)].grad();
      if (grad.defined()) memory.detach(grad.shape(), at).copy_(grad);
    }
    return memory;
  }

  static Tensor average(const Tensors& all) {
    Tensor sum = all[0];
    for (std::size_t r = 1; r < all.size(); ++r) sum = sum + all[r];
    return sum / static_cast<double>(all.size());
  }

  Tensor rounded(const Tensor& x) const {
    if (case_.hook == Hook::fp16) return cast(cast(x, DType::f16), DType::f32);
    if (case_.hook == Hook::bf16 || case_.low) return cast(cast(x, DType::bf16), DType::f32);
    const Tensor wide = Tensor::zeros({(x.numel() + 255) / 256 * 256});
    wide.detach(x.shape()).copy_(x);
    return nn::from_int8(nn::to_int8(wide)).detach(x.shape());
  }

  Tensor combined(std::size_t b, const Tensors& all, const std::vector<int>& unused) {
    const DType dtype = all[0].dtype();
    if (!case_.low && (case_.hook == Hook::average || case_.hook == Hook::local ||
                       (case_.hook == Hook::power && synchronised_ < 2))) {
      return average(all);
    }
    if (case_.hook != Hook::power) {
      Tensors sent;
      for (const Tensor& x : all) sent.push_back(rounded(cast(x, DType::f32)));
      return cast(rounded(average(sent)), dtype);
    }
    std::vector<std::vector<double>> wide;
    for (const Tensor& x : all) wide.push_back(cast(x, DType::f64).to_vector<double>());
    const auto got = power_.step(b, plan_[b], shapes_, wide, factor_, unused);
    return cast(Tensor::from(got, all[0].shape()), dtype);
  }

  void reduce(std::size_t b, bool extra_anywhere) {
    const nn::Bucket& bucket = plan_[b];
    const bool noop =
        case_.hook == Hook::noop || (case_.hook == Hook::local && synchronised_ >= local_from);
    if (noop && case_.over == Over::ranks) return;
    Tensors memories;
    for (int rank = 0; rank < world_; ++rank) memories.push_back(memory_of(rank, bucket));
    const auto untouched = [&](const std::string& name) {
      return !extra_anywhere && name.find("extra") == 0;
    };
    std::vector<int> unused;
    const NamedTensors named = model(0).named_parameters();
    for (std::size_t p = 0; p < named.size(); ++p) {
      if (untouched(named[p].first)) unused.push_back(static_cast<int>(p));
    }
    const Tensor both = noop ? Tensor() : combined(b, memories, unused);
    if (!noop && factor_ != 1) mul_(both, factor_);
    for (int rank = 0; rank < world_; ++rank) {
      const Tensor out = noop ? memories[static_cast<std::size_t>(rank)] : both;
      const double own = samples_[static_cast<std::size_t>(rank)];
      if (noop && case_.over == Over::samples) mul_(out, own > 0 ? 1 / own : 0);
      const NamedTensors parameters = model(rank).named_parameters();
      for (const auto& [parameter, at] : bucket.entries) {
        const auto& [name, tensor] = parameters[static_cast<std::size_t>(parameter)];
        if (untouched(name)) continue;
        tensor.zero_grad();
        tensor.grad_slot().accumulate(out.detach(tensor.shape(), at).clone());
      }
    }
  }

  Case case_;
  int world_;
  std::vector<nn::Bucket> plan_;
  PowerSGDSimulation power_;
  std::vector<Shape> shapes_;
  std::vector<std::unique_ptr<Net>> models_;
  std::vector<std::unique_ptr<nn::SGD>> optimizers_;
  int synchronised_ = 0;
  double expected_ = 0, factor_ = 1;
  std::vector<double> samples_;  // times the scale
  std::vector<bool> silent_;
};

}  // namespace peal::testing::product

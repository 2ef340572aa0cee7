// SPDX-License-Identifier: Apache-2.0
// Every option of DDP with every other, and what sums are divided by: what two ranks have after
// five steps is what one process has that computes both ranks' gradients and does to them what the
// options say, bit by bit (PowerSGD, which is simulated in f64, nearly).
#include <peal/autograd/grad_slot.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/compress_hooks.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/power_sgd.h>

#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "ddp_ranks.h"
#include "power_sgd_simulation.h"

using namespace peal;
using namespace peal::testing;

namespace {

enum class Hook { average, fp16, bf16, int8, power, noop };
constexpr Hook hooks[] = {Hook::average, Hook::fp16,  Hook::bf16,
                          Hook::int8,    Hook::power, Hook::noop};
// One backward a step; three, of which two are under no_sync; three that all communicate.
enum class Micro { one, no_sync, all };
// What sums are divided by: the ranks; those that have a batch; the samples.
enum class Over { ranks, actives, samples };

struct Case {
  Micro micro;
  Over over;
  Hook hook;
  bool find_unused, static_graph, buffers, join, mixed, tied;
};

std::string text_of(const Case& c) {
  constexpr const char* names[] = {"average", "fp16", "bf16", "int8", "PowerSGD", "noop"};
  constexpr const char* micros[] = {"one", "no_sync", "all"};
  constexpr const char* overs[] = {"", "actives ", "samples "};
  return concat(micros[static_cast<int>(c.micro)], " ", overs[static_cast<int>(c.over)],
                names[static_cast<int>(c.hook)], c.find_unused ? " find_unused" : "",
                c.static_graph ? " static_graph" : "", c.buffers ? " buffers" : "",
                c.join ? " join" : "", c.mixed ? " mixed" : "", c.tied ? " tied" : "");
}

constexpr int world = 2, turns = 5;
int backwards(const Case& c) { return c.micro == Micro::one ? 1 : 3; }
bool communicates(const Case& c, int micro) {
  return c.micro != Micro::no_sync || micro == backwards(c) - 1;
}
bool active(const Case& c, int rank, int turn) { return !c.join || rank == 1 || turn < turns - 1; }
// As many as 8 bits hold, and none at times.
double samples_of(int rank, int turn, int micro) { return (rank * 3 + turn * 5 + micro * 7) % 11; }
// Whether the rank's model takes the part that not every model takes.
bool uses_extra(const Case& c, int rank, int turn) {
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
    y = y + shift * 0.125;
    if (training()) add_(shift, full({2}, x.data<float>()[0]));
    return y;
  }
  bool tied, mixed;
  std::shared_ptr<bool> takes_extra = std::make_shared<bool>(true);
  nn::Linear in = add("in", nn::Linear(3, 4)), mid = add("mid", nn::Linear(4, 4)),
             out = add("out", nn::Linear(4, 2)), extra = add("extra", nn::Linear(4, 2));
  std::optional<nn::Linear> wide;
  Tensor shift = add_buffer("shift", Tensor::zeros({2}));
};

Tensor batch(int rank, int turn, int micro) {
  std::vector<float> values;
  for (int i = 0; i < 6; ++i) {
    values.push_back(static_cast<float>((rank * 31 + turn * 7 + micro * 3 + i * 5) % 11) / 8 -
                     0.6F);
  }
  return Tensor::from(values, {2, 3});
}

Tensor loss_of(nn::Module& model, const Tensor& x) {
  const Tensor y = model(x);
  return sum(y * y) * 0.3;
}

const nn::PowerSGDOptions power_options{.start_powerSGD_iter = 2, .min_compression_rate = 0.5};

// Both ranks in one process.
class Reference {
 public:
  Reference(const Case& c, const nn::Module& start, std::vector<nn::Bucket> plan)
      : case_(c), plan_(std::move(plan)), power_{.r = 1, .min_compression_rate = 0.5} {
    for (int rank = 0; rank < world; ++rank) {
      models_.push_back(std::make_unique<Net>(c));
      models_.back()->load_state_dict(start.state_dict());
      optimizers_.push_back(
          std::make_unique<nn::SGD>(models_.back()->parameters(), nn::SGDOptions{.lr = 0.0625}));
    }
    for (const Tensor& p : models_[0]->parameters()) shapes_.push_back(p.shape());
    for (const nn::Bucket& bucket : plan_) power_.add(bucket, shapes_, world);
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
    samples_ = {};
    if (case_.over == Over::samples && expected_ == 0) {
      for (int rank = 0; rank < world; ++rank) {
        if (active(case_, rank, turn)) expected_ += samples_of(rank, turn, 0);
      }
    }
    const double scale = expected_ > 0 ? std::exp2(std::round(std::log2(world / expected_))) : 1;
    int actives = 0;
    for (int rank = 0; rank < world; ++rank) actives += active(case_, rank, turn) ? 1 : 0;
    for (int micro = 0; micro < backwards(case_); ++micro) {
      bool extra_anywhere = false;
      for (int rank = 0; rank < world; ++rank) {
        if (!active(case_, rank, turn)) continue;
        *model(rank).takes_extra = uses_extra(case_, rank, turn);
        extra_anywhere = extra_anywhere || uses_extra(case_, rank, turn);
        const Tensor loss = loss_of(model(rank), batch(rank, turn, micro));
        if (case_.over == Over::samples) {
          const double times = samples_of(rank, turn, micro) * scale;
          samples_[static_cast<std::size_t>(rank)] += times;
          loss.backward(full({}, times));
        } else {
          loss.backward();
        }
      }
      if (!communicates(case_, micro)) continue;
      const double total = samples_[0] + samples_[1];
      factor_ = static_cast<double>(world) / (case_.over == Over::actives ? actives : world);
      if (case_.over == Over::samples) {
        factor_ = total > 0 ? world / total : 0;
        if (total > 0) expected_ = total / scale;
      }
      // A rank without a batch has in the sum what it had before, or nothing where the sum is
      // divided by the number of the others.
      for (int rank = 0; rank < world; ++rank) {
        silent_[static_cast<std::size_t>(rank)] =
            case_.over == Over::actives && actives < world && !active(case_, rank, turn);
      }
      plan_ = plans.at(static_cast<std::size_t>(synchronised_));
      for (std::size_t b = 0; b < plan_.size(); ++b) reduce(b, extra_anywhere);
      ++synchronised_;
      if (!case_.buffers) continue;
      const int root = active(case_, 0, turn) ? 0 : 1;
      model(1 - root).shift.copy_(model(root).shift);
    }
    for (auto& optimizer : optimizers_) optimizer->step();
  }

 private:
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

  static Tensor average(const Tensor& a, const Tensor& b) { return (a + b) / 2; }

  Tensor rounded(const Tensor& x) const {
    if (case_.hook == Hook::fp16) return cast(cast(x, DType::f16), DType::f32);
    if (case_.hook == Hook::bf16) return cast(cast(x, DType::bf16), DType::f32);
    const Tensor wide = Tensor::zeros({(x.numel() + 255) / 256 * 256});
    wide.detach(x.shape()).copy_(x);
    return nn::from_int8(nn::to_int8(wide)).detach(x.shape());
  }

  Tensor combined(std::size_t b, const Tensor& first, const Tensor& second) {
    const DType dtype = first.dtype();
    if (case_.hook == Hook::average || (case_.hook == Hook::power && synchronised_ < 2)) {
      return average(first, second);
    }
    if (case_.hook != Hook::power) {
      const auto sent = [&](const Tensor& x) { return rounded(cast(x, DType::f32)); };
      return cast(rounded(average(sent(first), sent(second))), dtype);
    }
    const auto wide = [](const Tensor& x) { return cast(x, DType::f64).to_vector<double>(); };
    const auto got = power_.step(b, plan_[b], shapes_, {wide(first), wide(second)});
    return cast(Tensor::from(got, first.shape()), dtype);
  }

  void reduce(std::size_t b, bool extra_anywhere) {
    const nn::Bucket& bucket = plan_[b];
    const bool noop = case_.hook == Hook::noop;
    if (noop && case_.over == Over::ranks) return;
    const Tensor first = memory_of(0, bucket), second = memory_of(1, bucket);
    const Tensor both = noop ? Tensor() : combined(b, first, second);
    if (!noop && factor_ != 1) mul_(both, factor_);
    for (int rank = 0; rank < world; ++rank) {
      const Tensor out = noop ? (rank == 0 ? first : second) : both;
      const double own = samples_[static_cast<std::size_t>(rank)];
      if (noop && case_.over == Over::samples) mul_(out, own > 0 ? 1 / own : 0);
      const NamedTensors parameters = model(rank).named_parameters();
      for (const auto& [parameter, at] : bucket.entries) {
        const auto& [name, tensor] = parameters[static_cast<std::size_t>(parameter)];
        const bool untouched = !extra_anywhere && name.find("extra") == 0;
        if (untouched) continue;
        tensor.zero_grad();
        tensor.grad_slot().accumulate(out.detach(tensor.shape(), at).clone());
      }
    }
  }

  Case case_;
  std::vector<nn::Bucket> plan_;
  PowerSGDSimulation power_;
  std::vector<Shape> shapes_;
  std::vector<std::unique_ptr<Net>> models_;
  std::vector<std::unique_ptr<nn::SGD>> optimizers_;
  int synchronised_ = 0;
  double expected_ = 0, factor_ = 1;
  std::array<double, world> samples_{};  // times the scale
  std::array<bool, world> silent_{};
};

std::vector<double> numbers(const Tensor& tensor) {
  return cast(tensor.detach(), DType::f64).to_vector<double>();
}

void run(const Case& c, const Group& group, int rank) {
  CAPTURE(text_of(c));
  manual_seed(7);
  Net net(c);
  DDP ddp(net, group,
          {.buckets = nn::BucketCaps{.first_bytes = 100},
           .broadcast_buffers = c.buffers,
           .find_unused_parameters = c.find_unused,
           .static_graph = c.static_graph,
           // PowerSGD's first factors are of one plan.
           .order = c.hook == Hook::power ? start_order(net) : std::vector<std::string>()});
  Reference reference(c, net, ddp.reducer().buckets());
  std::optional<nn::PowerSGD> power;
  switch (c.hook) {
    case Hook::average:
      break;
    case Hook::fp16:
      ddp.register_comm_hook(nn::fp16_compress_hook(group));
      break;
    case Hook::bf16:
      ddp.register_comm_hook(nn::bf16_compress_hook(group));
      break;
    case Hook::int8:
      ddp.register_comm_hook(nn::int8_compress_hook(group));
      break;
    case Hook::noop:
      ddp.register_comm_hook(nn::noop_hook());
      break;
    case Hook::power: {
      power.emplace(group, power_options);
      NamedTensors state = power->state_dict();
      for (auto& each : reference.first_factors(net)) state.push_back(std::move(each));
      power->load_state_dict(state);
      ddp.register_comm_hook(power->hook());
    }
  }
  nn::SGD optimizer(ddp.parameters(), {.lr = 0.0625});
  std::optional<nn::Join> join;
  if (c.join) {
    join.emplace(ddp, nn::JoinOptions{.divide_by_initial_world_size = c.over != Over::actives});
  }
  std::vector<std::vector<nn::Bucket>> plans;
  for (int turn = 0; turn < turns; ++turn) {
    const bool mine = active(c, rank, turn);
    if (join) REQUIRE(join->next(mine));
    optimizer.zero_grad();
    *net.takes_extra = uses_extra(c, rank, turn);
    for (int micro = 0; micro < backwards(c); ++micro) {
      const auto backward = [&] {
        const Tensor loss = loss_of(ddp, batch(rank, turn, micro));
        if (c.over == Over::samples) {
          ddp.backward(loss, samples_of(rank, turn, micro));
        } else {
          loss.backward();
        }
      };
      if (!mine) {
        if (communicates(c, micro)) REQUIRE(join->follow());
      } else if (communicates(c, micro)) {
        backward();
      } else {
        const auto guard = ddp.no_sync();
        backward();
      }
      if (communicates(c, micro)) plans.push_back(ddp.reducer().buckets());
    }
    optimizer.step();
    reference.turn(turn, plans);
  }
  if (join) REQUIRE_FALSE(join->next(false));
  const bool learnt = c.hook != Hook::power && (c.static_graph || !c.find_unused);
  CHECK((plans.front() != plans.back()) == learnt);

  const double tolerance = c.hook == Hook::power ? 1e-4 : 0;
  std::string all;  // of what is to be the same on both ranks
  const auto compare = [&](const NamedTensors& mine, const NamedTensors& expected) {
    REQUIRE(mine.size() == expected.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const auto& [name, tensor] = mine[i];
      const auto got = numbers(tensor), want = numbers(expected[i].second);
      double off = 0;
      for (std::size_t k = 0; k < got.size(); ++k) {
        // A NaN is off, too.
        off = std::abs(got[k] - want[k]) <= tolerance ? off : std::abs(got[k] - want[k]) + 1;
      }
      CAPTURE(name);
      REQUIRE(off == 0);
      if (c.hook == Hook::noop || (!c.buffers && name == "shift")) continue;
      all.append(static_cast<const char*>(tensor.raw()), tensor.view().bytes());
    }
  };
  compare(net.named_parameters(), reference.model(rank).named_parameters());
  compare(net.named_buffers(), reference.model(rank).named_buffers());
  const auto texts = group.all_gather_object(all);
  REQUIRE(texts[0] == texts[1]);
}

// Of each option with each other.
void run_all(Micro micro) {
  std::atomic<int> count{0};
  two([&](const Group& group, int rank) {
    for (const Hook hook : hooks) {
      for (unsigned bits = 0; bits < 64; ++bits) {
        const auto on = [&](unsigned bit) { return (bits >> bit & 1) != 0; };
        for (const Over over : {Over::ranks, Over::actives, Over::samples}) {
          // Buffers, types and ties are nothing to a divisor: all of them or none; and Join, which
          // has turns with all ranks, is always there.
          if (over != Over::ranks && (on(2) != on(4) || on(4) != on(5) || !on(3))) continue;
          if (over == Over::samples && micro == Micro::all) continue;  // an error
          run({micro, over, hook, on(0), on(1), on(2), on(3), on(4), on(5)}, group, rank);
          if (rank == 0) ++count;
        }
      }
    }
  });
  CHECK(count == 6 * (64 + 8 + (micro == Micro::all ? 0 : 8)));
  MESSAGE(count.load(), " combinations of options");
}

}  // namespace

TEST_CASE("every option with every other: a backward a step") { run_all(Micro::one); }

TEST_CASE("every option with every other: three backwards, of which the last communicates") {
  run_all(Micro::no_sync);
}

TEST_CASE("every option with every other: three backwards, of which each communicates") {
  run_all(Micro::all);
}

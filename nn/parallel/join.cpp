// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/planning.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace peal::nn {
namespace {

using What = Announcement::What;
static_assert(std::is_trivially_copyable_v<Announcement>);
constexpr std::int64_t words = (sizeof(Announcement) + 7) / 8;
constexpr std::int64_t long_skew = 1000;  // as PyTorch has it

std::uint64_t tag_of(const comm::ProcessGroup& group) {
  std::uint64_t tag = 'j';
  comm::mix(tag, group.sequence());
  return tag;
}

bool have_device(const std::vector<DistributedDataParallel>& models) {
  return std::any_of(models.begin(), models.end(), [](const auto& model) {
    const std::vector<Tensor> all = model.parameters();
    return std::any_of(all.begin(), all.end(),
                       [](const Tensor& p) { return p.device() != Device{}; });
  });
}

// Of what such a layer sends, ranks without a batch would hear nothing, and the others wait.
void check_layers(const DistributedDataParallel& ddp) {
  const comm::ProcessGroup& group = ddp.group();
  auto layers = ddp.named_modules();
  layers.front().first = "the model";
  for (auto& [name, layer] : layers) {
    const auto* const norm = layer.as<SyncBatchNorm>();
    if (norm == nullptr || norm->group().world() == 1) continue;
    PEAL_CHECK(&body_of(norm->group()) == &body_of(group), name,
               " is a SyncBatchNorm over another group than the wrapper's (", norm->group().world(),
               " ranks, not ", group.world(),
               "), whose collectives ranks without a batch cannot follow; convert the model with "
               "the wrapper's group");
  }
}

std::vector<DistributedDataParallel> some(std::vector<DistributedDataParallel> ddps) {
  PEAL_CHECK(!ddps.empty(), "[ddp] Join: expected a wrapper, got none");
  return ddps;
}

void check(const std::vector<DistributedDataParallel>& ddps) {
  const comm::ProcessGroup& group = ddps[0].group();
  for (std::size_t i = 0; i < ddps.size(); ++i) {
    PEAL_CHECK(&body_of(ddps[i].group()) == &body_of(group), "wrapper ", i,
               " is over another group than wrapper 0 (", ddps[i].group().world(), " ranks and ",
               group.world(), "), and ranks without a batch follow one; wrap both models with it");
    for (std::size_t j = 0; j < i; ++j) {
      PEAL_CHECK(!ddps[i].same_as(ddps[j]), "wrapper ", i, " is wrapper ", j, " once more");
    }
    const std::vector<Bucket>& plan = ddps[i].reducer().buckets();
    PEAL_CHECK(std::all_of(plan.begin(), plan.end(),
                           [](const Bucket& bucket) { return bucket.owner == everyone; }),
               "gradients of wrapper ", i,
               " go to one owner each (ShardedDDP), and a rank without "
               "a batch would still have those of its last step; use DistributedDataParallel");
    check_layers(ddps[i]);
  }
}

std::string describe(const JoinOptions& options, const std::vector<std::uint64_t>& wrappers) {
  std::string text = concat("divide_by_initial_world_size ", options.divide_by_initial_world_size,
                            "\nthrow_on_early_termination ", options.throw_on_early_termination,
                            "\n", wrappers.size(), " wrappers\n");
  for (const std::uint64_t wrapper : wrappers) text += concat("wrapper ", wrapper, "\n");
  return text;
}

}  // namespace

Join::Join(DistributedDataParallel ddp, const JoinOptions& options)
    : Join(std::vector<DistributedDataParallel>{std::move(ddp)}, options) {}

Join::Join(std::vector<DistributedDataParallel> ddps, const JoinOptions& options)
    : ddps_(some(std::move(ddps))),
      options_(options),
      group_(ddps_[0].group()),
      on_device_(have_device(ddps_)),
      tag_(tag_of(group_)),
      actives_(group_.world()) {
  for (const DistributedDataParallel& ddp : ddps_) wrappers_.push_back(ddp.turn().wrapper);
  wrong_ = why_not([this] {
    check(ddps_);
    listening_ = listen(group_, [this](const Announcement& what) { announce(what); });
  });
}

Join::~Join() {
  if (wrong_.empty()) set_actives(group_.world(), 0);
}

void Join::set_actives(int actives, int lowest) {
  actives_ = actives;
  lowest_ = lowest;
  const bool all = actives == group_.world();
  const int divisor = options_.divide_by_initial_world_size ? group_.world() : actives;
  for (auto& ddp : ddps_) ddp.set_actives(divisor, lowest, all);
}

bool Join::next(bool has_batch, std::int64_t more) {
  if (actives_ < group_.world()) finish_turn();
  if (sure_ > 0) {
    if (!has_batch) {
      fail_everywhere(group_, concat("Join: this rank said that it would have ", sure_,
                                     " more batches, and has none"));
    }
    --sure_;
    ++turns_;
    return true;
  }
  const std::vector<bool> active = who_has_a_batch(has_batch, has_batch ? more : 0);
  const auto actives = static_cast<int>(std::count(active.begin(), active.end(), true));
  turned_ = false;
  if (actives == 0) {
    end_epoch();
    return false;
  }
  active_ = has_batch;
  ++turns_;
  check_actives(active);
  if (!active_ && ++without_ == long_skew) warn_of_skew();
  set_actives(actives,
              static_cast<int>(std::find(active.begin(), active.end(), true) - active.begin()));
  return true;
}

// Those who have a batch say where they are, and the others take part in what is left until then.
void Join::finish_turn() {
  if (active_) {
    for (const auto& ddp : ddps_) announce(ddp.turn());
  }
  while (!active_ && !turned_) {
    const Announcement in = receive();
    if (in.what == What::begin) {
      fail_everywhere(group_,
                      "Join: a rank that has no batch calls follow() for each synchronised "
                      "backward of the others, and here is one more");
    }
    take_part(in);
  }
}

// Of each rank a bit, above it what is to be the same on all, and how many batches more are sure.
std::vector<bool> Join::who_has_a_batch(bool here, std::int64_t more) {
  const std::string same = wrong_.empty() ? describe(options_, wrappers_) : wrong_;
  const int world = group_.world();
  const Tensor all = Tensor::zeros({world, 2}, DType::i64, Device{});
  const Tensor mine = all.detach({2}, 2 * group_.rank());
  mine.data<std::int64_t>()[0] = static_cast<std::int64_t>(comm::digest(same)[0] << 1 | here);
  mine.data<std::int64_t>()[1] = more;
  group_.all_gather(all, mine, {"who has a batch", tag_}).wait();
  std::vector<bool> active;
  bool differ = false;
  sure_ = std::max<std::int64_t>(more, 0);
  const std::int64_t* const said = all.data<std::int64_t>();
  for (int r = 0; r < world; ++r) {
    const auto word = static_cast<std::uint64_t>(said[2 * r]);
    active.push_back((word & 1) != 0);
    differ = differ || word >> 1 != static_cast<std::uint64_t>(said[0]) >> 1;
    sure_ = std::clamp<std::int64_t>(said[2 * r + 1], 0, sure_);
  }
  if (differ || !wrong_.empty()) {
    comm::agree_unless(
        group_, "[ddp] Join", same, wrong_,
        "give it the same options and the same wrappers, in one order, on every rank");
  }
  return active;
}

// The next epoch begins with all.
void Join::restart() {
  if (actives_ < group_.world()) finish_turn();
  sure_ = 0;
  end_epoch();
}

void Join::end_epoch() {
  set_actives(group_.world(), 0);
  active_ = true;
  turns_ = without_ = 0;
}

void Join::check_actives(const std::vector<bool>& active) {
  if (!options_.throw_on_early_termination) return;
  const std::int64_t turn = turns_;
  std::string ended;
  for (std::size_t r = 0; r < active.size(); ++r) {
    if (active[r]) continue;
    ended += concat(ended.empty() ? "" : ", ", group_.global_rank(static_cast<int>(r)));
  }
  if (ended.empty()) return;
  end_epoch();
  fail(concat("[ddp] Join: in turn ", turn, " no batch is left on rank ", ended,
              ", and others have one; throw_on_early_termination ends the loop on all ranks"));
}

void Join::warn_of_skew() {
  log_warning("[ddp] rank ", group_.global_rank(group_.rank()),
              ": Join: this rank has had no batch "
              "for ",
              long_skew, " turns, in which it only follows ", actives_, " of ", group_.world(),
              " ranks; share the samples out more evenly");
}

// The lowest rank's words count; the others take part in sending them.
void Join::announce(const Announcement& what) const {
  if (actives_ == group_.world() || !active_) return;
  const Tensor message = Tensor::zeros({words}, DType::i64, Device{});
  std::memcpy(message.raw(), &what, sizeof what);
  const comm::Work sent =
      group_.broadcast(message, lowest_, {"what ranks without a batch do", tag_});
  // It goes on by itself where this thread comes by again. One that waits for a device does not,
  // and what it waits for may be a collective to which nobody has called the others.
  if (on_device_) sent.wait();
}

Announcement Join::receive() const {
  const Tensor message = Tensor::zeros({words}, DType::i64, Device{});
  group_.broadcast(message, lowest_, {"what ranks without a batch do", tag_}).wait();
  Announcement in;
  std::memcpy(&in, message.raw(), sizeof in);
  return in;
}

bool Join::follow() {
  PEAL_CHECK(!active_, "[ddp] rank ", group_.global_rank(group_.rank()),
             ": Join::follow() is for ranks without a batch, and this one has one");
  begun_ = 0;  // an Error may have left some
  while (!turned_) {
    const Announcement in = receive();
    take_part(in);
    if (in.what == What::begin) ++begun_;
    if (in.what == What::finish && --begun_ <= 0) return true;
  }
  return false;
}

void Join::take_part(const Announcement& in) {
  const auto zeros = [&](std::int64_t count) {
    return Tensor::zeros({count}, in.dtype, ddps_[0].device());
  };
  const bool of_layer = in.what == What::all_gather || in.what == What::all_reduce;
  if (of_layer) call_before_layer(group_, "a layer's");  // so its wrappers know that layers meet
  if (in.what == What::all_gather) {
    const Tensor all = zeros(in.count * group_.world());
    group_
        .all_gather(all, all.detach({in.count}, in.count * group_.rank()),
                    {"a layer's, without a batch", in.tag})
        .wait();
  } else if (in.what == What::all_reduce) {
    group_.all_reduce(zeros(in.count), comm::ReduceOp::sum, {"a layer's, without a batch", in.tag})
        .wait();
  } else {
    wrapper_of(in).follow(in);
    turned_ = in.what == What::next && in.wrapper == wrappers_.back();
  }
}

DistributedDataParallel& Join::wrapper_of(const Announcement& in) {
  const auto found = std::find(wrappers_.begin(), wrappers_.end(), in.wrapper);
  if (found == wrappers_.end()) {
    fail_everywhere(group_,
                    "Join: ranks that have a batch train a model that is wrapped over this group "
                    "too, which this rank has no batch for and cannot follow; give both wrappers "
                    "to one Join: nn::Join join({a, b})");
  }
  return ddps_[static_cast<std::size_t>(found - wrappers_.begin())];
}

}  // namespace peal::nn

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/schedule/mix.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace peal::nn {
namespace {

using What = Announcement::What;
static_assert(std::is_trivially_copyable_v<Announcement>);
constexpr std::int64_t words = (sizeof(Announcement) + 7) / 8;

std::uint64_t tag_of(const comm::ProcessGroup& group) {
  std::uint64_t tag = 'j';
  comm::mix(tag, group.sequence());
  return tag;
}

// Of what such a layer sends, ranks without a batch would hear nothing, and the others wait.
DistributedDataParallel checked(DistributedDataParallel ddp) {
  const comm::ProcessGroup& group = ddp.group();
  auto layers = ddp.named_modules();
  layers.emplace_back("the model", ddp);
  for (auto& [name, layer] : layers) {
    const auto* const norm = layer.as<SyncBatchNorm>();
    if (norm == nullptr || norm->group().world() == 1) continue;
    PEAL_CHECK(&body_of(norm->group()) == &body_of(group), "[ddp] rank ",
               group.global_rank(group.rank()), ": Join: ", name,
               " is a SyncBatchNorm over another group than the wrapper's (", norm->group().world(),
               " ranks, not ", group.world(),
               "), whose collectives ranks without a batch cannot follow; convert the model with "
               "the wrapper's group");
  }
  return ddp;
}

}  // namespace

Join::Join(DistributedDataParallel ddp, const JoinOptions& options)
    : ddp_(checked(std::move(ddp))),
      options_(options),
      group_(ddp_.group()),
      tag_(tag_of(group_)),
      actives_(group_.world()),
      listening_(listen(group_, [this](const Announcement& what) { announce(what); })) {}

Join::~Join() { ddp_.set_actives(group_.world(), 0, true); }

void Join::set_actives(int actives, int lowest) {
  actives_ = actives;
  lowest_ = lowest;
  const bool all = actives == group_.world();
  ddp_.set_actives(options_.divide_by_initial_world_size ? group_.world() : actives, lowest, all);
}

bool Join::next(bool has_batch) {
  if (actives_ < group_.world()) {
    if (active_) announce(ddp_.turn());
    while (!active_ && !turned_) {
      const Announcement in = receive();
      PEAL_CHECK(
          in.what != What::begin, "[ddp] rank ", group_.global_rank(group_.rank()),
          ": Join: a rank that has no batch calls follow() for each synchronised backward of "
          "the others, and here is one more");
      take_part(in);
    }
  }
  const int world = group_.world();
  const Tensor all = Tensor::zeros({world}, DType::i64, Device{});
  const Tensor mine = all.detach({1}, group_.rank());
  *mine.data<std::int64_t>() = has_batch ? 1 : 0;
  group_.all_gather(all, mine, {"who has a batch", tag_}).wait();
  const auto* const first = all.data<std::int64_t>();
  const auto actives = static_cast<int>(std::count(first, first + world, 1));
  active_ = has_batch;
  turned_ = false;
  if (actives == 0) {
    set_actives(world, 0);  // the next epoch begins with all
    active_ = true;
    return false;
  }
  set_actives(actives, static_cast<int>(std::find(first, first + world, 1) - first));
  return true;
}

// The lowest rank's words count; the others take part in sending them.
void Join::announce(const Announcement& what) const {
  if (actives_ == group_.world() || !active_) return;
  const Tensor message = Tensor::zeros({words}, DType::i64, Device{});
  std::memcpy(message.raw(), &what, sizeof what);
  const comm::Work sent =
      group_.broadcast(message, lowest_, {"what ranks without a batch do", tag_});
  static_cast<void>(sent);  // goes on by itself
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
  if (turned_) return false;
  for (;;) {
    const Announcement in = receive();
    take_part(in);
    if (turned_) return false;
    if (in.what == What::finish) return true;
  }
}

void Join::take_part(const Announcement& in) {
  turned_ = in.what == What::next;
  const auto zeros = [&](std::int64_t count) {
    return Tensor::zeros({count}, in.dtype, ddp_.device());
  };
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
    ddp_.follow(in);
  }
}

}  // namespace peal::nn

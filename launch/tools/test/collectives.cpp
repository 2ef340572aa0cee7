// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/tools/test/checks.h>

namespace peal::launch {
namespace {

using comm::ProcessGroup;
using comm::ReduceOp;
using Values = std::function<std::int64_t(std::int64_t)>;

class Collectives {
 public:
  Collectives(const ProcessGroup& group, Device device)
      : group_(group), device_(device), world_(group.world()), rank_(group.rank()) {}

  void all_of(std::int64_t n) {
    reductions(n);
    gathers(n);
    messages(n);
    group_.barrier().wait();
  }
  int compared() const { return compared_; }

 private:
  // Of rank r, small enough for sums to be exact.
  static Values of(int r) {
    return [r](std::int64_t i) { return i % 61 + 3 * r; };
  }
  Values of_all() const {
    return [this](std::int64_t i) {
      return world_ * (i % 61) + 3 * (std::int64_t{world_} * (world_ - 1) / 2);
    };
  }
  // Blocks of n, of rank 0, 1, ...
  static Values by_rank(std::int64_t n) {
    return [n](std::int64_t i) { return of(static_cast<int>(i / n))(i % n); };
  }

  Tensor made(std::int64_t n, const Values& values) const {
    Tensor tensor = Tensor::zeros({n}, DType::f32, {});
    float* const data = tensor.data<float>();
    for (std::int64_t i = 0; i < n; ++i) data[i] = static_cast<float>(values(i));
    return tensor.to(device_);
  }
  Tensor mine(std::int64_t n) const { return made(n, of(rank_)); }
  Tensor none(std::int64_t n) const {
    return made(n, [](std::int64_t) { return -1; });
  }

  void compare(const char* what, const Tensor& got, const Values& wanted) {
    const Tensor here = got.to(Device{});
    const float* const data = here.data<float>();
    for (std::int64_t i = 0; i < here.numel(); ++i) {
      const auto want = static_cast<float>(wanted(i));
      PEAL_CHECK(data[i] == want, what, " of ", here.numel(), " elements: element ", i,
                 " is wrong on rank ", rank_, ": expected ", want, ", got ", data[i]);
    }
    ++compared_;
  }

  void reductions(std::int64_t n) {
    Tensor sum = mine(n);
    group_.all_reduce(sum).wait();
    compare("all_reduce", sum, of_all());
    Tensor most = mine(n);
    group_.all_reduce(most, ReduceOp::max).wait();
    compare("all_reduce of the maximum", most, of(world_ - 1));
    Tensor part = none(n);
    const Tensor blocks = made(n * world_, [&](std::int64_t i) { return of(rank_)(i % n); });
    group_.reduce_scatter(part, blocks).wait();
    compare("reduce_scatter", part, of_all());
    for (int root = 0; root < world_; ++root) {
      Tensor reduced = mine(n);
      group_.reduce(reduced, root).wait();
      if (rank_ == root) compare("reduce", reduced, of_all());
    }
  }

  void gathers(std::int64_t n) {
    Tensor all = none(n * world_);
    group_.all_gather(all, mine(n)).wait();
    compare("all_gather", all, by_rank(n));
    for (int root = 0; root < world_; ++root) {
      Tensor sent = mine(n), gathered = none(n * world_), scattered = none(n);
      group_.broadcast(sent, root).wait();
      compare("broadcast", sent, of(root));
      group_.gather(gathered, mine(n), root).wait();
      if (rank_ == root) compare("gather", gathered, by_rank(n));
      group_.scatter(scattered, made(n * world_, by_rank(n)), root).wait();
      compare("scatter", scattered, of(rank_));
    }
    Tensor exchanged = none(n * world_);
    const Tensor given = made(n * world_, [&](std::int64_t i) { return of(rank_)(i % n); });
    group_.all_to_all(exchanged, given).wait();
    compare("all_to_all", exchanged, by_rank(n));
  }

  // Once round.
  void messages(std::int64_t n) {
    if (world_ == 1) return;
    const int next = (rank_ + 1) % world_, before = (rank_ + world_ - 1) % world_;
    Tensor got = none(n);
    const comm::Work sent = group_.send(mine(n), next);
    group_.recv(got, before).wait();
    sent.wait();
    compare("send and recv", got, of(before));
  }

  const ProcessGroup& group_;
  Device device_;
  int world_, rank_, compared_ = 0;
};

}  // namespace

std::string check_collectives(const comm::ProcessGroup& group, Device device) {
  Collectives collectives(group, device);
  for (const std::int64_t n : {1, 17, 4096, 100'003}) collectives.all_of(n);
  return concat(collectives.compared(), " results of ", group.world(),
                group.world() == 1 ? " rank" : " ranks");
}

}  // namespace peal::launch

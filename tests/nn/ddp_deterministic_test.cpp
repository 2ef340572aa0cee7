// SPDX-License-Identifier: Apache-2.0
// DDP in a group in deterministic mode: training has the same bits whatever the size of buckets.
#include <peal/nn/optim/sgd.h>

#include <mutex>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// The parameters after five steps of three ranks that exchange messages.
std::string trained(const nn::BucketCaps& caps, bool deterministic, const comm::Wire& wire = {}) {
  std::mutex mutex;
  std::string bits;
  comm::run_ranks(
      3,
      {.deadline = std::chrono::minutes(1), .shared_memory = false, .deterministic = deterministic},
      wire, [&](const Group& group) {
        manual_seed(1);
        nn::Sequential model = nn::mlp({31, 64, 33, 7});
        DDP ddp(model, group, {.buckets = caps});
        nn::SGD optimizer(model.named_parameters(), {.lr = 0.01, .momentum = 0.9});
        manual_seed(100 + static_cast<std::uint64_t>(group.rank()));
        for (int step = 0; step < 5; ++step) {
          optimizer.zero_grad();
          const Tensor y = ddp(randn({5, 31}));
          (sum(y * y) * (1.0 / 35)).backward();
          optimizer.step();
        }
        std::string mine;
        for (const Tensor& p : model.parameters()) {
          CHECK(same_everywhere(p, group));
          mine.append(static_cast<const char*>(p.raw()), p.view().bytes());
        }
        const std::lock_guard lock(mutex);
        bits = mine;
      });
  return bits;
}

}  // namespace

TEST_CASE("in deterministic mode five steps have the same bits, in small buckets or one large") {
  const nn::BucketCaps large{.first_bytes = 1 << 20, .bytes = 1 << 20};
  const std::string small = trained(apart, true);
  CHECK(small.size() == std::size_t{4} * (31 * 64 + 64 + 64 * 33 + 33 + 33 * 7 + 7));
  CHECK((small == trained(large, true)));
  CHECK((small == trained({.first_bytes = 4096, .bytes = 9000}, true)));
  // Nor does it matter which messages are late.
  for (const std::uint64_t seed : {1, 2}) {
    const comm::Wire late{.jitter = 1e-3, .seed = seed};
    for (const nn::BucketCaps& caps : {apart, large}) CHECK((small == trained(caps, true, late)));
  }
  // Messages of other sizes are summed in another order without it.
  CHECK((trained(apart, false) != trained(large, false)));
}

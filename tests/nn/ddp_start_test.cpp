// SPDX-License-Identifier: Apache-2.0
// The start of a wrapper: models are compared, and made equal where they differ.
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/adam.h>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

TEST_CASE("a wrapper for each step trains as one wrapper, masters too") {
  two([](const Group& group, int rank) {
    const auto train = [&](bool one) {
      manual_seed(4);
      nn::Sequential net = nn::mlp({3, 4, 2});
      net.to(DType::bf16);
      nn::AdamW optimizer(net.parameters(), {.lr = 1e-4});
      std::unique_ptr<DDP> ddp;
      for (int k = 0; k < 20; ++k) {
        if (!one || k == 0) {
          ddp.reset();
          ddp = std::make_unique<DDP>(net, group);
        }
        optimizer.zero_grad();
        const Tensor y = (*ddp)(full({2, 3}, rank + 1.0, DType::bf16));
        sum(y * y).backward();
        optimizer.step();
      }
      std::vector<float> masters;
      for (const auto& [name, tensor] : optimizer.state_dict()) {
        if (!name.ends_with("master")) continue;
        CHECK(same_everywhere(tensor, *group));
        for (const float value : tensor.to_vector<float>()) masters.push_back(value);
      }
      CHECK(!masters.empty());
      return masters;
    };
    CHECK(train(true) == train(false));
  });
}

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/log.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/nearness.h>
#include <peal/nn/tied_writes.h>

namespace peal::nn {

void TiedWrites::write(const std::string& name, const Tensor& own, const Tensor& value) {
  const Tensor now = cast(value, own.dtype());
  if (own.numel() > 0) {
    const auto [found, first] = written_.try_emplace({own.storage().get(), own.body().at}, name);
    if (!first && !equal(own, now.detach(own.shape(), 0).to(own.device()))) {
      log_warning("load_state_dict: ", who_, ": ", found->second, " and ", name,
                  " are one tensor here, and have two values in what is loaded: that of ", name,
                  " counts, which comes last in the model (untie them to load both)");
    }
    found->second = name;
  }
  own.copy_(now);
}

}  // namespace peal::nn

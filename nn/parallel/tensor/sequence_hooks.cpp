// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/nn/parallel/tensor/regions.h>
#include <peal/nn/parallel/tensor/sequence_hooks.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace peal::nn {

// Looked at now, as another tensor may stand for a parameter in each forward (DDP's
// mixed_precision), and before each, as one that was converted or thawed has another slot.
void add_up_gradients(Module& module, const comm::ProcessGroup& group, const std::string& path) {
  if (group.world() == 1) return;
  struct Seen {
    std::weak_ptr<GradSlot> slot;
    std::uint64_t hook;
    std::weak_ptr<void> there;  // while a slot has the hook, this one or one that took it along
  };
  using Slots = std::unordered_map<std::string, std::vector<Seen>>;
  const auto look = [group, path, slots = std::make_shared<Slots>()](Module& here) {
    for (const auto& [name, parameter] : here.named_parameters()) {
      if (!parameter.requires_grad()) continue;  // frozen: it is seen once it is thawed
      const std::shared_ptr<GradSlot>& slot = parameter.body().slot;
      std::vector<Seen>& seen = (*slots)[name];
      const std::string whose = concat(path, ".", name);
      if (!slot) {
        const bool leaf_adds_up = std::any_of(
            seen.begin(), seen.end(), [](const Seen& each) { return !each.there.expired(); });
        PEAL_CHECK(leaf_adds_up, "[tp] ", whose,
                   ": another tensor stands for it in this forward, and the ranks' gradients of it "
                   "would not add up; convert and thaw the model before parallelize_module(), or "
                   "run it once by itself afterwards");
        continue;
      }
      if (std::any_of(seen.begin(), seen.end(),
                      [&](const Seen& each) { return each.slot.lock() == slot; })) {
        continue;
      }
      for (const Seen& each : seen) parameter.remove_hook(each.hook);  // one that was taken along
      std::erase_if(seen, [](const Seen& each) { return each.there.expired(); });
      const std::shared_ptr<void> there = std::make_shared<char>();
      const std::uint64_t hook = parameter.register_hook([group, whose, there](const Tensor& g) {
        return reduce_from_tensor_parallel_region(g, group, whose);
      });
      seen.push_back({slot, hook, there});
    }
  };
  look(module);
  module.register_forward_pre_hook([look](Module& here, const Tensors&) -> Module::Replaced {
    look(here);
    return std::nullopt;
  });
}

void cut_output(Module& module, const comm::ProcessGroup& group, int dim, const std::string& path) {
  module.register_forward_hook(
      [group, dim, path](Module&, const Tensors&, const Tensors& outputs) -> Module::Replaced {
        Tensors cut;
        for (const Tensor& each : outputs) {
          cut.push_back(scatter_to_tensor_parallel_region(each, group, dim, path));
        }
        return cut;
      });
}

}  // namespace peal::nn

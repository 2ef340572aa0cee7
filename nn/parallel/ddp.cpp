// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/parallel/ddp.h>

#include <vector>

namespace peal::nn {
namespace {

void broadcast_all(comm::ProcessGroup& group, const NamedTensors& tensors) {
  std::vector<comm::Work> works;
  for (const auto& [name, tensor] : tensors) works.push_back(group.broadcast(tensor, 0, name));
  for (const comm::Work& work : works) work.wait();
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(Module module,
                                                 std::shared_ptr<comm::ProcessGroup> group,
                                                 const DDPOptions& options)
    : Module(std::move(module)) {
  const NamedTensors buffers = named_buffers();
  reducer_ = std::make_shared<Reducer>(named_parameters(), buffers, group, options.buckets);
  broadcast_all(*group, named_parameters());
  broadcast_all(*group, buffers);
  if (!options.broadcast_buffers || buffers.empty() || group->world() == 1) return;
  const auto id = add_pre_hook(
      [group, buffers, reducer = std::weak_ptr(reducer_)](Module& self, const Tensor&) {
        const auto here = reducer.lock();
        if (here && here->synchronizing() && self.training()) broadcast_all(*group, buffers);
        return Tensor();
      });
  buffer_hook_ = std::shared_ptr<void>(nullptr, [plain = Module(static_cast<const Module&>(*this)),
                                                 id](void*) mutable { plain.remove_hook(id); });
}

}  // namespace peal::nn

// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/group/group_body.h>
#include <peal/comm/record/recorder.h>
#include <peal/comm/transport/threads/threads.h>

#include <memory>
#include <utility>
#include <vector>

namespace peal::comm {

ProcessGroup ProcessGroup::alone() {
  auto transport = std::make_unique<ThreadsTransport>(std::make_shared<Switchboard>(1), 0);
  auto control =
      std::make_unique<Control>(Board::in_memory(1), 0, std::vector<int>{0}, std::vector<Peer>{});
  Options options = Options::from_environment();
  if (Recorder::writes_to(options.trace)) options.trace.clear();  // within a traced world
  return make_group(std::move(transport), std::move(control), std::make_shared<Engine>(false),
                    options);
}

}  // namespace peal::comm

// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/stateful.h>

namespace peal {

StateReader::StateReader(std::string_view who, const NamedTensors& state)
    : who_(who), given_(state.begin(), state.end()) {
  if (given_.size() < state.size()) fault("a key comes twice");
}

Tensor StateReader::tensor(const std::string& key, const Shape& shape, DType dtype) {
  const auto node = given_.extract(key);
  if (node.empty()) {
    fault(concat("missing: ", key, " ", dtype, " ", shape));
    return {};
  }
  const Tensor& found = node.mapped();
  if (found.shape() != shape || found.dtype() != dtype) {
    fault(concat("wrong: ", key, ": expected ", dtype, " ", shape, ", got ", found.dtype(), " ",
                 found.shape()));
    return {};
  }
  return found;
}

void StateReader::finish(std::string_view hint) {
  for (const auto& [key, tensor] : given_) {
    fault(concat("unexpected: ", key, " ", tensor.dtype(), " ", tensor.shape()));
  }
  if (faults_.empty()) return;
  std::string message = concat(who_, ": load_state_dict: ", faults_.size(),
                               faults_.size() == 1 ? " difference" : " differences", hint);
  for (const std::string& what : faults_) message += "\n  " + what;
  fail(std::move(message));
}

NamedTensors RandomState::state_dict() const {
  const Generator& now = context().generator;
  return {{"seed", Tensor::scalar(static_cast<std::int64_t>(now.seed), Device{})},
          {"offset", Tensor::scalar(static_cast<std::int64_t>(now.offset), Device{})}};
}

void RandomState::load_state_dict(const NamedTensors& state) const {
  StateReader reader("RandomState", state);
  const auto seed = static_cast<std::uint64_t>(reader.number<std::int64_t>("seed"));
  const auto offset = static_cast<std::uint64_t>(reader.number<std::int64_t>("offset"));
  reader.finish();
  if (!keep_seed) context().generator.seed = seed;
  context().generator.offset = offset;
}

}  // namespace peal

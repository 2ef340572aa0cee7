// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/deferred.h>
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/members.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace peal::nn {
namespace {

constexpr std::size_t most_changes = 20;

NamedTensors without(NamedTensors tensors, const std::vector<std::string>& ignored) {
  std::erase_if(tensors, [&](const auto& tensor) {
    return std::find(ignored.begin(), ignored.end(), tensor.first) != ignored.end();
  });
  return tensors;
}

bool same(const NamedTensors& a, const NamedTensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.first == other.first && one.second.same_as(other.second);
  });
}

// Names, and what is said of each.
class Words {
 public:
  void add(std::string_view kind, const std::string& name, std::string_view what) {
    if (++count_ <= most_changes) {
      text_ += concat(text_.empty() ? "" : ", ", kind, name, " ", what);
    }
  }
  std::string text() const {
    return count_ > most_changes ? concat(text_, " and ", count_ - most_changes, " more") : text_;
  }

 private:
  std::string text_;
  std::size_t count_ = 0;
};

void compare(Words& words, std::string_view kind, const NamedTensors& before,
             const NamedTensors& after) {
  std::unordered_set<const TensorBody*> old, now;
  for (const auto& [name, tensor] : before) old.insert(&tensor.body());
  for (const auto& [name, tensor] : after) {
    now.insert(&tensor.body());
    if (!old.contains(&tensor.body())) words.add(kind, name, "has joined");
  }
  for (const auto& [name, tensor] : before) {
    if (!now.contains(&tensor.body())) words.add(kind, name, "has left");
  }
}

}  // namespace

std::string difference(const MemberList& before, const MemberList& after) {
  Words words;
  compare(words, "", before.parameters, after.parameters);
  std::unordered_map<const TensorBody*, bool> trained;
  for (std::size_t p = 0; p < before.parameters.size(); ++p) {
    trained.emplace(&before.parameters[p].second.body(), before.trained[p]);
  }
  for (std::size_t p = 0; p < after.parameters.size(); ++p) {
    const auto old = trained.find(&after.parameters[p].second.body());
    if (old == trained.end() || old->second == after.trained[p]) continue;
    words.add("", after.parameters[p].first, after.trained[p] ? "is trained now" : "is frozen now");
  }
  compare(words, "buffer ", before.buffers, after.buffers);
  if (!words.text().empty()) return words.text();
  const bool alike =
      same(before.parameters, after.parameters) && same(before.buffers, after.buffers);
  return alike ? "" : "names or their order are others";
}

Members::Members(Module module, std::vector<std::string> ignored)
    : module_(std::move(module)),
      ignored_(std::move(ignored)),
      seen_(module_.fingerprint()),
      list_(now()) {}

bool Members::changed() {
  const std::uint64_t fingerprint = module_.fingerprint();
  if (fingerprint != seen_) {
    changed_ = !difference(list_, now()).empty();
    seen_ = fingerprint;
  }
  return changed_;
}

MemberList Members::now() const {
  MemberList list{without(module_.named_parameters(), ignored_),
                  without(module_.named_buffers(), ignored_),
                  {},
                  {}};
  for (const auto& [name, tensor] : list.parameters) list.trained.push_back(tensor.requires_grad());
  // By where values lie, or will lie.
  const auto place_of = [](const Tensor& x) {
    return is_deferred(x) ? std::pair<const void*, std::int64_t>(x.storage().get(), x.body().at)
                          : std::pair<const void*, std::int64_t>(x.raw(), -1);
  };
  std::map<std::pair<const void*, std::int64_t>, std::string> first;
  for (const auto& [name, tensor] : module_.state_dict()) {
    const bool own = std::find(ignored_.begin(), ignored_.end(), name) != ignored_.end();
    if (own || tensor.numel() == 0) continue;
    const auto [place, is_first] = first.emplace(place_of(tensor), name);
    if (!is_first) list.tied.emplace_back(name, place->second);
  }
  return list;
}

void Members::take(MemberList list) {
  list_ = std::move(list);
  changed_ = false;
}

std::vector<Tensor> Members::newcomers() const {
  std::unordered_set<const TensorBody*> trained;
  for (std::size_t p = 0; p < list_.parameters.size(); ++p) {
    if (list_.trained[p]) trained.insert(&list_.parameters[p].second.body());
  }
  std::vector<Tensor> all;
  for (const auto& [name, tensor] : now().parameters) {
    if (tensor.requires_grad() && !trained.contains(&tensor.body())) all.push_back(tensor);
  }
  return all;
}

}  // namespace peal::nn

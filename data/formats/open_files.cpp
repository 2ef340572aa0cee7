// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/formats/open_files.h>

#include <utility>

namespace peal::data {

OpenFiles::OpenFiles(std::vector<std::string> paths)
    : paths_(std::move(paths)), stamps_(paths_.size()), open_(paths_.size()) {}

void OpenFiles::look_through(std::size_t which, const std::function<void(const OpenFile&)>& look) {
  const OpenFile file(paths_[which]);
  stamps_[which] = file.stamp();
  look(file);
}

std::shared_ptr<const OpenFile> OpenFiles::get(std::size_t which) {
  const std::lock_guard lock(mutex_);
  const auto unchanged = [&](const OpenFile& file) { return file.stamp() == stamps_[which]; };
  // One that was replaced is still what it was; one that was written to in place is not.
  if (open_[which] && unchanged(*open_[which])) return open_[which];
  auto file = std::make_shared<const OpenFile>(paths_[which]);
  PEAL_CHECK(unchanged(*file), "[data] ", file->name(),
             ": it was changed since it was looked through, so its samples lie elsewhere: make the "
             "data set again, and change no file under one");
  if (open_[which]) return open_[which] = std::move(file);
  if (in_turn_.size() >= most) {
    open_[in_turn_.front()] = nullptr;  // who reads it has it until then
    in_turn_.pop_front();
  }
  in_turn_.push_back(which);
  return open_[which] = std::move(file);
}

}  // namespace peal::data

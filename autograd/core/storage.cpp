// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/storage.h>

#include <utility>

namespace peal {

StorageRef Storage::allocate(std::size_t bytes, Device device) {
  auto storage = std::make_shared<Storage>(nullptr, bytes, device, nullptr, true);
  storage->data_ = memory_space(device).allocate(device, bytes);  // last: it has an owner
  return storage;
}

StorageRef Storage::wrap(void* data, std::size_t bytes, Device device,
                         std::function<void()> release) {
  PEAL_CHECK(data != nullptr || bytes == 0, "storage: cannot wrap ", bytes, " bytes at null");
  return std::make_shared<Storage>(data, bytes, device, std::move(release), false);
}

StorageRef Storage::without_bytes(std::size_t bytes, Device device, std::function<void()> absent) {
  auto storage = std::make_shared<Storage>(nullptr, bytes, device, nullptr, true);
  storage->absent_ = std::move(absent);
  return storage;
}

Storage::~Storage() {
  if (owned_) {
    if (data_ != nullptr) memory_space(device_).release(device_, data_, bytes_);
  } else if (release_) {
    release_();
  }
}

std::byte* Storage::data() const {
  if (!has_bytes() && absent_) absent_();
  PEAL_CHECK(has_bytes(), "storage: its ", bytes_, " bytes are dropped; regain() them before use");
  return static_cast<std::byte*>(data_);
}

void Storage::drop() {
  PEAL_CHECK(owned_, "storage: wrapped memory cannot be dropped");
  if (data_ == nullptr) return;
  memory_space(device_).release(device_, data_, bytes_);
  data_ = nullptr;
  dropped_ = version_;
}

void Storage::regain() {
  if (data_ != nullptr || bytes_ == 0) return;
  data_ = memory_space(device_).allocate(device_, bytes_);
  bump_version();
}

void Storage::take_bytes(Storage& from) {
  PEAL_CHECK(
      owned_ && from.owned_ && data_ == nullptr && from.bytes_ == bytes_ && from.device_ == device_,
      "storage: ", bytes_, " bytes on ", device_, " cannot be taken from ", from.bytes_, " on ",
      from.device_);
  data_ = std::exchange(from.data_, nullptr);
  bump_version();
}

void Storage::restored() {
  if (bytes_ == 0) return;
  PEAL_CHECK(data_ != nullptr && dropped_.has_value(),
             "storage: restored() says that the values of its ", bytes_,
             " bytes before drop() are there again; they were ",
             data_ == nullptr ? "not regained" : "not dropped");
  version_ = *dropped_;
  dropped_.reset();
}

}  // namespace peal

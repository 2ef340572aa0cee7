// SPDX-License-Identifier: Apache-2.0
// cudaIpcMemHandle_t: an allocation whose pages become those of a file without a name, which
// another process opens through /proc. The file's last page counts who has it open, so that freeing
// too early is seen; after closing, the opener finds poison. A process cannot open its own handle,
// as with the true runtime.
#include "ipc.h"

#include "capture.h"
#include "device.h"
#include "error.h"
#include "memory.h"
#include "queue.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>

namespace cuda_host {
namespace {

constexpr std::size_t page = 4096;

// What the last page holds.
struct Shared {
  std::uint64_t token;
  std::atomic<int> openers;
};

struct Handle {
  std::uint64_t token;
  int process, file, device;
  std::size_t bytes, pages;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

struct Export {
  Handle handle;
  Shared* shared;
};
std::map<const void*, Export>& exports() {
  static auto& all = *new std::map<const void*, Export>;
  return all;
}

struct Import {
  std::uint64_t token;
  Shared* shared;
  int opened;
};
std::map<void*, Import>& imports() {
  static auto& all = *new std::map<void*, Import>;
  return all;
}

Shared* last_page(int file, std::size_t pages) {
  void* at =
      ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(pages));
  return at == MAP_FAILED ? nullptr : static_cast<Shared*>(at);
}

bool export_pages(const Allocation& one) {
  const int file = ::memfd_create("CUDA on the host", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(one.pages + page)) != 0) return false;
  Shared* shared = last_page(file, one.pages);
  void* copy = ::mmap(nullptr, one.pages, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (shared == nullptr || copy == MAP_FAILED) return false;
  {
    const Access access(1u << one.device);
    std::memcpy(copy, one.base, one.pages);
  }
  ::munmap(copy, one.pages);
  map_pages(one.base, one.pages, file);
  static std::uint64_t made = 0;
  shared->token = static_cast<std::uint64_t>(::getpid()) << 32 | ++made;
  exports()[one.base] = {{shared->token, ::getpid(), file, one.device, one.bytes, one.pages},
                         shared};
  return true;
}

cudaError_t open_pages(const Handle& handle, void** data) {
  for (auto& [place, import] : imports()) {
    if (import.token != handle.token) continue;
    ++import.opened;
    *data = place;
    return cudaSuccess;
  }
  const std::string path =
      "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return cudaErrorInvalidResourceHandle;
  Shared* shared = last_page(file, handle.pages);
  void* place = nullptr;
  if (shared != nullptr && shared->token == handle.token) {
    place = take_place(handle.device, handle.bytes);
    if (place != nullptr) map_pages(place, handle.pages, file);
  }
  ::close(file);
  if (place == nullptr) return cudaErrorInvalidResourceHandle;
  ++shared->openers;
  imports()[place] = {handle.token, shared, 1};
  *data = place;
  return cudaSuccess;
}

}  // namespace

void end_sharing(void* data) {
  const auto found = exports().find(data);
  if (found == exports().end()) return;
  const auto [handle, shared] = found->second;
  if (const int openers = shared->openers; openers != 0) {
    set_failure(cudaErrorIllegalAddress,
                "memory of device " + std::to_string(handle.device) + " is freed while " +
                    std::to_string(openers) +
                    " other processes have it open (cudaIpcOpenMemHandle)");
  }
  shared->token = 0;
  ::munmap(shared, page);
  ::close(handle.file);
  map_pages(data, handle.pages, -1);
  exports().erase(found);
}

}  // namespace cuda_host

using namespace cuda_host;

// As documented, of the base of an allocation of cudaMalloc's alone.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* data) {
  const auto guard = lock();
  const Allocation one = allocation_at(data);
  if (handle == nullptr || one.bytes == 0 || one.base != data) return result(cudaErrorInvalidValue);
  if (forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
  if (one.pages == 0) return result(cudaErrorNotSupported);  // here, of whole pages alone
  start_device_thread();
  if (!exports().contains(data) && !export_pages(one)) return result(cudaErrorMemoryAllocation);
  *handle = {};
  std::memcpy(handle->reserved, &exports().at(data).handle, sizeof(Handle));
  return result(cudaSuccess);
}

cudaError_t cudaIpcOpenMemHandle(void** data, cudaIpcMemHandle_t wanted, unsigned flags) {
  const auto guard = lock();
  Handle handle = {};
  std::memcpy(&handle, wanted.reserved, sizeof(handle));
  if (data == nullptr || flags != cudaIpcMemLazyEnablePeerAccess) {
    return result(cudaErrorInvalidValue);
  }
  if (handle.process == ::getpid() || handle.token == 0) {
    return result(cudaErrorInvalidResourceHandle);
  }
  if (forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
  start_device_thread();
  const cudaError_t error = open_pages(handle, data);
  if (error == cudaSuccess && handle.device != current_device()) {
    set_peer(current_device(), handle.device, true);
  }
  return result(error);
}

cudaError_t cudaIpcCloseMemHandle(void* data) {
  const auto guard = lock();
  const auto found = imports().find(data);
  if (found == imports().end()) return result(cudaErrorInvalidValue);
  if (--found->second.opened > 0) return result(cudaSuccess);
  --found->second.shared->openers;
  ::munmap(found->second.shared, page);
  give_place_back(data);
  imports().erase(found);
  return result(cudaSuccess);
}

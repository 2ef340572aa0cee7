// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include "capture.h"
#include "error.h"
#include "memory.h"

#include <atomic>
#include <cstdio>
#include <cstring>

namespace {

thread_local int current = 0;
std::atomic<unsigned> made{0};

bool is_device(int device) { return device >= 0 && device < cuda_host::devices; }

}  // namespace

namespace cuda_host {

int current_device() { return current; }

unsigned contexts() { return made.load(); }
void touch_context() { made |= 1u << current; }
void forget_contexts() { made = 0; }

}  // namespace cuda_host

using namespace cuda_host;

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return result(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return result(cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = devices;
  return result(cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return result(cudaErrorInvalidDevice);
  current = device;
  touch_context();
  return result(cudaSuccess);
}

cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return result(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!is_device(device)) return result(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "CUDA on the host");
  std::snprintf(properties->uuid.bytes, sizeof(properties->uuid.bytes), "cuda host %d", device);
  std::size_t free = 0;
  const int before = current;
  current = device;
  static_cast<void>(cudaMemGetInfo(&free, &properties->totalGlobalMem));
  current = before;
  properties->sharedMemPerBlock = 48 << 10;
  properties->regsPerBlock = 65536;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  const int threads[3] = {1024, 1024, 64}, grid[3] = {2147483647, 65535, 65535};
  std::memcpy(properties->maxThreadsDim, threads, sizeof(threads));
  std::memcpy(properties->maxGridSize, grid, sizeof(grid));
  properties->major = 9;
  properties->multiProcessorCount = 4;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->l2CacheSize = 1 << 20;
  properties->unifiedAddressing = 1;
  properties->concurrentKernels = 1;
  properties->asyncEngineCount = 2;
  properties->pciBusID = device + 1;
  return result(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxGridDimX:
      *value = properties.maxGridSize[0];
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(properties.sharedMemPerBlock);
      break;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      break;
    case cudaDevAttrL2CacheSize:
      *value = properties.l2CacheSize;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = properties.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      break;
  }
  return result(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (!is_device(device) || length < 13) return result(cudaErrorInvalidValue);
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0",
                static_cast<unsigned>(device + 1) & 0xffu);
  return result(cudaSuccess);
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  unsigned bus = 0;
  if (std::sscanf(id, "0000:%02x:00.0", &bus) != 1 || !is_device(static_cast<int>(bus) - 1)) {
    return result(cudaErrorInvalidDevice);
  }
  *device = static_cast<int>(bus) - 1;
  return result(cudaSuccess);
}

// As over PCIe.
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int from, int to) {
  if (!is_device(from) || !is_device(to) || from == to) return result(cudaErrorInvalidDevice);
  *value = attribute == cudaDevP2PAttrAccessSupported ? 1 : 0;
  return result(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize() {
  const auto guard = lock();
  if (device_captures(current) || forbidden_by_capture()) {
    return result(cudaErrorStreamCaptureUnsupported);
  }
  finish_device(current);
  check_guards();
  return result(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return result(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!is_device(device) || !is_device(peer)) return result(cudaErrorInvalidDevice);
  *can = device != peer;
  return result(cudaSuccess);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  if (!is_device(peer) || peer == current) return result(cudaErrorInvalidDevice);
  return result(set_peer(current, peer, true) ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  if (!is_device(peer) || peer == current) return result(cudaErrorInvalidDevice);
  return result(set_peer(current, peer, false) ? cudaSuccess : cudaErrorPeerAccessNotEnabled);
}

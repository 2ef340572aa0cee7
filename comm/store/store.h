// SPDX-License-Identifier: Apache-2.0
// Key-value store: how processes that know nothing of each other but an address find one another.
// Whoever comes first sets, whoever needs it gets, and waits until it is there. There is one over
// files of a folder that all see, and one over TCP, which rank 0 serves. rendezvous.h stands on it.
//
// Keys are of any characters, and best begin with what they are for and a generation ("exchange 3,
// rank 1"): a store outlives what is done over it, and a key that was used before has its old
// value. Thread safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace peal::comm {

class Store {
 public:
  virtual ~Store() = default;
  // The value of the key from now on.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // The values of the keys, once all are there. Error after the deadline, with the keys that were
  // not, and where a process that used the store has died meanwhile; the store is then of no
  // further use.
  virtual std::vector<std::string> multi_get(const std::vector<std::string>& keys) = 0;
  std::string get(const std::string& key) { return multi_get({key})[0]; }
  // Until all are there. Errors as multi_get()'s.
  void wait(const std::vector<std::string>& keys) { (void)multi_get(keys); }
  // Adds to the number that is the key's value, 0 where there is none, and returns the sum; no
  // other's comes in between. add(key, 0) reads it. Error where the value is no number.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  // Forgets keys; those that are not there are no error.
  virtual void remove(const std::vector<std::string>& keys) = 0;
  // Error where a process that used the store is known to have died; the store is then of no
  // further use. Never waits. Over files nothing is known of processes.
  virtual void check() {}
  // 0, 1, 2 ... for each call on this object with this name: makes keys that were not used before,
  // and that are equal on ranks which come to it in one order.
  std::uint64_t generation(const std::string& name) { return generations_[name]++; }

 private:
  std::map<std::string, std::uint64_t> generations_;
};

// How long a store waits for the other ranks.
struct Patience {
  std::chrono::milliseconds deadline{600'000};  // of one call
  std::function<void()> hopeless = [] {};       // throws where waiting is of no more use
};

// The most bytes of a key and its value, over files and TCP: a stranger cannot fill the memory.
inline constexpr std::size_t most_store_bytes = std::size_t{64} << 20;

// "'a', 'b', 'c' and 5 more": keys in errors.
std::string named(const std::vector<std::string>& keys);
// A key's value as a number; 0 where it is empty. Error where it is none.
std::int64_t number_in(const std::string& key, const std::string& value);

}  // namespace peal::comm

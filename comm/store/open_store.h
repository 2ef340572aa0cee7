// SPDX-License-Identifier: Apache-2.0
// A store by its address, as PEAL_STORE names it. Thread safety: a free function without state.
#pragma once

#include <peal/comm/store/store.h>

#include <memory>
#include <string>

namespace peal::comm {

// "file:FOLDER" (file_store.h), or "tcp://HOST:PORT" and "tcp://HOST:PORT/RUN" (tcp_store.h), where
// an IPv6 address stands in brackets. Error for anything else, with what is expected. `secret`: of
// PEAL_STORE_SECRET, or empty; a folder has its permissions instead, and takes none.
std::unique_ptr<Store> open_store(const std::string& address, int rank, int world,
                                  Patience patience = {}, const std::string& secret = {});

}  // namespace peal::comm

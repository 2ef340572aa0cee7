// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/store/file_store.h>
#include <peal/comm/store/open_store.h>
#include <peal/comm/store/tcp_store.h>

#include <charconv>
#include <string_view>
#include <utility>

namespace peal::comm {

std::unique_ptr<Store> open_store(const std::string& address, int rank, int world,
                                  Patience patience, const std::string& secret) {
  constexpr std::string_view file = "file:", tcp = "tcp://";
  if (address.starts_with(file) && address.size() > file.size()) {
    PEAL_CHECK(secret.empty(),
               "PEAL_STORE_SECRET: only a store over TCP has one; who may take part "
               "in '",
               address, "' is said by the folder's permissions");
    return std::make_unique<FileStore>(address.substr(file.size()), rank, world,
                                       std::move(patience));
  }
  if (address.starts_with(tcp)) {
    std::string host = address.substr(tcp.size()), run;
    if (const auto slash = host.find('/'); slash != std::string::npos) {
      run = host.substr(slash + 1);
      host.resize(slash);
    }
    const auto colon = host.rfind(':');
    const std::string digits = colon == std::string::npos ? "" : host.substr(colon + 1);
    host.resize(colon == std::string::npos ? 0 : colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    int port = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, problem] = std::from_chars(digits.data(), end, port);
    if (!host.empty() && problem == std::errc{} && stop == end && port > 0 && port <= 65535) {
      return std::make_unique<TcpStore>(host, port, rank, world, std::move(patience), run, secret);
    }
  }
  fail(concat("PEAL_STORE: expected file:FOLDER, tcp://HOST:PORT or tcp://HOST:PORT/RUN, got '",
              address, "'"));
}

}  // namespace peal::comm

// SPDX-License-Identifier: Apache-2.0
#include "symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

namespace cuda_host {
namespace {

// Where the program lies in memory, less where its file says.
std::uintptr_t load_address() {
  std::uintptr_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<std::uintptr_t*>(out) = info->dlpi_addr;
        return 1;  // the first is the program
      },
      &address);
  return address;
}

std::map<std::uintptr_t, std::string> read_symbols() {
  std::map<std::uintptr_t, std::string> names;
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
  const auto read = [&]<class T>(T& value, std::size_t at) {
    if (at + sizeof(T) > image.size()) return false;
    std::memcpy(&value, image.data() + at, sizeof(T));
    return true;
  };
  Elf64_Ehdr header;
  if (!read(header, 0) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return names;
  const std::uintptr_t base = load_address();
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section, strings;
    if (!read(section, header.e_shoff + i * sizeof(section)) || section.sh_type != SHT_SYMTAB ||
        !read(strings, header.e_shoff + section.sh_link * sizeof(section))) {
      continue;
    }
    for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      if (!read(symbol, section.sh_offset + at)) break;
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
      const std::size_t name = strings.sh_offset + symbol.st_name;
      if (name < image.size()) names.emplace(base + symbol.st_value, image.data() + name);
    }
  }
  return names;
}

}  // namespace

const char* symbol_of(const void* function) {
  static const std::map<std::uintptr_t, std::string> names = read_symbols();
  const auto at = names.find(reinterpret_cast<std::uintptr_t>(function));
  return at == names.end() ? nullptr : at->second.c_str();
}

std::string name_of(const void* function) {
  const char* symbol = symbol_of(function);
  if (symbol == nullptr) {
    return "at " + std::to_string(reinterpret_cast<std::uintptr_t>(function));
  }
  int status = 0;
  char* plain = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string name = status == 0 ? plain : symbol;
  std::free(plain);
  return name;
}

}  // namespace cuda_host

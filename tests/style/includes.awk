# SPDX-License-Identifier: Apache-2.0
# The rules of check_style.sh that are read off source files: licence, and includes (docs/HACKING.md).
function violation(rule) { print FILENAME ":" FNR ": " rule }

# Who may include which folders of peal: the first pattern that the file matches rules.
function folders_seen(file) {
  if (file ~ /^comm\/(schedule|algorithms|verify|simulate|draw)\//)
    return "^peal/comm/(schedule|algorithms|verify|simulate|draw)/"
  if (file ~ /^autograd\/core\//) return "^peal/autograd/core/"
  if (file ~ /^autograd\//) return "^peal/autograd/"
  if (file ~ /^comm\//) return "^peal/(comm|autograd/core)/"
  if (file ~ /^data\//) return "^peal/(data|autograd/core)/"
  if (file ~ /^nn\//) return "^peal/(nn|autograd|comm)/"
  if (file ~ /^bench\//) return "^peal/(autograd|comm|nn|data|launch|bench)/"
  if (file ~ /^tests\//) return "^peal/(autograd|comm|nn|data|launch|tests)/"
  return "^peal/(autograd|comm|nn|data|launch)/"
}

function exists(path,   line, got) {
  got = (getline line < path)
  close(path)
  return got >= 0
}

FNR == 1 && $0 != "// SPDX-License-Identifier: Apache-2.0" {
  violation("the first line is the licence: // SPDX-License-Identifier: Apache-2.0")
}
FNR == 1 {
  seen = folders_seen(FILENAME)
  plan = seen ~ /schedule/
  test = FILENAME ~ /^tests\//
  sees_cuda = FILENAME ~ /^(autograd\/core|autograd\/kernels\/cuda|comm\/reduce\/cuda|tests\/gpu|tests\/cuda_host)\// ||
              FILENAME ~ /^comm\/(transport|start)\/(nccl|cuda_ipc)/
  sees_mpi = FILENAME ~ /^comm\/(transport|start)\/mpi/ || FILENAME ~ /^launch\/bootstrap/ ||
             FILENAME ~ /^tests\/mpi\//
}
!/^[ \t]*#[ \t]*include/ { next }
{ name = $0; sub(/^[ \t]*#[ \t]*include[ \t]*/, "", name) }
name ~ /^"/ {
  if (!test) violation("an include is spelled <peal/folder/file.h>, not " name)
  else if (name ~ /^"\.\.?\//) violation("a test includes its neighbours by name, others as <peal/...>: " name)
  next
}
name !~ /^<[^>]+>/ { next }
{ sub(/^</, "", name); sub(/>.*$/, "", name) }
name ~ /^peal\// {
  if (name !~ seen) violation("this file may not include <" name ">")
  path = name
  sub(/^peal\//, "", path)
  if (!exists(path)) violation("no such file: <" name ">")
  next
}
name ~ /^(autograd|comm|nn|data|launch)\// { violation("an include is spelled <peal/" name ">, not <" name ">") }
name ~ /^(cuda|cublas|cudnn|nccl|curand|nvml|nvtx|cub\/|thrust\/|cooperative_groups|driver_types|vector_types)/ {
  if (!sees_cuda) violation("this file may not see CUDA: <" name ">")
}
name ~ /^(mpi|mpi-ext)\.h$/ { if (!sees_mpi) violation("this file may not see MPI: <" name ">") }
plan && name !~ /^[a-z_]+$/ { violation("a plan sees the standard library alone: <" name ">") }

# The headers of peal that are installed: its faces, and what they include. Included, it sets public_headers; as a script
# it prints the list:
#   cmake -DROOT=. [-DPEAL_MPI=ON] [-DPEAL_CUDA=ON] -P cmake/PublicHeaders.cmake
cmake_minimum_required(VERSION 3.25)  # scripts have no policies of their own

set(faces peal.h
  autograd/ops/ops.h
  comm/comm.h
  comm/algorithms/table.h comm/draw/draw.h comm/simulate/simulate.h comm/verify/verify.h  # plans as values
  comm/pipeline/draw.h comm/pipeline/verify.h
  comm/store/open_store.h
  data/data.h
  launch/command_line.h launch/job.h launch/print.h launch/training/accumulation.h launch/training/across_processes.h
  launch/training/dispatcher.h launch/training/evaluation.h
  launch/training/accelerator/accelerator.h autograd/core/out_of_memory.h
  launch/training/accelerator/local_sgd.h
  launch/training/learner/callbacks.h launch/training/learner/exported.h launch/training/learner/learner.h
  launch/training/learner/data_loaders.h launch/training/learner/mixup.h launch/training/learner/profiler.h
  launch/training/learner/progress.h launch/training/learner/tabular.h launch/training/learner/text.h
  launch/training/learner/image_data_loaders.h launch/training/learner/interpretation.h
  launch/training/learner/tabular_data_loaders.h launch/training/learner/text_data_loaders.h
  launch/training/learner/vision.h launch/training/trainer/get_scheduler.h launch/training/trainer/trainer.h
  nn/nn.h)
if(PEAL_MPI)
  list(APPEND faces comm/start/mpi.h)
endif()
if(PEAL_CUDA)
  list(APPEND faces comm/start/cuda_ipc.h comm/start/device_aware.h comm/start/nccl.h)
endif()

set(public_headers "")
while(faces)
  list(POP_FRONT faces header)
  if(header IN_LIST public_headers)
    continue()
  endif()
  list(APPEND public_headers "${header}")
  file(STRINGS "${ROOT}/${header}" includes REGEX "^#include <peal/[^>]+>")
  list(TRANSFORM includes REPLACE "^#include <peal/([^>]+)>.*" "\\1")
  list(APPEND faces ${includes})
endwhile()
list(SORT public_headers)

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  list(JOIN public_headers "\n" lines)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E echo "${lines}")
endif()

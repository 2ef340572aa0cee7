# The distributed wrappers: all of nn/ that sees comm/.
set(nn_parallel_sources parallel/bucket_plan.cpp parallel/ddp.cpp parallel/reducer.cpp amp/grad_scaler.cpp)
set(nn_parallel_links peal::comm)

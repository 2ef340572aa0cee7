# What a process can know before any communication: its rank, its cores and its device.
peal_library(rank SOURCES rank.cpp affinity.cpp devices.cpp LINKS peal::core)
peal_precompile(peal_rank FROM peal_core)

# What a process can know before any communication: its rank, and its cores.
peal_library(rank SOURCES rank.cpp affinity.cpp LINKS peal::core)

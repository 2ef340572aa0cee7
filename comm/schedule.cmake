# Plans as values: no link but the standard library.
peal_library(schedule SOURCES
  schedule.cpp
  segments.cpp
  well_formed.cpp
  verify.cpp
  verify_order.cpp
  draw.cpp
  draw_rows.cpp
  draw_svg.cpp
  draw_timeline.cpp
  simulate_rate.cpp
  simulate_shapes.cpp
  simulate.cpp
  simulate_calibration.cpp
  algorithms/table.cpp
  algorithms/closed_forms.cpp)

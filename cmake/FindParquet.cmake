# Apache Arrow's reader of Parquet files as Parquet::Parquet: of its packages, or of Python's pyarrow, whose folder is named
# in CMAKE_PREFIX_PATH after `python -c "import pyarrow; pyarrow.create_library_symlinks()"`.
find_path(Parquet_INCLUDE_DIR parquet/arrow/reader.h)
find_library(Parquet_LIBRARY parquet HINTS "${Parquet_INCLUDE_DIR}/..")
find_library(Parquet_ARROW_LIBRARY arrow HINTS "${Parquet_INCLUDE_DIR}/..")
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Parquet REQUIRED_VARS Parquet_LIBRARY Parquet_ARROW_LIBRARY Parquet_INCLUDE_DIR)
if(Parquet_FOUND AND NOT TARGET Parquet::Parquet)
  add_library(Parquet::Parquet UNKNOWN IMPORTED)
  set_target_properties(Parquet::Parquet PROPERTIES IMPORTED_LOCATION "${Parquet_LIBRARY}"
    INTERFACE_LINK_LIBRARIES "${Parquet_ARROW_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${Parquet_INCLUDE_DIR}")
endif()
mark_as_advanced(Parquet_INCLUDE_DIR Parquet_LIBRARY Parquet_ARROW_LIBRARY)

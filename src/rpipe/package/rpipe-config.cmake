# find_package(rpipe) gives the target rpipe::rpipe.
get_filename_component(rpipe_folder "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET rpipe::rpipe)
  add_library(rpipe::rpipe SHARED IMPORTED)
  set_target_properties(rpipe::rpipe PROPERTIES
    IMPORTED_LOCATION "${rpipe_folder}/lib/librpipe.so.1"
    IMPORTED_SONAME librpipe.so.1
    INTERFACE_INCLUDE_DIRECTORIES "${rpipe_folder}/include")
endif()

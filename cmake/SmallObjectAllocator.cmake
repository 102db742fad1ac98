# The target small_object_allocator: jemalloc for small objects, under names of its own (src/heap/small_objects.h).
find_library(HEADROOM_JEMALLOC NAMES libjemalloc_pic.a ${required})
find_path(HEADROOM_JEMALLOC_INCLUDE NAMES jemalloc/jemalloc.h ${required})
add_library(small_object_allocator INTERFACE)
if(EXISTS "${HEADROOM_JEMALLOC}" AND HEADROOM_JEMALLOC_INCLUDE AND CMAKE_OBJCOPY)
  set(renamed)
  foreach(name malloc calloc realloc free posix_memalign aligned_alloc memalign valloc malloc_usable_size malloc_stats_print
      mallocx rallocx xallocx sallocx dallocx sdallocx nallocx mallctl mallctlnametomib mallctlbymib
      malloc_conf malloc_message)
    list(APPEND renamed --redefine-sym ${name}=headroom_je_${name})
  endforeach()
  # Built on a system with glibc before 2.34, it takes the C library's own names and hooks over, which must stay the C library's.
  foreach(name __libc_malloc __libc_calloc __libc_realloc __libc_free __libc_memalign __libc_valloc __posix_memalign
      __malloc_hook __realloc_hook __free_hook __memalign_hook)
    list(APPEND renamed --redefine-sym ${name}=headroom_je_unused${name})
  endforeach()
  foreach(name mmap munmap madvise)
    list(APPEND renamed --redefine-sym ${name}=headroom_plain_${name})
  endforeach()
  list(APPEND renamed --redefine-sym secure_getenv=headroom_no_environment
    --redefine-sym readlink=headroom_no_link)
  set(allocator ${CMAKE_BINARY_DIR}/libsmall_object_allocator.a)
  add_custom_command(OUTPUT ${allocator}
    COMMAND ${CMAKE_COMMAND} -E copy ${HEADROOM_JEMALLOC} ${allocator}
    COMMAND ${CMAKE_AR} d ${allocator} jemalloc_cpp.pic.o
    COMMAND ${CMAKE_OBJCOPY} ${renamed} ${allocator}
    DEPENDS ${HEADROOM_JEMALLOC} VERBATIM)
  add_custom_target(small_object_allocator_made DEPENDS ${allocator})
  add_dependencies(small_object_allocator small_object_allocator_made)
  target_include_directories(small_object_allocator SYSTEM INTERFACE ${HEADROOM_JEMALLOC_INCLUDE})
  target_compile_definitions(small_object_allocator INTERFACE HEADROOM_HAS_JEMALLOC=1)
  target_link_libraries(small_object_allocator INTERFACE ${allocator} m)
elseif(HEADROOM_WITH_EVERYTHING)
  message(FATAL_ERROR "no ${HEADROOM_JEMALLOC}, or no objcopy")
else()
  message(STATUS "no libjemalloc_pic.a: small allocations will stay in memory")
  target_compile_definitions(small_object_allocator INTERFACE HEADROOM_HAS_JEMALLOC=0)
endif()

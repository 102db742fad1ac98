# Code that is generated from tables: settings, counters and MPI functions are written down once each.
set(generated ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${generated}/base ${generated}/trace ${generated}/mpi)
function(generate script kind source output)
  add_custom_command(
    OUTPUT ${generated}/${output}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/src/${script} ${kind} ${CMAKE_SOURCE_DIR}/src/${source} ${generated}/${output}
    DEPENDS src/${script} src/${source})
endfunction()
generate(base/generate_settings.py cpp base/settings.toml base/settings_table.h)
generate(base/generate_settings.py python base/settings.toml base/settings_table.py)
generate(trace/generate_counters.py cpp trace/counters.toml trace/counter_table.h)
generate(mpi/generate.py functions mpi/functions.txt mpi/function_table.h)
generate(mpi/generate.py real mpi/functions.txt mpi/real_functions.h)
generate(mpi/generate.py services mpi/functions.txt mpi/services.h)
generate(mpi/generate.py generated-services mpi/functions.txt mpi/generated_services.cc)
generate(mpi/generate.py entries mpi/functions.txt mpi/entries.cc)
add_custom_target(generated_code DEPENDS
  ${generated}/base/settings_table.h ${generated}/base/settings_table.py ${generated}/trace/counter_table.h
  ${generated}/mpi/function_table.h ${generated}/mpi/real_functions.h ${generated}/mpi/services.h
  ${generated}/mpi/generated_services.cc ${generated}/mpi/entries.cc)

# -Wno-restrict: g++ 12 reports std::string concatenation falsely at -O3 (GCC bug 105651).
add_library(galvani_warnings INTERFACE)
target_compile_options(galvani_warnings INTERFACE -Wall -Wextra -Wshadow -Wno-missing-field-initializers $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(GALVANI_WERROR)
  target_compile_options(galvani_warnings INTERFACE -Werror)
endif()

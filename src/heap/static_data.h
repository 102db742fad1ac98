// Static data: the program's large arrays (.data, .bss; Fortran common blocks) are moved into the arena before main, at their
// own addresses.
//
// Only the page-aligned insides of large objects move. Everything small stays (the pager itself depends on some of it), and so
// does every page that holds a copy relocation: `stderr`, `environ` and Open MPI's handles live in the program's .bss that way,
// and a pager that waits for them would wait for itself. Objects are known from the symbol table; a stripped program's data
// moves as a whole, less the pages of copy relocations and the ends, but only where the engine serves the kernel.
#pragma once

namespace headroom::heap {

/// Moves the large objects. Called once, in the constructor of the preloaded library, before any thread exists.
void move_static_data();

}  // namespace headroom::heap

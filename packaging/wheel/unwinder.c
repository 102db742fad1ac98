/* Stands for libgcc_s.so.1 where a library is linked that exceptions of the program pass through: at run time the functions are
 * those of the system's libgcc_s, the one unwinder of the process. (The names and versions are those of GCC's ABI for x86-64.)
 */
#define STAND_IN(name) \
  void name(void) {}
STAND_IN(_Unwind_DeleteException)
STAND_IN(_Unwind_ForcedUnwind)
STAND_IN(_Unwind_GetDataRelBase)
STAND_IN(_Unwind_GetGR)
STAND_IN(_Unwind_GetIP)
STAND_IN(_Unwind_GetLanguageSpecificData)
STAND_IN(_Unwind_GetRegionStart)
STAND_IN(_Unwind_GetTextRelBase)
STAND_IN(_Unwind_RaiseException)
STAND_IN(_Unwind_Resume)
STAND_IN(_Unwind_SetGR)
STAND_IN(_Unwind_SetIP)
STAND_IN(_Unwind_Backtrace)
STAND_IN(_Unwind_FindEnclosingFunction)
STAND_IN(_Unwind_GetCFA)
STAND_IN(_Unwind_Resume_or_Rethrow)
STAND_IN(_Unwind_GetIPInfo)

/* Asks weakly for MPI functions, some of which the library lacks. Built with -DWITHOUT_MPI it is not linked with any.
   Prints which there are. */
#include <stdio.h>

#ifndef WITHOUT_MPI /* wanted, so that the linker keeps the library */
extern int MPI_Init(int*, char***);
extern int MPI_Finalize(void);
#endif
extern int MPI_Get_version(int*, int*) __attribute__((weak));
extern int MPI_Session_init() __attribute__((weak));
extern int MPI_Send_c() __attribute__((weak));
extern int PMPI_Send_c() __attribute__((weak));

int main(void) {
#ifndef WITHOUT_MPI
  MPI_Init(NULL, NULL);
#endif
  printf("version %d session %d large %d %d\n", MPI_Get_version != NULL, MPI_Session_init != NULL, MPI_Send_c != NULL,
         PMPI_Send_c != NULL);
  fflush(stdout);
#ifndef WITHOUT_MPI
  MPI_Finalize();
#endif
  return 0;
}

! A Fortran common block larger than the budget: static data counts too. Prints "sum ok" and the interface used.
program common_block
#if defined(USE_MPIF)
  implicit none
  include 'mpif.h'
#elif defined(USE_MPI)
  use mpi
  implicit none
#else
  use mpi_f08
  implicit none
#endif
  integer, parameter :: n = 6000000
  real(8) :: a(n), b(n)
  common /big/ a, b
  integer :: rank, ranks, i, error
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  do i = 1, n
    a(i) = rank + mod(i, 7)
  end do
  call MPI_Allreduce(a, b, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  do i = 1, n
    if (b(i) /= ranks * (ranks - 1) / 2 + ranks * mod(i, 7)) then
      print *, 'wrong at', i, b(i)
      call MPI_Abort(MPI_COMM_WORLD, 1, error)
    end if
  end do
  if (rank == 0) print *, 'sum ok'
  call MPI_Finalize(error)
end program

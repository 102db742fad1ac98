! Requests from Fortran: messages, persistent ones and nonblocking collectives, completed by every kind of call. Prints
! "requests ok" and how many messages were sent.
program requests
#if defined(USE_MPIF)
  implicit none
  include 'mpif.h'
#define HANDLE integer
#define STATUSES(n) integer :: statuses(MPI_STATUS_SIZE, n)
#define STATUS_AT(i) statuses(:, i)
#define STATUS integer, dimension(MPI_STATUS_SIZE) :: received, any
#define SOURCE received(MPI_SOURCE)
#define TAG received(MPI_TAG)
#define DATATYPE integer
#else
  use mpi_f08
  implicit none
#define HANDLE type(MPI_Request)
#define STATUSES(n) type(MPI_Status) :: statuses(n)
#define STATUS_AT(i) statuses(i)
#define STATUS type(MPI_Status) :: received, any
#define SOURCE received%MPI_SOURCE
#define TAG received%MPI_TAG
#define DATATYPE type(MPI_Datatype)
#endif
  integer, parameter :: most = 400000, rounds = 24
  real(8), allocatable :: out(:), in(:), gathered(:)
  HANDLE :: handles(4)
  STATUSES(4)
  STATUS
  DATATYPE :: every_second
  integer :: rank, ranks, next, previous, round, n, i, which, count, left, indices(4), error, sent
  logical :: done, cancelled
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  allocate(out(most), in(most), gathered(ranks))
  next = mod(rank + 1, ranks)
  previous = mod(rank + ranks - 1, ranks)
  sent = 0
  do round = 1, rounds
    n = merge(10, merge(1000, most, mod(round, 3) == 1), mod(round, 3) == 0)
    do i = 1, n
      out(i) = rank * 1000 + round + mod(i, 97)
      in(i) = -1
    end do
    call MPI_Irecv(in, n, MPI_DOUBLE_PRECISION, merge(MPI_ANY_SOURCE, previous, mod(round, 2) == 0), round, MPI_COMM_WORLD, &
                   handles(1), error)
    call MPI_Isend(out, n, MPI_DOUBLE_PRECISION, next, round, MPI_COMM_WORLD, handles(2), error)
    call MPI_Iallgather(out, 1, MPI_DOUBLE_PRECISION, gathered, 1, MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, handles(3), error)
    handles(4) = MPI_REQUEST_NULL
    sent = sent + 1
    select case (mod(round, 6))
    case (0)
      call MPI_Waitall(4, handles, statuses, error)
      received = STATUS_AT(1)
    case (1)
      left = 3
      do while (left > 0)
        call MPI_Waitany(4, handles, which, any, error)
        if (which == 1) received = any
        left = left - 1
      end do
    case (2)
      left = 3
      do while (left > 0)
        call MPI_Waitsome(4, handles, count, indices, statuses, error)
        do i = 1, count
          if (indices(i) == 1) received = STATUS_AT(i)
        end do
        left = left - count
      end do
    case (3)
      done = .false.
      do while (.not. done)
        call MPI_Testall(4, handles, done, statuses, error)
      end do
      received = STATUS_AT(1)
    case (4)
      do i = 1, 3
        done = .false.
        do while (.not. done)
          call MPI_Test(handles(i), done, STATUS_AT(i), error)
        end do
      end do
      received = STATUS_AT(1)
    case default
      do i = 3, 1, -1
        call MPI_Wait(handles(i), STATUS_AT(i), error)
      end do
      received = STATUS_AT(1)
    end select
    do i = 1, 4
      if (handles(i) /= MPI_REQUEST_NULL) call wrong('a handle is left', round, i)
    end do
    call MPI_Get_count(received, MPI_DOUBLE_PRECISION, count, error)
    if (count /= n .or. SOURCE /= previous .or. TAG /= round) call wrong('status', round, count)
    do i = 1, n
      if (in(i) /= previous * 1000 + round + mod(i, 97)) call wrong('content', round, i)
    end do
    do i = 1, ranks
      if (gathered(i) /= (i - 1) * 1000 + round + 1) call wrong('gathered', round, i)
    end do
  end do
  ! Persistent, with gaps on the receiving side.
  call MPI_Type_vector(most / 2, 1, 2, MPI_DOUBLE_PRECISION, every_second, error)
  call MPI_Type_commit(every_second, error)
  call MPI_Recv_init(in, 1, every_second, previous, 77, MPI_COMM_WORLD, handles(1), error)
  call MPI_Send_init(out, most / 2, MPI_DOUBLE_PRECISION, next, 77, MPI_COMM_WORLD, handles(2), error)
  do round = 1, 5
    in = -1
    out = rank + 10 * round
    call MPI_Startall(2, handles, error)
    call MPI_Waitall(2, handles, MPI_STATUSES_IGNORE, error)
    sent = sent + 1
    do i = 1, most - 1, 2
      if (in(i) /= previous + 10 * round .or. in(i + 1) /= -1) call wrong('with gaps', round, i)
    end do
  end do
  call MPI_Request_free(handles(1), error)
  call MPI_Request_free(handles(2), error)
  call MPI_Type_free(every_second, error)
  call MPI_Irecv(in, 1, MPI_DOUBLE_PRECISION, previous, 99, MPI_COMM_WORLD, handles(1), error)
  call MPI_Cancel(handles(1), error)
  call MPI_Wait(handles(1), STATUS_AT(1), error)
  call MPI_Test_cancelled(STATUS_AT(1), cancelled, error)
  if (.not. cancelled) call wrong('cancel', 0, 0)
  if (rank == 0) print '(a, i0)', 'requests ok ', sent
  call MPI_Finalize(error)
contains
  subroutine wrong(what, round, at)
    character(*), intent(in) :: what
    integer, intent(in) :: round, at
    print *, 'wrong: ', what, ' in round', round, 'at', at, 'of rank', rank
    call MPI_Abort(MPI_COMM_WORLD, 1, error)
  end subroutine
end program

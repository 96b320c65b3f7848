! Heat on a square plate in Fortran: a five-point stencil, columns cut over the ranks, halos
! exchanged with non-blocking messages, the block's rows sent as a derived vector type around a ring
! of diagnostics, and the residual by MPI_Allreduce. The field's checksum does not depend on the
! number of ranks.
!
! usage: heat_f [size [steps [every]]]     (defaults 512, 4000, 100)
program heat_f
  use mpi
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none

  integer :: ierr, rank, ranks, size, steps, every
  integer :: first, cols, step, west, east
  real(real64), allocatable, asynchronous :: now(:, :), next(:, :), swap(:, :)
  real(real64) :: residual, mine

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  size = argument(1, 512)
  steps = argument(2, 4000)
  every = argument(3, 100)
  if (size < ranks .or. steps < 1 .or. every < 1) then
    if (rank == 0) write (0, '(a)') &
      'error: usage: heat_f [size [steps [every]]], size not below the number of ranks'
    call MPI_Abort(MPI_COMM_WORLD, 2, ierr)
  end if

  first = part_start(rank)
  cols = part_start(rank + 1) - first
  west = merge(rank - 1, MPI_PROC_NULL, rank > 0)
  east = merge(rank + 1, MPI_PROC_NULL, rank + 1 < ranks)
  allocate (now(0:size + 1, 0:cols + 1), next(0:size + 1, 0:cols + 1))
  now = 0
  next = 0
  call start_field()

  residual = 0
  do step = 1, steps
    call exchange()
    call relax(size, cols, now, next)
    if (mod(step, every) == 0 .or. step == steps) then
      mine = maxval(abs(next(1:size, 1:cols) - now(1:size, 1:cols)))
      call MPI_Allreduce(mine, residual, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
    end if
    call move_alloc(now, swap)
    call move_alloc(next, now)
    call move_alloc(swap, next)
  end do
  call check_row_type()
  call report()
  call MPI_Finalize(ierr)

contains

  ! The command line's argument at a place, or its default.
  integer function argument(place, default)
    integer, intent(in) :: place, default
    character(len=32) :: text
    integer :: state
    argument = default
    if (command_argument_count() < place) return
    call get_command_argument(place, text)
    read (text, *, iostat=state) argument
    if (state /= 0) argument = -1
  end function argument

  integer function part_start(index)
    integer, intent(in) :: index
    part_start = int(int(size, int64) * index / ranks)
  end function part_start

  ! A pattern that depends on the place alone.
  subroutine start_field()
    integer :: i, j
    integer(int64) :: place
    do j = 1, cols
      do i = 1, size
        place = int(first + j - 1, int64) * size + i
        now(i, j) = real(mod(place * 7919 + place * place * 31, 1009_int64), real64) / 1009
      end do
    end do
  end subroutine start_field

  subroutine exchange()
    integer :: requests(4), statuses(MPI_STATUS_SIZE, 4)
    call MPI_Irecv(now(1, 0), size, MPI_DOUBLE_PRECISION, west, 1, &
                   MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Irecv(now(1, cols + 1), size, MPI_DOUBLE_PRECISION, east, 2, &
                   MPI_COMM_WORLD, requests(2), ierr)
    call MPI_Isend(now(1, cols), size, MPI_DOUBLE_PRECISION, east, 1, &
                   MPI_COMM_WORLD, requests(3), ierr)
    call MPI_Isend(now(1, 1), size, MPI_DOUBLE_PRECISION, west, 2, &
                   MPI_COMM_WORLD, requests(4), ierr)
    call MPI_Waitall(4, requests, statuses, ierr)
  end subroutine exchange

  ! One step; arguments of explicit shape tell the compiler that the fields do not overlap.
  subroutine relax(rows, columns, now, next)
    integer, intent(in) :: rows, columns
    real(real64), intent(in) :: now(0:rows + 1, 0:columns + 1)
    real(real64), intent(inout) :: next(0:rows + 1, 0:columns + 1)
    integer :: i, j
    do j = 1, columns
      do i = 1, rows
        next(i, j) = now(i, j) + 0.2_real64 * (now(i - 1, j) + now(i + 1, j) &
                                               + now(i, j - 1) + now(i, j + 1) - 4 * now(i, j))
      end do
    end do
  end subroutine relax

  ! Sends the first row (a strided vector) around the ring and compares it with what it must be.
  subroutine check_row_type()
    integer :: row_type, to, from, status(MPI_STATUS_SIZE), least_cols
    real(real64), allocatable :: got(:), all_first(:)
    call MPI_Allreduce(cols, least_cols, 1, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, ierr)
    allocate (got(least_cols), all_first(ranks))
    call MPI_Type_vector(least_cols, 1, size + 2, MPI_DOUBLE_PRECISION, row_type, ierr)
    call MPI_Type_commit(row_type, ierr)
    to = mod(rank + 1, ranks)
    from = mod(rank + ranks - 1, ranks)
    call MPI_Sendrecv(now(1, 1), 1, row_type, to, 3, got, least_cols, MPI_DOUBLE_PRECISION, &
                      from, 3, MPI_COMM_WORLD, status, ierr)
    call MPI_Allgather(now(1, 1), 1, MPI_DOUBLE_PRECISION, all_first, 1, MPI_DOUBLE_PRECISION, &
                       MPI_COMM_WORLD, ierr)
    call MPI_Type_free(row_type, ierr)
    if (status(MPI_SOURCE) /= from .or. got(1) /= all_first(from + 1)) then
      write (0, '(a,i0)') 'error: the row of the neighbour is wrong on rank ', rank
      call MPI_Abort(MPI_COMM_WORLD, 2, ierr)
    end if
  end subroutine check_row_type

  ! A hash of a cell's bits and place; sums of it do not depend on the order.
  integer(int64) function cell_hash(place, value)
    integer(int64), intent(in) :: place
    real(real64), intent(in) :: value
    integer(int64) :: x
    integer :: round
    x = ieor(transfer(value, x), ishftc(place, 17))
    do round = 1, 4
      x = ieor(x, ishft(x, 13))
      x = ieor(x, ishft(x, -7))
      x = ieor(x, ishft(x, 17))
      x = ieor(ishftc(x, 29), place)
    end do
    cell_hash = x
  end function cell_hash

  ! Two halves of 32 bits are summed apart, so that no sum overflows.
  subroutine report()
    integer(int64) :: low, high, x, mine64(2), all64(2)
    integer(int64), parameter :: mask = int(z'FFFFFFFF', int64)
    integer :: i, j
    low = 0
    high = 0
    do j = 1, cols
      do i = 1, size
        x = cell_hash(int(first + j - 1, int64) * size + i, now(i, j))
        low = iand(low + iand(x, mask), mask)
        high = iand(high + ishft(x, -32), mask)
      end do
    end do
    mine64 = [high, low]
    call MPI_Reduce(mine64, all64, 2, MPI_INTEGER8, MPI_SUM, 0, MPI_COMM_WORLD, ierr)
    if (rank == 0) then
      write (*, '(a,i0,a,i0,a,i0,a)') 'heat_f: size ', size, ', ', steps, ' steps, ', &
        ranks, ' ranks'
      write (*, '(a,z16.16,a,es24.16)') 'heat_f: residual ', transfer(residual, low), ' ', &
        residual
      write (*, '(a,z8.8,z8.8)') 'heat_f: checksum ', iand(all64(1), mask), iand(all64(2), mask)
    end if
  end subroutine report
end program heat_f

! Heat on a plate cut by columns, with checkpoints of regions, in Fortran. What it prints does not
! depend on how often it was killed.
!
! usage: heat OPTIONS STEPS EVERY [DIE_STEP DIE_RANK]
program heat
  use, intrinsic :: iso_c_binding
  use mpi
  use eyrie_regions
  use eyrie_regions_mpi
  implicit none

  interface
    integer(c_int) function raise(number) bind(c)
      import :: c_int
      integer(c_int), value :: number
    end function raise
  end interface

  integer, parameter :: rows = 500, cols = 40, sigkill = 9
  real(c_double), target :: now(rows, 0:cols + 1)
  real(c_double) :: next(rows, cols), mine, total
  complex(c_double_complex), target :: turn(3)
  integer, target :: step
  integer :: rank, ranks, ierr, steps, every, die, die_rank, i, j, killed
  integer :: kind
  integer(c_size_t) :: size, count
  integer(c_int64_t) :: found
  character(len=1000) :: options
  type(c_ptr) :: regions

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call get_command_argument(1, options)
  steps = argument(2)
  every = argument(3)
  die = argument(4)
  die_rank = argument(5)
  step = 0
  turn = (1.0_c_double, 0.5_c_double)
  do j = 0, cols + 1
    do i = 1, rows
      now(i, j) = real(mod((rank * cols + j) * 7919 + i * 104729, 1009), c_double) / 1009
    end do
  end do

  if (eyrie_open_mpi(regions, options, MPI_COMM_WORLD) /= EYRIE_OK) call fail(c_null_ptr)
  call check(eyrie_protect(regions, 0, c_loc(step), EYRIE_INT, storage_size(step) / 8, &
                           1_c_size_t))
  call check(eyrie_protect(regions, 1, c_loc(now), EYRIE_FLOAT, storage_size(now) / 8, &
                           int((cols + 2) * rows, c_size_t)))
  call check(eyrie_protect(regions, 2, c_loc(turn), EYRIE_COMPLEX, storage_size(turn) / 8, &
                           3_c_size_t))
  found = eyrie_newest(regions, 'heat', EYRIE_ANY_VERSION)
  if (found < EYRIE_NONE) call fail(regions)
  if (found /= EYRIE_NONE) then
    call check(eyrie_stored(regions, 1, kind, size, count))
    if (kind /= EYRIE_FLOAT .or. size /= 8 .or. count /= (cols + 2) * rows) stop 4
    call check(eyrie_restore(regions, 'heat', found))
    write (0, '(a,i0,a,i0)') 'heat: process ', rank, ' goes on from step ', step
  end if

  do while (step < steps)
    call exchange()
    do j = 1, cols
      do i = 2, rows - 1
        next(i, j) = now(i, j) + 0.2_c_double * (now(i - 1, j) + now(i + 1, j) + now(i, j - 1) &
                                                 + now(i, j + 1) - 4 * now(i, j))
      end do
    end do
    now(2:rows - 1, 1:cols) = next(2:rows - 1, :)
    turn = turn * (0.8_c_double, 0.6_c_double)
    step = step + 1
    if (mod(step, every) == 0) then
      call check(eyrie_checkpoint(regions, 'heat', int(step, c_int64_t)))
    end if
    if (step == die .and. rank == die_rank) killed = raise(int(sigkill, c_int))
  end do
  if (eyrie_close(regions) /= EYRIE_OK) call fail(c_null_ptr)

  mine = sum(now(:, 1:cols)) + real(turn(3)) + aimag(turn(1))
  call MPI_Reduce(mine, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD, ierr)
  if (rank == 0) write (*, '(a,i0,a,z16.16)') 'heat: ', steps, ' steps, sum ', &
    transfer(total, 0_c_int64_t)
  call MPI_Finalize(ierr)

contains

  integer function argument(place)
    integer, intent(in) :: place
    character(len=32) :: text
    argument = -1
    if (command_argument_count() < place) return
    call get_command_argument(place, text)
    read (text, *) argument
  end function argument

  subroutine check(code)
    integer, intent(in) :: code
    if (code /= EYRIE_OK) call fail(regions)
  end subroutine check

  subroutine fail(handle)
    type(c_ptr), intent(in) :: handle
    write (0, '(a,i0,2a)') 'heat: process ', rank, ': ', eyrie_error(handle)
    stop 3
  end subroutine fail

  subroutine exchange()
    integer :: west, east, status(MPI_STATUS_SIZE)
    west = merge(rank - 1, MPI_PROC_NULL, rank > 0)
    east = merge(rank + 1, MPI_PROC_NULL, rank + 1 < ranks)
    call MPI_Sendrecv(now(1, 1), rows, MPI_DOUBLE_PRECISION, west, 1, now(1, cols + 1), rows, &
                      MPI_DOUBLE_PRECISION, east, 1, MPI_COMM_WORLD, status, ierr)
    call MPI_Sendrecv(now(1, cols), rows, MPI_DOUBLE_PRECISION, east, 2, now(1, 0), rows, &
                      MPI_DOUBLE_PRECISION, west, 2, MPI_COMM_WORLD, status, ierr)
  end subroutine exchange
end program heat

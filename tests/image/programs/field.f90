! Fortran: arrays on the heap and the stack, OpenMP, formatted and unformatted files, an internal write.
program field
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none
  integer, parameter :: side = 96
  real(real64), allocatable :: now(:, :), next(:, :)
  integer(int64) :: checksum, bits
  integer :: step, steps, i, j, wrong, number
  character(len=32) :: word
  real(real64) :: kept(8)

  steps = 600
  if (command_argument_count() > 0) then
    call get_command_argument(1, word)
    read (word, *) steps
  end if
  call get_environment_variable('ROUNDS_TIMES', word, status=number)
  if (number == 0) then
    read (word, *) number
    steps = steps * number
  end if
  allocate (now(side, side), next(side, side))
  wrong = 0
  checksum = 1
  do j = 1, side
    do i = 1, side
      now(i, j) = sin(real(i * j, real64))
    end do
  end do
  next = now
  open (unit=11, file='field.log', status='replace', action='readwrite')
  open (unit=12, file='field.raw', form='unformatted', access='stream', status='replace', &
        action='readwrite')
  do step = 1, steps
    !$omp parallel do private(i) num_threads(2)
    do j = 2, side - 1
      do i = 2, side - 1
        next(i, j) = 0.2d0 * (now(i, j) + now(i - 1, j) + now(i + 1, j) + now(i, j - 1) + now(i, j + 1))
      end do
    end do
    !$omp end parallel do
    now = next
    write (11, '(i8, es24.16)') step, now(side / 2, side / 2)
    ! At a place of its own: an older state of the program may find what a later one wrote.
    write (12, pos=1 + step * 8) now(3, 3)
    read (12, pos=1 + step * 8) kept(1 + mod(step, 8))
    if (kept(1 + mod(step, 8)) /= now(3, 3)) wrong = wrong + 1
    write (word, '(i0)') step
    read (word, *) number
    if (number /= step) wrong = wrong + 1
  end do
  rewind (11)
  do step = 1, steps
    read (11, '(i8, es24.16)') number, kept(1)
    if (number /= step) wrong = wrong + 1
    bits = transfer(kept(1), bits)
    checksum = ieor(ishftc(checksum, 7), bits)
  end do
  do j = 1, side
    do i = 1, side
      bits = transfer(now(i, j), bits)
      checksum = ieor(ishftc(checksum, 5), bits)
    end do
  end do
  write (*, '(a, 1x, z16.16, 1x, i0, a)') 'field', checksum, wrong, ' wrong'
  if (wrong /= 0) stop 1
end program field

! Direct access files that are updated in place, one of them a scratch file, and one that must be new.
! Alone (without MPI) it goes by steps, as the scripts of files_ahead.py do.
program scratch_f
#ifndef ALONE
  use mpi
#endif
  implicit none
  integer, parameter :: records = 16, width = 8
  integer(8) :: line(width), total, all
  integer :: files(2), at, i, k, f, steps, rank, error, once
  character(64) :: gate, name
#ifdef ALONE
  rank = 0
  steps = 30
#else
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call get_command_argument(1, gate)
  steps = 400
#endif
  open (newunit=files(1), status='scratch', access='direct', form='unformatted', recl=8 * width)
  write (name, '(a,i0)') 'direct.', rank
  open (newunit=files(2), file=name, status='replace', access='direct', form='unformatted', recl=8 * width)
  do f = 1, 2
    do k = 1, records
      line = k * f
      write (files(f), rec=k) line
    end do
  end do
  do i = 0, steps - 1
#ifdef ALONE
    if (i == 10 .or. i == 20) then
      write (gate, '(a,i0)') 'go.', i
      call pass(gate)
    end if
    write (name, '(a,i0)') 'new.', i
    open (newunit=once, file=name, status='new')
    write (once, *) i
    close (once)
#else
    if (i == steps / 2 .and. gate /= '') call pass(gate)
#endif
    k = 1 + mod(7 * i, records)
    do f = 1, 2
      read (files(f), rec=k) line
      line = mod(3 * line + i, 1000003_8)
      write (files(f), rec=k) line
    end do
#ifdef ALONE
    flush (files(1))
    flush (files(2))
    open (newunit=at, file='at', position='append')
    write (at, '(i0)') i
    close (at)
#else
    total = line(1)
    if (mod(i, 40) == 0) then
      flush (files(1))
      flush (files(2))
      call MPI_Allreduce(total, all, 1, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, error)
      line(1) = mod(all, 1000003_8)
      write (files(2), rec=k) line
    end if
#endif
  end do
  total = 0
  do f = 1, 2
    do k = 1, records
      read (files(f), rec=k) line
      total = mod(31 * total + sum(line), 1000000007_8)
    end do
  end do
#ifdef ALONE
  print '(a,i0)', 'scratch ', total
#else
  call MPI_Reduce(total, all, 1, MPI_INTEGER8, MPI_SUM, 0, MPI_COMM_WORLD, error)
  if (rank == 0) print '(a,i0)', 'scratch ', all
  close (files(2), status='delete')
  call MPI_Finalize(error)
#endif
contains
  subroutine pass(gate)
    character(*), intent(in) :: gate
    logical :: open
    do
      inquire (file=trim(gate), exist=open)
      if (open) exit
    end do
  end subroutine
end program

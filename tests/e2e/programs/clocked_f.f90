! As clocked.c, with what Fortran has: its clocks, its seed of random numbers, a stream of
! /dev/urandom.
program clocked_f
    use mpi
    use iso_fortran_env, only: int64, real64
    implicit none
    integer :: error, rank, ranks, step, steps, seeds, unit, parts(8), now
    integer, allocatable :: seed(:)
    integer(int64) :: told(7), theirs(7), sums(2), all(2), last, ticks
    real(real64) :: used
    character(len=32) :: text
    steps = 100
    if (command_argument_count() > 0) then
        call get_command_argument(1, text)
        read (text, *) steps
    end if
    call MPI_Init(error)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
    call random_seed(size=seeds)
    allocate (seed(seeds))
    sums = 0
    last = 0
    do step = 1, steps
        call system_clock(told(1))
        call cpu_time(used)
        told(2) = int(used*1e6_real64, int64)
        call date_and_time(values=parts)
        told(3) = parts(8) + 1000_int64*parts(7)
        call random_seed()
        call random_seed(get=seed)
        told(4) = seed(1)
        open (newunit=unit, file='/dev/urandom', access='stream', form='unformatted', &
              action='read', status='old')
        read (unit) told(5)
        close (unit)
        told(6) = getpid()
        call system_clock(now)
        told(7) = now
        if (told(1) < last) call MPI_Abort(MPI_COMM_WORLD, 3, error)
        last = told(1)
        call MPI_Sendrecv(told, 7, MPI_INTEGER8, mod(rank + 1, ranks), 1, theirs, 7, &
                          MPI_INTEGER8, mod(rank + ranks - 1, ranks), 1, MPI_COMM_WORLD, &
                          MPI_STATUS_IGNORE, error)
        sums(1) = sums(1) + sum(iand(told, 65535_int64))
        sums(2) = sums(2) + sum(iand(theirs, 65535_int64))
        do
            call system_clock(ticks)
            if (ticks - last > 300000) exit
        end do
    end do
    call MPI_Allreduce(sums, all, 2, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, error)
    if (rank == 0) then
        if (all(1) /= all(2)) print '(a)', 'clocked: differing'
        print '(a,i0,a)', 'clocked: ', steps, ' steps'
    end if
    call MPI_Finalize(error)
end program

! The stencil of stencil_ulfm.c in Fortran (`use mpi_f08`), with the same options and the same bits: it handles the
! loss of ranks itself (ULFM). Some ranks compute, the others are spares; a spare takes the place of each rank that is
! lost, and gets its state from the neighbour that holds a copy.
!
!     eyrie run -n 4 --spare-ranks 1 --on-failure report stencil_ulfm_f --kill 2@300
program stencil_ulfm_f
  use mpi_f08
  use, intrinsic :: iso_c_binding, only: c_int
  use, intrinsic :: iso_fortran_env, only: int64, real64
  implicit none

  interface
    integer(c_int) function getpid() bind(C)
      import :: c_int
    end function getpid
    integer(c_int) function send_signal(pid, signal) bind(C, name='kill')
      import :: c_int
      integer(c_int), value :: pid, signal
    end function send_signal
  end interface

  integer, parameter :: no_spare = 4, sigkill = 9
  integer :: dims = 2, grid = 0, steps = 1000, spares = 1, every = 50
  integer :: kills = 0, kill_place(16), kill_step(16)
  type(MPI_Comm) :: all, compute
  integer :: rank, ranks, place = -1, places, e, flag
  integer :: rows, row0, width
  real(real64), allocatable :: now(:), next(:)
  ! The state at the beginning of two steps, the newest first: one's own rows, and those of the place before.
  real(real64), allocatable :: own(:, :), other(:, :)
  integer :: own_step(2) = -1, other_step(2) = -1
  integer(int64) :: checksum = 0

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call read_options()
  places = ranks - spares
  if (places < 1 .or. grid < places) call give_up('too few ranks, or too many for the rows')
  call make_room()
  call MPI_Comm_dup(MPI_COMM_WORLD, all)
  call MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN)
  if (rank < places) place = rank
  call MPI_Comm_split(all, merge(0, MPI_UNDEFINED, place >= 0), max(place, 0), compute)
  if (place >= 0) then
    call begin_at(place)
    own_step(1) = 0
    call resume()
  end if
  call MPI_Barrier(all)
  if (place == 0) write (0, '(a,i0,a,i0,a)') 'stencil_ulfm_f: ', places, ' places, ', spares, ' spares'
  do
    e = MPI_SUCCESS
    if (place >= 0) call run(e)
    flag = merge(1, 0, e == MPI_SUCCESS)
    ! Others may wait for who has given up.
    if (flag == 0) call MPI_Comm_revoke(compute)
    ! Spares wait here.
    call MPI_Comm_agree(all, flag, e)
    if (flag == 1) exit
    do
      call repair(e)
      if (e == MPI_SUCCESS) exit
    end do
  end do
  if (place == 0) call report()
  call MPI_Finalize()

contains

  ! In small letters, as C writes it.
  subroutine report()
    character(len=16) :: text
    integer :: i
    write (text, '(z16.16)') checksum
    do i = 1, len(text)
      if (text(i:i) >= 'A') text(i:i) = achar(iachar(text(i:i)) + 32)
    end do
    write (*, '(a,i0,a,i0,a,i0,2a)') 'stencil ', grid, '^', dims, ', ', steps, ' steps, checksum ', text
  end subroutine report

  subroutine give_up(text)
    character(len=*), intent(in) :: text
    write (0, '(a,a)') 'stencil_ulfm_f: ', text
    call MPI_Abort(MPI_COMM_WORLD, 2)
  end subroutine give_up

  subroutine read_options()
    character(len=64) :: name, text
    logical :: found
    integer :: at, mark, state
    call MPI_Info_get(MPI_INFO_ENV, 'eyrie_spare_ranks', len(text) - 1, text, found)
    if (found) read (text, *) spares
    do at = 1, command_argument_count() - 1, 2
      call get_command_argument(at, name)
      call get_command_argument(at + 1, text)
      select case (name)
      case ('--dims'); read (text, *, iostat=state) dims
      case ('--size'); read (text, *, iostat=state) grid
      case ('--steps'); read (text, *, iostat=state) steps
      case ('--spares'); read (text, *, iostat=state) spares
      case ('--every'); read (text, *, iostat=state) every
      case ('--kill')
        mark = index(text, '@')
        kills = kills + 1
        if (mark < 2 .or. kills > 16) call give_up('write --kill PLACE@STEP, 16 times at most')
        read (text(:mark - 1), *, iostat=state) kill_place(kills)
        if (state == 0) read (text(mark + 1:), *, iostat=state) kill_step(kills)
      case default
        state = 1
      end select
      if (state /= 0) call give_up('unknown option or value: '//trim(name)//' '//trim(text))
    end do
    if (grid == 0) grid = merge(256, 48, dims == 2)
    if (dims < 2 .or. dims > 3 .or. grid < 4 .or. every < 1) call give_up('an option is out of bounds')
    width = grid**(dims - 1)
  end subroutine read_options

  integer function start_of(part)
    integer, intent(in) :: part
    start_of = grid / places * part + min(part, mod(grid, places))
  end function start_of

  integer function cells_of(part)
    integer, intent(in) :: part
    cells_of = (start_of(part + 1) - start_of(part)) * width
  end function cells_of

  ! Room for the rows of any place, as a spare may get any.
  subroutine make_room()
    integer :: most
    most = cells_of(0)
    allocate (now(0:most + 2 * width - 1), next(0:most + 2 * width - 1))
    allocate (own(most, 2), other(most, 2))
    own = 0
    other = 0
  end subroutine make_room

  integer(int64) function mix64(word)
    integer(int64), intent(in) :: word
    integer(int64) :: factor
    factor = ior(ishft(int(z'd6e8feb8', int64), 32), int(z'6659fd93', int64))
    mix64 = ieor(word, ishft(word, -32)) * factor
    mix64 = ieor(mix64, ishft(mix64, -32)) * factor
    mix64 = ieor(mix64, ishft(mix64, -32))
  end function mix64

  ! Hash of a value at a place; sums of it do not depend on who holds which.
  integer(int64) function place_hash(at, value)
    integer(int64), intent(in) :: at
    real(real64), intent(in) :: value
    integer(int64) :: hash, golden
    golden = ior(ishft(int(z'9e3779b9', int64), 32), int(z'7f4a7c15', int64))
    hash = mix64(at + 1)
    place_hash = mix64(ieor(hash, transfer(value, hash) + golden + ishft(hash, 6) + ishft(hash, -2)))
  end function place_hash

  subroutine begin_at(part)
    integer, intent(in) :: part
    integer :: i
    integer(int64) :: first
    first = int(start_of(part), int64) * width
    do i = 1, cells_of(part)
      own(i, 1) = real(ishft(mix64(first + i - 1), -11), real64) / 2.0_real64**53
    end do
  end subroutine begin_at

  ! Goes on from a copy of one's own.
  subroutine resume()
    row0 = start_of(place)
    rows = start_of(place + 1) - row0
    now = 0
    next = 0
    now(width:width + cells_of(place) - 1) = own(:cells_of(place), 1)
  end subroutine resume

  ! Keeps the state, and a copy of it at the next place. An error: it does not count.
  subroutine keep(step, error)
    integer, intent(in) :: step
    integer, intent(out) :: error
    integer :: before, after
    before = mod(place + places - 1, places)
    after = mod(place + 1, places)
    own_step(2) = -1
    other_step(2) = -1
    own(:cells_of(place), 2) = now(width:width + cells_of(place) - 1)
    call MPI_Sendrecv(own(1, 2), cells_of(place), MPI_DOUBLE_PRECISION, after, 1, other(1, 2), cells_of(before), &
                      MPI_DOUBLE_PRECISION, before, 1, compute, MPI_STATUS_IGNORE, error)
    if (error /= MPI_SUCCESS) return
    own_step(2) = step
    other_step(2) = step
    call swap_copies()
  end subroutine keep

  subroutine swap_copies()
    own = own(:, [2, 1])
    other = other(:, [2, 1])
    own_step = own_step([2, 1])
    other_step = other_step([2, 1])
  end subroutine swap_copies

  subroutine one_step(error)
    integer, intent(out) :: error
    integer :: up, down, y
    real(real64), allocatable :: was(:)
    up = merge(place - 1, MPI_PROC_NULL, place > 0)
    down = merge(place + 1, MPI_PROC_NULL, place + 1 < places)
    call MPI_Sendrecv(now(width), width, MPI_DOUBLE_PRECISION, up, 2, now((rows + 1) * width), width, &
                      MPI_DOUBLE_PRECISION, down, 2, compute, MPI_STATUS_IGNORE, error)
    if (error == MPI_SUCCESS) &
      call MPI_Sendrecv(now(rows * width), width, MPI_DOUBLE_PRECISION, down, 3, now(0), width, &
                        MPI_DOUBLE_PRECISION, up, 3, compute, MPI_STATUS_IGNORE, error)
    if (error /= MPI_SUCCESS) return
    do y = 1, rows
      call relax(y * width, row0 + y == 1 .or. row0 + y == grid)
    end do
    call move_alloc(now, was)
    call move_alloc(next, now)
    call move_alloc(was, next)
  end subroutine one_step

  ! One row, or plane; cells at the rim of the grid stay as they are.
  subroutine relax(first, edge)
    integer, intent(in) :: first
    logical, intent(in) :: edge
    integer :: i, x, y, at
    do i = 0, width - 1
      at = first + i
      x = mod(i, grid)
      y = i / grid
      if (edge .or. x == 0 .or. x + 1 == grid .or. (dims == 3 .and. (y == 0 .or. y + 1 == grid))) then
        next(at) = now(at)
      else if (dims == 2) then
        next(at) = 0.2_real64 * ((((now(at) + now(at - 1)) + now(at + 1)) + now(at - width)) + now(at + width))
      else
        next(at) = 0.125_real64 * ((((((2 * now(at) + now(at - 1)) + now(at + 1)) + now(at - grid)) &
                                     + now(at + grid)) + now(at - width)) + now(at + width))
      end if
    end do
  end subroutine relax

  ! Computes from the newest copy on. An error: somebody is lost, or another has noticed it.
  subroutine run(error)
    integer, intent(out) :: error
    integer :: step, i, done
    integer(int64) :: sum, first
    error = MPI_SUCCESS
    step = own_step(1)
    ! Who has taken a place has no copy of another's rows yet.
    if (step > 0) call keep(step, error)
    if (error /= MPI_SUCCESS) return
    do
      do i = 1, kills
        ! Who has taken the place does not.
        if (kill_place(i) == place .and. rank == place .and. kill_step(i) == step) &
          done = send_signal(getpid(), sigkill)
      end do
      if (step == steps) exit
      if (step > own_step(1) .and. mod(step, every) == 0) call keep(step, error)
      if (error == MPI_SUCCESS) call one_step(error)
      if (error /= MPI_SUCCESS) return
      step = step + 1
    end do
    sum = 0
    first = int(row0, int64) * width
    do i = 0, cells_of(place) - 1
      sum = sum + place_hash(first + i, now(width + i))
    end do
    call MPI_Allreduce(sum, checksum, 1, MPI_INTEGER8, MPI_SUM, compute, error)
  end subroutine run

  ! The newest step of which all rows are still somewhere; 0 can be had in any case.
  integer function common_step(words, lost)
    integer, intent(in) :: words(:, :)
    logical, intent(in) :: lost(0:)
    integer :: i, w, part, holder, from
    do i = 1, 2
      common_step = -1
      do w = 1, size(words, 2)
        if (words(1, w) < 0) cycle
        common_step = words(1 + i, w)
        exit
      end do
      if (common_step <= 0) cycle
      do part = 0, places - 1
        holder = merge(mod(part + 1, places), part, lost(part))
        from = merge(4, 2, lost(part))
        if (lost(holder)) exit
        do w = 1, size(words, 2)
          if (words(1, w) == holder) exit
        end do
        if (.not. any(words(from:from + 1, w) == common_step)) exit
      end do
      if (part == places) return
    end do
    common_step = 0
  end function common_step

  ! All that live go on without those that are lost. An error: another is lost meanwhile.
  subroutine repair(error)
    integer, intent(out) :: error
    type(MPI_Comm) :: left, again
    integer :: own_rank, count, part, spare, taken, step, w, fine, from, word(5)
    integer, allocatable :: words(:, :), holds(:)
    logical, allocatable :: lost(:)
    call MPI_Comm_shrink(all, left, error)
    if (error /= MPI_SUCCESS) return
    call MPI_Comm_free(all)
    all = left
    call MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN)
    call MPI_Comm_rank(all, own_rank)
    call MPI_Comm_size(all, count)
    allocate (words(5, count), holds(0:places - 1), lost(0:places - 1))
    word = [place, own_step, other_step]
    call MPI_Allgather(word, 5, MPI_INTEGER, words, 5, MPI_INTEGER, all, error)
    taken = -1
    step = 0
    if (error == MPI_SUCCESS) then
      lost = .true.
      do w = 1, count
        if (words(1, w) < 0) cycle
        lost(words(1, w)) = .false.
        holds(words(1, w)) = w - 1
      end do
      step = common_step(words, lost)
      spare = 1
      do part = 0, places - 1
        if (.not. lost(part)) cycle
        do while (spare <= count)
          if (words(1, spare) < 0) exit
          spare = spare + 1
        end do
        if (spare > count) then
          ! The first one ends all; the others wait until it does, or is lost, too.
          if (own_rank /= 0) call MPI_Barrier(all, error)
          write (0, '(a,i0)') 'stencil_ulfm_f: no spare is left for place ', part
          call MPI_Abort(MPI_COMM_WORLD, no_spare)
        end if
        holds(part) = spare - 1
        if (spare - 1 == own_rank) taken = part
        spare = spare + 1
      end do
    end if
    ! Its rows come from the next place, or are made anew.
    do part = 0, places - 1
      if (error /= MPI_SUCCESS .or. step == 0) exit
      if (.not. lost(part)) cycle
      from = merge(1, 2, other_step(1) == step)
      if (place == mod(part + 1, places)) then
        call MPI_Send(other(1, from), cells_of(part), MPI_DOUBLE_PRECISION, holds(part), 4, all, error)
      else if (taken == part) then
        call MPI_Recv(own(1, 1), cells_of(part), MPI_DOUBLE_PRECISION, holds(mod(part + 1, places)), 4, all, &
                      MPI_STATUS_IGNORE, error)
      end if
    end do
    ! All go on, or all begin anew: an agreement has the same outcome everywhere.
    fine = merge(1, 0, error == MPI_SUCCESS)
    call MPI_Comm_agree(all, fine, error)
    if (error /= MPI_SUCCESS .or. fine == 0) then
      error = MPI_ERR_OTHER
      return
    end if
    if (taken >= 0) place = taken
    if (step == 0 .and. place >= 0) then
      call begin_at(place)
    else if (taken < 0 .and. place >= 0 .and. own_step(1) /= step) then
      call swap_copies()
    end if
    own_step = [step, -1]
    other_step(2) = -1
    if (taken >= 0 .or. step == 0) other_step(1) = -1
    again = MPI_COMM_NULL
    call MPI_Comm_split(all, merge(0, MPI_UNDEFINED, place >= 0), max(place, 0), again, error)
    fine = merge(1, 0, error == MPI_SUCCESS)
    call MPI_Comm_agree(all, fine, error)
    if (error /= MPI_SUCCESS .or. fine == 0) then
      error = MPI_ERR_OTHER
      return
    end if
    if (compute /= MPI_COMM_NULL) call MPI_Comm_free(compute)
    compute = again
    if (place >= 0) call resume()
    if (own_rank == 0) write (0, '(a,i0,a,i0)') 'stencil_ulfm_f: ', count, ' ranks go on from step ', step
  end subroutine repair
end program stencil_ulfm_f

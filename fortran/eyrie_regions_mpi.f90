! eyrie_regions for programs of MPI, whichever it is: to be compiled with that MPI's compiler.
module eyrie_regions_mpi
  use, intrinsic :: iso_c_binding
  use eyrie_regions
  use mpi
  implicit none
  private
  public :: eyrie_open_mpi

  integer, parameter :: tag = 1

  ! Bytes that are on their way.
  type :: sending
    integer :: request
    integer(c_int8_t), pointer, contiguous :: bytes(:)
    type(sending), pointer :: next
  end type sending

  type :: context_type
    integer :: comm
    type(sending), pointer :: sent
  end type context_type

contains

  ! All of the communicator call it; what is asked of MPI goes over a duplicate of it.
  integer function eyrie_open_mpi(regions, options, comm)
    type(c_ptr), intent(out) :: regions
    character(len=*), intent(in) :: options
    integer, intent(in) :: comm
    type(context_type), pointer :: kept
    type(c_funptr) :: functions(4)
    integer :: rank, ranks, ierr
    ! Never given back: a handle is opened once in a program's life.
    allocate (kept)
    kept%sent => null()
    call MPI_Comm_dup(comm, kept%comm, ierr)
    call MPI_Comm_rank(comm, rank, ierr)
    call MPI_Comm_size(comm, ranks, ierr)
    functions(1) = c_funloc(most_mpi)
    functions(2) = c_funloc(gather_mpi)
    functions(3) = c_funloc(send_mpi)
    functions(4) = c_funloc(receive_mpi)
    eyrie_open_mpi = eyrie_open_apart(regions, options, rank, ranks, functions, c_loc(kept))
  end function eyrie_open_mpi

  integer(c_int) function most_mpi(context, values, count) bind(c)
    type(c_ptr), value :: context
    integer(c_int), value :: count
    integer(c_int64_t), intent(inout) :: values(count)
    integer(c_int64_t) :: own(count)
    type(context_type), pointer :: kept
    integer :: ierr
    call c_f_pointer(context, kept)
    own = values
    call MPI_Allreduce(own, values, int(count), MPI_INTEGER8, MPI_MAX, kept%comm, ierr)
    most_mpi = int(ierr, c_int)
  end function most_mpi

  integer(c_int) function gather_mpi(context, own, counts, places, all) bind(c)
    type(c_ptr), value :: context, own, counts, places, all
    integer(c_int), pointer, contiguous :: lengths(:), starts(:)
    integer(c_int8_t), pointer, contiguous :: from(:), to(:)
    type(context_type), pointer :: kept
    integer :: rank, ranks, ierr
    call c_f_pointer(context, kept)
    call MPI_Comm_rank(kept%comm, rank, ierr)
    call MPI_Comm_size(kept%comm, ranks, ierr)
    call c_f_pointer(counts, lengths, [ranks])
    call c_f_pointer(places, starts, [ranks])
    call c_f_pointer(own, from, [lengths(rank + 1)])
    call c_f_pointer(all, to, [sum(lengths)])
    call MPI_Allgatherv(from, lengths(rank + 1), MPI_BYTE, to, lengths, starts, MPI_BYTE, &
                        kept%comm, ierr)
    gather_mpi = int(ierr, c_int)
  end function gather_mpi

  ! `to` -1: waits until all that was sent is taken.
  integer(c_int) function send_mpi(context, to, bytes, count) bind(c)
    type(c_ptr), value :: context, bytes
    integer(c_int), value :: to, count
    integer(c_int8_t), pointer, contiguous :: from(:)
    type(context_type), pointer :: kept
    type(sending), pointer :: sent
    integer :: ierr
    call c_f_pointer(context, kept)
    call arrived(kept, to < 0, ierr)
    send_mpi = int(ierr, c_int)
    if (ierr /= MPI_SUCCESS .or. to < 0) return
    call c_f_pointer(bytes, from, [count])
    allocate (sent)
    allocate (sent%bytes(count))
    sent%bytes = from
    sent%next => kept%sent
    kept%sent => sent
    call MPI_Isend(sent%bytes, int(count), MPI_BYTE, int(to), tag, kept%comm, sent%request, ierr)
    send_mpi = int(ierr, c_int)
  end function send_mpi

  integer(c_int) function receive_mpi(context, bytes, room, from, count) bind(c)
    type(c_ptr), value :: context, bytes
    integer(c_int), value :: room
    integer(c_int), intent(out) :: from, count
    integer(c_int8_t), pointer, contiguous :: to(:)
    type(context_type), pointer :: kept
    integer :: status(MPI_STATUS_SIZE), length, ierr
    call c_f_pointer(context, kept)
    call c_f_pointer(bytes, to, [room])
    call MPI_Recv(to, int(room), MPI_BYTE, MPI_ANY_SOURCE, tag, kept%comm, status, ierr)
    from = int(status(MPI_SOURCE), c_int)
    if (ierr == MPI_SUCCESS) call MPI_Get_count(status, MPI_BYTE, length, ierr)
    count = int(length, c_int)
    receive_mpi = int(ierr, c_int)
  end function receive_mpi

  ! Gives back what has arrived; `wait`: of all.
  subroutine arrived(kept, wait, ierr)
    type(context_type), intent(inout) :: kept
    logical, intent(in) :: wait
    integer, intent(out) :: ierr
    type(sending), pointer :: sent, before, after
    integer :: status(MPI_STATUS_SIZE)
    logical :: done
    ierr = MPI_SUCCESS
    before => null()
    sent => kept%sent
    do while (associated(sent))
      after => sent%next
      done = .true.
      if (wait) then
        call MPI_Wait(sent%request, status, ierr)
      else
        call MPI_Test(sent%request, done, status, ierr)
      end if
      if (ierr /= MPI_SUCCESS) return
      if (done) then
        if (associated(before)) then
          before%next => after
        else
          kept%sent => after
        end if
        deallocate (sent%bytes)
        deallocate (sent)
      else
        before => sent
      end if
      sent => after
    end do
  end subroutine arrived
end module eyrie_regions_mpi

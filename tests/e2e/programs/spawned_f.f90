! Starts itself from Fortran, with arguments, once by MPI_Comm_spawn and once by
! MPI_Comm_spawn_multiple; the children add up what they were told.
program spawned_f
  use mpi_f08
  implicit none
  type(MPI_Comm) :: parent, inter
  type(MPI_Info) :: infos(2)
  character(len=256) :: own, commands(2)
  character(len=8) :: words(3), lists(2, 3)
  integer :: counts(2), codes(3), rank, remote, own_sum, total, i

  call MPI_Init()
  call MPI_Comm_get_parent(parent)
  call get_command_argument(0, own)
  if (parent /= MPI_COMM_NULL) then
    call get_command_argument(1, words(1))
    call get_command_argument(2, words(2))
    read (words(1), *) own_sum
    read (words(2), *) i
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    own_sum = own_sum * i + rank
    call MPI_Reduce(own_sum, total, 1, MPI_INTEGER, MPI_SUM, 0, parent)
    call MPI_Comm_disconnect(parent)
    call MPI_Finalize()
    stop
  end if
  words = [character(len=8) :: '10', '3', ' ']
  codes = -1
  call MPI_Comm_spawn(own, words, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, inter, codes)
  if (any(codes(1:2) /= MPI_SUCCESS)) call MPI_Abort(MPI_COMM_WORLD, 3)
  call MPI_Reduce(own_sum, total, 1, MPI_INTEGER, MPI_SUM, MPI_ROOT, inter)
  call MPI_Comm_disconnect(inter)
  print '(a, i0)', 'children: ', total
  commands = own
  lists(1, :) = [character(len=8) :: '100', '1', ' ']
  lists(2, :) = [character(len=8) :: '1000', '2', ' ']
  counts = [1, 2]
  infos = MPI_INFO_NULL
  call MPI_Comm_spawn_multiple(2, commands, lists, counts, infos, 0, MPI_COMM_WORLD, inter, codes)
  if (any(codes /= MPI_SUCCESS)) call MPI_Abort(MPI_COMM_WORLD, 3)
  call MPI_Comm_remote_size(inter, remote)
  call MPI_Reduce(own_sum, total, 1, MPI_INTEGER, MPI_SUM, MPI_ROOT, inter)
  call MPI_Comm_disconnect(inter)
  print '(a, i0, a, i0)', 'both: ', total, ' of ', remote
  call MPI_Finalize()
end program spawned_f

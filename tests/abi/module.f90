! Free form with the module: choice buffers of several types and ranks through one explicit interface,
! array sections, 64-bit addresses. A job of one rank.
program module_test
  use mpi
  implicit none
  integer :: ierr, good = 0, bad = 0, newtype, status(MPI_STATUS_SIZE), n, position
  integer :: dims(2), coords(2), cart, left, right, world, few(1), sub
  integer :: kinds(4), shown(4), seen(4), request, both(2)
  integer(MPI_ADDRESS_KIND) :: places(4) = [0, 4, 8, 12]
  integer :: graph, sources(2), weights(2), into(2), out(2), file, filetype, old
  integer(kind=MPI_OFFSET_KIND) :: offset
  character(len=20) :: datarep
  logical :: periods(2), flag
  integer(kind=MPI_ADDRESS_KIND) :: addresses(2), base
  real :: a(4, 3), b(4, 3)
  double precision :: s, r
  character(len=5) :: word, heard
  character(len=MPI_MAX_LIBRARY_VERSION_STRING) :: version
  integer(1) :: packed(64)
  type particle
    sequence
    integer :: id
    double precision :: mass
  end type particle
  type(particle) :: p, q

  call MPI_Init(ierr)
  s = 2.5d0
  call MPI_Allreduce(s, r, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  call check(r == 2.5d0, 'scalar buffer')
  a = reshape([1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12.], [4, 3])
  b = 0
  call MPI_Sendrecv(a, 12, MPI_REAL, 0, 1, b, 12, MPI_REAL, 0, 1, MPI_COMM_WORLD, status, ierr)
  call check(all(a == b), 'array buffer')
  call MPI_Bcast(word, 5, MPI_CHARACTER, 0, MPI_COMM_WORLD, ierr)
  word = 'hello'
  call MPI_Sendrecv(word, 5, MPI_CHARACTER, 0, 2, heard, 5, MPI_CHARACTER, 0, 2, &
       MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  call MPI_F_sync_reg(heard)
  call MPI_F_sync_reg(b)
  call check(heard == 'hello', 'character buffer')

  call MPI_Get_address(p, base, ierr)
  call MPI_Get_address(p%id, addresses(1), ierr)
  call MPI_Get_address(p%mass, addresses(2), ierr)
  addresses(1) = MPI_Aint_diff(addresses(1), base)
  addresses(2) = MPI_Aint_diff(addresses(2), base)
  call MPI_Type_create_struct(2, [1, 1], addresses, [MPI_INTEGER, MPI_DOUBLE_PRECISION], newtype, ierr)
  call MPI_Type_commit(newtype, ierr)
  p = particle(7, 1.25d0)
  q = particle(0, 0d0)
  call MPI_Sendrecv(p, 1, newtype, 0, 3, q, 1, newtype, 0, 3, MPI_COMM_WORLD, status, ierr)
  call check(q%id == 7 .and. q%mass == 1.25d0, 'derived type')
  call MPI_Get_elements(status, newtype, n, ierr)
  call check(n == 2, 'elements')
  position = 0
  call MPI_Pack(p, 1, newtype, packed, 64, position, MPI_COMM_WORLD, ierr)
  call check(position == 12, 'packed size')
  call MPI_Type_free(newtype, ierr)

  dims = 0
  call MPI_Dims_create(1, 2, dims, ierr)
  periods = .true.
  call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, .false., cart, ierr)
  call MPI_Cart_shift(cart, 0, 1, left, right, ierr)
  call check(left == 0 .and. right == 0, 'periodic shift')
  periods = .false.
  call MPI_Cart_get(cart, 2, dims, periods, coords, ierr)
  call check(all(periods) .and. all(coords == 0), 'logical array')
  kinds = MPI_INTEGER
  shown = [1, 2, 3, 4]
  seen = 0
  call MPI_Ineighbor_alltoallw(shown, [1, 1, 1, 1], places, kinds, seen, [1, 1, 1, 1], places, &
       kinds, cart, request, ierr)
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
  call check(all(seen == [2, 1, 4, 3]) .and. request == MPI_REQUEST_NULL, 'neighbours')
  call MPI_Comm_free(cart, ierr)
  MPI_STATUSES_IGNORE = -77
  call MPI_Irecv(seen, 4, MPI_INTEGER, 0, 3, MPI_COMM_WORLD, both(1), ierr)
  call MPI_Isend(shown, 4, MPI_INTEGER, 0, 3, MPI_COMM_WORLD, both(2), ierr)
  call MPI_Waitall(2, both, MPI_STATUSES_IGNORE, ierr)
  call check(all(seen == shown) .and. all(MPI_STATUSES_IGNORE == -77), 'statuses not wanted')
  call MPI_Iallreduce(MPI_IN_PLACE, seen, 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request, ierr)
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
  call check(all(seen == shown), 'begun in place')
  seen = 0
  call MPI_Alltoallw_init(shown, [4], [0], kinds, seen, [4], [0], kinds, MPI_COMM_WORLD, &
       MPI_INFO_NULL, request, ierr)
  call MPI_Start(request, ierr)
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
  call check(all(seen == shown) .and. request /= MPI_REQUEST_NULL, 'started')
  call MPI_Request_free(request, ierr)

  few = 2
  sources = 0
  call MPI_Graph_create(MPI_COMM_WORLD, 1, few, sources, .true., graph, ierr)
  call MPI_Graph_neighbors(graph, 0, 2, into, ierr)
  call MPI_Graph_neighbors_count(graph, 0, n, ierr)
  call check(n == 2 .and. all(into == 0), 'graph')
  call MPI_Comm_free(graph, ierr)
  call MPI_Dist_graph_create(MPI_COMM_WORLD, 1, [0], few, sources, [3, 4], MPI_INFO_NULL, &
       .false., graph, ierr)
  call MPI_Topo_test(graph, n, ierr)
  call check(n == MPI_DIST_GRAPH, 'kind of topology')
  flag = .false.
  call MPI_Dist_graph_neighbors_count(graph, left, right, flag, ierr)
  call check(left == 2 .and. right == 2 .and. flag, 'weighted')
  weights = -1
  call MPI_Dist_graph_neighbors(graph, 2, into, weights, 2, out, MPI_UNWEIGHTED, ierr)
  call check(all(into == 0) .and. all(out == 0) .and. all(weights == [3, 4]), 'weights')
  call MPI_Comm_free(graph, ierr)
  call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources, MPI_UNWEIGHTED, 1, [0], &
       MPI_UNWEIGHTED, MPI_INFO_NULL, .false., graph, ierr)
  call MPI_Dist_graph_neighbors_count(graph, left, right, flag, ierr)
  call check(left == 2 .and. right == 1 .and. .not. flag, 'unweighted')
  call MPI_Comm_free(graph, ierr)
  call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, sources, MPI_WEIGHTS_EMPTY, 0, out, &
       MPI_WEIGHTS_EMPTY, MPI_INFO_NULL, .false., graph, ierr)
  call MPI_Dist_graph_neighbors_count(graph, left, right, flag, ierr)
  call check(left == 0 .and. right == 0 .and. flag, 'no weights')
  call MPI_Comm_free(graph, ierr)

  call MPI_File_open(MPI_COMM_SELF, 'module.data  ', MPI_MODE_RDWR + MPI_MODE_CREATE + &
       MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, file, ierr)
  call check(ierr == MPI_SUCCESS .and. file /= MPI_FILE_NULL, 'file')
  call MPI_Type_vector(3, 1, 2, MPI_REAL, filetype, ierr)
  call MPI_Type_commit(filetype, ierr)
  offset = 4
  call MPI_File_set_view(file, offset, MPI_REAL, filetype, 'native', MPI_INFO_NULL, ierr)
  call MPI_Type_free(filetype, ierr)
  call MPI_File_get_view(file, offset, old, filetype, datarep, ierr)
  call check(offset == 4 .and. old == MPI_REAL .and. datarep == 'native', 'view')
  call MPI_Type_free(filetype, ierr)
  call MPI_File_write(file, a, 12, MPI_REAL, status, ierr)
  call MPI_Get_count(status, MPI_REAL, n, ierr)
  call check(n == 12, 'written')
  b = 0
  offset = 5
  call MPI_File_read_at_all(file, offset, b, 7, MPI_REAL, MPI_STATUS_IGNORE, ierr)
  call check(b(1, 1) == 6 .and. b(3, 2) == 12 .and. b(4, 2) == 0, 'read')
  call MPI_File_get_size(file, offset, ierr)
  call check(offset == 4 * 21, 'size')
  flag = .true.
  call MPI_File_get_atomicity(file, flag, ierr)
  call check(.not. flag, 'atomicity')
  call MPI_File_iread(file, b, 1, MPI_REAL, n, ierr)
  call MPI_Wait(n, status, ierr)
  call check(n == MPI_REQUEST_NULL, 'request of a file')
  call MPI_File_close(file, ierr)
  call check(file == MPI_FILE_NULL, 'closed')
  call MPI_File_delete('module.data', MPI_INFO_NULL, ierr)
  call MPI_Error_class(ierr, n, ierr)
  call check(n == MPI_ERR_NO_SUCH_FILE, 'deleted when it was closed')

  call MPI_Comm_group(MPI_COMM_WORLD, world, ierr)
  few = 0
  call MPI_Group_incl(world, 1, few, sub, ierr)
  call MPI_Group_compare(world, sub, n, ierr)
  call check(n == MPI_IDENT, 'groups')
  call MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, flag, status, ierr)
  call check(.not. flag, 'iprobe')
  call MPI_Get_library_version(version, n, ierr)
  call check(version(1:5) == 'Eyrie' .and. len_trim(version) == n, 'library version')
  call MPI_Finalize(ierr)
  print '(a,i0,a,i0,a)', 'module: ', good, ' passed, ', bad, ' failed'
  if (bad /= 0) stop 1
contains
  include 'check.inc'
end program module_test

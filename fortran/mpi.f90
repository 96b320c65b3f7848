! The module `mpi`: constants and explicit interfaces, both generated from the C header. Choice
! buffers are of any type and rank. Routines with procedure arguments are declared here.
module mpi
  implicit none
  include 'mpi_constants.h'
  include 'mpi_interfaces.h'

  interface
    include 'mpi_by_hand.h'
  end interface
  include 'mpi_sizeof.h'

  external :: MPI_Op_create, MPI_Comm_create_errhandler, MPI_Win_create_errhandler
  external :: MPI_File_create_errhandler, MPI_Session_create_errhandler, MPI_Comm_create_keyval
  external :: MPI_Type_create_keyval, MPI_Win_create_keyval, MPI_Keyval_create
  external :: MPI_Attr_put, MPI_Attr_get
  external :: PMPI_Op_create, PMPI_Comm_create_errhandler, PMPI_Win_create_errhandler
  external :: PMPI_File_create_errhandler, PMPI_Session_create_errhandler, PMPI_Comm_create_keyval
  external :: PMPI_Type_create_keyval, PMPI_Win_create_keyval, PMPI_Keyval_create
  external :: PMPI_Attr_put, PMPI_Attr_get
end module mpi

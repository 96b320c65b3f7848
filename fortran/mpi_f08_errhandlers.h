    subroutine MPI_@Kind@_errhandler_function(@object@, error_code)
      import :: MPI_@Type@
      type(MPI_@Type@) :: @object@
      integer :: error_code
    end subroutine MPI_@Kind@_errhandler_function
!----
    subroutine MPI_@Kind@_create_errhandler_f08(@kind@_errhandler_fn, errhandler, ierror)
      procedure(MPI_@Kind@_errhandler_function) :: @kind@_errhandler_fn
      type(MPI_Errhandler) :: errhandler
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_@Kind@_create_errhandler(@kind@_errhandler_fn, errhandler%MPI_VAL, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_@Kind@_create_errhandler_f08

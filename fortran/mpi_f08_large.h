
  public :: MPI_User_function_c

  abstract interface
    subroutine MPI_User_function_c(invec, inoutvec, len, datatype)
      import :: c_ptr, MPI_Datatype, MPI_COUNT_KIND
      type(c_ptr), value :: invec, inoutvec
      integer(MPI_COUNT_KIND) :: len
      type(MPI_Datatype) :: datatype
    end subroutine MPI_User_function_c
  end interface

  interface
    ! Its own name is that of the generic one.
    subroutine f_Op_create_c(user_fn, commute, op, ierror) bind(C, name='pmpi_op_create_c_')
      import :: c_funptr, c_int
      type(c_funptr), value :: user_fn
      integer(c_int) :: commute, op, ierror
    end subroutine f_Op_create_c
    subroutine PMPI_Type_get_contents_c(datatype, max_integers, max_addresses, max_large_counts, &
        max_datatypes, array_of_integers, array_of_addresses, array_of_large_counts, &
        array_of_datatypes, ierror)
      import :: MPI_COUNT_KIND, MPI_ADDRESS_KIND
      integer :: datatype, array_of_integers(*), array_of_datatypes(*), ierror
      integer(MPI_COUNT_KIND) :: max_integers, max_addresses, max_large_counts, max_datatypes
      integer(MPI_COUNT_KIND) :: array_of_large_counts(*)
      integer(MPI_ADDRESS_KIND) :: array_of_addresses(*)
    end subroutine PMPI_Type_get_contents_c
  end interface
!----

    subroutine MPI_Op_create_c_f08(user_fn, commute, op, ierror)
      procedure(MPI_User_function_c) :: user_fn
      logical, intent(in) :: commute
      type(MPI_Op), intent(out) :: op
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_Op_create_c(c_funloc(user_fn), merge(1, 0, commute), op%MPI_VAL, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Op_create_c_f08

    subroutine MPI_Type_get_contents_c_f08(datatype, max_integers, max_addresses, max_large_counts, &
        max_datatypes, array_of_integers, array_of_addresses, array_of_large_counts, &
        array_of_datatypes, ierror)
      type(MPI_Datatype), intent(in) :: datatype
      integer(MPI_COUNT_KIND), intent(in) :: max_integers, max_addresses, max_large_counts
      integer(MPI_COUNT_KIND), intent(in) :: max_datatypes
      integer, intent(out) :: array_of_integers(max_integers)
      integer(MPI_ADDRESS_KIND), intent(out) :: array_of_addresses(max_addresses)
      integer(MPI_COUNT_KIND), intent(out) :: array_of_large_counts(max_large_counts)
      type(MPI_Datatype), intent(out), target :: array_of_datatypes(max_datatypes)
      integer, optional, intent(out) :: ierror
      integer, pointer, contiguous :: types(:)
      integer :: e
      call c_f_pointer(c_loc(array_of_datatypes), types, [max_datatypes])
      call PMPI_Type_get_contents_c(datatype%MPI_VAL, max_integers, max_addresses, max_large_counts, &
          max_datatypes, array_of_integers, array_of_addresses, array_of_large_counts, types, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_Type_get_contents_c_f08

    subroutine MPI_Buffer_detach_c_f08(buffer_addr, size, ierror)
      type(c_ptr), intent(out) :: buffer_addr
      integer(MPI_COUNT_KIND), intent(out) :: size
      integer, optional, intent(out) :: ierror
      interface
        integer(c_int) function detach(at, size) bind(C, name='eyrie_mpi_f08_buffer_detach_c')
          import :: c_ptr, c_int, c_int64_t
          type(c_ptr) :: at
          integer(c_int64_t) :: size
        end function detach
      end interface
      integer :: e
      e = detach(buffer_addr, size)
      if (present(ierror)) ierror = e
    end subroutine MPI_Buffer_detach_c_f08

    subroutine MPI_Comm_detach_buffer_c_f08(comm, buffer_addr, size, ierror)
      type(MPI_Comm), intent(in) :: comm
      type(c_ptr), intent(out) :: buffer_addr
      integer(MPI_COUNT_KIND), intent(out) :: size
      integer, optional, intent(out) :: ierror
      interface
        integer(c_int) function detach(of, at, size) &
            bind(C, name='eyrie_mpi_f08_comm_detach_buffer_c')
          import :: c_ptr, c_int, c_int64_t
          integer(c_int), value :: of
          type(c_ptr) :: at
          integer(c_int64_t) :: size
        end function detach
      end interface
      integer :: e
      e = detach(comm%MPI_VAL, buffer_addr, size)
      if (present(ierror)) ierror = e
    end subroutine MPI_Comm_detach_buffer_c_f08

    subroutine MPI_Session_detach_buffer_c_f08(session, buffer_addr, size, ierror)
      type(MPI_Session), intent(in) :: session
      type(c_ptr), intent(out) :: buffer_addr
      integer(MPI_COUNT_KIND), intent(out) :: size
      integer, optional, intent(out) :: ierror
      interface
        integer(c_int) function detach(of, at, size) &
            bind(C, name='eyrie_mpi_f08_session_detach_buffer_c')
          import :: c_ptr, c_int, c_int64_t
          integer(c_int), value :: of
          type(c_ptr) :: at
          integer(c_int64_t) :: size
        end function detach
      end interface
      integer :: e
      e = detach(session%MPI_VAL, buffer_addr, size)
      if (present(ierror)) ierror = e
    end subroutine MPI_Session_detach_buffer_c_f08

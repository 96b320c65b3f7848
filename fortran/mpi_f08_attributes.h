    subroutine MPI_@Kind@_copy_attr_function(old@kind@, @kind@_keyval, extra_state, attribute_val_in, &
        attribute_val_out, flag, ierror)
      import :: MPI_@Type@, MPI_ADDRESS_KIND
      type(MPI_@Type@) :: old@kind@
      integer :: @kind@_keyval, ierror
      integer(MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
      logical :: flag
    end subroutine MPI_@Kind@_copy_attr_function
    subroutine MPI_@Kind@_delete_attr_function(@object@, @kind@_keyval, attribute_val, &
        extra_state, ierror)
      import :: MPI_@Type@, MPI_ADDRESS_KIND
      type(MPI_@Type@) :: @object@
      integer :: @kind@_keyval, ierror
      integer(MPI_ADDRESS_KIND) :: attribute_val, extra_state
    end subroutine MPI_@Kind@_delete_attr_function
!----
    subroutine MPI_@Kind@_create_keyval_f08(@kind@_copy_attr_fn, @kind@_delete_attr_fn, @kind@_keyval, &
        extra_state, ierror)
      procedure(MPI_@Kind@_copy_attr_function) :: @kind@_copy_attr_fn
      procedure(MPI_@Kind@_delete_attr_function) :: @kind@_delete_attr_fn
      integer, intent(out) :: @kind@_keyval
      integer(MPI_ADDRESS_KIND), intent(in) :: extra_state
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_@Kind@_create_keyval(@kind@_copy_attr_fn, @kind@_delete_attr_fn, @kind@_keyval, &
          extra_state, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_@Kind@_create_keyval_f08

    subroutine MPI_@Kind@_set_attr_f08(@object@, @kind@_keyval, attribute_val, ierror)
      type(MPI_@Type@), intent(in) :: @object@
      integer, intent(in) :: @kind@_keyval
      integer(MPI_ADDRESS_KIND), intent(in) :: attribute_val
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_@Kind@_set_attr(@object@%MPI_VAL, @kind@_keyval, attribute_val, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_@Kind@_set_attr_f08

    subroutine MPI_@Kind@_get_attr_f08(@object@, @kind@_keyval, attribute_val, flag, ierror)
      type(MPI_@Type@), intent(in) :: @object@
      integer, intent(in) :: @kind@_keyval
      integer(MPI_ADDRESS_KIND) :: attribute_val
      logical, intent(out) :: flag
      integer, optional, intent(out) :: ierror
      integer :: e
      call f_MPI_@Kind@_get_attr(@object@%MPI_VAL, @kind@_keyval, attribute_val, flag, e)
      if (present(ierror)) ierror = e
    end subroutine MPI_@Kind@_get_attr_f08

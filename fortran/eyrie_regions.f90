! Checkpoints of the memory that a program names: the functions of eyrie_regions.h for Fortran. What
! they do is said there. Texts are Fortran's; memory is handed over by c_loc, so it is a target.
!
! With MPI: eyrie_regions_mpi.f90. Without: eyrie_open(regions, options).
module eyrie_regions
  use, intrinsic :: iso_c_binding
  implicit none
  private

  integer, parameter, public :: EYRIE_OK = 0, EYRIE_NONE = -1, EYRIE_FAILED = -2
  integer, parameter, public :: EYRIE_BYTES = 0, EYRIE_INT = 1, EYRIE_UINT = 2, &
    EYRIE_FLOAT = 3, EYRIE_COMPLEX = 4
  integer(c_int64_t), parameter, public :: EYRIE_ANY_VERSION = huge(0_c_int64_t)

  public :: eyrie_open, eyrie_close, eyrie_error, eyrie_protect, eyrie_unprotect
  public :: eyrie_checkpoint, eyrie_wait, eyrie_newest, eyrie_restore, eyrie_stored, eyrie_most
  public :: eyrie_open_apart

  abstract interface
    integer(c_int) function eyrie_most(context, values, count) bind(c)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: context
      integer(c_int), value :: count
      integer(c_int64_t), intent(inout) :: values(count)
    end function eyrie_most
  end interface

  interface
    integer(c_int) function c_open(options, rank, ranks, most, context, regions) &
      bind(c, name='eyrie_regions_open')
      import :: c_char, c_funptr, c_int, c_ptr
      character(kind=c_char), intent(in) :: options(*)
      integer(c_int), value :: rank, ranks
      type(c_funptr), value :: most
      type(c_ptr), value :: context
      type(c_ptr), intent(out) :: regions
    end function c_open

    integer(c_int) function c_open_apart(options, rank, ranks, most, gather, send, receive, &
      context, regions) bind(c, name='eyrie_regions_open_apart')
      import :: c_char, c_funptr, c_int, c_ptr
      character(kind=c_char), intent(in) :: options(*)
      integer(c_int), value :: rank, ranks
      type(c_funptr), value :: most, gather, send, receive
      type(c_ptr), value :: context
      type(c_ptr), intent(out) :: regions
    end function c_open_apart

    integer(c_int) function c_close(regions) bind(c, name='eyrie_regions_close')
      import :: c_int, c_ptr
      type(c_ptr), value :: regions
    end function c_close

    type(c_ptr) function c_error(regions) bind(c, name='eyrie_regions_error')
      import :: c_ptr
      type(c_ptr), value :: regions
    end function c_error

    integer(c_size_t) function c_strlen(text) bind(c, name='strlen')
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
    end function c_strlen

    integer(c_int) function c_protect(regions, id, memory, kind, size, count) &
      bind(c, name='eyrie_protect')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: regions, memory
      integer(c_int), value :: id, kind
      integer(c_size_t), value :: size, count
    end function c_protect

    integer(c_int) function c_unprotect(regions, id) bind(c, name='eyrie_unprotect')
      import :: c_int, c_ptr
      type(c_ptr), value :: regions
      integer(c_int), value :: id
    end function c_unprotect

    integer(c_int) function c_checkpoint(regions, name, version) bind(c, name='eyrie_checkpoint')
      import :: c_char, c_int, c_int64_t, c_ptr
      type(c_ptr), value :: regions
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: version
    end function c_checkpoint

    integer(c_int) function c_wait(regions) bind(c, name='eyrie_wait')
      import :: c_int, c_ptr
      type(c_ptr), value :: regions
    end function c_wait

    integer(c_int64_t) function c_newest(regions, name, most) bind(c, name='eyrie_newest')
      import :: c_char, c_int64_t, c_ptr
      type(c_ptr), value :: regions
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: most
    end function c_newest

    integer(c_int) function c_restore(regions, name, version) bind(c, name='eyrie_restore')
      import :: c_char, c_int, c_int64_t, c_ptr
      type(c_ptr), value :: regions
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: version
    end function c_restore

    integer(c_int) function c_stored(regions, id, kind, size, count) bind(c, name='eyrie_stored')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: regions
      integer(c_int), value :: id
      integer(c_int), intent(out) :: kind
      integer(c_size_t), intent(out) :: size, count
    end function c_stored
  end interface

contains

  ! All processes call it; without `most` there is one.
  integer function eyrie_open(regions, options, rank, ranks, most, context)
    type(c_ptr), intent(out) :: regions
    character(len=*), intent(in) :: options
    integer, intent(in), optional :: rank, ranks
    procedure(eyrie_most), optional :: most
    type(c_ptr), intent(in), optional :: context
    integer(c_int) :: own, all
    type(c_funptr) :: function
    type(c_ptr) :: data
    own = 0
    all = 1
    function = c_null_funptr
    data = c_null_ptr
    if (present(rank)) own = int(rank, c_int)
    if (present(ranks)) all = int(ranks, c_int)
    if (present(most)) function = c_funloc(most)
    if (present(context)) data = context
    eyrie_open = c_open(text(options), own, all, function, data, regions)
  end function eyrie_open

  ! The same with functions by which bytes are passed on, as eyrie_regions_mpi has them.
  integer function eyrie_open_apart(regions, options, rank, ranks, functions, context)
    type(c_ptr), intent(out) :: regions
    character(len=*), intent(in) :: options
    integer, intent(in) :: rank, ranks
    ! most, gather, send, receive
    type(c_funptr), intent(in) :: functions(4)
    type(c_ptr), intent(in) :: context
    eyrie_open_apart = c_open_apart(text(options), int(rank, c_int), int(ranks, c_int), &
                                    functions(1), functions(2), functions(3), functions(4), &
                                    context, regions)
  end function eyrie_open_apart

  integer function eyrie_close(regions)
    type(c_ptr), intent(inout) :: regions
    eyrie_close = c_close(regions)
    regions = c_null_ptr
  end function eyrie_close

  ! Why the last call failed; with c_null_ptr the last open or close.
  function eyrie_error(regions) result(words)
    type(c_ptr), intent(in) :: regions
    character(len=:), allocatable :: words
    character(kind=c_char), pointer :: letters(:)
    type(c_ptr) :: from
    integer :: i, length
    from = c_error(regions)
    length = int(c_strlen(from))
    call c_f_pointer(from, letters, [length])
    allocate (character(len=length) :: words)
    do i = 1, length
      words(i:i) = letters(i)
    end do
  end function eyrie_error

  ! `size`: bytes of an element, as storage_size(x) / 8 gives them.
  integer function eyrie_protect(regions, id, memory, kind, size, count)
    type(c_ptr), intent(in) :: regions, memory
    integer, intent(in) :: id, kind, size
    integer(c_size_t), intent(in) :: count
    eyrie_protect = c_protect(regions, int(id, c_int), memory, int(kind, c_int), &
                              int(size, c_size_t), count)
  end function eyrie_protect

  integer function eyrie_unprotect(regions, id)
    type(c_ptr), intent(in) :: regions
    integer, intent(in) :: id
    eyrie_unprotect = c_unprotect(regions, int(id, c_int))
  end function eyrie_unprotect

  integer function eyrie_checkpoint(regions, name, version)
    type(c_ptr), intent(in) :: regions
    character(len=*), intent(in) :: name
    integer(c_int64_t), intent(in) :: version
    eyrie_checkpoint = c_checkpoint(regions, text(name), version)
  end function eyrie_checkpoint

  integer function eyrie_wait(regions)
    type(c_ptr), intent(in) :: regions
    eyrie_wait = c_wait(regions)
  end function eyrie_wait

  integer(c_int64_t) function eyrie_newest(regions, name, most)
    type(c_ptr), intent(in) :: regions
    character(len=*), intent(in) :: name
    integer(c_int64_t), intent(in) :: most
    eyrie_newest = c_newest(regions, text(name), most)
  end function eyrie_newest

  integer function eyrie_restore(regions, name, version)
    type(c_ptr), intent(in) :: regions
    character(len=*), intent(in) :: name
    integer(c_int64_t), intent(in) :: version
    eyrie_restore = c_restore(regions, text(name), version)
  end function eyrie_restore

  integer function eyrie_stored(regions, id, kind, size, count)
    type(c_ptr), intent(in) :: regions
    integer, intent(in) :: id
    integer, intent(out) :: kind
    integer(c_size_t), intent(out) :: size, count
    integer(c_int) :: number
    number = EYRIE_BYTES
    eyrie_stored = c_stored(regions, int(id, c_int), number, size, count)
    kind = number
  end function eyrie_stored

  ! A text as C has it.
  pure function text(words)
    character(len=*), intent(in) :: words
    character(kind=c_char) :: text(len_trim(words) + 1)
    integer :: i
    do i = 1, len_trim(words)
      text(i) = words(i:i)
    end do
    text(len_trim(words) + 1) = c_null_char
  end function text
end module eyrie_regions

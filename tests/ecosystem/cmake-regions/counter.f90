! Counts how often it was run: the number is in a checkpoint.
program counter
  use, intrinsic :: iso_c_binding
  use eyrie_regions
  implicit none
  type(c_ptr) :: regions
  integer(c_int64_t), target :: count = 0
  integer(c_int64_t) :: found
  if (eyrie_open(regions, '') /= EYRIE_OK) stop 1
  if (eyrie_protect(regions, 0, c_loc(count), EYRIE_INT, 8, 1_c_size_t) /= EYRIE_OK) stop 2
  found = eyrie_newest(regions, 'counter', EYRIE_ANY_VERSION)
  if (found >= 0) then
    if (eyrie_restore(regions, 'counter', found) /= EYRIE_OK) stop 3
  end if
  count = count + 1
  if (eyrie_checkpoint(regions, 'counter', count) /= EYRIE_OK) stop 4
  print '(a, i0)', 'run ', count
  if (eyrie_close(regions) /= EYRIE_OK) stop 5
end program counter

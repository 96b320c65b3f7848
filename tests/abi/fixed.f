C Fixed form with mpif.h: handles, statuses, special addresses, indices from 1, attributes, strings.
C A job of one rank; prints one line for each failed check and a count at the end.
      program fixed
      implicit none
      include 'mpif.h'
      integer ierr, rank, nranks, n, i, reqs(2), stat(MPI_STATUS_SIZE)
      integer stats(MPI_STATUS_SIZE,2), idx, key, op, comm, vtype
      integer ibuf(4), obuf(4), good, bad, length, provided, handler
      integer errs
      double precision x(3), y(3), t
      integer(kind=MPI_ADDRESS_KIND) val, lb, extent
      logical flag
      character*(MPI_MAX_PROCESSOR_NAME) host
      character*(MPI_MAX_ERROR_STRING) text
      character*20 value
      common /counts/ good, bad
      common /errors/ errs
      external mysum, onerr
      good = 0
      bad = 0
      errs = 0
      call MPI_INIT_THREAD(MPI_THREAD_FUNNELED, provided, ierr)
      call check(ierr .eq. MPI_SUCCESS, 'init')
      call check(provided .eq. MPI_THREAD_FUNNELED, 'provided')
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, nranks, ierr)
      call check(rank .eq. 0 .and. nranks .eq. 1, 'rank and size')
      t = MPI_WTIME()
      call check(MPI_WTIME() .ge. t, 'wtime')
      do i = 1, 3
        x(i) = 0.5d0 * i
      end do
      call MPI_ALLREDUCE(x, y, 3, MPI_DOUBLE_PRECISION, MPI_SUM,
     &                   MPI_COMM_WORLD, ierr)
      call check(y(3) .eq. 1.5d0, 'allreduce')
      call MPI_ALLREDUCE(MPI_IN_PLACE, y, 3, MPI_DOUBLE_PRECISION,
     &                   MPI_MAX, MPI_COMM_WORLD, ierr)
      call check(ierr .eq. 0 .and. y(2) .eq. 1.0d0, 'in place')
      do i = 1, 4
        obuf(i) = 10 * i
      end do
      call MPI_ISEND(obuf, 4, MPI_INTEGER, 0, 7, MPI_COMM_WORLD,
     &               reqs(1), ierr)
      call MPI_RECV(ibuf, 4, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG,
     &              MPI_COMM_WORLD, stat, ierr)
      call check(stat(MPI_SOURCE) .eq. 0, 'source')
      call check(stat(MPI_TAG) .eq. 7, 'tag')
      call MPI_GET_COUNT(stat, MPI_INTEGER, n, ierr)
      call check(n .eq. 4 .and. ibuf(4) .eq. 40, 'count and data')
      reqs(2) = MPI_REQUEST_NULL
      call MPI_WAITANY(2, reqs, idx, MPI_STATUS_IGNORE, ierr)
      call check(idx .eq. 1, 'waitany counts from one')
      call check(reqs(1) .eq. MPI_REQUEST_NULL, 'request is null')
C     What a variable holds before a handle is given back does not count.
      reqs(1) = -123456789
      reqs(2) = 2147483647
      call MPI_IRECV(ibuf, 4, MPI_INTEGER, 0, 8, MPI_COMM_WORLD,
     &               reqs(1), ierr)
      call MPI_ISEND(obuf, 4, MPI_INTEGER, 0, 8, MPI_COMM_WORLD,
     &               reqs(2), ierr)
      call MPI_WAITALL(2, reqs, stats, ierr)
      call MPI_F_SYNC_REG(ibuf)
      call check(stats(MPI_TAG,1) .eq. 8, 'statuses')
      call MPI_WAITALL(2, reqs, MPI_STATUSES_IGNORE, ierr)
      call check(ierr .eq. 0, 'waitall of nothing')
      call MPI_OP_CREATE(mysum, .true., op, ierr)
      call MPI_REDUCE_LOCAL(obuf, ibuf, 4, MPI_INTEGER, op, ierr)
      call check(ibuf(4) .eq. 80, 'own operation')
      call MPI_OP_FREE(op, ierr)
      call check(op .eq. MPI_OP_NULL, 'operation is null')
      call MPI_COMM_GET_ATTR(MPI_COMM_WORLD, MPI_TAG_UB, val, flag,
     &                       ierr)
      call check(flag .and. val .ge. 32767, 'tag_ub is a number')
      call MPI_COMM_CREATE_KEYVAL(MPI_COMM_DUP_FN,
     &     MPI_COMM_NULL_DELETE_FN, key, val, ierr)
      val = 4711
      call MPI_COMM_SET_ATTR(MPI_COMM_WORLD, key, val, ierr)
      call MPI_COMM_DUP(MPI_COMM_WORLD, comm, ierr)
      val = 0
      call MPI_COMM_GET_ATTR(comm, key, val, flag, ierr)
      call check(flag .and. val .eq. 4711, 'attribute is copied')
      call MPI_TYPE_VECTOR(2, 1, 3, MPI_REAL, vtype, ierr)
      call MPI_TYPE_GET_EXTENT(vtype, lb, extent, ierr)
      call check(extent .eq. 16, 'extent')
      call MPI_TYPE_FREE(vtype, ierr)
      call MPI_GET_PROCESSOR_NAME(host, length, ierr)
      call check(length .gt. 0 .and. host(length+1:) .eq. ' ', 'host')
      call MPI_INFO_CREATE(n, ierr)
      call MPI_INFO_SET(n, 'key ', ' some value ', ierr)
      call MPI_INFO_GET(n, 'key', 20, value, flag, ierr)
      call check(flag .and. value .eq. 'some value', 'info')
      call MPI_INFO_FREE(n, ierr)
      call MPI_COMM_CREATE_ERRHANDLER(onerr, handler, ierr)
      call MPI_COMM_SET_ERRHANDLER(comm, handler, ierr)
      call MPI_SEND(obuf, 1, MPI_INTEGER, 99, 0, comm, ierr)
      call check(ierr .eq. MPI_ERR_RANK .and. errs .eq. 1, 'handler')
      reqs(1) = 4711
      call MPI_ISEND(obuf, 1, MPI_INTEGER, 99, 0, comm, reqs(1), ierr)
      call check(ierr .ne. 0 .and. reqs(1) .eq. 4711, 'failed request')
      call MPI_ERROR_STRING(ierr, text, length, ierr)
      call check(text(1:12) .eq. 'MPI_ERR_RANK', 'error string')
      call MPI_COMM_FREE(comm, ierr)
      call check(comm .eq. MPI_COMM_NULL, 'communicator is null')
      call MPI_FINALIZE(ierr)
      write (*, '(a,i0,a,i0,a)') 'fixed: ', good, ' passed, ', bad,
     &                           ' failed'
      if (bad .ne. 0) stop 1
      end

      subroutine check(ok, what)
      logical ok
      character*(*) what
      integer good, bad
      common /counts/ good, bad
      if (ok) then
        good = good + 1
      else
        bad = bad + 1
        write (*, *) 'fixed.f: not so: ', what
      end if
      end

      subroutine mysum(in, inout, n, dtype)
      integer n, in(n), inout(n), dtype
      include 'mpif.h'
      integer i
      call check(dtype .eq. MPI_INTEGER, 'datatype of the operation')
      do i = 1, n
        inout(i) = in(i) + inout(i)
      end do
      end

      subroutine onerr(comm, code)
      integer comm, code, errs
      common /errors/ errs
      include 'mpif.h'
      integer n, ierr
      call MPI_COMM_SIZE(comm, n, ierr)
      if (n .eq. 1 .and. code .eq. MPI_ERR_RANK) errs = errs + 1
      end

program ring
   use mpi
   implicit none
   integer :: rank, size, total, error
   call MPI_Init(error)
   call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
   call MPI_Comm_size(MPI_COMM_WORLD, size, error)
   call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
   if (rank == 0) print '(i0, a, i0)', size, ' ranks, sum ', total
   call MPI_Finalize(error)
end program ring

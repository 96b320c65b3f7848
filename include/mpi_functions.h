/*
 * Prototypes of MPI 5.0's functions, each once: EYRIE_MPI declares MPI_NAME and its profiling twin
 * PMPI_NAME. Included by mpi.h, not by programs. Names are sorted within each chapter; a name that
 * ends in _c takes counts of 64 bits.
 */
#define EYRIE_MPI(type, name, arguments) \
    type MPI_##name arguments;           \
    type PMPI_##name arguments;


/* Environment. */
EYRIE_MPI(int, Abort, (MPI_Comm comm, int errorcode))
EYRIE_MPI(int, Alloc_mem, (MPI_Aint size, MPI_Info info, void *baseptr))
EYRIE_MPI(int, Finalize, (void))
EYRIE_MPI(int, Finalized, (int *flag))
EYRIE_MPI(int, Free_mem, (void *base))
EYRIE_MPI(int, Get_hw_resource_info, (MPI_Info *hw_info))
EYRIE_MPI(int, Get_library_version, (char *version, int *resultlen))
EYRIE_MPI(int, Get_processor_name, (char *name, int *resultlen))
EYRIE_MPI(int, Get_version, (int *version, int *subversion))
EYRIE_MPI(int, Init, (int *argc, char ***argv))
EYRIE_MPI(int, Init_thread, (int *argc, char ***argv, int required, int *provided))
EYRIE_MPI(int, Initialized, (int *flag))
EYRIE_MPI(int, Is_thread_main, (int *flag))
EYRIE_MPI(int, Pcontrol, (const int level, ...))
EYRIE_MPI(int, Query_thread, (int *provided))
EYRIE_MPI(double, Wtick, (void))
EYRIE_MPI(double, Wtime, (void))

/* Point-to-point communication. */
EYRIE_MPI(int, Bsend, (const void *buf, int count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm))
EYRIE_MPI(int, Bsend_c, (const void *buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm))
EYRIE_MPI(int, Bsend_init, (const void *buf, int count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Bsend_init_c, (const void *buf, MPI_Count count, MPI_Datatype datatype, int dest,
          int tag, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Buffer_attach, (void *buffer, int size))
EYRIE_MPI(int, Buffer_attach_c, (void *buffer, MPI_Count size))
EYRIE_MPI(int, Buffer_detach, (void *buffer_addr, int *size))
EYRIE_MPI(int, Buffer_detach_c, (void *buffer_addr, MPI_Count *size))
EYRIE_MPI(int, Buffer_flush, (void))
EYRIE_MPI(int, Buffer_iflush, (MPI_Request *request))
EYRIE_MPI(int, Cancel, (MPI_Request *request))
EYRIE_MPI(int, Comm_attach_buffer, (MPI_Comm comm, void *buffer, int size))
EYRIE_MPI(int, Comm_attach_buffer_c, (MPI_Comm comm, void *buffer, MPI_Count size))
EYRIE_MPI(int, Comm_detach_buffer, (MPI_Comm comm, void *buffer_addr, int *size))
EYRIE_MPI(int, Comm_detach_buffer_c, (MPI_Comm comm, void *buffer_addr, MPI_Count *size))
EYRIE_MPI(int, Comm_flush_buffer, (MPI_Comm comm))
EYRIE_MPI(int, Comm_iflush_buffer, (MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Grequest_complete, (MPI_Request request))
EYRIE_MPI(int, Grequest_start, (MPI_Grequest_query_function *query_fn,
          MPI_Grequest_free_function *free_fn, MPI_Grequest_cancel_function *cancel_fn,
          void *extra_state, MPI_Request *request))
EYRIE_MPI(int, Ibsend, (const void *buf, int count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ibsend_c, (const void *buf, MPI_Count count, MPI_Datatype datatype, int dest,
          int tag, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Improbe, (int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
          MPI_Status *status))
EYRIE_MPI(int, Imrecv, (void *buf, int count, MPI_Datatype datatype, MPI_Message *message,
          MPI_Request *request))
EYRIE_MPI(int, Imrecv_c, (void *buf, MPI_Count count, MPI_Datatype datatype, MPI_Message *message,
          MPI_Request *request))
EYRIE_MPI(int, Iprobe, (int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status))
EYRIE_MPI(int, Irecv, (void *buf, int count, MPI_Datatype datatype, int source, int tag,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Irecv_c, (void *buf, MPI_Count count, MPI_Datatype datatype, int source, int tag,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Irsend, (const void *buf, int count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Irsend_c, (const void *buf, MPI_Count count, MPI_Datatype datatype, int dest,
          int tag, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Isend, (const void *buf, int count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Isend_c, (const void *buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Isendrecv, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, int dest,
          int sendtag, void *recvbuf, int recvcount, MPI_Datatype recvtype, int source, int recvtag,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Isendrecv_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          int dest, int sendtag, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
          int source, int recvtag, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Isendrecv_replace, (void *buf, int count, MPI_Datatype datatype, int dest,
          int sendtag, int source, int recvtag, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Isendrecv_replace_c, (void *buf, MPI_Count count, MPI_Datatype datatype, int dest,
          int sendtag, int source, int recvtag, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Issend, (const void *buf, int count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Issend_c, (const void *buf, MPI_Count count, MPI_Datatype datatype, int dest,
          int tag, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Mprobe, (int source, int tag, MPI_Comm comm, MPI_Message *message,
          MPI_Status *status))
EYRIE_MPI(int, Mrecv, (void *buf, int count, MPI_Datatype datatype, MPI_Message *message,
          MPI_Status *status))
EYRIE_MPI(int, Mrecv_c, (void *buf, MPI_Count count, MPI_Datatype datatype, MPI_Message *message,
          MPI_Status *status))
EYRIE_MPI(int, Probe, (int source, int tag, MPI_Comm comm, MPI_Status *status))
EYRIE_MPI(int, Recv, (void *buf, int count, MPI_Datatype datatype, int source, int tag,
          MPI_Comm comm, MPI_Status *status))
EYRIE_MPI(int, Recv_c, (void *buf, MPI_Count count, MPI_Datatype datatype, int source, int tag,
          MPI_Comm comm, MPI_Status *status))
EYRIE_MPI(int, Recv_init, (void *buf, int count, MPI_Datatype datatype, int source, int tag,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Recv_init_c, (void *buf, MPI_Count count, MPI_Datatype datatype, int source, int tag,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Request_free, (MPI_Request *request))
EYRIE_MPI(int, Request_get_status, (MPI_Request request, int *flag, MPI_Status *status))
EYRIE_MPI(int, Request_get_status_all, (int count, const MPI_Request array_of_requests[], int *flag,
          MPI_Status *array_of_statuses))
EYRIE_MPI(int, Request_get_status_any, (int count, const MPI_Request array_of_requests[], int *indx,
          int *flag, MPI_Status *status))
EYRIE_MPI(int, Request_get_status_some, (int incount, const MPI_Request array_of_requests[],
          int *outcount, int array_of_indices[], MPI_Status *array_of_statuses))
EYRIE_MPI(int, Rsend, (const void *buf, int count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm))
EYRIE_MPI(int, Rsend_c, (const void *buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm))
EYRIE_MPI(int, Rsend_init, (const void *buf, int count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Rsend_init_c, (const void *buf, MPI_Count count, MPI_Datatype datatype, int dest,
          int tag, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Send, (const void *buf, int count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm))
EYRIE_MPI(int, Send_c, (const void *buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm))
EYRIE_MPI(int, Send_init, (const void *buf, int count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Send_init_c, (const void *buf, MPI_Count count, MPI_Datatype datatype, int dest,
          int tag, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Sendrecv, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, int dest,
          int sendtag, void *recvbuf, int recvcount, MPI_Datatype recvtype, int source, int recvtag,
          MPI_Comm comm, MPI_Status *status))
EYRIE_MPI(int, Sendrecv_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          int dest, int sendtag, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
          int source, int recvtag, MPI_Comm comm, MPI_Status *status))
EYRIE_MPI(int, Sendrecv_replace, (void *buf, int count, MPI_Datatype datatype, int dest,
          int sendtag, int source, int recvtag, MPI_Comm comm, MPI_Status *status))
EYRIE_MPI(int, Sendrecv_replace_c, (void *buf, MPI_Count count, MPI_Datatype datatype, int dest,
          int sendtag, int source, int recvtag, MPI_Comm comm, MPI_Status *status))
EYRIE_MPI(int, Ssend, (const void *buf, int count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm))
EYRIE_MPI(int, Ssend_c, (const void *buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm))
EYRIE_MPI(int, Ssend_init, (const void *buf, int count, MPI_Datatype datatype, int dest, int tag,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ssend_init_c, (const void *buf, MPI_Count count, MPI_Datatype datatype, int dest,
          int tag, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Start, (MPI_Request *request))
EYRIE_MPI(int, Startall, (int count, MPI_Request array_of_requests[]))
EYRIE_MPI(int, Status_get_error, (const MPI_Status *status, int *error))
EYRIE_MPI(int, Status_get_source, (const MPI_Status *status, int *source))
EYRIE_MPI(int, Status_get_tag, (const MPI_Status *status, int *tag))
EYRIE_MPI(int, Status_set_cancelled, (MPI_Status *status, int flag))
EYRIE_MPI(int, Status_set_error, (MPI_Status *status, int error))
EYRIE_MPI(int, Status_set_source, (MPI_Status *status, int source))
EYRIE_MPI(int, Status_set_tag, (MPI_Status *status, int tag))
EYRIE_MPI(int, Test, (MPI_Request *request, int *flag, MPI_Status *status))
EYRIE_MPI(int, Test_cancelled, (const MPI_Status *status, int *flag))
EYRIE_MPI(int, Testall, (int count, MPI_Request array_of_requests[], int *flag,
          MPI_Status *array_of_statuses))
EYRIE_MPI(int, Testany, (int count, MPI_Request array_of_requests[], int *indx, int *flag,
          MPI_Status *status))
EYRIE_MPI(int, Testsome, (int incount, MPI_Request array_of_requests[], int *outcount,
          int array_of_indices[], MPI_Status *array_of_statuses))
EYRIE_MPI(int, Wait, (MPI_Request *request, MPI_Status *status))
EYRIE_MPI(int, Waitall, (int count, MPI_Request array_of_requests[], MPI_Status *array_of_statuses))
EYRIE_MPI(int, Waitany, (int count, MPI_Request array_of_requests[], int *indx, MPI_Status *status))
EYRIE_MPI(int, Waitsome, (int incount, MPI_Request array_of_requests[], int *outcount,
          int array_of_indices[], MPI_Status *array_of_statuses))

/* Partitioned communication. */
EYRIE_MPI(int, Parrived, (MPI_Request request, int partition, int *flag))
EYRIE_MPI(int, Pready, (int partition, MPI_Request request))
EYRIE_MPI(int, Pready_list, (int length, const int array_of_partitions[], MPI_Request request))
EYRIE_MPI(int, Pready_range, (int partition_low, int partition_high, MPI_Request request))
EYRIE_MPI(int, Precv_init, (void *buf, int partitions, MPI_Count count, MPI_Datatype datatype,
          int dest, int tag, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Precv_init_c, (void *buf, int partitions, MPI_Count count, MPI_Datatype datatype,
          int dest, int tag, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Psend_init, (const void *buf, int partitions, MPI_Count count, MPI_Datatype datatype,
          int dest, int tag, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Psend_init_c, (const void *buf, int partitions, MPI_Count count,
          MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, MPI_Info info,
          MPI_Request *request))

/* Datatypes. */
EYRIE_MPI(MPI_Aint, Aint_add, (MPI_Aint base, MPI_Aint disp))
EYRIE_MPI(MPI_Aint, Aint_diff, (MPI_Aint addr1, MPI_Aint addr2))
EYRIE_MPI(int, Get_address, (const void *location, MPI_Aint *address))
EYRIE_MPI(int, Get_count, (const MPI_Status *status, MPI_Datatype datatype, int *count))
EYRIE_MPI(int, Get_count_c, (const MPI_Status *status, MPI_Datatype datatype, MPI_Count *count))
EYRIE_MPI(int, Get_elements, (const MPI_Status *status, MPI_Datatype datatype, int *count))
EYRIE_MPI(int, Get_elements_c, (const MPI_Status *status, MPI_Datatype datatype, MPI_Count *count))
EYRIE_MPI(int, Get_elements_x, (const MPI_Status *status, MPI_Datatype datatype, MPI_Count *count))
EYRIE_MPI(int, Pack, (const void *inbuf, int incount, MPI_Datatype datatype, void *outbuf,
          int outsize, int *position, MPI_Comm comm))
EYRIE_MPI(int, Pack_c, (const void *inbuf, MPI_Count incount, MPI_Datatype datatype, void *outbuf,
          MPI_Count outsize, MPI_Count *position, MPI_Comm comm))
EYRIE_MPI(int, Pack_external, (const char *datarep, const void *inbuf, int incount,
          MPI_Datatype datatype, void *outbuf, MPI_Aint outsize, MPI_Aint *position))
EYRIE_MPI(int, Pack_external_c, (const char *datarep, const void *inbuf, MPI_Count incount,
          MPI_Datatype datatype, void *outbuf, MPI_Count outsize, MPI_Count *position))
EYRIE_MPI(int, Pack_external_size, (const char *datarep, int incount, MPI_Datatype datatype,
          MPI_Aint *size))
EYRIE_MPI(int, Pack_external_size_c, (const char *datarep, MPI_Count incount, MPI_Datatype datatype,
          MPI_Count *size))
EYRIE_MPI(int, Pack_size, (int incount, MPI_Datatype datatype, MPI_Comm comm, int *size))
EYRIE_MPI(int, Pack_size_c, (MPI_Count incount, MPI_Datatype datatype, MPI_Comm comm,
          MPI_Count *size))
EYRIE_MPI(int, Status_set_elements, (MPI_Status *status, MPI_Datatype datatype, int count))
EYRIE_MPI(int, Status_set_elements_c, (MPI_Status *status, MPI_Datatype datatype, MPI_Count count))
EYRIE_MPI(int, Status_set_elements_x, (MPI_Status *status, MPI_Datatype datatype, MPI_Count count))
EYRIE_MPI(int, Type_commit, (MPI_Datatype *datatype))
EYRIE_MPI(int, Type_contiguous, (int count, MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_contiguous_c, (MPI_Count count, MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_darray, (int size, int rank, int ndims, const int array_of_gsizes[],
          const int array_of_distribs[], const int array_of_dargs[], const int array_of_psizes[],
          int order, MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_darray_c, (int size, int rank, int ndims,
          const MPI_Count array_of_gsizes[], const int array_of_distribs[],
          const int array_of_dargs[], const int array_of_psizes[], int order, MPI_Datatype oldtype,
          MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_f90_complex, (int p, int r, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_f90_integer, (int r, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_f90_real, (int p, int r, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_hindexed, (int count, const int array_of_blocklengths[],
          const MPI_Aint array_of_displacements[], MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_hindexed_block, (int count, int blocklength,
          const MPI_Aint array_of_displacements[], MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_hindexed_block_c, (MPI_Count count, MPI_Count blocklength,
          const MPI_Count array_of_displacements[], MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_hindexed_c, (MPI_Count count, const MPI_Count array_of_blocklengths[],
          const MPI_Count array_of_displacements[], MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_hvector, (int count, int blocklength, MPI_Aint stride,
          MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_hvector_c, (MPI_Count count, MPI_Count blocklength, MPI_Count stride,
          MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_indexed_block, (int count, int blocklength,
          const int array_of_displacements[], MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_indexed_block_c, (MPI_Count count, MPI_Count blocklength,
          const MPI_Count array_of_displacements[], MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_resized, (MPI_Datatype oldtype, MPI_Aint lb, MPI_Aint extent,
          MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_resized_c, (MPI_Datatype oldtype, MPI_Count lb, MPI_Count extent,
          MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_struct, (int count, const int array_of_blocklengths[],
          const MPI_Aint array_of_displacements[], const MPI_Datatype array_of_types[],
          MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_struct_c, (MPI_Count count, const MPI_Count array_of_blocklengths[],
          const MPI_Count array_of_displacements[], const MPI_Datatype array_of_types[],
          MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_subarray, (int ndims, const int array_of_sizes[],
          const int array_of_subsizes[], const int array_of_starts[], int order,
          MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_create_subarray_c, (int ndims, const MPI_Count array_of_sizes[],
          const MPI_Count array_of_subsizes[], const MPI_Count array_of_starts[], int order,
          MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_dup, (MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_free, (MPI_Datatype *datatype))
EYRIE_MPI(int, Type_get_contents, (MPI_Datatype datatype, int max_integers, int max_addresses,
          int max_datatypes, int array_of_integers[], MPI_Aint array_of_addresses[],
          MPI_Datatype array_of_datatypes[]))
EYRIE_MPI(int, Type_get_contents_c, (MPI_Datatype datatype, MPI_Count max_integers,
          MPI_Count max_addresses, MPI_Count max_large_counts, MPI_Count max_datatypes,
          int array_of_integers[], MPI_Aint array_of_addresses[], MPI_Count array_of_large_counts[],
          MPI_Datatype array_of_datatypes[]))
EYRIE_MPI(int, Type_get_envelope, (MPI_Datatype datatype, int *num_integers, int *num_addresses,
          int *num_datatypes, int *combiner))
EYRIE_MPI(int, Type_get_envelope_c, (MPI_Datatype datatype, MPI_Count *num_integers,
          MPI_Count *num_addresses, MPI_Count *num_large_counts, MPI_Count *num_datatypes,
          int *combiner))
EYRIE_MPI(int, Type_get_extent, (MPI_Datatype datatype, MPI_Aint *lb, MPI_Aint *extent))
EYRIE_MPI(int, Type_get_extent_c, (MPI_Datatype datatype, MPI_Count *lb, MPI_Count *extent))
EYRIE_MPI(int, Type_get_extent_x, (MPI_Datatype datatype, MPI_Count *lb, MPI_Count *extent))
EYRIE_MPI(int, Type_get_name, (MPI_Datatype datatype, char *type_name, int *resultlen))
EYRIE_MPI(int, Type_get_true_extent, (MPI_Datatype datatype, MPI_Aint *true_lb,
          MPI_Aint *true_extent))
EYRIE_MPI(int, Type_get_true_extent_c, (MPI_Datatype datatype, MPI_Count *true_lb,
          MPI_Count *true_extent))
EYRIE_MPI(int, Type_get_true_extent_x, (MPI_Datatype datatype, MPI_Count *true_lb,
          MPI_Count *true_extent))
EYRIE_MPI(int, Type_get_value_index, (MPI_Datatype value_type, MPI_Datatype index_type,
          MPI_Datatype *pair_type))
EYRIE_MPI(int, Type_indexed, (int count, const int array_of_blocklengths[],
          const int array_of_displacements[], MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_indexed_c, (MPI_Count count, const MPI_Count array_of_blocklengths[],
          const MPI_Count array_of_displacements[], MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Type_match_size, (int typeclass, int size, MPI_Datatype *datatype))
EYRIE_MPI(int, Type_set_name, (MPI_Datatype datatype, const char *type_name))
EYRIE_MPI(int, Type_size, (MPI_Datatype datatype, int *size))
EYRIE_MPI(int, Type_size_c, (MPI_Datatype datatype, MPI_Count *size))
EYRIE_MPI(int, Type_size_x, (MPI_Datatype datatype, MPI_Count *size))
EYRIE_MPI(int, Type_vector, (int count, int blocklength, int stride, MPI_Datatype oldtype,
          MPI_Datatype *newtype))
EYRIE_MPI(int, Type_vector_c, (MPI_Count count, MPI_Count blocklength, MPI_Count stride,
          MPI_Datatype oldtype, MPI_Datatype *newtype))
EYRIE_MPI(int, Unpack, (const void *inbuf, int insize, int *position, void *outbuf, int outcount,
          MPI_Datatype datatype, MPI_Comm comm))
EYRIE_MPI(int, Unpack_c, (const void *inbuf, MPI_Count insize, MPI_Count *position, void *outbuf,
          MPI_Count outcount, MPI_Datatype datatype, MPI_Comm comm))
EYRIE_MPI(int, Unpack_external, (const char datarep[], const void *inbuf, MPI_Aint insize,
          MPI_Aint *position, void *outbuf, int outcount, MPI_Datatype datatype))
EYRIE_MPI(int, Unpack_external_c, (const char datarep[], const void *inbuf, MPI_Count insize,
          MPI_Count *position, void *outbuf, MPI_Count outcount, MPI_Datatype datatype))

/* Collective communication. */
EYRIE_MPI(int, Allgather, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
          int recvcount, MPI_Datatype recvtype, MPI_Comm comm))
EYRIE_MPI(int, Allgather_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm))
EYRIE_MPI(int, Allgather_init, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
          MPI_Request *request))
EYRIE_MPI(int, Allgather_init_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
          MPI_Request *request))
EYRIE_MPI(int, Allgatherv, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, const int recvcounts[], const int displs[], MPI_Datatype recvtype,
          MPI_Comm comm))
EYRIE_MPI(int, Allgatherv_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, const MPI_Count recvcounts[], const MPI_Aint displs[],
          MPI_Datatype recvtype, MPI_Comm comm))
EYRIE_MPI(int, Allgatherv_init, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, const int recvcounts[], const int displs[], MPI_Datatype recvtype,
          MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Allgatherv_init_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, const MPI_Count recvcounts[], const MPI_Aint displs[],
          MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Allreduce, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
          MPI_Op op, MPI_Comm comm))
EYRIE_MPI(int, Allreduce_c, (const void *sendbuf, void *recvbuf, MPI_Count count,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm))
EYRIE_MPI(int, Allreduce_init, (const void *sendbuf, void *recvbuf, int count,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Allreduce_init_c, (const void *sendbuf, void *recvbuf, MPI_Count count,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Alltoall, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
          int recvcount, MPI_Datatype recvtype, MPI_Comm comm))
EYRIE_MPI(int, Alltoall_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm))
EYRIE_MPI(int, Alltoall_init, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
          MPI_Request *request))
EYRIE_MPI(int, Alltoall_init_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
          MPI_Request *request))
EYRIE_MPI(int, Alltoallv, (const void *sendbuf, const int sendcounts[], const int sdispls[],
          MPI_Datatype sendtype, void *recvbuf, const int recvcounts[], const int rdispls[],
          MPI_Datatype recvtype, MPI_Comm comm))
EYRIE_MPI(int, Alltoallv_c, (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], MPI_Datatype sendtype, void *recvbuf,
          const MPI_Count recvcounts[], const MPI_Aint rdispls[], MPI_Datatype recvtype,
          MPI_Comm comm))
EYRIE_MPI(int, Alltoallv_init, (const void *sendbuf, const int sendcounts[], const int sdispls[],
          MPI_Datatype sendtype, void *recvbuf, const int recvcounts[], const int rdispls[],
          MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Alltoallv_init_c, (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], MPI_Datatype sendtype, void *recvbuf,
          const MPI_Count recvcounts[], const MPI_Aint rdispls[], MPI_Datatype recvtype,
          MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Alltoallw, (const void *sendbuf, const int sendcounts[], const int sdispls[],
          const MPI_Datatype sendtypes[], void *recvbuf, const int recvcounts[],
          const int rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm))
EYRIE_MPI(int, Alltoallw_c, (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], const MPI_Datatype sendtypes[], void *recvbuf,
          const MPI_Count recvcounts[], const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
          MPI_Comm comm))
EYRIE_MPI(int, Alltoallw_init, (const void *sendbuf, const int sendcounts[], const int sdispls[],
          const MPI_Datatype sendtypes[], void *recvbuf, const int recvcounts[],
          const int rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm, MPI_Info info,
          MPI_Request *request))
EYRIE_MPI(int, Alltoallw_init_c, (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], const MPI_Datatype sendtypes[], void *recvbuf,
          const MPI_Count recvcounts[], const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
          MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Barrier, (MPI_Comm comm))
EYRIE_MPI(int, Barrier_init, (MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Bcast, (void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm))
EYRIE_MPI(int, Bcast_c, (void *buffer, MPI_Count count, MPI_Datatype datatype, int root,
          MPI_Comm comm))
EYRIE_MPI(int, Bcast_init, (void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm,
          MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Bcast_init_c, (void *buffer, MPI_Count count, MPI_Datatype datatype, int root,
          MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Exscan, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
          MPI_Op op, MPI_Comm comm))
EYRIE_MPI(int, Exscan_c, (const void *sendbuf, void *recvbuf, MPI_Count count,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm))
EYRIE_MPI(int, Exscan_init, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
          MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Exscan_init_c, (const void *sendbuf, void *recvbuf, MPI_Count count,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Gather, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
          int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm))
EYRIE_MPI(int, Gather_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm))
EYRIE_MPI(int, Gather_init, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
          MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Gather_init_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
          MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Gatherv, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
          const int recvcounts[], const int displs[], MPI_Datatype recvtype, int root,
          MPI_Comm comm))
EYRIE_MPI(int, Gatherv_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, const MPI_Count recvcounts[], const MPI_Aint displs[],
          MPI_Datatype recvtype, int root, MPI_Comm comm))
EYRIE_MPI(int, Gatherv_init, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, const int recvcounts[], const int displs[], MPI_Datatype recvtype,
          int root, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Gatherv_init_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, const MPI_Count recvcounts[], const MPI_Aint displs[],
          MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Iallgather, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Iallgather_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm,
          MPI_Request *request))
EYRIE_MPI(int, Iallgatherv, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, const int recvcounts[], const int displs[], MPI_Datatype recvtype,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Iallgatherv_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, const MPI_Count recvcounts[], const MPI_Aint displs[],
          MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Iallreduce, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
          MPI_Op op, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Iallreduce_c, (const void *sendbuf, void *recvbuf, MPI_Count count,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ialltoall, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
          int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ialltoall_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm,
          MPI_Request *request))
EYRIE_MPI(int, Ialltoallv, (const void *sendbuf, const int sendcounts[], const int sdispls[],
          MPI_Datatype sendtype, void *recvbuf, const int recvcounts[], const int rdispls[],
          MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ialltoallv_c, (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], MPI_Datatype sendtype, void *recvbuf,
          const MPI_Count recvcounts[], const MPI_Aint rdispls[], MPI_Datatype recvtype,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ialltoallw, (const void *sendbuf, const int sendcounts[], const int sdispls[],
          const MPI_Datatype sendtypes[], void *recvbuf, const int recvcounts[],
          const int rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ialltoallw_c, (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], const MPI_Datatype sendtypes[], void *recvbuf,
          const MPI_Count recvcounts[], const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ibarrier, (MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ibcast, (void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm,
          MPI_Request *request))
EYRIE_MPI(int, Ibcast_c, (void *buffer, MPI_Count count, MPI_Datatype datatype, int root,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Iexscan, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
          MPI_Op op, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Iexscan_c, (const void *sendbuf, void *recvbuf, MPI_Count count,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Igather, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
          int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Igather_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
          MPI_Request *request))
EYRIE_MPI(int, Igatherv, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
          const int recvcounts[], const int displs[], MPI_Datatype recvtype, int root,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Igatherv_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, const MPI_Count recvcounts[], const MPI_Aint displs[],
          MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ireduce, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
          MPI_Op op, int root, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ireduce_c, (const void *sendbuf, void *recvbuf, MPI_Count count,
          MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ireduce_scatter, (const void *sendbuf, void *recvbuf, const int recvcounts[],
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ireduce_scatter_block, (const void *sendbuf, void *recvbuf, int recvcount,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ireduce_scatter_block_c, (const void *sendbuf, void *recvbuf, MPI_Count recvcount,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ireduce_scatter_c, (const void *sendbuf, void *recvbuf, const MPI_Count recvcounts[],
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Iscan, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
          MPI_Op op, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Iscan_c, (const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype,
          MPI_Op op, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Iscatter, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
          int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Iscatter_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
          MPI_Request *request))
EYRIE_MPI(int, Iscatterv, (const void *sendbuf, const int sendcounts[], const int displs[],
          MPI_Datatype sendtype, void *recvbuf, int recvcount, MPI_Datatype recvtype, int root,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Iscatterv_c, (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint displs[], MPI_Datatype sendtype, void *recvbuf, MPI_Count recvcount,
          MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Reduce, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
          MPI_Op op, int root, MPI_Comm comm))
EYRIE_MPI(int, Reduce_c, (const void *sendbuf, void *recvbuf, MPI_Count count,
          MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm))
EYRIE_MPI(int, Reduce_init, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
          MPI_Op op, int root, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Reduce_init_c, (const void *sendbuf, void *recvbuf, MPI_Count count,
          MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm, MPI_Info info,
          MPI_Request *request))
EYRIE_MPI(int, Reduce_local, (const void *inbuf, void *inoutbuf, int count, MPI_Datatype datatype,
          MPI_Op op))
EYRIE_MPI(int, Reduce_local_c, (const void *inbuf, void *inoutbuf, MPI_Count count,
          MPI_Datatype datatype, MPI_Op op))
EYRIE_MPI(int, Reduce_scatter, (const void *sendbuf, void *recvbuf, const int recvcounts[],
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm))
EYRIE_MPI(int, Reduce_scatter_block, (const void *sendbuf, void *recvbuf, int recvcount,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm))
EYRIE_MPI(int, Reduce_scatter_block_c, (const void *sendbuf, void *recvbuf, MPI_Count recvcount,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm))
EYRIE_MPI(int, Reduce_scatter_block_init, (const void *sendbuf, void *recvbuf, int recvcount,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Reduce_scatter_block_init_c, (const void *sendbuf, void *recvbuf,
          MPI_Count recvcount, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Info info,
          MPI_Request *request))
EYRIE_MPI(int, Reduce_scatter_c, (const void *sendbuf, void *recvbuf, const MPI_Count recvcounts[],
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm))
EYRIE_MPI(int, Reduce_scatter_init, (const void *sendbuf, void *recvbuf, const int recvcounts[],
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Reduce_scatter_init_c, (const void *sendbuf, void *recvbuf,
          const MPI_Count recvcounts[], MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
          MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Scan, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
          MPI_Op op, MPI_Comm comm))
EYRIE_MPI(int, Scan_c, (const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype,
          MPI_Op op, MPI_Comm comm))
EYRIE_MPI(int, Scan_init, (const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
          MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Scan_init_c, (const void *sendbuf, void *recvbuf, MPI_Count count,
          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Scatter, (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
          int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm))
EYRIE_MPI(int, Scatter_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm))
EYRIE_MPI(int, Scatter_init, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
          MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Scatter_init_c, (const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
          void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
          MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Scatterv, (const void *sendbuf, const int sendcounts[], const int displs[],
          MPI_Datatype sendtype, void *recvbuf, int recvcount, MPI_Datatype recvtype, int root,
          MPI_Comm comm))
EYRIE_MPI(int, Scatterv_c, (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint displs[], MPI_Datatype sendtype, void *recvbuf, MPI_Count recvcount,
          MPI_Datatype recvtype, int root, MPI_Comm comm))
EYRIE_MPI(int, Scatterv_init, (const void *sendbuf, const int sendcounts[], const int displs[],
          MPI_Datatype sendtype, void *recvbuf, int recvcount, MPI_Datatype recvtype, int root,
          MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Scatterv_init_c, (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint displs[], MPI_Datatype sendtype, void *recvbuf, MPI_Count recvcount,
          MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Info info, MPI_Request *request))

/* Operations. */
EYRIE_MPI(int, Op_commutative, (MPI_Op op, int *commute))
EYRIE_MPI(int, Op_create, (MPI_User_function *user_fn, int commute, MPI_Op *op))
EYRIE_MPI(int, Op_create_c, (MPI_User_function_c *user_fn, int commute, MPI_Op *op))
EYRIE_MPI(int, Op_free, (MPI_Op *op))

/* Groups. */
EYRIE_MPI(int, Group_compare, (MPI_Group group1, MPI_Group group2, int *result))
EYRIE_MPI(int, Group_difference, (MPI_Group group1, MPI_Group group2, MPI_Group *newgroup))
EYRIE_MPI(int, Group_excl, (MPI_Group group, int n, const int ranks[], MPI_Group *newgroup))
EYRIE_MPI(int, Group_free, (MPI_Group *group))
EYRIE_MPI(int, Group_incl, (MPI_Group group, int n, const int ranks[], MPI_Group *newgroup))
EYRIE_MPI(int, Group_intersection, (MPI_Group group1, MPI_Group group2, MPI_Group *newgroup))
EYRIE_MPI(int, Group_range_excl, (MPI_Group group, int n, int ranges[][3], MPI_Group *newgroup))
EYRIE_MPI(int, Group_range_incl, (MPI_Group group, int n, int ranges[][3], MPI_Group *newgroup))
EYRIE_MPI(int, Group_rank, (MPI_Group group, int *rank))
EYRIE_MPI(int, Group_size, (MPI_Group group, int *size))
EYRIE_MPI(int, Group_translate_ranks, (MPI_Group group1, int n, const int ranks1[],
          MPI_Group group2, int ranks2[]))
EYRIE_MPI(int, Group_union, (MPI_Group group1, MPI_Group group2, MPI_Group *newgroup))

/* Communicators. */
EYRIE_MPI(int, Comm_compare, (MPI_Comm comm1, MPI_Comm comm2, int *result))
EYRIE_MPI(int, Comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm *newcomm))
EYRIE_MPI(int, Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *newcomm))
EYRIE_MPI(int, Comm_dup, (MPI_Comm comm, MPI_Comm *newcomm))
EYRIE_MPI(int, Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm))
EYRIE_MPI(int, Comm_free, (MPI_Comm *comm))
EYRIE_MPI(int, Comm_get_info, (MPI_Comm comm, MPI_Info *info_used))
EYRIE_MPI(int, Comm_get_name, (MPI_Comm comm, char *comm_name, int *resultlen))
EYRIE_MPI(int, Comm_group, (MPI_Comm comm, MPI_Group *group))
EYRIE_MPI(int, Comm_idup, (MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request))
EYRIE_MPI(int, Comm_idup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm,
          MPI_Request *request))
EYRIE_MPI(int, Comm_rank, (MPI_Comm comm, int *rank))
EYRIE_MPI(int, Comm_remote_group, (MPI_Comm comm, MPI_Group *group))
EYRIE_MPI(int, Comm_remote_size, (MPI_Comm comm, int *size))
EYRIE_MPI(int, Comm_set_info, (MPI_Comm comm, MPI_Info info))
EYRIE_MPI(int, Comm_set_name, (MPI_Comm comm, const char *comm_name))
EYRIE_MPI(int, Comm_size, (MPI_Comm comm, int *size))
EYRIE_MPI(int, Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *newcomm))
EYRIE_MPI(int, Comm_split_type, (MPI_Comm comm, int split_type, int key, MPI_Info info,
          MPI_Comm *newcomm))
EYRIE_MPI(int, Comm_test_inter, (MPI_Comm comm, int *flag))
EYRIE_MPI(int, Intercomm_create, (MPI_Comm local_comm, int local_leader, MPI_Comm peer_comm,
          int remote_leader, int tag, MPI_Comm *newintercomm))
EYRIE_MPI(int, Intercomm_merge, (MPI_Comm intercomm, int high, MPI_Comm *newintracomm))

/* Attributes. */
EYRIE_MPI(int, Attr_delete, (MPI_Comm comm, int keyval))
EYRIE_MPI(int, Attr_get, (MPI_Comm comm, int keyval, void *attribute_val, int *flag))
EYRIE_MPI(int, Attr_put, (MPI_Comm comm, int keyval, void *attribute_val))
EYRIE_MPI(int, Comm_create_keyval, (MPI_Comm_copy_attr_function *comm_copy_attr_fn,
          MPI_Comm_delete_attr_function *comm_delete_attr_fn, int *comm_keyval, void *extra_state))
EYRIE_MPI(int, Comm_delete_attr, (MPI_Comm comm, int comm_keyval))
EYRIE_MPI(int, Comm_free_keyval, (int *comm_keyval))
EYRIE_MPI(int, Comm_get_attr, (MPI_Comm comm, int comm_keyval, void *attribute_val, int *flag))
EYRIE_MPI(int, Comm_set_attr, (MPI_Comm comm, int comm_keyval, void *attribute_val))
EYRIE_MPI(int, Keyval_create, (MPI_Copy_function *copy_fn, MPI_Delete_function *delete_fn,
          int *keyval, void *extra_state))
EYRIE_MPI(int, Keyval_free, (int *keyval))
EYRIE_MPI(int, Type_create_keyval, (MPI_Type_copy_attr_function *type_copy_attr_fn,
          MPI_Type_delete_attr_function *type_delete_attr_fn, int *type_keyval, void *extra_state))
EYRIE_MPI(int, Type_delete_attr, (MPI_Datatype datatype, int type_keyval))
EYRIE_MPI(int, Type_free_keyval, (int *type_keyval))
EYRIE_MPI(int, Type_get_attr, (MPI_Datatype datatype, int type_keyval, void *attribute_val,
          int *flag))
EYRIE_MPI(int, Type_set_attr, (MPI_Datatype datatype, int type_keyval, void *attribute_val))

/* Topologies. */
EYRIE_MPI(int, Cart_coords, (MPI_Comm comm, int rank, int maxdims, int coords[]))
EYRIE_MPI(int, Cart_create, (MPI_Comm comm_old, int ndims, const int dims[], const int periods[],
          int reorder, MPI_Comm *comm_cart))
EYRIE_MPI(int, Cart_get, (MPI_Comm comm, int maxdims, int dims[], int periods[], int coords[]))
EYRIE_MPI(int, Cart_map, (MPI_Comm comm, int ndims, const int dims[], const int periods[],
          int *newrank))
EYRIE_MPI(int, Cart_rank, (MPI_Comm comm, const int coords[], int *rank))
EYRIE_MPI(int, Cart_shift, (MPI_Comm comm, int direction, int disp, int *rank_source,
          int *rank_dest))
EYRIE_MPI(int, Cart_sub, (MPI_Comm comm, const int remain_dims[], MPI_Comm *newcomm))
EYRIE_MPI(int, Cartdim_get, (MPI_Comm comm, int *ndims))
EYRIE_MPI(int, Dims_create, (int nnodes, int ndims, int dims[]))
EYRIE_MPI(int, Dist_graph_create, (MPI_Comm comm_old, int n, const int sources[],
          const int degrees[], const int destinations[], const int *weights, MPI_Info info,
          int reorder, MPI_Comm *comm_dist_graph))
EYRIE_MPI(int, Dist_graph_create_adjacent, (MPI_Comm comm_old, int indegree, const int sources[],
          const int *sourceweights, int outdegree, const int destinations[], const int *destweights,
          MPI_Info info, int reorder, MPI_Comm *comm_dist_graph))
EYRIE_MPI(int, Dist_graph_neighbors, (MPI_Comm comm, int maxindegree, int sources[],
          int *sourceweights, int maxoutdegree, int destinations[], int *destweights))
EYRIE_MPI(int, Dist_graph_neighbors_count, (MPI_Comm comm, int *indegree, int *outdegree,
          int *weighted))
EYRIE_MPI(int, Graph_create, (MPI_Comm comm_old, int nnodes, const int indx[], const int edges[],
          int reorder, MPI_Comm *comm_graph))
EYRIE_MPI(int, Graph_get, (MPI_Comm comm, int maxindex, int maxedges, int indx[], int edges[]))
EYRIE_MPI(int, Graph_map, (MPI_Comm comm, int nnodes, const int indx[], const int edges[],
          int *newrank))
EYRIE_MPI(int, Graph_neighbors, (MPI_Comm comm, int rank, int maxneighbors, int neighbors[]))
EYRIE_MPI(int, Graph_neighbors_count, (MPI_Comm comm, int rank, int *nneighbors))
EYRIE_MPI(int, Graphdims_get, (MPI_Comm comm, int *nnodes, int *nedges))
EYRIE_MPI(int, Topo_test, (MPI_Comm comm, int *status))

/* Neighbourhood collectives. */
EYRIE_MPI(int, Ineighbor_allgather, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ineighbor_allgather_c, (const void *sendbuf, MPI_Count sendcount,
          MPI_Datatype sendtype, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ineighbor_allgatherv, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, const int recvcounts[], const int displs[], MPI_Datatype recvtype,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ineighbor_allgatherv_c, (const void *sendbuf, MPI_Count sendcount,
          MPI_Datatype sendtype, void *recvbuf, const MPI_Count recvcounts[],
          const MPI_Aint displs[], MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ineighbor_alltoall, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ineighbor_alltoall_c, (const void *sendbuf, MPI_Count sendcount,
          MPI_Datatype sendtype, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ineighbor_alltoallv, (const void *sendbuf, const int sendcounts[],
          const int sdispls[], MPI_Datatype sendtype, void *recvbuf, const int recvcounts[],
          const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ineighbor_alltoallv_c, (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], MPI_Datatype sendtype, void *recvbuf,
          const MPI_Count recvcounts[], const MPI_Aint rdispls[], MPI_Datatype recvtype,
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ineighbor_alltoallw, (const void *sendbuf, const int sendcounts[],
          const MPI_Aint sdispls[], const MPI_Datatype sendtypes[], void *recvbuf,
          const int recvcounts[], const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Ineighbor_alltoallw_c, (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], const MPI_Datatype sendtypes[], void *recvbuf,
          const MPI_Count recvcounts[], const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
          MPI_Comm comm, MPI_Request *request))
EYRIE_MPI(int, Neighbor_allgather, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm))
EYRIE_MPI(int, Neighbor_allgather_c, (const void *sendbuf, MPI_Count sendcount,
          MPI_Datatype sendtype, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
          MPI_Comm comm))
EYRIE_MPI(int, Neighbor_allgather_init, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
          MPI_Request *request))
EYRIE_MPI(int, Neighbor_allgather_init_c, (const void *sendbuf, MPI_Count sendcount,
          MPI_Datatype sendtype, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
          MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Neighbor_allgatherv, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, const int recvcounts[], const int displs[], MPI_Datatype recvtype,
          MPI_Comm comm))
EYRIE_MPI(int, Neighbor_allgatherv_c, (const void *sendbuf, MPI_Count sendcount,
          MPI_Datatype sendtype, void *recvbuf, const MPI_Count recvcounts[],
          const MPI_Aint displs[], MPI_Datatype recvtype, MPI_Comm comm))
EYRIE_MPI(int, Neighbor_allgatherv_init, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, const int recvcounts[], const int displs[], MPI_Datatype recvtype,
          MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Neighbor_allgatherv_init_c, (const void *sendbuf, MPI_Count sendcount,
          MPI_Datatype sendtype, void *recvbuf, const MPI_Count recvcounts[],
          const MPI_Aint displs[], MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
          MPI_Request *request))
EYRIE_MPI(int, Neighbor_alltoall, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm))
EYRIE_MPI(int, Neighbor_alltoall_c, (const void *sendbuf, MPI_Count sendcount,
          MPI_Datatype sendtype, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
          MPI_Comm comm))
EYRIE_MPI(int, Neighbor_alltoall_init, (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
          void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
          MPI_Request *request))
EYRIE_MPI(int, Neighbor_alltoall_init_c, (const void *sendbuf, MPI_Count sendcount,
          MPI_Datatype sendtype, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
          MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Neighbor_alltoallv, (const void *sendbuf, const int sendcounts[],
          const int sdispls[], MPI_Datatype sendtype, void *recvbuf, const int recvcounts[],
          const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm))
EYRIE_MPI(int, Neighbor_alltoallv_c, (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], MPI_Datatype sendtype, void *recvbuf,
          const MPI_Count recvcounts[], const MPI_Aint rdispls[], MPI_Datatype recvtype,
          MPI_Comm comm))
EYRIE_MPI(int, Neighbor_alltoallv_init, (const void *sendbuf, const int sendcounts[],
          const int sdispls[], MPI_Datatype sendtype, void *recvbuf, const int recvcounts[],
          const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
          MPI_Request *request))
EYRIE_MPI(int, Neighbor_alltoallv_init_c, (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], MPI_Datatype sendtype, void *recvbuf,
          const MPI_Count recvcounts[], const MPI_Aint rdispls[], MPI_Datatype recvtype,
          MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Neighbor_alltoallw, (const void *sendbuf, const int sendcounts[],
          const MPI_Aint sdispls[], const MPI_Datatype sendtypes[], void *recvbuf,
          const int recvcounts[], const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
          MPI_Comm comm))
EYRIE_MPI(int, Neighbor_alltoallw_c, (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], const MPI_Datatype sendtypes[], void *recvbuf,
          const MPI_Count recvcounts[], const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
          MPI_Comm comm))
EYRIE_MPI(int, Neighbor_alltoallw_init, (const void *sendbuf, const int sendcounts[],
          const MPI_Aint sdispls[], const MPI_Datatype sendtypes[], void *recvbuf,
          const int recvcounts[], const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
          MPI_Comm comm, MPI_Info info, MPI_Request *request))
EYRIE_MPI(int, Neighbor_alltoallw_init_c, (const void *sendbuf, const MPI_Count sendcounts[],
          const MPI_Aint sdispls[], const MPI_Datatype sendtypes[], void *recvbuf,
          const MPI_Count recvcounts[], const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
          MPI_Comm comm, MPI_Info info, MPI_Request *request))

/* Error handlers and errors. */
EYRIE_MPI(int, Add_error_class, (int *errorclass))
EYRIE_MPI(int, Add_error_code, (int errorclass, int *errorcode))
EYRIE_MPI(int, Add_error_string, (int errorcode, const char *string))
EYRIE_MPI(int, Comm_call_errhandler, (MPI_Comm comm, int errorcode))
EYRIE_MPI(int, Comm_create_errhandler, (MPI_Comm_errhandler_function *comm_errhandler_fn,
          MPI_Errhandler *errhandler))
EYRIE_MPI(int, Comm_get_errhandler, (MPI_Comm comm, MPI_Errhandler *errhandler))
EYRIE_MPI(int, Comm_set_errhandler, (MPI_Comm comm, MPI_Errhandler errhandler))
EYRIE_MPI(int, Errhandler_free, (MPI_Errhandler *errhandler))
EYRIE_MPI(int, Error_class, (int errorcode, int *errorclass))
EYRIE_MPI(int, Error_string, (int errorcode, char *string, int *resultlen))
EYRIE_MPI(int, Remove_error_class, (int errorclass))
EYRIE_MPI(int, Remove_error_code, (int errorcode))
EYRIE_MPI(int, Remove_error_string, (int errorcode))

/* Info objects. */
EYRIE_MPI(int, Info_create, (MPI_Info *info))
EYRIE_MPI(int, Info_create_env, (int argc, char *argv[], MPI_Info *info))
EYRIE_MPI(int, Info_delete, (MPI_Info info, const char *key))
EYRIE_MPI(int, Info_dup, (MPI_Info info, MPI_Info *newinfo))
EYRIE_MPI(int, Info_free, (MPI_Info *info))
EYRIE_MPI(int, Info_get, (MPI_Info info, const char *key, int valuelen, char *value, int *flag))
EYRIE_MPI(int, Info_get_nkeys, (MPI_Info info, int *nkeys))
EYRIE_MPI(int, Info_get_nthkey, (MPI_Info info, int n, char *key))
EYRIE_MPI(int, Info_get_string, (MPI_Info info, const char *key, int *buflen, char *value,
          int *flag))
EYRIE_MPI(int, Info_get_valuelen, (MPI_Info info, const char *key, int *valuelen, int *flag))
EYRIE_MPI(int, Info_set, (MPI_Info info, const char *key, const char *value))

/* Process creation and names. */
EYRIE_MPI(int, Close_port, (const char *port_name))
EYRIE_MPI(int, Comm_accept, (const char *port_name, MPI_Info info, int root, MPI_Comm comm,
          MPI_Comm *newcomm))
EYRIE_MPI(int, Comm_connect, (const char *port_name, MPI_Info info, int root, MPI_Comm comm,
          MPI_Comm *newcomm))
EYRIE_MPI(int, Comm_disconnect, (MPI_Comm *comm))
EYRIE_MPI(int, Comm_get_parent, (MPI_Comm *parent))
EYRIE_MPI(int, Comm_join, (int fd, MPI_Comm *intercomm))
EYRIE_MPI(int, Comm_spawn, (const char *command, char *argv[], int maxprocs, MPI_Info info,
          int root, MPI_Comm comm, MPI_Comm *intercomm, int array_of_errcodes[]))
EYRIE_MPI(int, Comm_spawn_multiple, (int count, char *array_of_commands[], char **array_of_argv[],
          const int array_of_maxprocs[], const MPI_Info array_of_info[], int root, MPI_Comm comm,
          MPI_Comm *intercomm, int array_of_errcodes[]))
EYRIE_MPI(int, Lookup_name, (const char *service_name, MPI_Info info, char *port_name))
EYRIE_MPI(int, Open_port, (MPI_Info info, char *port_name))
EYRIE_MPI(int, Publish_name, (const char *service_name, MPI_Info info, const char *port_name))
EYRIE_MPI(int, Unpublish_name, (const char *service_name, MPI_Info info, const char *port_name))

/* One-sided communication. */
EYRIE_MPI(int, Accumulate, (const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
          int target_rank, MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype,
          MPI_Op op, MPI_Win win))
EYRIE_MPI(int, Accumulate_c, (const void *origin_addr, MPI_Count origin_count,
          MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
          MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op, MPI_Win win))
EYRIE_MPI(int, Compare_and_swap, (const void *origin_addr, const void *compare_addr,
          void *result_addr, MPI_Datatype datatype, int target_rank, MPI_Aint target_disp,
          MPI_Win win))
EYRIE_MPI(int, Fetch_and_op, (const void *origin_addr, void *result_addr, MPI_Datatype datatype,
          int target_rank, MPI_Aint target_disp, MPI_Op op, MPI_Win win))
EYRIE_MPI(int, Get, (void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
          int target_rank, MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype,
          MPI_Win win))
EYRIE_MPI(int, Get_accumulate, (const void *origin_addr, int origin_count,
          MPI_Datatype origin_datatype, void *result_addr, int result_count,
          MPI_Datatype result_datatype, int target_rank, MPI_Aint target_disp, int target_count,
          MPI_Datatype target_datatype, MPI_Op op, MPI_Win win))
EYRIE_MPI(int, Get_accumulate_c, (const void *origin_addr, MPI_Count origin_count,
          MPI_Datatype origin_datatype, void *result_addr, MPI_Count result_count,
          MPI_Datatype result_datatype, int target_rank, MPI_Aint target_disp,
          MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op, MPI_Win win))
EYRIE_MPI(int, Get_c, (void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
          int target_rank, MPI_Aint target_disp, MPI_Count target_count,
          MPI_Datatype target_datatype, MPI_Win win))
EYRIE_MPI(int, Put, (const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
          int target_rank, MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype,
          MPI_Win win))
EYRIE_MPI(int, Put_c, (const void *origin_addr, MPI_Count origin_count,
          MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
          MPI_Count target_count, MPI_Datatype target_datatype, MPI_Win win))
EYRIE_MPI(int, Raccumulate, (const void *origin_addr, int origin_count,
          MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp, int target_count,
          MPI_Datatype target_datatype, MPI_Op op, MPI_Win win, MPI_Request *request))
EYRIE_MPI(int, Raccumulate_c, (const void *origin_addr, MPI_Count origin_count,
          MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
          MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op, MPI_Win win,
          MPI_Request *request))
EYRIE_MPI(int, Rget, (void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
          int target_rank, MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype,
          MPI_Win win, MPI_Request *request))
EYRIE_MPI(int, Rget_accumulate, (const void *origin_addr, int origin_count,
          MPI_Datatype origin_datatype, void *result_addr, int result_count,
          MPI_Datatype result_datatype, int target_rank, MPI_Aint target_disp, int target_count,
          MPI_Datatype target_datatype, MPI_Op op, MPI_Win win, MPI_Request *request))
EYRIE_MPI(int, Rget_accumulate_c, (const void *origin_addr, MPI_Count origin_count,
          MPI_Datatype origin_datatype, void *result_addr, MPI_Count result_count,
          MPI_Datatype result_datatype, int target_rank, MPI_Aint target_disp,
          MPI_Count target_count, MPI_Datatype target_datatype, MPI_Op op, MPI_Win win,
          MPI_Request *request))
EYRIE_MPI(int, Rget_c, (void *origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
          int target_rank, MPI_Aint target_disp, MPI_Count target_count,
          MPI_Datatype target_datatype, MPI_Win win, MPI_Request *request))
EYRIE_MPI(int, Rput, (const void *origin_addr, int origin_count, MPI_Datatype origin_datatype,
          int target_rank, MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype,
          MPI_Win win, MPI_Request *request))
EYRIE_MPI(int, Rput_c, (const void *origin_addr, MPI_Count origin_count,
          MPI_Datatype origin_datatype, int target_rank, MPI_Aint target_disp,
          MPI_Count target_count, MPI_Datatype target_datatype, MPI_Win win, MPI_Request *request))
EYRIE_MPI(int, Win_allocate, (MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm,
          void *baseptr, MPI_Win *win))
EYRIE_MPI(int, Win_allocate_c, (MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm,
          void *baseptr, MPI_Win *win))
EYRIE_MPI(int, Win_allocate_shared, (MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm,
          void *baseptr, MPI_Win *win))
EYRIE_MPI(int, Win_allocate_shared_c, (MPI_Aint size, MPI_Aint disp_unit, MPI_Info info,
          MPI_Comm comm, void *baseptr, MPI_Win *win))
EYRIE_MPI(int, Win_attach, (MPI_Win win, void *base, MPI_Aint size))
EYRIE_MPI(int, Win_call_errhandler, (MPI_Win win, int errorcode))
EYRIE_MPI(int, Win_complete, (MPI_Win win))
EYRIE_MPI(int, Win_create, (void *base, MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm,
          MPI_Win *win))
EYRIE_MPI(int, Win_create_c, (void *base, MPI_Aint size, MPI_Aint disp_unit, MPI_Info info,
          MPI_Comm comm, MPI_Win *win))
EYRIE_MPI(int, Win_create_dynamic, (MPI_Info info, MPI_Comm comm, MPI_Win *win))
EYRIE_MPI(int, Win_create_errhandler, (MPI_Win_errhandler_function *win_errhandler_fn,
          MPI_Errhandler *errhandler))
EYRIE_MPI(int, Win_create_keyval, (MPI_Win_copy_attr_function *win_copy_attr_fn,
          MPI_Win_delete_attr_function *win_delete_attr_fn, int *win_keyval, void *extra_state))
EYRIE_MPI(int, Win_delete_attr, (MPI_Win win, int win_keyval))
EYRIE_MPI(int, Win_detach, (MPI_Win win, const void *base))
EYRIE_MPI(int, Win_fence, (int assert, MPI_Win win))
EYRIE_MPI(int, Win_flush, (int rank, MPI_Win win))
EYRIE_MPI(int, Win_flush_all, (MPI_Win win))
EYRIE_MPI(int, Win_flush_local, (int rank, MPI_Win win))
EYRIE_MPI(int, Win_flush_local_all, (MPI_Win win))
EYRIE_MPI(int, Win_free, (MPI_Win *win))
EYRIE_MPI(int, Win_free_keyval, (int *win_keyval))
EYRIE_MPI(int, Win_get_attr, (MPI_Win win, int win_keyval, void *attribute_val, int *flag))
EYRIE_MPI(int, Win_get_errhandler, (MPI_Win win, MPI_Errhandler *errhandler))
EYRIE_MPI(int, Win_get_group, (MPI_Win win, MPI_Group *group))
EYRIE_MPI(int, Win_get_info, (MPI_Win win, MPI_Info *info_used))
EYRIE_MPI(int, Win_get_name, (MPI_Win win, char *win_name, int *resultlen))
EYRIE_MPI(int, Win_lock, (int lock_type, int rank, int assert, MPI_Win win))
EYRIE_MPI(int, Win_lock_all, (int assert, MPI_Win win))
EYRIE_MPI(int, Win_post, (MPI_Group group, int assert, MPI_Win win))
EYRIE_MPI(int, Win_set_attr, (MPI_Win win, int win_keyval, void *attribute_val))
EYRIE_MPI(int, Win_set_errhandler, (MPI_Win win, MPI_Errhandler errhandler))
EYRIE_MPI(int, Win_set_info, (MPI_Win win, MPI_Info info))
EYRIE_MPI(int, Win_set_name, (MPI_Win win, const char *win_name))
EYRIE_MPI(int, Win_shared_query, (MPI_Win win, int rank, MPI_Aint *size, int *disp_unit,
          void *baseptr))
EYRIE_MPI(int, Win_shared_query_c, (MPI_Win win, int rank, MPI_Aint *size, MPI_Aint *disp_unit,
          void *baseptr))
EYRIE_MPI(int, Win_start, (MPI_Group group, int assert, MPI_Win win))
EYRIE_MPI(int, Win_sync, (MPI_Win win))
EYRIE_MPI(int, Win_test, (MPI_Win win, int *flag))
EYRIE_MPI(int, Win_unlock, (int rank, MPI_Win win))
EYRIE_MPI(int, Win_unlock_all, (MPI_Win win))
EYRIE_MPI(int, Win_wait, (MPI_Win win))

/* Files. */
EYRIE_MPI(int, File_call_errhandler, (MPI_File fh, int errorcode))
EYRIE_MPI(int, File_close, (MPI_File *fh))
EYRIE_MPI(int, File_create_errhandler, (MPI_File_errhandler_function *file_errhandler_fn,
          MPI_Errhandler *errhandler))
EYRIE_MPI(int, File_delete, (const char *filename, MPI_Info info))
EYRIE_MPI(int, File_get_amode, (MPI_File fh, int *amode))
EYRIE_MPI(int, File_get_atomicity, (MPI_File fh, int *flag))
EYRIE_MPI(int, File_get_byte_offset, (MPI_File fh, MPI_Offset offset, MPI_Offset *disp))
EYRIE_MPI(int, File_get_errhandler, (MPI_File file, MPI_Errhandler *errhandler))
EYRIE_MPI(int, File_get_group, (MPI_File fh, MPI_Group *group))
EYRIE_MPI(int, File_get_info, (MPI_File fh, MPI_Info *info_used))
EYRIE_MPI(int, File_get_position, (MPI_File fh, MPI_Offset *offset))
EYRIE_MPI(int, File_get_position_shared, (MPI_File fh, MPI_Offset *offset))
EYRIE_MPI(int, File_get_size, (MPI_File fh, MPI_Offset *size))
EYRIE_MPI(int, File_get_type_extent, (MPI_File fh, MPI_Datatype datatype, MPI_Aint *extent))
EYRIE_MPI(int, File_get_type_extent_c, (MPI_File fh, MPI_Datatype datatype, MPI_Count *extent))
EYRIE_MPI(int, File_get_view, (MPI_File fh, MPI_Offset *disp, MPI_Datatype *etype,
          MPI_Datatype *filetype, char *datarep))
EYRIE_MPI(int, File_iread, (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
          MPI_Request *request))
EYRIE_MPI(int, File_iread_all, (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
          MPI_Request *request))
EYRIE_MPI(int, File_iread_all_c, (MPI_File fh, void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Request *request))
EYRIE_MPI(int, File_iread_at, (MPI_File fh, MPI_Offset offset, void *buf, int count,
          MPI_Datatype datatype, MPI_Request *request))
EYRIE_MPI(int, File_iread_at_all, (MPI_File fh, MPI_Offset offset, void *buf, int count,
          MPI_Datatype datatype, MPI_Request *request))
EYRIE_MPI(int, File_iread_at_all_c, (MPI_File fh, MPI_Offset offset, void *buf, MPI_Count count,
          MPI_Datatype datatype, MPI_Request *request))
EYRIE_MPI(int, File_iread_at_c, (MPI_File fh, MPI_Offset offset, void *buf, MPI_Count count,
          MPI_Datatype datatype, MPI_Request *request))
EYRIE_MPI(int, File_iread_c, (MPI_File fh, void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Request *request))
EYRIE_MPI(int, File_iread_shared, (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
          MPI_Request *request))
EYRIE_MPI(int, File_iread_shared_c, (MPI_File fh, void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Request *request))
EYRIE_MPI(int, File_iwrite, (MPI_File fh, const void *buf, int count, MPI_Datatype datatype,
          MPI_Request *request))
EYRIE_MPI(int, File_iwrite_all, (MPI_File fh, const void *buf, int count, MPI_Datatype datatype,
          MPI_Request *request))
EYRIE_MPI(int, File_iwrite_all_c, (MPI_File fh, const void *buf, MPI_Count count,
          MPI_Datatype datatype, MPI_Request *request))
EYRIE_MPI(int, File_iwrite_at, (MPI_File fh, MPI_Offset offset, const void *buf, int count,
          MPI_Datatype datatype, MPI_Request *request))
EYRIE_MPI(int, File_iwrite_at_all, (MPI_File fh, MPI_Offset offset, const void *buf, int count,
          MPI_Datatype datatype, MPI_Request *request))
EYRIE_MPI(int, File_iwrite_at_all_c, (MPI_File fh, MPI_Offset offset, const void *buf,
          MPI_Count count, MPI_Datatype datatype, MPI_Request *request))
EYRIE_MPI(int, File_iwrite_at_c, (MPI_File fh, MPI_Offset offset, const void *buf, MPI_Count count,
          MPI_Datatype datatype, MPI_Request *request))
EYRIE_MPI(int, File_iwrite_c, (MPI_File fh, const void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Request *request))
EYRIE_MPI(int, File_iwrite_shared, (MPI_File fh, const void *buf, int count, MPI_Datatype datatype,
          MPI_Request *request))
EYRIE_MPI(int, File_iwrite_shared_c, (MPI_File fh, const void *buf, MPI_Count count,
          MPI_Datatype datatype, MPI_Request *request))
EYRIE_MPI(int, File_open, (MPI_Comm comm, const char *filename, int amode, MPI_Info info,
          MPI_File *fh))
EYRIE_MPI(int, File_preallocate, (MPI_File fh, MPI_Offset size))
EYRIE_MPI(int, File_read, (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status))
EYRIE_MPI(int, File_read_all, (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status))
EYRIE_MPI(int, File_read_all_begin, (MPI_File fh, void *buf, int count, MPI_Datatype datatype))
EYRIE_MPI(int, File_read_all_begin_c, (MPI_File fh, void *buf, MPI_Count count,
          MPI_Datatype datatype))
EYRIE_MPI(int, File_read_all_c, (MPI_File fh, void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Status *status))
EYRIE_MPI(int, File_read_all_end, (MPI_File fh, void *buf, MPI_Status *status))
EYRIE_MPI(int, File_read_at, (MPI_File fh, MPI_Offset offset, void *buf, int count,
          MPI_Datatype datatype, MPI_Status *status))
EYRIE_MPI(int, File_read_at_all, (MPI_File fh, MPI_Offset offset, void *buf, int count,
          MPI_Datatype datatype, MPI_Status *status))
EYRIE_MPI(int, File_read_at_all_begin, (MPI_File fh, MPI_Offset offset, void *buf, int count,
          MPI_Datatype datatype))
EYRIE_MPI(int, File_read_at_all_begin_c, (MPI_File fh, MPI_Offset offset, void *buf,
          MPI_Count count, MPI_Datatype datatype))
EYRIE_MPI(int, File_read_at_all_c, (MPI_File fh, MPI_Offset offset, void *buf, MPI_Count count,
          MPI_Datatype datatype, MPI_Status *status))
EYRIE_MPI(int, File_read_at_all_end, (MPI_File fh, void *buf, MPI_Status *status))
EYRIE_MPI(int, File_read_at_c, (MPI_File fh, MPI_Offset offset, void *buf, MPI_Count count,
          MPI_Datatype datatype, MPI_Status *status))
EYRIE_MPI(int, File_read_c, (MPI_File fh, void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Status *status))
EYRIE_MPI(int, File_read_ordered, (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status))
EYRIE_MPI(int, File_read_ordered_begin, (MPI_File fh, void *buf, int count, MPI_Datatype datatype))
EYRIE_MPI(int, File_read_ordered_begin_c, (MPI_File fh, void *buf, MPI_Count count,
          MPI_Datatype datatype))
EYRIE_MPI(int, File_read_ordered_c, (MPI_File fh, void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Status *status))
EYRIE_MPI(int, File_read_ordered_end, (MPI_File fh, void *buf, MPI_Status *status))
EYRIE_MPI(int, File_read_shared, (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status))
EYRIE_MPI(int, File_read_shared_c, (MPI_File fh, void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Status *status))
EYRIE_MPI(int, File_seek, (MPI_File fh, MPI_Offset offset, int whence))
EYRIE_MPI(int, File_seek_shared, (MPI_File fh, MPI_Offset offset, int whence))
EYRIE_MPI(int, File_set_atomicity, (MPI_File fh, int flag))
EYRIE_MPI(int, File_set_errhandler, (MPI_File file, MPI_Errhandler errhandler))
EYRIE_MPI(int, File_set_info, (MPI_File fh, MPI_Info info))
EYRIE_MPI(int, File_set_size, (MPI_File fh, MPI_Offset size))
EYRIE_MPI(int, File_set_view, (MPI_File fh, MPI_Offset disp, MPI_Datatype etype,
          MPI_Datatype filetype, const char *datarep, MPI_Info info))
EYRIE_MPI(int, File_sync, (MPI_File fh))
EYRIE_MPI(int, File_write, (MPI_File fh, const void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status))
EYRIE_MPI(int, File_write_all, (MPI_File fh, const void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status))
EYRIE_MPI(int, File_write_all_begin, (MPI_File fh, const void *buf, int count,
          MPI_Datatype datatype))
EYRIE_MPI(int, File_write_all_begin_c, (MPI_File fh, const void *buf, MPI_Count count,
          MPI_Datatype datatype))
EYRIE_MPI(int, File_write_all_c, (MPI_File fh, const void *buf, MPI_Count count,
          MPI_Datatype datatype, MPI_Status *status))
EYRIE_MPI(int, File_write_all_end, (MPI_File fh, const void *buf, MPI_Status *status))
EYRIE_MPI(int, File_write_at, (MPI_File fh, MPI_Offset offset, const void *buf, int count,
          MPI_Datatype datatype, MPI_Status *status))
EYRIE_MPI(int, File_write_at_all, (MPI_File fh, MPI_Offset offset, const void *buf, int count,
          MPI_Datatype datatype, MPI_Status *status))
EYRIE_MPI(int, File_write_at_all_begin, (MPI_File fh, MPI_Offset offset, const void *buf, int count,
          MPI_Datatype datatype))
EYRIE_MPI(int, File_write_at_all_begin_c, (MPI_File fh, MPI_Offset offset, const void *buf,
          MPI_Count count, MPI_Datatype datatype))
EYRIE_MPI(int, File_write_at_all_c, (MPI_File fh, MPI_Offset offset, const void *buf,
          MPI_Count count, MPI_Datatype datatype, MPI_Status *status))
EYRIE_MPI(int, File_write_at_all_end, (MPI_File fh, const void *buf, MPI_Status *status))
EYRIE_MPI(int, File_write_at_c, (MPI_File fh, MPI_Offset offset, const void *buf, MPI_Count count,
          MPI_Datatype datatype, MPI_Status *status))
EYRIE_MPI(int, File_write_c, (MPI_File fh, const void *buf, MPI_Count count, MPI_Datatype datatype,
          MPI_Status *status))
EYRIE_MPI(int, File_write_ordered, (MPI_File fh, const void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status))
EYRIE_MPI(int, File_write_ordered_begin, (MPI_File fh, const void *buf, int count,
          MPI_Datatype datatype))
EYRIE_MPI(int, File_write_ordered_begin_c, (MPI_File fh, const void *buf, MPI_Count count,
          MPI_Datatype datatype))
EYRIE_MPI(int, File_write_ordered_c, (MPI_File fh, const void *buf, MPI_Count count,
          MPI_Datatype datatype, MPI_Status *status))
EYRIE_MPI(int, File_write_ordered_end, (MPI_File fh, const void *buf, MPI_Status *status))
EYRIE_MPI(int, File_write_shared, (MPI_File fh, const void *buf, int count, MPI_Datatype datatype,
          MPI_Status *status))
EYRIE_MPI(int, File_write_shared_c, (MPI_File fh, const void *buf, MPI_Count count,
          MPI_Datatype datatype, MPI_Status *status))
EYRIE_MPI(int, Register_datarep, (const char *datarep,
          MPI_Datarep_conversion_function *read_conversion_fn,
          MPI_Datarep_conversion_function *write_conversion_fn,
          MPI_Datarep_extent_function *dtype_file_extent_fn, void *extra_state))
EYRIE_MPI(int, Register_datarep_c, (const char *datarep,
          MPI_Datarep_conversion_function_c *read_conversion_fn,
          MPI_Datarep_conversion_function_c *write_conversion_fn,
          MPI_Datarep_extent_function *dtype_file_extent_fn, void *extra_state))

/* Sessions. */
EYRIE_MPI(int, Comm_create_from_group, (MPI_Group group, const char *stringtag, MPI_Info info,
          MPI_Errhandler errhandler, MPI_Comm *newcomm))
EYRIE_MPI(int, Group_from_session_pset, (MPI_Session session, const char *pset_name,
          MPI_Group *newgroup))
EYRIE_MPI(int, Intercomm_create_from_groups, (MPI_Group local_group, int local_leader,
          MPI_Group remote_group, int remote_leader, const char *stringtag, MPI_Info info,
          MPI_Errhandler errhandler, MPI_Comm *newintercomm))
EYRIE_MPI(int, Session_attach_buffer, (MPI_Session session, void *buffer, int size))
EYRIE_MPI(int, Session_attach_buffer_c, (MPI_Session session, void *buffer, MPI_Count size))
EYRIE_MPI(int, Session_call_errhandler, (MPI_Session session, int errorcode))
EYRIE_MPI(int, Session_create_errhandler, (MPI_Session_errhandler_function *session_errhandler_fn,
          MPI_Errhandler *errhandler))
EYRIE_MPI(int, Session_detach_buffer, (MPI_Session session, void *buffer_addr, int *size))
EYRIE_MPI(int, Session_detach_buffer_c, (MPI_Session session, void *buffer_addr, MPI_Count *size))
EYRIE_MPI(int, Session_finalize, (MPI_Session *session))
EYRIE_MPI(int, Session_flush_buffer, (MPI_Session session))
EYRIE_MPI(int, Session_get_errhandler, (MPI_Session session, MPI_Errhandler *errhandler))
EYRIE_MPI(int, Session_get_info, (MPI_Session session, MPI_Info *info_used))
EYRIE_MPI(int, Session_get_nth_pset, (MPI_Session session, MPI_Info info, int n, int *pset_len,
          char *pset_name))
EYRIE_MPI(int, Session_get_num_psets, (MPI_Session session, MPI_Info info, int *npset_names))
EYRIE_MPI(int, Session_get_pset_info, (MPI_Session session, const char *pset_name, MPI_Info *info))
EYRIE_MPI(int, Session_iflush_buffer, (MPI_Session session, MPI_Request *request))
EYRIE_MPI(int, Session_init, (MPI_Info info, MPI_Errhandler errhandler, MPI_Session *session))
EYRIE_MPI(int, Session_set_errhandler, (MPI_Session session, MPI_Errhandler errhandler))

/* Conversion of handles to integers. */
EYRIE_MPI(MPI_Comm, Comm_fromint, (int comm))
EYRIE_MPI(int, Comm_toint, (MPI_Comm comm))
EYRIE_MPI(MPI_Errhandler, Errhandler_fromint, (int errhandler))
EYRIE_MPI(int, Errhandler_toint, (MPI_Errhandler errhandler))
EYRIE_MPI(MPI_File, File_fromint, (int file))
EYRIE_MPI(int, File_toint, (MPI_File file))
EYRIE_MPI(MPI_Group, Group_fromint, (int group))
EYRIE_MPI(int, Group_toint, (MPI_Group group))
EYRIE_MPI(MPI_Info, Info_fromint, (int info))
EYRIE_MPI(int, Info_toint, (MPI_Info info))
EYRIE_MPI(MPI_Message, Message_fromint, (int message))
EYRIE_MPI(int, Message_toint, (MPI_Message message))
EYRIE_MPI(MPI_Op, Op_fromint, (int op))
EYRIE_MPI(int, Op_toint, (MPI_Op op))
EYRIE_MPI(MPI_Request, Request_fromint, (int request))
EYRIE_MPI(int, Request_toint, (MPI_Request request))
EYRIE_MPI(MPI_Session, Session_fromint, (int session))
EYRIE_MPI(int, Session_toint, (MPI_Session session))
EYRIE_MPI(MPI_Datatype, Type_fromint, (int datatype))
EYRIE_MPI(int, Type_toint, (MPI_Datatype datatype))
EYRIE_MPI(MPI_Win, Win_fromint, (int win))
EYRIE_MPI(int, Win_toint, (MPI_Win win))

/* The ABI itself. */
EYRIE_MPI(int, Abi_get_fortran_booleans, (int logical_size, void *logical_true, void *logical_false,
          int *is_set))
EYRIE_MPI(int, Abi_get_fortran_info, (MPI_Info *info))
EYRIE_MPI(int, Abi_get_info, (MPI_Info *info))
EYRIE_MPI(int, Abi_get_version, (int *abi_major, int *abi_minor))
EYRIE_MPI(int, Abi_set_fortran_booleans, (int logical_size, void *logical_true,
          void *logical_false))
EYRIE_MPI(int, Abi_set_fortran_info, (MPI_Info info))

/* Tool information interface. */
EYRIE_MPI(int, T_category_changed, (int *update_number))
EYRIE_MPI(int, T_category_get_categories, (int cat_index, int len, int indices[]))
EYRIE_MPI(int, T_category_get_cvars, (int cat_index, int len, int indices[]))
EYRIE_MPI(int, T_category_get_events, (int cat_index, int len, int indices[]))
EYRIE_MPI(int, T_category_get_index, (const char *name, int *cat_index))
EYRIE_MPI(int, T_category_get_info, (int cat_index, char *name, int *name_len, char *desc,
          int *desc_len, int *num_cvars, int *num_pvars, int *num_categories))
EYRIE_MPI(int, T_category_get_num, (int *num_cat))
EYRIE_MPI(int, T_category_get_num_events, (int cat_index, int *num_events))
EYRIE_MPI(int, T_category_get_pvars, (int cat_index, int len, int indices[]))
EYRIE_MPI(int, T_cvar_get_index, (const char *name, int *cvar_index))
EYRIE_MPI(int, T_cvar_get_info, (int cvar_index, char *name, int *name_len, int *verbosity,
          MPI_Datatype *datatype, MPI_T_enum *enumtype, char *desc, int *desc_len, int *bind,
          int *scope))
EYRIE_MPI(int, T_cvar_get_num, (int *num_cvar))
EYRIE_MPI(int, T_cvar_handle_alloc, (int cvar_index, void *obj_handle, MPI_T_cvar_handle *handle,
          int *count))
EYRIE_MPI(int, T_cvar_handle_free, (MPI_T_cvar_handle *handle))
EYRIE_MPI(int, T_cvar_read, (MPI_T_cvar_handle handle, void *buf))
EYRIE_MPI(int, T_cvar_write, (MPI_T_cvar_handle handle, const void *buf))
EYRIE_MPI(int, T_enum_get_info, (MPI_T_enum enumtype, int *num, char *name, int *name_len))
EYRIE_MPI(int, T_enum_get_item, (MPI_T_enum enumtype, int indx, int *value, char *name,
          int *name_len))
EYRIE_MPI(int, T_event_callback_get_info, (MPI_T_event_registration event_registration,
          MPI_T_cb_safety cb_safety, MPI_Info *info_used))
EYRIE_MPI(int, T_event_callback_set_info, (MPI_T_event_registration event_registration,
          MPI_T_cb_safety cb_safety, MPI_Info info))
EYRIE_MPI(int, T_event_copy, (MPI_T_event_instance event_instance, void *buffer))
EYRIE_MPI(int, T_event_get_index, (const char *name, int *event_index))
EYRIE_MPI(int, T_event_get_info, (int event_index, char *name, int *name_len, int *verbosity,
          MPI_Datatype array_of_datatypes[], MPI_Aint array_of_displacements[], int *num_elements,
          MPI_T_enum *enumtype, MPI_Info *info, char *desc, int *desc_len, int *bind))
EYRIE_MPI(int, T_event_get_num, (int *num_events))
EYRIE_MPI(int, T_event_get_source, (MPI_T_event_instance event_instance, int *source_index))
EYRIE_MPI(int, T_event_get_timestamp, (MPI_T_event_instance event_instance,
          MPI_Count *event_timestamp))
EYRIE_MPI(int, T_event_handle_alloc, (int event_index, void *obj_handle, MPI_Info info,
          MPI_T_event_registration *event_registration))
EYRIE_MPI(int, T_event_handle_free, (MPI_T_event_registration event_registration, void *user_data,
          MPI_T_event_free_cb_function free_cb_function))
EYRIE_MPI(int, T_event_handle_get_info, (MPI_T_event_registration event_registration,
          MPI_Info *info_used))
EYRIE_MPI(int, T_event_handle_set_info, (MPI_T_event_registration event_registration,
          MPI_Info info))
EYRIE_MPI(int, T_event_read, (MPI_T_event_instance event_instance, int element_index, void *buffer))
EYRIE_MPI(int, T_event_register_callback, (MPI_T_event_registration event_registration,
          MPI_T_cb_safety cb_safety, MPI_Info info, void *user_data,
          MPI_T_event_cb_function event_cb_function))
EYRIE_MPI(int, T_event_set_dropped_handler, (MPI_T_event_registration event_registration,
          MPI_T_event_dropped_cb_function dropped_cb_function))
EYRIE_MPI(int, T_finalize, (void))
EYRIE_MPI(int, T_init_thread, (int required, int *provided))
EYRIE_MPI(int, T_pvar_get_index, (const char *name, int var_class, int *pvar_index))
EYRIE_MPI(int, T_pvar_get_info, (int pvar_index, char *name, int *name_len, int *verbosity,
          int *var_class, MPI_Datatype *datatype, MPI_T_enum *enumtype, char *desc, int *desc_len,
          int *bind, int *readonly, int *continuous, int *atomic))
EYRIE_MPI(int, T_pvar_get_num, (int *num_pvar))
EYRIE_MPI(int, T_pvar_handle_alloc, (MPI_T_pvar_session session, int pvar_index, void *obj_handle,
          MPI_T_pvar_handle *handle, int *count))
EYRIE_MPI(int, T_pvar_handle_free, (MPI_T_pvar_session session, MPI_T_pvar_handle *handle))
EYRIE_MPI(int, T_pvar_read, (MPI_T_pvar_session session, MPI_T_pvar_handle handle, void *buf))
EYRIE_MPI(int, T_pvar_readreset, (MPI_T_pvar_session session, MPI_T_pvar_handle handle, void *buf))
EYRIE_MPI(int, T_pvar_reset, (MPI_T_pvar_session session, MPI_T_pvar_handle handle))
EYRIE_MPI(int, T_pvar_session_create, (MPI_T_pvar_session *session))
EYRIE_MPI(int, T_pvar_session_free, (MPI_T_pvar_session *session))
EYRIE_MPI(int, T_pvar_start, (MPI_T_pvar_session session, MPI_T_pvar_handle handle))
EYRIE_MPI(int, T_pvar_stop, (MPI_T_pvar_session session, MPI_T_pvar_handle handle))
EYRIE_MPI(int, T_pvar_write, (MPI_T_pvar_session session, MPI_T_pvar_handle handle,
          const void *buf))
EYRIE_MPI(int, T_source_get_info, (int source_index, char *name, int *name_len, char *desc,
          int *desc_len, MPI_T_source_order *ordering, MPI_Count *ticks_per_second,
          MPI_Count *max_ticks, MPI_Info *info))
EYRIE_MPI(int, T_source_get_num, (int *num_sources))
EYRIE_MPI(int, T_source_get_timestamp, (int source_index, MPI_Count *timestamp))

#undef EYRIE_MPI

/*
 * A job of one rank that goes over the C surface: values that the ABI fixes, translation in both
 * directions, callbacks, error handlers. Compiled with our header and once more with MPICH's, so that
 * nothing here may depend on the ABI. Prints one line per failed check and a count at the end.
 */
#include <mpi.h>
#ifdef OPEN_MPI /* whose header is one of MPI 3.1 */
#define MPI_Comm_toint MPI_Comm_c2f
#define MPI_Comm_fromint MPI_Comm_f2c
#define MPI_File_toint MPI_File_c2f
#define MPI_File_fromint MPI_File_f2c
#define MPI_File_write_c MPI_File_write
#define MPI_File_read_at_all_begin_c MPI_File_read_at_all_begin
#define MPI_File_write_shared_c MPI_File_write_shared
#define MPI_File_iread_shared_c MPI_File_iread_shared
#define MPI_Register_datarep_c MPI_Register_datarep
typedef int large_count;
#else
typedef MPI_Count large_count;
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int passed, failed;

#define CHECK(condition)                                             \
    do {                                                             \
        if (condition) {                                             \
            passed++;                                                \
        } else {                                                     \
            failed++;                                                \
            printf("surface.c:%d: not so: %s\n", __LINE__, #condition); \
        }                                                            \
    } while (0)

static int error_class(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

static void types(void)
{
    struct {
        MPI_Datatype type;
        int size;
        const char *name;
    } list[] = {
        {MPI_CHAR, 1, "MPI_CHAR"}, {MPI_SIGNED_CHAR, 1, "MPI_SIGNED_CHAR"},
        {MPI_UNSIGNED_CHAR, 1, "MPI_UNSIGNED_CHAR"}, {MPI_BYTE, 1, "MPI_BYTE"},
        {MPI_SHORT, 2, "MPI_SHORT"}, {MPI_UNSIGNED_SHORT, 2, "MPI_UNSIGNED_SHORT"},
        {MPI_INT, 4, "MPI_INT"}, {MPI_UNSIGNED, 4, "MPI_UNSIGNED"}, {MPI_LONG, 8, "MPI_LONG"},
        {MPI_UNSIGNED_LONG, 8, "MPI_UNSIGNED_LONG"}, {MPI_LONG_LONG, 8, "MPI_LONG_LONG_INT"},
        {MPI_UNSIGNED_LONG_LONG, 8, "MPI_UNSIGNED_LONG_LONG"}, {MPI_FLOAT, 4, "MPI_FLOAT"},
        {MPI_DOUBLE, 8, "MPI_DOUBLE"}, {MPI_LONG_DOUBLE, 16, "MPI_LONG_DOUBLE"},
        {MPI_WCHAR, 4, "MPI_WCHAR"}, {MPI_PACKED, 1, "MPI_PACKED"}, {MPI_C_BOOL, 1, "MPI_C_BOOL"},
        {MPI_INT8_T, 1, "MPI_INT8_T"}, {MPI_INT16_T, 2, "MPI_INT16_T"},
        {MPI_INT32_T, 4, "MPI_INT32_T"}, {MPI_INT64_T, 8, "MPI_INT64_T"},
        {MPI_UINT8_T, 1, "MPI_UINT8_T"}, {MPI_UINT16_T, 2, "MPI_UINT16_T"},
        {MPI_UINT32_T, 4, "MPI_UINT32_T"}, {MPI_UINT64_T, 8, "MPI_UINT64_T"},
        {MPI_AINT, 8, "MPI_AINT"}, {MPI_OFFSET, 8, "MPI_OFFSET"}, {MPI_COUNT, 8, "MPI_COUNT"},
        {MPI_C_DOUBLE_COMPLEX, 16, "MPI_C_DOUBLE_COMPLEX"},
        {MPI_C_LONG_DOUBLE_COMPLEX, 32, "MPI_C_LONG_DOUBLE_COMPLEX"},
        {MPI_FLOAT_INT, 8, "MPI_FLOAT_INT"}, {MPI_DOUBLE_INT, 12, "MPI_DOUBLE_INT"},
        {MPI_LONG_INT, 12, "MPI_LONG_INT"}, {MPI_SHORT_INT, 6, "MPI_SHORT_INT"},
        {MPI_2INT, 8, "MPI_2INT"}, {MPI_LONG_DOUBLE_INT, 20, "MPI_LONG_DOUBLE_INT"},
        {MPI_INTEGER, 4, "MPI_INTEGER"}, {MPI_REAL, 4, "MPI_REAL"}, {MPI_LOGICAL, 4, "MPI_LOGICAL"},
        {MPI_DOUBLE_PRECISION, 8, "MPI_DOUBLE_PRECISION"}, {MPI_COMPLEX, 8, "MPI_COMPLEX"},
        {MPI_DOUBLE_COMPLEX, 16, "MPI_DOUBLE_COMPLEX"}, {MPI_CHARACTER, 1, "MPI_CHARACTER"},
        {MPI_2INTEGER, 8, "MPI_2INTEGER"}, {MPI_REAL8, 8, "MPI_REAL8"},
        {MPI_INTEGER8, 8, "MPI_INTEGER8"}, {MPI_COMPLEX16, 16, "MPI_COMPLEX16"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char name[MPI_MAX_OBJECT_NAME];
        int size = -1, length = -1;
        MPI_Type_size(list[i].type, &size);
        MPI_Type_get_name(list[i].type, name, &length);
        if (size != list[i].size || strcmp(name, list[i].name) || length != (int)strlen(name)) {
            printf("type %s: size %d, name %s\n", list[i].name, size, name);
            failed++;
        } else {
            passed++;
        }
    }
}

static void derived_types(void)
{
    MPI_Datatype vector, again[1], dup;
    MPI_Aint lb = 1, extent = 0, addresses[1];
    int ni, na, nd, combiner, integers[8];
    MPI_Type_vector(3, 2, 4, MPI_DOUBLE, &vector);
    MPI_Type_get_extent(vector, &lb, &extent);
    CHECK(lb == 0 && extent == 80);
    MPI_Type_get_envelope(vector, &ni, &na, &nd, &combiner);
    CHECK(ni == 3 && na == 0 && nd == 1 && combiner == MPI_COMBINER_VECTOR);
    MPI_Type_get_contents(vector, 8, 1, 1, integers, addresses, again);
    CHECK(integers[0] == 3 && integers[1] == 2 && integers[2] == 4 && again[0] == MPI_DOUBLE);
    MPI_Type_dup(vector, &dup);
    MPI_Type_free(&vector);
    CHECK(vector == MPI_DATATYPE_NULL);
    MPI_Type_free(&dup);

    int sizes[2] = {4, 6}, subsizes[2] = {2, 3}, starts[2] = {1, 2};
    MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_FORTRAN, MPI_INT, &vector);
    MPI_Type_get_contents(vector, 8, 1, 1, integers, addresses, again);
    CHECK(integers[7] == MPI_ORDER_FORTRAN && again[0] == MPI_INT);
    MPI_Type_free(&vector);

    int gsizes[1] = {8}, distribs[1] = {MPI_DISTRIBUTE_BLOCK}, psizes[1] = {1};
    int dargs[1] = {MPI_DISTRIBUTE_DFLT_DARG};
    CHECK(MPI_Type_create_darray(1, 0, 1, gsizes, distribs, dargs, psizes, MPI_ORDER_C, MPI_INT,
                                 &vector) == MPI_SUCCESS);
    MPI_Type_get_contents(vector, 8, 1, 1, integers, addresses, again);
    CHECK(integers[4] == MPI_DISTRIBUTE_BLOCK && integers[5] == MPI_DISTRIBUTE_DFLT_DARG);
    CHECK(integers[7] == MPI_ORDER_C);
    MPI_Type_free(&vector);
}

static void point_to_point(void)
{
    int out[4] = {1, 2, 3, 4}, in[4] = {0}, count = -1, flag = -1, index = -5;
    MPI_Status status, statuses[2];
    MPI_Request requests[2];
    MPI_Message message;
    memset(&status, 0x55, sizeof status);
    int untouched = status.MPI_ERROR;

    MPI_Isend(out, 3, MPI_INT, 0, 11, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv(in, 4, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    CHECK(status.MPI_SOURCE == 0 && status.MPI_TAG == 11 && status.MPI_ERROR == untouched);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(count == 3 && in[2] == 3);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    CHECK(count == MPI_UNDEFINED);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    CHECK(requests[0] == MPI_REQUEST_NULL);
    MPI_Wait(&requests[0], &status);
    CHECK(status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);

    MPI_Recv(in, 4, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
    requests[0] = requests[1] = MPI_REQUEST_NULL;
    MPI_Waitany(2, requests, &index, &status);
    CHECK(index == MPI_UNDEFINED);
    MPI_Iprobe(0, 5, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    CHECK(flag == 0);
    MPI_Mprobe(MPI_PROC_NULL, 5, MPI_COMM_WORLD, &message, &status);
    CHECK(message == MPI_MESSAGE_NO_PROC && status.MPI_SOURCE == MPI_PROC_NULL);
    MPI_Mrecv(in, 4, MPI_INT, &message, &status);
    CHECK(message == MPI_MESSAGE_NULL);

    MPI_Send_init(out, 2, MPI_INT, 0, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(in, 2, MPI_INT, 0, 3, MPI_COMM_WORLD, &requests[1]);
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, statuses);
    CHECK(requests[0] != MPI_REQUEST_NULL && statuses[1].MPI_TAG == 3);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    CHECK(requests[1] == MPI_REQUEST_NULL);

    MPI_Irecv(in, 4, MPI_INT, 0, 77, MPI_COMM_WORLD, &requests[0]);
    MPI_Cancel(&requests[0]);
    MPI_Wait(&requests[0], &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag == 1);
    MPI_Sendrecv(out, 4, MPI_INT, 0, 1, in, 4, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(in[3] == 4);
}

static int user_calls;

static void user_sum(void *in, void *inout, int *n, MPI_Datatype *type)
{
    int size = 0;
    MPI_Type_size(*type, &size);
    CHECK(*type == MPI_INT && size == 4);
    for (int i = 0; i < *n; i++)
        ((int *)inout)[i] += ((int *)in)[i];
    user_calls++;
}

static void collectives(void)
{
    double x[2] = {1.5, 2.5}, y[2] = {0, 0};
    struct { double value; int index; } pair = {4.0, 9}, least = {0, 0};
    MPI_Op op;
    int a[3] = {1, 2, 3}, b[3] = {10, 20, 30}, flag = -1;
    MPI_Allreduce(x, y, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(y[0] == 1.5 && y[1] == 2.5);
    MPI_Allreduce(MPI_IN_PLACE, y, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    CHECK(y[1] == 2.5);
    MPI_Allreduce(&pair, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
    CHECK(least.value == 4.0 && least.index == 9);
    MPI_Op_create(user_sum, 1, &op);
    MPI_Op_commutative(op, &flag);
    CHECK(flag == 1);
    MPI_Reduce_local(a, b, 3, MPI_INT, op);
    CHECK(b[0] == 11 && b[2] == 33 && user_calls > 0);
    MPI_Op_free(&op);
    CHECK(op == MPI_OP_NULL);
    MPI_Gather(a, 3, MPI_INT, b, 3, MPI_INT, 0, MPI_COMM_WORLD);
    CHECK(b[1] == 2);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, 3, MPI_INT, MPI_COMM_WORLD);
    CHECK(a[2] == 3);
}

static void communicators(void)
{
    MPI_Comm dup, none, node, cart;
    MPI_Group world, empty;
    int result = -1, rank = -1, source, dest, dims[1] = {1}, periods[1] = {0}, status = -1, length;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_compare(MPI_COMM_WORLD, dup, &result);
    CHECK(result == MPI_CONGRUENT);
    MPI_Comm_compare(dup, dup, &result);
    CHECK(result == MPI_IDENT);
    MPI_Comm_split(MPI_COMM_WORLD, MPI_UNDEFINED, 0, &none);
    CHECK(none == MPI_COMM_NULL);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    CHECK(node != MPI_COMM_NULL);
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
    CHECK(!strcmp(name, "MPI_COMM_WORLD") && length == 14);
    MPI_Comm_group(dup, &world);
    MPI_Group_difference(world, world, &empty);
    CHECK(empty == MPI_GROUP_EMPTY);
    int zero = 0, other = -7, nowhere = MPI_PROC_NULL;
    MPI_Group_translate_ranks(world, 1, &zero, empty, &other);
    CHECK(other == MPI_UNDEFINED);
    MPI_Group_translate_ranks(world, 1, &nowhere, world, &other);
    CHECK(other == MPI_PROC_NULL);
    MPI_Group_rank(world, &rank);
    CHECK(rank == 0);
    MPI_Group_free(&world);
    CHECK(world == MPI_GROUP_NULL);
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &cart);
    MPI_Topo_test(cart, &status);
    CHECK(status == MPI_CART);
    MPI_Topo_test(dup, &status);
    CHECK(status == MPI_UNDEFINED);
    MPI_Cart_shift(cart, 0, 1, &source, &dest);
    CHECK(source == MPI_PROC_NULL && dest == MPI_PROC_NULL);
    MPI_Comm_free(&cart);
    /* A grid that is too large leaves no handle; dimensions that are given may have a multiple. */
    int large[1] = {2}, *known = NULL, flag = 0;
    MPI_Comm_set_errhandler(dup, MPI_ERRORS_RETURN);
    cart = dup;
    CHECK(error_class(MPI_Cart_create(dup, 1, large, periods, 0, &cart)) == MPI_ERR_DIMS);
    CHECK(cart == MPI_COMM_NULL);
    CHECK(MPI_Dims_create(4, 1, large) == MPI_SUCCESS && large[0] == 2);
    /* Attributes that are ranks, as this ABI has them. */
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, &known, &flag);
    CHECK(flag && *known == MPI_ANY_SOURCE);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_HOST, &known, &flag);
    CHECK(flag && *known == MPI_PROC_NULL);
    MPI_Comm_free(&node);
    MPI_Comm_free(&dup);
    CHECK(dup == MPI_COMM_NULL);
}

/* A graph of one node with two edges to itself, in the three ways to make one. */
static void graphs(void)
{
    MPI_Comm comm, graph, copy;
    int index[1] = {2}, zeros[2] = {0, 0}, weights[2] = {7, 0}, two[1] = {2}, far[2] = {0, 1};
    int kind = -1, n = -1, k = -1, weighted = -1, list[3] = {-1, -1, -1}, seen[3] = {-1, -1, -1};
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Graph_map(comm, 1, index, zeros, &n);
    CHECK(n == 0);
    MPI_Graph_map(comm, 0, NULL, NULL, &n);
    CHECK(n == MPI_UNDEFINED);
    MPI_Graph_create(comm, 0, NULL, NULL, 0, &graph);
    CHECK(graph == MPI_COMM_NULL);
    MPI_Graph_create(comm, 1, index, zeros, 1, &graph);
    MPI_Topo_test(graph, &kind);
    CHECK(kind == MPI_GRAPH);
    MPI_Graphdims_get(graph, &n, &k);
    CHECK(n == 1 && k == 2);
    MPI_Graph_get(graph, 1, 3, &n, list);
    CHECK(n == 2 && list[0] == 0 && list[1] == 0 && list[2] == -1);
    CHECK(error_class(MPI_Graph_neighbors_count(graph, MPI_PROC_NULL, &n)) == MPI_ERR_RANK);
    CHECK(error_class(MPI_Graph_neighbors(graph, 0, -1, list)) == MPI_ERR_ARG);
    CHECK(error_class(MPI_Graph_neighbors(graph, 0, 2, NULL)) == MPI_ERR_ARG);
    CHECK(error_class(MPI_Cartdim_get(graph, &n)) == MPI_ERR_TOPOLOGY);
    MPI_Comm_free(&graph);
    MPI_Dist_graph_create(comm, 1, zeros, two, zeros, weights, MPI_INFO_NULL, 1, &graph);
    MPI_Comm_dup(graph, &copy);
    MPI_Comm_free(&graph);
    MPI_Topo_test(copy, &kind);
    CHECK(kind == MPI_DIST_GRAPH);
    MPI_Dist_graph_neighbors_count(copy, &n, &k, &weighted);
    CHECK(n == 2 && k == 2 && weighted == 1);
    MPI_Dist_graph_neighbors(copy, 3, list, seen, 1, &n, MPI_UNWEIGHTED);
    CHECK(list[1] == 0 && list[2] == -1 && seen[0] == 7 && seen[1] == 0 && seen[2] == -1);
    CHECK(error_class(MPI_Dist_graph_neighbors(copy, 2, list, NULL, 0, NULL, NULL)) == MPI_ERR_ARG);
    MPI_Comm_free(&copy);
    MPI_Dist_graph_create_adjacent(comm, 0, NULL, MPI_WEIGHTS_EMPTY, 0, NULL, MPI_WEIGHTS_EMPTY,
                                   MPI_INFO_NULL, 0, &graph);
    MPI_Dist_graph_neighbors_count(graph, &n, &k, &weighted);
    CHECK(n == 0 && k == 0 && weighted == 1);
    MPI_Comm_free(&graph);
    MPI_Dist_graph_create_adjacent(comm, 1, zeros, MPI_UNWEIGHTED, 1, zeros, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &graph);
    MPI_Dist_graph_neighbors(graph, 1, list, NULL, 1, list + 2, NULL);
    CHECK(list[2] == 0);
    MPI_Dist_graph_neighbors_count(graph, &n, &k, &weighted);
    CHECK(n == 1 && k == 1 && weighted == 0);
    MPI_Comm_free(&graph);
    CHECK(error_class(MPI_Graph_create(comm, -1, index, zeros, 0, &graph)) == MPI_ERR_ARG);
    CHECK(error_class(MPI_Graph_create(comm, 2, two, zeros, 0, &graph)) == MPI_ERR_ARG);
    CHECK(error_class(MPI_Graph_create(comm, 1, NULL, zeros, 0, &graph)) == MPI_ERR_ARG);
    CHECK(error_class(MPI_Graph_create(comm, 1, index, far, 0, &graph)) == MPI_ERR_RANK);
    CHECK(error_class(MPI_Dist_graph_create(comm, 1, zeros, two, far, MPI_UNWEIGHTED, MPI_INFO_NULL,
                                            0, &graph)) == MPI_ERR_RANK);
    CHECK(error_class(MPI_Dist_graph_create(comm, 1, zeros, two, zeros, MPI_WEIGHTS_EMPTY,
                                            MPI_INFO_NULL, 0, &graph)) == MPI_ERR_ARG);
    CHECK(error_class(MPI_Dist_graph_create(comm, -1, zeros, two, zeros, MPI_UNWEIGHTED,
                                            MPI_INFO_NULL, 0, &graph)) == MPI_ERR_ARG);
    CHECK(error_class(MPI_Dist_graph_create_adjacent(comm, 1, NULL, MPI_UNWEIGHTED, 0, NULL,
                                                     MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph)) ==
          MPI_ERR_ARG);
    CHECK(error_class(MPI_Dist_graph_create_adjacent(comm, 1, zeros, MPI_UNWEIGHTED, 1, zeros,
                                                     weights, MPI_INFO_NULL, 0, &graph)) ==
          MPI_ERR_ARG);
    CHECK(error_class(MPI_Graphdims_get(comm, &n, &k)) == MPI_ERR_TOPOLOGY);
    MPI_Comm_free(&comm);
}

static int copies, deletes;

static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    int rank = -1;
    (void)key;
    MPI_Comm_rank(comm, &rank);
    copies += rank == 0 && extra == &copies;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

static void attributes(void)
{
    int key, dup_key, null_key, flag = 0, *bound = NULL;
    static char place[4];
    void *value = NULL;
    MPI_Comm comm;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &flag);
    CHECK(flag && *bound >= 32767);
    MPI_Comm_create_keyval(copy, delete, &key, &copies);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &dup_key, NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete, &null_key, NULL);
    MPI_Comm_set_attr(MPI_COMM_WORLD, key, place);
    MPI_Comm_set_attr(MPI_COMM_WORLD, dup_key, place);
    MPI_Comm_set_attr(MPI_COMM_WORLD, null_key, place);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_get_attr(comm, key, &value, &flag);
    CHECK(flag && value == place + 1 && copies == 1);
    MPI_Comm_get_attr(comm, dup_key, &value, &flag);
    CHECK(flag && value == place);
    MPI_Comm_get_attr(comm, null_key, &value, &flag);
    CHECK(!flag);
    MPI_Comm_free(&comm);
    CHECK(deletes == 1);
    MPI_Comm_delete_attr(MPI_COMM_WORLD, key);
    CHECK(deletes == 2);
    MPI_Comm_free_keyval(&key);
    CHECK(key == MPI_KEYVAL_INVALID);
}

static MPI_Comm handled_comm;
static int handled_code = -1;

static void handler(MPI_Comm *comm, int *code, ...)
{
    int rank;
    handled_comm = *comm;
    handled_code = *code;
    MPI_Comm_rank(*comm, &rank);
}

static void errors(void)
{
    MPI_Errhandler mine, found;
    MPI_Comm comm;
    char text[MPI_MAX_ERROR_STRING];
    int length, class, code, x = 0, one = 1;
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_get_errhandler(comm, &found);
    CHECK(found == MPI_ERRORS_ARE_FATAL);
    MPI_Comm_create_errhandler(handler, &mine);
    MPI_Comm_set_errhandler(comm, mine);
    code = MPI_Send(&x, 1, MPI_INT, 5, 0, comm);
    CHECK(error_class(code) == MPI_ERR_RANK && handled_comm == comm);
    CHECK(handled_code == code);
    MPI_Errhandler_free(&mine);
    CHECK(mine == MPI_ERRHANDLER_NULL);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    CHECK(error_class(MPI_Send(&x, -1, MPI_INT, 0, 0, comm)) == MPI_ERR_COUNT);
    CHECK(error_class(MPI_Send(&x, 1, MPI_INT, 0, -5, comm)) == MPI_ERR_TAG);
    CHECK(error_class(MPI_Send(&x, 1, MPI_DATATYPE_NULL, 0, 0, comm)) == MPI_ERR_TYPE);
    CHECK(error_class(MPI_Send(NULL, 1, MPI_INT, 0, 0, comm)) == MPI_ERR_BUFFER);
    CHECK(error_class(MPI_Bcast(&x, 1, MPI_INT, 3, comm)) == MPI_ERR_ROOT);
    CHECK(error_class(MPI_Allreduce(&one, &x, 1, MPI_INT, MPI_OP_NULL, comm)) == MPI_ERR_OP);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    CHECK(error_class(MPI_Comm_size(MPI_COMM_NULL, &x)) == MPI_ERR_COMM);
    CHECK(error_class(MPI_Comm_size(MPI_COMM_WORLD, NULL)) == MPI_ERR_ARG);
    CHECK(MPI_Open_port(MPI_INFO_NULL, port) == MPI_SUCCESS);
    /* Nobody is there that keeps names. */
    CHECK(error_class(MPI_Publish_name("name", MPI_INFO_NULL, port)) == MPI_ERR_UNSUPPORTED_OPERATION);
    MPI_Add_error_class(&class);
    CHECK(class > MPI_ERR_LASTCODE);
    MPI_Add_error_code(class, &code);
    MPI_Add_error_string(code, "a text");
    MPI_Error_string(code, text, &length);
    CHECK(!strcmp(text, "a text") && length == 6 && error_class(code) == class);
    for (class = 1; class < 54; class++) {
        length = -1;
        CHECK(MPI_Error_string(class, text, &length) == MPI_SUCCESS || class == 54);
    }
    MPI_Comm_free(&comm);
}

static void info(void)
{
    MPI_Info i, copy_of;
    char value[MPI_MAX_INFO_VAL], key[MPI_MAX_INFO_KEY + 1];
    int flag = -1, n = -1, length = 4;
    MPI_Info_create(&i);
    MPI_Info_set(i, "colour", "blue green");
    MPI_Info_get(i, "colour", 4, value, &flag);
    CHECK(flag && !strcmp(value, "blue"));
    MPI_Info_get_string(i, "colour", &length, value, &flag);
    CHECK(flag && !strcmp(value, "blu") && length == 11);
    MPI_Info_get(i, "shape", 4, value, &flag);
    CHECK(!flag);
    MPI_Info_dup(i, &copy_of);
    MPI_Info_get_nkeys(copy_of, &n);
    MPI_Info_get_nthkey(copy_of, 0, key);
    CHECK(n == 1 && !strcmp(key, "colour"));
    MPI_Info_free(&i);
    MPI_Info_free(&copy_of);
    CHECK(i == MPI_INFO_NULL);
}

static void environment(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING], host[MPI_MAX_PROCESSOR_NAME];
    int n = -1, version = 0, flag = 0;
    void *memory = NULL;
    MPI_Get_library_version(text, &n);
    CHECK(!strncmp(text, "Eyrie", 5) && n == (int)strlen(text));
    MPI_Get_version(&version, &n);
#ifndef OPEN_MPI
    CHECK(version == MPI_VERSION && n == MPI_SUBVERSION);
#else
    CHECK(version == 5 && n == 0);
#endif
    MPI_Get_processor_name(host, &n);
    CHECK(n > 0 && n == (int)strlen(host));
    MPI_Query_thread(&n);
    CHECK(n == MPI_THREAD_MULTIPLE);
    MPI_Is_thread_main(&flag);
    CHECK(flag);
    double before = MPI_Wtime();
    CHECK(MPI_Wtime() >= before && MPI_Wtick() > 0 && MPI_Wtick() < 1e-3);
    MPI_Alloc_mem(100, MPI_INFO_NULL, &memory);
    CHECK(memory != NULL);
    CHECK(MPI_Free_mem(memory) == MPI_SUCCESS);
    CHECK(MPI_Comm_fromint(MPI_Comm_toint(MPI_COMM_SELF)) == MPI_COMM_SELF);
    CHECK(PMPI_Initialized(&flag) == MPI_SUCCESS && flag);
}

static void files(void)
{
    char name[64];
    int amode = MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE, found, value = 5, n = 0;
    MPI_Offset at = -1;
    MPI_File fh = MPI_FILE_NULL;
    MPI_Status status;
    snprintf(name, sizeof name, "/tmp/surface-%d", (int)getpid());
    CHECK(error_class(MPI_File_close(&fh)) == MPI_ERR_FILE);
    CHECK(error_class(MPI_File_open(MPI_COMM_SELF, name, 1 << 20, MPI_INFO_NULL, &fh)) ==
          MPI_ERR_AMODE);
    CHECK(MPI_File_open(MPI_COMM_SELF, name, amode, MPI_INFO_NULL, &fh) == MPI_SUCCESS);
    CHECK(fh != MPI_FILE_NULL);
    CHECK(MPI_File_get_amode(fh, &found) == MPI_SUCCESS && found == amode);
    CHECK(MPI_File_write_c(fh, &value, 1, MPI_INT, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_INT, &n);
    CHECK(n == 1);
    value = 0;
    CHECK(MPI_File_seek(fh, -4, MPI_SEEK_END) == MPI_SUCCESS);
    CHECK(MPI_File_seek(fh, -4, MPI_SEEK_CUR) != MPI_SUCCESS);
    CHECK(MPI_File_seek(fh, 0, MPI_SEEK_CUR) == MPI_SUCCESS);
    CHECK(MPI_File_get_position(fh, &at) == MPI_SUCCESS && at == 0);
    CHECK(MPI_File_read_at(fh, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(value == 5);
    CHECK(error_class(MPI_File_write_at(fh, 0, NULL, 1, MPI_INT, &status)) == MPI_ERR_BUFFER);
    CHECK(error_class(MPI_File_read_all_end(fh, &value, &status)) == MPI_ERR_IO);
    CHECK(MPI_File_read_at_all_begin_c(fh, 0, &value, 1, MPI_INT) == MPI_SUCCESS);
    CHECK(MPI_File_close(&fh) != MPI_SUCCESS);
    CHECK(MPI_File_read_at_all_end(fh, &value, &status) == MPI_SUCCESS);
    CHECK(MPI_File_fromint(MPI_File_toint(fh)) == fh);
    CHECK(MPI_File_close(&fh) == MPI_SUCCESS && fh == MPI_FILE_NULL);
    CHECK(error_class(MPI_File_delete(name, MPI_INFO_NULL)) == MPI_ERR_NO_SUCH_FILE);
}

/* Three bytes in the file for an int. */
static int three_bytes(MPI_Datatype type, MPI_Aint *extent, void *state)
{
    *extent = 3;
    return type != MPI_INT || state != &passed;
}

static int to_file(void *user, MPI_Datatype type, int n, void *file, MPI_Offset position, void *state)
{
    for (int i = 0; i < n; i++)
        memcpy((char *)file + 3 * i, (char *)user + 4 * i, 3);
    return type != MPI_INT || position != 0 || state != &passed;
}

static int from_file(void *user, MPI_Datatype type, large_count n, void *file, MPI_Offset position, void *state)
{
    for (int i = 0; i < n; i++) {
        memset((char *)user + 4 * i, 0, 4);
        memcpy((char *)user + 4 * i, (char *)file + 3 * i, 3);
    }
    return type != MPI_INT || position != 0 || state != &passed;
}

static int to_file_c(void *user, MPI_Datatype type, large_count n, void *file, MPI_Offset position, void *state)
{
    return to_file(user, type, (int)n, file, position, state);
}

static void shared_and_converted(void)
{
    char name[64], datarep[MPI_MAX_DATAREP_STRING];
    int amode = MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE, values[3] = {7, 70000, 9}, n = 0;
    MPI_Offset at = -1, disp;
    MPI_Datatype types[2];
    MPI_Aint extent;
    MPI_File fh;
    MPI_Request request;
    MPI_Status status;
    snprintf(name, sizeof name, "/tmp/surface-shared-%d", (int)getpid());
    CHECK(MPI_Register_datarep_c("three", from_file, to_file_c, three_bytes, &passed) == MPI_SUCCESS);
    CHECK(error_class(MPI_Register_datarep("three", MPI_CONVERSION_FN_NULL, to_file, three_bytes, NULL)) ==
          MPI_ERR_DUP_DATAREP);
    CHECK(MPI_File_open(MPI_COMM_SELF, name, amode, MPI_INFO_NULL, &fh) == MPI_SUCCESS);
    CHECK(error_class(MPI_File_set_view(fh, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native",
                                        MPI_INFO_NULL)) == MPI_ERR_ARG);
    CHECK(MPI_File_set_view(fh, 1, MPI_INT, MPI_INT, "three", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(MPI_File_write_shared_c(fh, values, 2, MPI_INT, &status) == MPI_SUCCESS);
    CHECK(MPI_File_write_ordered(fh, values + 2, 1, MPI_INT, &status) == MPI_SUCCESS);
    CHECK(MPI_File_get_position_shared(fh, &at) == MPI_SUCCESS && at == 3);
    CHECK(MPI_File_get_size(fh, &at) == MPI_SUCCESS && at == 10);
    CHECK(MPI_File_get_type_extent(fh, MPI_INT, &extent) == MPI_SUCCESS && extent == 3);
    CHECK(MPI_File_seek_shared(fh, -2, MPI_SEEK_END) == MPI_SUCCESS);
    CHECK(MPI_File_iread_shared_c(fh, values, 3, MPI_INT, &request) == MPI_SUCCESS);
    MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_INT, &n);
    CHECK(n == 2 && values[0] == 70000 && values[1] == 9);
    CHECK(MPI_File_get_view(fh, &disp, &types[0], &types[1], datarep) == MPI_SUCCESS && disp == 1);
    CHECK(types[0] == MPI_INT && !strcmp(datarep, "three"));
    CHECK(MPI_File_read_ordered_begin(fh, values, 1, MPI_INT) == MPI_SUCCESS);
    CHECK(error_class(MPI_File_write_ordered_end(fh, values, &status)) == MPI_ERR_IO);
    CHECK(MPI_File_read_ordered_end(fh, values, &status) == MPI_SUCCESS);
    CHECK(MPI_File_close(&fh) == MPI_SUCCESS);
}

int main(int argc, char **argv)
{
    int provided = -1, flag = -1;
    char colour[8] = "";
    MPI_Info early;
    MPI_Info_create(&early);
    MPI_Info_set(early, "colour", "blue");
    MPI_Initialized(&flag);
    CHECK(flag == 0);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    MPI_Info_get(early, "colour", 7, colour, &flag);
    CHECK(flag == 1 && !strcmp(colour, "blue"));
    environment();
    types();
    derived_types();
    point_to_point();
    collectives();
    communicators();
    graphs();
    attributes();
    info();
    files();
    shared_and_converted();
    errors();
    MPI_Finalize();
    MPI_Finalized(&flag);
    CHECK(flag == 1);
    MPI_Info_free(&early);
    CHECK(early == MPI_INFO_NULL);
    printf("surface: %d passed, %d failed\n", passed, failed);
    return failed != 0;
}

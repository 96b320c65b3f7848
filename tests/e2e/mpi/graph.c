/* Topologies that are graphs: of which all ranks know all, and of which each knows its own edges;
 * with weights and without, copies, questions about a graph that is not there. (What is wrong with a
 * new graph not every MPI looks at: tests/abi/surface.c.) */
#include "check.h"

enum { MOST = 64 };

/* A wheel: rank 0 in the middle, the others in a ring around it. */
static int wheel(int nodes, int *index, int *edges)
{
    int at = 0;
    for (int node = 0; node < nodes; node++) {
        if (node == 0) {
            for (int rim = 1; rim < nodes; rim++)
                edges[at++] = rim;
        } else {
            edges[at++] = 0;
            edges[at++] = node + 1 < nodes ? node + 1 : 1;
            edges[at++] = node > 1 ? node - 1 : nodes - 1;
        }
        index[node] = at;
    }
    return at;
}

static void graph_is_wheel(MPI_Comm comm, int nodes)
{
    int index[MOST], edges[4 * MOST], kind, n, m, me, list[MOST + 1], known[MOST], all[4 * MOST];
    int total = wheel(nodes, index, edges);
    OK(MPI_Topo_test(comm, &kind));
    CHECK(kind == MPI_GRAPH, "topology %d", kind);
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    CHECK(me == rank && n == nodes, "rank %d of %d", me, n);
    OK(MPI_Graphdims_get(comm, &n, &m));
    CHECK(n == nodes && m == total, "%d nodes, %d edges", n, m);
    OK(MPI_Graph_get(comm, nodes, total, known, all));
    CHECK(!memcmp(known, index, sizeof *index * nodes), "index");
    CHECK(!memcmp(all, edges, sizeof *edges * total), "edges");
    for (int node = 0; node < nodes; node++) {
        int start = node ? index[node - 1] : 0, degree = index[node] - start;
        OK(MPI_Graph_neighbors_count(comm, node, &n));
        CHECK(n == degree, "%d neighbours of %d", n, node);
        memset(list, -1, sizeof list);
        OK(MPI_Graph_neighbors(comm, node, degree, list));
        CHECK(!memcmp(list, edges + start, sizeof *list * degree) && list[degree] == -1,
              "neighbours of %d", node);
    }
}

static void graphs(void)
{
    int index[MOST], edges[4 * MOST], mapped, kind;
    for (int nodes = 1; nodes <= ranks; nodes++) {
        MPI_Comm comm, copy;
        wheel(nodes, index, edges);
        OK(MPI_Graph_map(MPI_COMM_WORLD, nodes, index, edges, &mapped));
        CHECK(mapped == MPI_UNDEFINED || (mapped >= 0 && mapped < nodes), "mapped %d", mapped);
        OK(MPI_Graph_create(MPI_COMM_WORLD, nodes, index, edges, 0, &comm));
        CHECK((comm == MPI_COMM_NULL) == (rank >= nodes), "nodes only get a communicator");
        if (comm == MPI_COMM_NULL)
            continue;
        graph_is_wheel(comm, nodes);
        OK(MPI_Comm_dup(comm, &copy));
        OK(MPI_Comm_free(&comm));
        graph_is_wheel(copy, nodes);
        OK(MPI_Comm_free(&copy));
    }
    OK(MPI_Topo_test(MPI_COMM_WORLD, &kind));
    CHECK(kind == MPI_UNDEFINED, "topology %d", kind);
}

/* The neighbours and their weights, in no order. */
struct side {
    int count, ranks[4 * MOST], weights[4 * MOST];
};

static void add(struct side *to, int peer, int weight)
{
    int at = to->count++;
    for (; at > 0 && (to->ranks[at - 1] > peer ||
                      (to->ranks[at - 1] == peer && to->weights[at - 1] > weight)); at--) {
        to->ranks[at] = to->ranks[at - 1];
        to->weights[at] = to->weights[at - 1];
    }
    to->ranks[at] = peer;
    to->weights[at] = weight;
}

static void compare(const char *what, int n, const int *list, const int *weights, int weighted,
                    const struct side *expected)
{
    struct side found = {0};
    CHECK(n == expected->count, "%d %s instead of %d", n, what, expected->count);
    for (int i = 0; i < n; i++)
        add(&found, list[i], weighted ? weights[i] : 0);
    for (int i = 0; i < n; i++)
        CHECK(found.ranks[i] == expected->ranks[i] && found.weights[i] == expected->weights[i],
              "%s %d: rank %d with %d", what, i, found.ranks[i], found.weights[i]);
}

static void dist_graph_is(MPI_Comm comm, const struct side *from, const struct side *to,
                          int is_weighted)
{
    int kind, n, k, weighted, me, list[2][4 * MOST], weights[2][4 * MOST];
    OK(MPI_Topo_test(comm, &kind));
    CHECK(kind == MPI_DIST_GRAPH, "topology %d", kind);
    MPI_Comm_rank(comm, &me);
    CHECK(me == rank, "rank %d", me);
    OK(MPI_Dist_graph_neighbors_count(comm, &n, &k, &weighted));
    CHECK(!weighted == !is_weighted, "weighted %d", weighted);
    OK(MPI_Dist_graph_neighbors(comm, n, list[0], is_weighted ? weights[0] : MPI_UNWEIGHTED, k,
                                list[1], is_weighted ? weights[1] : MPI_UNWEIGHTED));
    compare("sources", n, list[0], weights[0], is_weighted, from);
    compare("destinations", k, list[1], weights[1], is_weighted, to);
}

/* The edges of a round: rank `giver` tells of two from each of its two sources. */
static void edge(int giver, int i, int round, int *source, int *destination, int *weight)
{
    *source = (giver + (i < 2 ? 1 : 0) + round) % ranks;
    *destination = (giver * 3 + i * i + round) % ranks;
    *weight = giver * 100 + i;
}

static int degree_of(int giver, int round)
{
    return (giver + round) % 3 == 0 ? 0 : 2;
}

static void any_edges(int round)
{
    int sources[2], degrees[2], destinations[4], weights[4], peer[2], w, weighted = round % 2;
    int n = degree_of(rank, round);
    struct side from = {0}, to = {0};
    MPI_Comm comm, copy;
    for (int i = 0; i < 2 * n; i++) {
        edge(rank, i, round, &sources[i / 2], &destinations[i], &weights[i]);
        degrees[i / 2] = 2;
    }
    for (int giver = 0; giver < ranks; giver++)
        for (int i = 0; i < 2 * degree_of(giver, round); i++) {
            edge(giver, i, round, &peer[0], &peer[1], &w);
            if (peer[0] == rank)
                add(&to, peer[1], weighted ? w : 0);
            if (peer[1] == rank)
                add(&from, peer[0], weighted ? w : 0);
        }
    const int *given = !weighted ? MPI_UNWEIGHTED : n ? weights : MPI_WEIGHTS_EMPTY;
    OK(MPI_Dist_graph_create(MPI_COMM_WORLD, n, sources, degrees, destinations, given,
                             MPI_INFO_NULL, 0, &comm));
    dist_graph_is(comm, &from, &to, weighted);
    OK(MPI_Comm_dup(comm, &copy));
    OK(MPI_Comm_free(&comm));
    dist_graph_is(copy, &from, &to, weighted);
    OK(MPI_Comm_free(&copy));
}

/* Each rank receives from all above it and sends to all below: the lists keep their order. */
static void adjacent(int weighted)
{
    int above[MOST], below[MOST], n = 0, k = 0, weights[2][MOST], list[2][MOST], seen[2][MOST], x;
    MPI_Comm comm;
    for (int r = ranks - 1; r > rank; r--) {
        weights[0][n] = 10 * r + rank;
        above[n++] = r;
    }
    for (int r = 0; r < rank; r++) {
        weights[1][k] = 10 * rank + r;
        below[k++] = r;
    }
    const int *in = !weighted ? MPI_UNWEIGHTED : n ? weights[0] : MPI_WEIGHTS_EMPTY;
    const int *out = !weighted ? MPI_UNWEIGHTED : k ? weights[1] : MPI_WEIGHTS_EMPTY;
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, n, above, in, k, below, out, MPI_INFO_NULL,
                                      0, &comm));
    int counts[2];
    OK(MPI_Dist_graph_neighbors_count(comm, &counts[0], &counts[1], &x));
    CHECK(counts[0] == n && counts[1] == k && !x == !weighted, "%d and %d", counts[0], counts[1]);
    OK(MPI_Dist_graph_neighbors(comm, n, list[0], weighted ? seen[0] : MPI_UNWEIGHTED, k, list[1],
                                weighted ? seen[1] : MPI_UNWEIGHTED));
    CHECK(!memcmp(list[0], above, sizeof *above * n), "sources");
    CHECK(!memcmp(list[1], below, sizeof *below * k), "destinations");
    if (weighted) {
        CHECK(!memcmp(seen[0], weights[0], sizeof *above * n), "weights of sources");
        CHECK(!memcmp(seen[1], weights[1], sizeof *below * k), "weights of destinations");
    }
    /* It carries messages: each sends its rank to those below. */
    MPI_Request requests[MOST];
    int got[MOST];
    for (int i = 0; i < n; i++)
        OK(MPI_Irecv(&got[i], 1, MPI_INT, above[i], 3, comm, &requests[i]));
    for (int i = 0; i < k; i++)
        OK(MPI_Send(&rank, 1, MPI_INT, below[i], 3, comm));
    OK(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
    CHECK(!memcmp(got, above, sizeof *above * n), "messages");
    OK(MPI_Comm_free(&comm));
}

/* Neighbours' data at absolute addresses: MPI_BOTTOM, in all forms of the call. */
static void absolute(void)
{
    MPI_Comm ring;
    MPI_Request request;
    int dims[1] = {ranks}, periods[1] = {1}, ones[2] = {1, 1}, out[2] = {rank, rank}, in[2];
    MPI_Aint from[2], to[2];
    MPI_Datatype types[2] = {MPI_INT, MPI_INT}, none[2] = {MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
    OK(MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &ring));
    for (int i = 0; i < 2; i++) {
        MPI_Get_address(&out[i], &from[i]);
        MPI_Get_address(&in[i], &to[i]);
    }
    for (int form = 0; form < 3; form++) {
        in[0] = in[1] = -1;
        if (form == 0) {
            OK(MPI_Neighbor_alltoallw(MPI_BOTTOM, ones, from, types, MPI_BOTTOM, ones, to, types, ring));
        } else if (form == 1) {
            OK(MPI_Ineighbor_alltoallw(MPI_BOTTOM, ones, from, types, MPI_BOTTOM, ones, to, types, ring,
                                       &request));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        } else {
            OK(MPI_Neighbor_alltoallw_init(MPI_BOTTOM, ones, from, types, MPI_BOTTOM, ones, to, types,
                                           ring, MPI_INFO_NULL, &request));
            OK(MPI_Start(&request));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            OK(MPI_Request_free(&request));
        }
        CHECK(in[0] == (rank + ranks - 1) % ranks && in[1] == (rank + 1) % ranks, "%d: %d %d", form, in[0],
              in[1]);
    }
    ones[0] = ones[1] = 0;
    OK(MPI_Neighbor_alltoallw(MPI_BOTTOM, ones, from, none, MPI_BOTTOM, ones, to, none, ring));
    OK(MPI_Comm_free(&ring));
}

/* A grid without dimensions is rank 0's alone. */
static void no_dimensions(void)
{
    MPI_Comm line, alone;
    int dims[1] = {ranks}, none[1] = {0}, n = -1;
    OK(MPI_Cart_create(MPI_COMM_WORLD, 1, dims, none, 0, &line));
    OK(MPI_Cart_sub(line, none, &alone));
    CHECK((alone != MPI_COMM_NULL) == (rank == 0), "Cart_sub");
    if (alone != MPI_COMM_NULL) {
        OK(MPI_Cartdim_get(alone, &n));
        CHECK(n == 0, "%d dimensions", n);
        OK(MPI_Comm_size(alone, &n));
        CHECK(n == 1, "%d ranks", n);
        OK(MPI_Comm_free(&alone));
    }
    OK(MPI_Comm_free(&line));
}

static void wrong(void)
{
    MPI_Comm comm, graph;
    int n, k, list[2] = {0, 0}, index[1] = {2};
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
#define FAILS(call, class)                                                   \
    do {                                                                     \
        int found_ = class_of(call);                                         \
        CHECK(found_ == (class), "%s: error class %d", #call, found_);       \
    } while (0)
    FAILS(MPI_Graphdims_get(comm, &n, &k), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Graph_neighbors_count(comm, 0, &n), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Dist_graph_neighbors_count(comm, &n, &k, &n), MPI_ERR_TOPOLOGY);
    OK(MPI_Graph_create(comm, 1, index, list, 0, &graph));
    if (graph != MPI_COMM_NULL) {
        FAILS(MPI_Graph_neighbors_count(graph, 1, &n), MPI_ERR_RANK);
        FAILS(MPI_Cartdim_get(graph, &n), MPI_ERR_TOPOLOGY);
        FAILS(MPI_Dist_graph_neighbors_count(graph, &n, &k, &n), MPI_ERR_TOPOLOGY);
        OK(MPI_Comm_free(&graph));
    }
    OK(MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int round = 0; round < 100; round++) {
        graphs();
        any_edges(round);
        adjacent(round % 2);
    }
    absolute();
    no_dimensions();
    wrong();
    return finish("graph");
}

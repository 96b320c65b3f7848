/*
 * Bucket sort of integers in the manner of the NAS Parallel Benchmarks' IS: keys with a bell-shaped
 * distribution are counted in buckets (MPI_Allreduce), the buckets are dealt out so that each rank
 * gets about as many keys (MPI_Alltoall for the counts, MPI_Alltoallv for the keys), and each rank
 * ranks what it got. The keys change from iteration to iteration, and each iteration's result is
 * verified in full.
 *
 * The result does not depend on the number of ranks.
 */
#include "common.h"

static const char USAGE[] =
    "usage: sort [options]\n"
    "  --log2 N        2^N keys in all (default 21)\n"
    "  --iterations K  sort K times (default 10; about a second on two cores)\n"
    "  --progress      one line for each iteration\n"
    "  --help          this text\n";

enum { KEY_BITS = 19, BUCKET_BITS = 10, BUCKETS = 1 << BUCKET_BITS, KEYS_RANGE = 1 << KEY_BITS };

struct options {
    long log2, iterations;
    int progress;
};

struct sorter {
    int rank, ranks;
    long total, first, own; /* keys in all; place of the first own key; own keys */
    int *keys, *by_bucket;  /* own keys as made; own keys in the order of their buckets */
    int *sorted;            /* keys received, then sorted */
    long sorted_room;
    long sorted_count;
};

static struct options parse(int argc, char **argv, int rank)
{
    struct options o = {21, 10, 0};
    struct args a = {argc, argv, 1};
    for (; a.at < argc; a.at++) {
        if (arg_flag(&a, "--help"))
            usage_and_exit(rank, USAGE);
        else if (arg_flag(&a, "--progress"))
            o.progress = 1;
        else if (!arg_long(&a, "--log2", 4, 30, &o.log2) &&
                 !arg_long(&a, "--iterations", 1, 1L << 40, &o.iterations))
            fail("unknown option '%s' (--help lists them)", argv[a.at]);
    }
    return o;
}

/* The key at a global place: the mean of four uniform numbers. */
static int make_key(uint64_t place)
{
    uint64_t word = mix64(place + 1);
    uint64_t sum = (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48);
    return (int)(sum * KEYS_RANGE >> 18);
}

static struct sorter make_sorter(const struct options *o)
{
    struct sorter s;
    memset(&s, 0, sizeof s);
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s.ranks);
    s.total = 1L << o->log2;
    s.first =
        s.total / s.ranks * s.rank + (s.rank < s.total % s.ranks ? s.rank : s.total % s.ranks);
    s.own = s.total / s.ranks + (s.rank < s.total % s.ranks);
    s.keys = must_alloc((size_t)s.own, sizeof(int));
    s.by_bucket = must_alloc((size_t)s.own, sizeof(int));
    for (long i = 0; i < s.own; i++)
        s.keys[i] = make_key((uint64_t)(s.first + i));
    return s;
}

/* Changes a few keys at fixed global places, so that no two iterations are alike. */
static void change_keys(struct sorter *s, long iteration)
{
    for (long c = 0; c < 64; c++) {
        uint64_t word = mix64((uint64_t)(iteration * 64 + c) ^ UINT64_C(0x5bd1e995));
        long place = (long)(word % (uint64_t)s->total) - s->first;
        if (place >= 0 && place < s->own)
            s->keys[place] = (int)(word >> 40) & (KEYS_RANGE - 1);
    }
}

static int bucket_of(int key)
{
    return key >> (KEY_BITS - BUCKET_BITS);
}

/* Deals consecutive buckets to ranks so that each has about the same number of keys. */
static void deal_buckets(const struct sorter *s, const long *sizes, int *owner)
{
    long given = 0;
    int rank = 0;
    for (int b = 0; b < BUCKETS; b++) {
        while (rank + 1 < s->ranks && given >= s->total / s->ranks * (rank + 1))
            rank++;
        owner[b] = rank;
        given += sizes[b];
    }
}

/* Puts the own keys in bucket order and counts them per owner. */
static void split_keys(struct sorter *s, const long *mine, const int *owner, int *send)
{
    long at[BUCKETS], next = 0;
    memset(send, 0, (size_t)s->ranks * sizeof *send);
    for (int b = 0; b < BUCKETS; b++) {
        at[b] = next;
        next += mine[b];
        send[owner[b]] += (int)mine[b];
    }
    for (long i = 0; i < s->own; i++)
        s->by_bucket[at[bucket_of(s->keys[i])]++] = s->keys[i];
}

static long prefix_sums(const int *counts, int *starts, int parts)
{
    long sum = 0;
    for (int i = 0; i < parts; i++) {
        starts[i] = (int)sum;
        sum += counts[i];
    }
    return sum;
}

/* Counting sort of the received keys in place. */
static void rank_keys(struct sorter *s, int *histogram)
{
    memset(histogram, 0, KEYS_RANGE * sizeof *histogram);
    for (long i = 0; i < s->sorted_count; i++)
        histogram[s->sorted[i]]++;
    long out = 0;
    for (int key = 0; key < KEYS_RANGE; key++)
        for (int k = 0; k < histogram[key]; k++)
            s->sorted[out++] = key;
}

static void sort_once(struct sorter *s, int *counts, int *histogram)
{
    long mine[BUCKETS] = {0}, all[BUCKETS];
    int owner[BUCKETS];
    int *send = counts, *send_at = send + s->ranks, *receive = send_at + s->ranks,
        *receive_at = receive + s->ranks;
    for (long i = 0; i < s->own; i++)
        mine[bucket_of(s->keys[i])]++;
    MPI_Allreduce(mine, all, BUCKETS, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    deal_buckets(s, all, owner);
    split_keys(s, mine, owner, send);
    MPI_Alltoall(send, 1, MPI_INT, receive, 1, MPI_INT, MPI_COMM_WORLD);
    prefix_sums(send, send_at, s->ranks);
    s->sorted_count = prefix_sums(receive, receive_at, s->ranks);
    if (s->sorted_count > s->sorted_room) {
        free(s->sorted);
        s->sorted_room = s->sorted_count + s->sorted_count / 8;
        s->sorted = must_alloc((size_t)s->sorted_room, sizeof(int));
    }
    MPI_Alltoallv(s->by_bucket, send, send_at, MPI_INT, s->sorted, receive, receive_at, MPI_INT,
                  MPI_COMM_WORLD);
    rank_keys(s, histogram);
}

/* Checks order, number and the multiset of keys, and folds the sorted sequence into the result's
 * hash. */
static uint64_t verify(const struct sorter *s, long iteration, uint64_t hash)
{
    long before = 0;
    MPI_Exscan(&s->sorted_count, &before, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (s->rank == 0)
        before = 0;
    int last = s->sorted_count ? s->sorted[s->sorted_count - 1] : -1, greatest = -1;
    MPI_Exscan(&last, &greatest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (s->rank == 0)
        greatest = -1;
    uint64_t sums[4] = {0, 0, 0, (uint64_t)s->sorted_count}, all[4];
    for (long i = 0; i < s->own; i++)
        sums[0] += mix64((uint64_t)s->keys[i] + 1);
    for (long i = 0; i < s->sorted_count; i++) {
        if (s->sorted[i] < greatest)
            fail("iteration %ld: key %ld of rank %d is out of order", iteration, i, s->rank);
        greatest = s->sorted[i];
        sums[1] += mix64((uint64_t)s->sorted[i] + 1);
        sums[2] += place_hash((uint64_t)(before + i), (uint64_t)s->sorted[i]);
    }
    MPI_Allreduce(sums, all, 4, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (all[0] != all[1] || all[3] != (uint64_t)s->total)
        fail("iteration %ld: the sorted keys are not the keys that were to be sorted", iteration);
    return fold64(hash, all[2]);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct options o = parse(argc, argv, rank);
    struct sorter s = make_sorter(&o);
    int *counts = must_alloc(4 * (size_t)s.ranks, sizeof *counts);
    int *histogram = must_alloc(KEYS_RANGE, sizeof *histogram);
    uint64_t hash = 0;
    for (long it = 1; it <= o.iterations; it++) {
        change_keys(&s, it);
        sort_once(&s, counts, histogram);
        hash = verify(&s, it, hash);
        if (o.progress && rank == 0) {
            printf("sort: iteration %ld hash %016" PRIx64 "\n", it, hash);
            fflush(stdout);
        }
    }
    if (rank == 0) {
        printf("sort: %ld keys, %ld iterations, %d ranks, every one verified\n", s.total,
               o.iterations, s.ranks);
        printf("sort: checksum %016" PRIx64 "\n", hash);
    }
    free(counts);
    free(histogram);
    free(s.keys);
    free(s.by_bucket);
    free(s.sorted);
    MPI_Finalize();
    return 0;
}

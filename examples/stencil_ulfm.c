/*
 * A stencil in two or three dimensions that handles the loss of ranks itself (ULFM), as in a program of one's own: some
 * ranks compute, the others are spares. When a rank is lost, those that notice it revoke the communicator, all agree,
 * and shrink; a spare takes the place of each that is lost, under the same rank, and gets its state from the neighbour
 * that holds a copy. The result has the same bits as without a loss.
 *
 *     eyrie run -n 4 --spare-ranks 1 --on-failure report stencil_ulfm --kill 2@300
 */
#include "common.h"

#include <mpi-ext.h>
#include <signal.h>

static const char USAGE[] =
    "usage: stencil_ulfm [options]\n"
    "  --dims D       2 or 3 dimensions (default 2)\n"
    "  --size N       grid of N cells in each (default 256, or 48)\n"
    "  --steps S      time steps (default 1000)\n"
    "  --spares K     ranks that wait to take the place of another (default: those of --spare-ranks, or 1)\n"
    "  --every C      steps between two copies of the state to a neighbour (default 50)\n"
    "  --kill P@S     place P kills itself at step S; may be given several times\n"
    "  --help         this text\n";

enum { KILLS = 16, KEPT = 2, NO_SPARE = 4 };

struct options {
    long dims, size, steps, spares, every;
    int kills;
    long kill_place[KILLS], kill_step[KILLS];
};

/* The state at the beginning of a step: one's own rows, and those of the place before (-1: none). */
struct copy {
    long step, other_step;
    double *own, *other;
};

static struct options o;
static MPI_Comm all, compute; /* all that live; those that compute */
static int place = -1, places, first_rank;
static long rows, row0, width; /* in three dimensions a row is a plane; cells in one */
static double *now, *next;
static struct copy kept[KEPT]; /* the newest first */

static long start_of(int part) { return o.size / places * part + (part < o.size % places ? part : o.size % places); }
static long rows_of(int part) { return start_of(part + 1) - start_of(part); }
static size_t cells_of(int part) { return (size_t)(rows_of(part) * width); }

/* What the job was started with. */
static long spare_ranks(void)
{
    char text[32];
    int length = sizeof text, found = 0;
    MPI_Info_get_string(MPI_INFO_ENV, "eyrie_spare_ranks", &length, text, &found);
    return found ? strtol(text, NULL, 10) : 1;
}

static void parse(int argc, char **argv, int rank)
{
    struct args a = {argc, argv, 1};
    o = (struct options){.dims = 2, .steps = 1000, .spares = spare_ranks(), .every = 50};
    for (; a.at < argc; a.at++) {
        char *end;
        if (arg_flag(&a, "--help")) {
            usage_and_exit(rank, USAGE);
        } else if (!strcmp(argv[a.at], "--kill") && a.at + 1 < argc && o.kills < KILLS) {
            a.at++;
            o.kill_place[o.kills] = strtol(argv[a.at], &end, 10);
            if (*end != '@')
                fail("--kill %s: write PLACE@STEP", argv[a.at]);
            o.kill_step[o.kills++] = strtol(end + 1, NULL, 10);
        } else if (!arg_long(&a, "--size", 4, 1L << 15, &o.size) && !arg_long(&a, "--steps", 1, 1L << 40, &o.steps) &&
                   !arg_long(&a, "--spares", 0, 1000, &o.spares) && !arg_long(&a, "--every", 1, 1L << 40, &o.every) &&
                   !arg_long(&a, "--dims", 2, 3, &o.dims)) {
            fail("unknown option '%s' (--help lists them)", argv[a.at]);
        }
    }
    if (o.size == 0)
        o.size = o.dims == 2 ? 256 : 48;
    if (o.dims == 3 && o.size > 1024)
        fail("--size %ld: in three dimensions 1024 is the most", o.size);
    width = o.dims == 2 ? o.size : o.size * o.size;
}

/* Room for the rows of any place, as a spare may get any. */
static void make_room(void)
{
    size_t most = 0;
    for (int part = 0; part < places; part++)
        most = cells_of(part) > most ? cells_of(part) : most;
    now = must_alloc(most + 2 * (size_t)width, sizeof *now);
    next = must_alloc(most + 2 * (size_t)width, sizeof *next);
    for (int i = 0; i < KEPT; i++)
        kept[i] = (struct copy){-1, -1, must_alloc(most, sizeof(double)), must_alloc(most, sizeof(double))};
}

static void begin_at(int part, double *cells)
{
    for (size_t i = 0; i < cells_of(part); i++)
        cells[i] = (double)(mix64((uint64_t)(start_of(part) * width) + i) >> 11) / (double)(1ULL << 53);
}

/* Goes on from a copy of one's own. */
static void resume(const struct copy *from)
{
    rows = rows_of(place);
    row0 = start_of(place);
    memset(now, 0, sizeof *now * (cells_of(place) + 2 * (size_t)width));
    memset(next, 0, sizeof *next * (cells_of(place) + 2 * (size_t)width));
    memcpy(now + width, from->own, cells_of(place) * sizeof *now);
}

/* Keeps the state, and a copy of it at the next place. An error: it does not count. */
static int keep(long step)
{
    struct copy oldest = kept[KEPT - 1];
    int before = (place + places - 1) % places, after = (place + 1) % places;
    memcpy(oldest.own, now + width, cells_of(place) * sizeof *now);
    int error = MPI_Sendrecv(oldest.own, (int)cells_of(place), MPI_DOUBLE, after, 1, oldest.other,
                             (int)cells_of(before), MPI_DOUBLE, before, 1, compute, MPI_STATUS_IGNORE);
    if (error != MPI_SUCCESS) {
        kept[KEPT - 1].step = kept[KEPT - 1].other_step = -1;
        return error;
    }
    oldest.step = oldest.other_step = step;
    memmove(kept + 1, kept, sizeof *kept * (KEPT - 1));
    kept[0] = oldest;
    return MPI_SUCCESS;
}

/* Cells at the rim of the grid stay as they are. */
static void row_2d(const double *mid, double *out, int edge)
{
    for (long x = 0; x < o.size; x++)
        out[x] = edge || x == 0 || x + 1 == o.size
                     ? mid[x]
                     : 0.2 * (mid[x] + mid[x - 1] + mid[x + 1] + mid[x - width] + mid[x + width]);
}

static void plane_3d(const double *mid, double *out, int edge)
{
    long n = o.size;
    for (long i = 0; i < width; i++) {
        long y = i / n, x = i % n;
        out[i] = edge || y == 0 || y + 1 == n || x == 0 || x + 1 == n
                     ? mid[i]
                     : 0.125 * (2 * mid[i] + mid[i - 1] + mid[i + 1] + mid[i - n] + mid[i + n] + mid[i - width] +
                                mid[i + width]);
    }
}

static int one_step(void)
{
    int up = place > 0 ? place - 1 : MPI_PROC_NULL, down = place + 1 < places ? place + 1 : MPI_PROC_NULL;
    int n = (int)width;
    double *top = now + width, *bottom = now + rows * width;
    int error = MPI_Sendrecv(top, n, MPI_DOUBLE, up, 2, bottom + n, n, MPI_DOUBLE, down, 2, compute, MPI_STATUS_IGNORE);
    if (error == MPI_SUCCESS)
        error = MPI_Sendrecv(bottom, n, MPI_DOUBLE, down, 3, now, n, MPI_DOUBLE, up, 3, compute, MPI_STATUS_IGNORE);
    if (error != MPI_SUCCESS)
        return error;
    for (long y = 1; y <= rows; y++) {
        int edge = row0 + y == 1 || row0 + y == o.size;
        if (o.dims == 2)
            row_2d(now + y * width, next + y * width, edge);
        else
            plane_3d(now + y * width, next + y * width, edge);
    }
    double *was = now;
    now = next;
    next = was;
    return MPI_SUCCESS;
}

/* Computes from the newest copy on. An error: somebody is lost, or another has noticed it. */
static int run(uint64_t *checksum)
{
    long step = kept[0].step;
    if (step > 0) {
        /* Who has taken a place has no copy of another's rows yet. */
        int error = keep(step);
        if (error != MPI_SUCCESS)
            return error;
    }
    for (;; step++) {
        for (int i = 0; i < o.kills; i++)
            /* Who has taken the place does not. */
            if (o.kill_place[i] == place && first_rank == place && o.kill_step[i] == step)
                raise(SIGKILL);
        if (step == o.steps)
            break;
        int error = step > kept[0].step && step % o.every == 0 ? keep(step) : MPI_SUCCESS;
        if (error == MPI_SUCCESS)
            error = one_step();
        if (error != MPI_SUCCESS)
            return error;
    }
    uint64_t own = 0;
    for (size_t i = 0; i < cells_of(place); i++)
        own += place_hash((uint64_t)(row0 * width) + i, bits_of(now[width + (long)i]));
    return MPI_Allreduce(&own, checksum, 1, MPI_UINT64_T, MPI_SUM, compute);
}

/* What each that lives says: its place (-1: a spare), and the steps of its copies. */
struct word {
    long place, step[KEPT], other_step[KEPT];
};

/* The newest step of which all rows are still somewhere; 0 can be had in any case. */
static long common_step(const struct word *words, int count, const int *lost)
{
    for (int i = 0; i < KEPT; i++) {
        long step = -1;
        for (int w = 0; w < count && step < 0; w++)
            if (words[w].place >= 0)
                step = words[w].step[i];
        int whole = step > 0;
        for (int part = 0; part < places && whole; part++) {
            int holder = lost[part] ? (part + 1) % places : part;
            int found = 0;
            for (int w = 0; w < count; w++)
                for (int k = 0; k < KEPT; k++)
                    found |= words[w].place == holder &&
                             (lost[part] ? words[w].other_step[k] : words[w].step[k]) == step;
            whole = found && !lost[holder];
        }
        if (whole)
            return step;
    }
    return 0;
}

/* All that live go on without those that are lost. An error: another is lost meanwhile. */
static int repair(void)
{
    MPI_Comm left, again = MPI_COMM_NULL;
    int own, count, fine, error = MPI_Comm_shrink(all, &left);
    if (error != MPI_SUCCESS)
        return error;
    MPI_Comm_free(&all);
    all = left;
    MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN);
    MPI_Comm_rank(all, &own);
    MPI_Comm_size(all, &count);
    struct word word = {place, {kept[0].step, kept[1].step}, {kept[0].other_step, kept[1].other_step}};
    struct word *words = must_alloc((size_t)count, sizeof word);
    int *lost = must_alloc((size_t)places, sizeof *lost), *holds = must_alloc((size_t)places, sizeof *holds);
    error = MPI_Allgather(&word, sizeof word, MPI_BYTE, words, sizeof word, MPI_BYTE, all);
    long step = 0;
    int taken = -1;
    for (int part = 0; part < places && error == MPI_SUCCESS; part++) {
        lost[part] = 1;
        for (int w = 0; w < count; w++)
            if (words[w].place == part)
                lost[part] = 0, holds[part] = w;
    }
    if (error == MPI_SUCCESS)
        step = common_step(words, count, lost);
    for (int part = 0, spare = 0; part < places && error == MPI_SUCCESS; part++) {
        if (!lost[part])
            continue;
        while (spare < count && words[spare].place >= 0)
            spare++;
        if (spare == count) {
            /* The first one ends all; the others wait until it does, or is lost, too. */
            if (own != 0)
                MPI_Barrier(all);
            fprintf(stderr, "stencil_ulfm: no spare is left for place %d\n", part);
            MPI_Abort(MPI_COMM_WORLD, NO_SPARE);
        }
        holds[part] = spare;
        if (spare == own)
            taken = part;
        spare++;
    }
    /* Its rows come from the next place, or are made anew. */
    for (int part = 0; part < places && error == MPI_SUCCESS; part++) {
        if (!lost[part] || step == 0)
            continue;
        const struct copy *from = kept;
        while (from->other_step != step && from < kept + KEPT - 1)
            from++;
        if (place == (part + 1) % places)
            error = MPI_Send(from->other, (int)cells_of(part), MPI_DOUBLE, holds[part], 4, all);
        else if (taken == part)
            error = MPI_Recv(kept[0].own, (int)cells_of(part), MPI_DOUBLE, holds[(part + 1) % places], 4, all,
                             MPI_STATUS_IGNORE);
    }
    /* All go on, or all begin anew: an agreement has the same outcome everywhere. */
    fine = error == MPI_SUCCESS;
    error = MPI_Comm_agree(all, &fine);
    if (error != MPI_SUCCESS || !fine) {
        error = MPI_ERR_OTHER;
        goto over;
    }
    if (taken >= 0)
        place = taken;
    if (step == 0 && place >= 0)
        begin_at(place, kept[0].own);
    else if (taken < 0 && place >= 0 && kept[0].step != step) {
        struct copy newest = kept[0];
        kept[0] = kept[1];
        kept[1] = newest;
    }
    kept[0].step = step;
    kept[1].step = kept[1].other_step = -1;
    if (taken >= 0 || step == 0)
        kept[0].other_step = -1;
    fine = MPI_Comm_split(all, place >= 0 ? 0 : MPI_UNDEFINED, place, &again) == MPI_SUCCESS;
    error = MPI_Comm_agree(all, &fine);
    if (error != MPI_SUCCESS || !fine) {
        error = MPI_ERR_OTHER;
        goto over;
    }
    if (compute != MPI_COMM_NULL)
        MPI_Comm_free(&compute);
    compute = again;
    if (place >= 0)
        resume(&kept[0]);
    if (own == 0)
        fprintf(stderr, "stencil_ulfm: %d ranks go on from step %ld\n", count, step);
over:
    free(words);
    free(lost);
    free(holds);
    return error;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    parse(argc, argv, rank);
    places = ranks - (int)o.spares;
    if (places < 1 || o.size < places)
        fail("%d ranks with %ld spares are too few, or too many for %ld rows", ranks, o.spares, o.size);
    first_rank = rank;
    make_room();
    MPI_Comm_dup(MPI_COMM_WORLD, &all);
    MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN);
    if (rank < places)
        place = rank;
    compute = MPI_COMM_NULL;
    MPI_Comm_split(all, place >= 0 ? 0 : MPI_UNDEFINED, place, &compute);
    if (place >= 0) {
        begin_at(place, kept[0].own);
        kept[0].step = 0;
        resume(&kept[0]);
    }
    MPI_Barrier(all);
    if (place == 0)
        fprintf(stderr, "stencil_ulfm: %d places, %ld spares\n", places, o.spares);
    uint64_t checksum = 0;
    for (;;) {
        int error = place >= 0 ? run(&checksum) : MPI_SUCCESS;
        int flag = error == MPI_SUCCESS;
        /* Others may wait for who has given up. */
        if (!flag)
            MPI_Comm_revoke(compute);
        /* Spares wait here. */
        MPI_Comm_agree(all, &flag);
        if (flag)
            break;
        while (repair() != MPI_SUCCESS)
            continue;
    }
    if (place == 0)
        printf("stencil %ld^%ld, %ld steps, checksum %016" PRIx64 "\n", o.size, o.dims, o.steps, checksum);
    MPI_Finalize();
    return 0;
}

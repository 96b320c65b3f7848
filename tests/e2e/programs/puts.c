/*
 * One-sided communication of three kinds in turn, for runs under kills: tasks out of a queue (tickets by
 * MPI_Fetch_and_op, results by MPI_Accumulate), a halo by MPI_Put (between fences, by groups, and within
 * a lock of all), and cells that all ranks change under an exclusive lock. Prints checksums that do
 * not depend on who did what.
 *
 * usage: puts STEPS
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Tasks of a step, numbers of a rank's part of the field, cells behind the exclusive lock. */
enum { TASKS = 12, WIDE = 64, CELLS = 4 };

static int rank, size, next, before;

static uint64_t spread(uint64_t word)
{
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
    return word ^ (word >> 31);
}

/* A ticket of rank HOST for each task of the step; each rank adds its results where they belong. */
static void queue(int step, MPI_Win tickets, MPI_Win results)
{
    int host = step % size;
    for (;;) {
        int64_t one = 1, ticket;
        MPI_Fetch_and_op(&one, &ticket, MPI_INT64_T, host, step / size, MPI_SUM, tickets);
        MPI_Win_flush(host, tickets);
        if (ticket >= TASKS)
            break;
        uint64_t task = (uint64_t)step * TASKS + (uint64_t)ticket, done = task;
        for (int i = 0; i < 100; i++)
            done = spread(done + task);
        int to = (int)(done % (uint64_t)size);
        MPI_Accumulate(&done, 1, MPI_UINT64_T, to, (MPI_Aint)(done / 7 % 2), 1, MPI_UINT64_T,
                       MPI_SUM, results);
    }
    MPI_Win_flush_all(results);
}

/* Sends the edges of this rank's part to its neighbours' halo: place 0 and place WIDE + 1. */
static void put_edges(double *field, MPI_Win win)
{
    MPI_Put(&field[1], 1, MPI_DOUBLE, before, WIDE + 1, 1, MPI_DOUBLE, win);
    MPI_Put(&field[WIDE], 1, MPI_DOUBLE, next, 0, 1, MPI_DOUBLE, win);
}

static void halo(int step, double *field, MPI_Win win, MPI_Group neighbours)
{
    static double fresh[WIDE + 2];
    switch (step % 3) {
    case 0:
        MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
        put_edges(field, win);
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
        break;
    case 1:
        MPI_Win_post(neighbours, 0, win);
        MPI_Win_start(neighbours, 0, win);
        put_edges(field, win);
        MPI_Win_complete(win);
        MPI_Win_wait(win);
        break;
    default:
        /* A lock asks nobody whether he has read what was there. */
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock_all(0, win);
        put_edges(field, win);
        MPI_Win_flush_all(win);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_unlock_all(win);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int i = 1; i <= WIDE; i++)
        fresh[i] = 0.5 * field[i] + 0.25 * (field[i - 1] + field[i + 1]);
    for (int i = 1; i <= WIDE; i++)
        field[i] = fresh[i];
}

/* Reads a cell and writes it again, which only the lock makes one deed. */
static void locked(int step, MPI_Win win)
{
    int to = (rank + step) % size;
    uint64_t cell;
    MPI_Aint at = step % CELLS;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, win);
    MPI_Get(&cell, 1, MPI_UINT64_T, to, at, 1, MPI_UINT64_T, win);
    MPI_Win_flush(to, win);
    cell += spread((uint64_t)(step * size + rank));
    MPI_Put(&cell, 1, MPI_UINT64_T, to, at, 1, MPI_UINT64_T, win);
    MPI_Win_unlock(to, win);
}

static MPI_Win window(MPI_Aint count, MPI_Aint unit, void *base)
{
    MPI_Win win;
    MPI_Win_allocate(count * unit, (int)unit, MPI_INFO_NULL, MPI_COMM_WORLD, base, &win);
    return win;
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 100;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    next = (rank + 1) % size;
    before = (rank + size - 1) % size;
    int64_t *taken;
    uint64_t *results, *cells;
    double *field;
    MPI_Win tickets = window(steps / size + 1, sizeof *taken, &taken);
    MPI_Win sums = window(2, sizeof *results, &results);
    MPI_Win edges = window(WIDE + 2, sizeof *field, &field);
    MPI_Win guarded = window(CELLS, sizeof *cells, &cells);
    for (int i = 0; i <= steps / size; i++)
        taken[i] = 0;
    for (int i = 0; i < WIDE + 2; i++)
        field[i] = (double)(spread((uint64_t)(rank * WIDE + i)) % 1000);
    for (int i = 0; i < CELLS; i++)
        cells[i] = 0;
    results[0] = results[1] = 0;
    MPI_Group world, neighbours;
    int both[2] = {before, next};
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, before == next ? 1 : 2, both, &neighbours);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, tickets);
    MPI_Win_lock_all(0, sums);
    for (int step = 0; step < steps; step++) {
        queue(step, tickets, sums);
        halo(step, field, edges, neighbours);
        locked(step, guarded);
    }
    MPI_Win_unlock_all(tickets);
    MPI_Win_unlock_all(sums);
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t own[3] = {results[0] + 3 * results[1], 0, 0}, all[3];
    for (int i = 0; i < CELLS; i++)
        own[1] += cells[i];
    for (int i = 1; i <= WIDE; i++)
        own[2] += spread((uint64_t)(field[i] * 1048576.0) + (uint64_t)i);
    MPI_Reduce(own, all, 3, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("puts: %d steps, checksums: queue %016llx, cells %016llx, halo %016llx\n", steps,
               (unsigned long long)all[0], (unsigned long long)all[1], (unsigned long long)all[2]);
    MPI_Group_free(&world);
    MPI_Group_free(&neighbours);
    MPI_Win_free(&tickets);
    MPI_Win_free(&sums);
    MPI_Win_free(&edges);
    MPI_Win_free(&guarded);
    MPI_Finalize();
    return 0;
}

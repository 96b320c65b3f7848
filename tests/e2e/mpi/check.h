/*
 * For the conformance programs: a check that names what failed and where, and ends the job. A
 * program that comes through prints `ok NAME CHECKS` on rank 0, where CHECKS is the number of
 * checks that were made on all ranks.
 */
#ifndef EYRIE_TESTS_CHECK_H
#define EYRIE_TESTS_CHECK_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static long checks;

#define CHECK(condition, ...)                                                              \
    do {                                                                                   \
        __atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED); /* threads check, too */         \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: rank %d of %d: %s: ", __FILE__, __LINE__, rank, ranks, \
                    #condition);                                                           \
            fprintf(stderr, __VA_ARGS__);                                                  \
            fputc('\n', stderr);                                                           \
            fflush(stderr);                                                                \
            MPI_Abort(MPI_COMM_WORLD, 3);                                                  \
        }                                                                                  \
    } while (0)

/* For calls that must succeed. */
#define OK(call)                                                     \
    do {                                                             \
        int code_ = (call);                                          \
        CHECK(code_ == MPI_SUCCESS, "%s returned %d", #call, code_); \
    } while (0)

/* The class of an error code. */
static inline int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

static inline void begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

static inline int finish(const char *name)
{
    long all = 0;
    MPI_Reduce(&checks, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("ok %s %ld\n", name, all);
    MPI_Finalize();
    return 0;
}

/* A byte pattern that depends on who sent what to whom. */
static inline void fill(unsigned char *data, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)((i * 131 + seed * 29 + (i >> 8)) & 0xff);
}

static inline int is_filled(const unsigned char *data, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != (unsigned char)((i * 131 + seed * 29 + (i >> 8)) & 0xff))
            return 0;
    return 1;
}

#endif

/*
 * What the C examples share: a 64-bit hash that shows every bit of a result, option parsing, and a
 * checked allocation. Everything here is deterministic: no clock, no address, no process number
 * enters a result.
 */
#ifndef EYRIE_EXAMPLES_COMMON_H
#define EYRIE_EXAMPLES_COMMON_H

#include <errno.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Mixes one word so that each input bit reaches each output bit (a 64-bit finalizer). */
static inline uint64_t mix64(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    return x;
}

/* Folds a word into a running hash; the order of the words matters. */
static inline uint64_t fold64(uint64_t hash, uint64_t word)
{
    return mix64(hash ^ (word + UINT64_C(0x9e3779b97f4a7c15) + (hash << 6) + (hash >> 2)));
}

static inline uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Hash of a value at a place. Summed over all places it does not depend on who holds which place.
 */
static inline uint64_t place_hash(uint64_t place, uint64_t value)
{
    return fold64(mix64(place + 1), value);
}

static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    while (bytes >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = fold64(hash, word);
        at += 8;
        bytes -= 8;
    }
    uint64_t tail = bytes;
    for (size_t i = 0; i < bytes; i++)
        tail = tail << 8 | at[i];
    return fold64(hash, tail);
}

/* Ends the whole job with one clear line. */
static inline void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("error: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 2);
    abort();
}

static inline void *must_alloc(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory)
        fail("no memory for %zu elements of %zu bytes", count, size);
    return memory;
}

/* The cursor of a hand-made option parser: options are `--name`, `--name VALUE` or `--name=VALUE`.
 */
struct args {
    int argc;
    char **argv;
    int at;
};

static inline const char *arg_value(struct args *args, const char *name)
{
    const char *here = args->argv[args->at];
    size_t length = strlen(name);
    if (strncmp(here, name, length) == 0 && here[length] == '=')
        return here + length + 1;
    if (strcmp(here, name) != 0)
        return NULL;
    if (args->at + 1 >= args->argc)
        fail("option %s needs a value", name);
    return args->argv[++args->at];
}

static inline int arg_flag(struct args *args, const char *name)
{
    return strcmp(args->argv[args->at], name) == 0;
}

/* Takes `--name N` with least <= N <= most; returns whether the option was this one. */
static inline int arg_long(struct args *args, const char *name, long least, long most, long *out)
{
    const char *text = arg_value(args, name);
    if (!text)
        return 0;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most)
        fail("%s takes a number from %ld to %ld, not '%s'", name, least, most, text);
    *out = value;
    return 1;
}

/* Prints the usage text and ends in good order; called by every rank. */
static inline void usage_and_exit(int rank, const char *text)
{
    if (rank == 0)
        fputs(text, stdout);
    MPI_Finalize();
    exit(0);
}

#endif

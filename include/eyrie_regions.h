/*
 * Checkpoints of the memory that a program names: with any MPI (eyrie_regions_mpi.h), or without.
 * Link with -leyrie_regions. What happens where is in docs/guides/regions-api.md.
 *
 * Functions marked ALL are called by all processes together, in the same order, with the same
 * names and versions; where one of them fails, all do. One thread at a time uses a handle.
 */
#ifndef EYRIE_REGIONS_H
#define EYRIE_REGIONS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How something went. */
#define EYRIE_OK 0
#define EYRIE_NONE (-1)   /* there is nothing of that kind */
#define EYRIE_FAILED (-2) /* eyrie_regions_error says why */

/* What elements of a region are. Numbers come back on any machine, as the type that is declared
   there, if their values fit; bytes come back as they are, on machines of the same byte order. */
#define EYRIE_BYTES 0
#define EYRIE_INT 1     /* of 1, 2, 4, 8 bytes */
#define EYRIE_UINT 2    /* of 1, 2, 4, 8 bytes */
#define EYRIE_FLOAT 3   /* IEEE 754, of 2, 4, 8 bytes */
#define EYRIE_COMPLEX 4 /* two of these; of 8, 16 bytes */

/* For `most` of eyrie_newest: whichever version. */
#define EYRIE_ANY_VERSION INT64_MAX

typedef struct eyrie_regions eyrie_regions;

/* Takes the greatest of each of `count` values over all processes, in place. Returns 0. It is only
   called from within functions marked ALL. */
typedef int eyrie_most(void *context, int64_t *values, int count);

/* ALL. `options`: "folders=A:B:C;vault=rs:2+1;keep=2" or NULL; variables of the environment go
   before. One process by itself: rank 0, size 1, NULL, NULL. */
int eyrie_regions_open(const char *options, int rank, int size, eyrie_most *most, void *context,
                       eyrie_regions **out);

/* How bytes are passed on between processes, so that nodes that do not see each other's folders can
   make parity together. All return 0, and are only called from within functions marked ALL, by the
   thread that called these. eyrie_regions_mpi.h has them for MPI. */

/* Gives every process the bytes of all: of process i `counts[i]`, at `all + places[i]`. */
typedef int eyrie_gather(void *context, const void *own, const int *counts, const int *places,
                         void *all);
/* Begins to send; the bytes may be used again at once, and those between two processes arrive in
   order. `to` -1: waits until all that was sent is taken. */
typedef int eyrie_send(void *context, int to, const void *bytes, int count);
/* Waits for the next bytes from any process; `room` is always enough. */
typedef int eyrie_receive(void *context, void *bytes, int room, int *from, int *count);

/* ALL. eyrie_regions_open with these. */
int eyrie_regions_open_apart(const char *options, int rank, int size, eyrie_most *most,
                             eyrie_gather *gather, eyrie_send *send, eyrie_receive *receive,
                             void *context, eyrie_regions **out);

/* ALL. Waits for what is left to a thread; how that went is the result. The handle is gone. */
int eyrie_regions_close(eyrie_regions *regions);

/* Why the last call failed. NULL: why the last open or close of this thread did. */
const char *eyrie_regions_error(const eyrie_regions *regions);

/* From now on this memory is part of checkpoints, in place of what had this number. It stays where
   it is until it is unprotected. */
int eyrie_protect(eyrie_regions *regions, int id, void *memory, int kind, size_t size,
                  size_t count);
int eyrie_unprotect(eyrie_regions *regions, int id);

/* ALL. Stores all regions. */
int eyrie_checkpoint(eyrie_regions *regions, const char *name, int64_t version);

/* The same in steps. `begin` and `end` are for ALL; `save` stores these regions (NULL: all), and
   `route` says where to write a file that is to be part of it, before `end`. */
int eyrie_checkpoint_begin(eyrie_regions *regions, const char *name, int64_t version);
int eyrie_checkpoint_save(eyrie_regions *regions, const int *ids, int count);
int eyrie_checkpoint_end(eyrie_regions *regions, int success);

/* Between the begin and the end of a checkpoint: where to write this file. Between those of a
   restore: where it is. `path` has room for so many bytes. */
int eyrie_route(eyrie_regions *regions, const char *name, char *path, size_t room);

/* ALL. With mode=async: waits until the last checkpoint is protected, and says how that went. */
int eyrie_wait(eyrie_regions *regions);

/* ALL. The newest version up to `most` that all processes can have; EYRIE_NONE; or EYRIE_FAILED:
   there are some, and none can be had. */
int64_t eyrie_newest(eyrie_regions *regions, const char *name, int64_t most);

/* ALL. Gets back all regions: those that are protected, and no others, were stored, each as long
   as it is here. If it fails before all has been read no memory was written to. */
int eyrie_restore(eyrie_regions *regions, const char *name, int64_t version);

/* The same in steps; `begin` and `end` are for ALL; `load` gets these regions back (NULL: all). */
int eyrie_restore_begin(eyrie_regions *regions, const char *name, int64_t version);
int eyrie_restore_load(eyrie_regions *regions, const int *ids, int count);
int eyrie_restore_end(eyrie_regions *regions, int success);

/* After eyrie_newest or eyrie_restore_begin: what is stored under this number, or EYRIE_NONE. */
int eyrie_stored(eyrie_regions *regions, int id, int *kind, size_t *size, size_t *count);

#ifdef __cplusplus
}
#endif

#endif

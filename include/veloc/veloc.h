/*
 * The calls of VeloC that programs use most, on Eyrie's checkpoints of regions: compile with
 * -I.../include/veloc and link with -leyrie_regions. What is the same and what is not is in
 * docs/guides/regions-api.md. All functions return VELOC_SUCCESS or VELOC_FAILURE unless it says otherwise.
 */
#ifndef EYRIE_VELOC_H
#define EYRIE_VELOC_H

#include <mpi.h>
#include <stddef.h>

#include "../eyrie_regions_mpi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define VELOC_SUCCESS 0
#define VELOC_FAILURE (-1)
#define VELOC_MAX_NAME 1024

#define VELOC_CKPT_ALL 0
#define VELOC_CKPT_SOME 1
#define VELOC_CKPT_REST 2
#define VELOC_RECOVER_ALL 0
#define VELOC_RECOVER_SOME 1
#define VELOC_RECOVER_REST 2

int eyrie_veloc_init(int rank, int size, eyrie_most *most, void *context, const char *cfg_file);
int eyrie_veloc_init_apart(int rank, int size, eyrie_most *most, eyrie_gather *gather,
                           eyrie_send *send, eyrie_receive *receive, void *context,
                           const char *cfg_file);

/* Collective over the communicator. The file has `scratch = FOLDER` and what docs/guides/regions-api.md
   tells; NULL or "": all is in the environment. */
static inline int VELOC_Init(MPI_Comm comm, const char *cfg_file)
{
    int rank, size;
    void *context = eyrie_context_mpi(comm);
    if (!context || MPI_Comm_rank(comm, &rank) || MPI_Comm_size(comm, &size)) {
        free(context);
        return VELOC_FAILURE;
    }
    return eyrie_veloc_init_apart(rank, size, eyrie_most_mpi, eyrie_gather_mpi, eyrie_send_mpi,
                                  eyrie_receive_mpi, context, cfg_file);
}

/* A process by itself, with a number of its own; no parity. */
int VELOC_Init_single(unsigned int id, const char *cfg_file);
int VELOC_Finalize(int drain);

int VELOC_Mem_protect(int id, void *memory, size_t count, size_t base_size);
int VELOC_Mem_unprotect(int id);

/* `routed` has room for VELOC_MAX_NAME bytes. */
int VELOC_Route_file(const char *original, char *routed);

int VELOC_Checkpoint_begin(const char *name, int version);
int VELOC_Checkpoint_mem(void);
int VELOC_Checkpoint_selective(int mode, int *ids, int count);
int VELOC_Checkpoint_end(int success);
int VELOC_Checkpoint_wait(void);
int VELOC_Checkpoint(const char *name, int version);

/* The newest version below this one (0: the newest), or VELOC_FAILURE. */
int VELOC_Restart_test(const char *name, int version);
int VELOC_Restart_begin(const char *name, int version);
int VELOC_Recover_mem(void);
int VELOC_Recover_selective(int mode, int *ids, int count);
/* Bytes of a region in the checkpoint, or -1. */
int VELOC_Recover_size(int id);
int VELOC_Restart_end(int success);
int VELOC_Restart(const char *name, int version);

/* As it was called before. */
static inline int VELOC_Restart_mem(void)
{
    return VELOC_Recover_mem();
}

#ifdef __cplusplus
}
#endif

#endif

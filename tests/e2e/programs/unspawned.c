/*
 * What MPI_Comm_spawn cannot start: a program that is not there, a folder that is not there, programs
 * that are none of MPI, alone and beside one that is, more than there is room for. Each time there is an error, with a code for each that was wanted, and the
 * program goes on.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void expect_none(const char *program, int code, MPI_Comm none, const int *codes, int count)
{
    int class = 0;
    MPI_Error_class(code, &class);
    for (int i = 0; i < count; i++) {
        int one = 0;
        MPI_Error_class(codes[i], &one);
        if (one != MPI_ERR_SPAWN)
            class = 0;
    }
    if (class != MPI_ERR_SPAWN || none != MPI_COMM_NULL) {
        fprintf(stderr, "%s: class %d\n", program, class);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static void refused(const char *program, MPI_Info info, int count)
{
    int codes[1000], code;
    MPI_Comm none = MPI_COMM_WORLD;
    code = MPI_Comm_spawn(program, MPI_ARGV_NULL, count, info, 0, MPI_COMM_WORLD, &none, codes);
    expect_none(program, code, none, codes, count);
}

/* The one that is a program of MPI does not get to its own code. */
static void refused_beside(char *own)
{
    int codes[2], code, counts[] = {1, 1};
    char *commands[] = {own, "true"};
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    MPI_Comm none = MPI_COMM_WORLD;
    code = MPI_Comm_spawn_multiple(2, commands, MPI_ARGVS_NULL, counts, infos, 1, MPI_COMM_WORLD, &none, codes);
    expect_none(own, code, none, codes, 2);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Info info;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    refused("no-such-program-anywhere", MPI_INFO_NULL, 2);
    refused("/no/such/program", MPI_INFO_NULL, 1);
    MPI_Info_create(&info);
    MPI_Info_set(info, "wdir", "/no/such/folder");
    refused(argv[0], info, 1);
    MPI_Info_free(&info);
    for (int round = 0; round < 2; round++)
        refused("true", MPI_INFO_NULL, 2);
    refused_beside(argv[0]);
    refused(argv[0], MPI_INFO_NULL, 1000);
    if (rank == 0)
        printf("refused: no program, no folder, no MPI, no room\n");
    MPI_Finalize();
    return 0;
}

/* A message that is received last holds up nothing of what was sent behind it: 1,000 messages of 64 KiB
 * by send and as many by get, through a log that has room for far fewer. Prints one sum. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 1000, BYTES = 65536 };

static unsigned char data[BYTES], memory[BYTES];

int main(int argc, char **argv)
{
    int rank;
    unsigned long sum = 0;
    MPI_Win win;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memset(memory, 40 + rank, BYTES);
    MPI_Win_create(memory, BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    if (rank == 1) {
        MPI_Send("first", 5, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
        for (int i = 0; i < ROUNDS; i++) {
            memset(data, i, BYTES);
            MPI_Send(data, BYTES, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        char word[8] = "";
        for (int i = 0; i < ROUNDS; i++) {
            MPI_Recv(data, BYTES, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            sum = sum * 31 + data[i] + data[BYTES - 1 - i];
        }
        MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
        for (int i = 0; i < ROUNDS; i++) {
            MPI_Get(data, BYTES, MPI_BYTE, 1, 0, BYTES, MPI_BYTE, win);
            MPI_Win_flush(1, win);
            sum = sum * 31 + data[i];
        }
        MPI_Win_unlock(1, win);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Recv(word, 5, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("%s %lu\n", word, sum);
    }
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}

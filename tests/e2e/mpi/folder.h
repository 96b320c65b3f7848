/* A folder for files of all ranks. Included behind check.h. */
#include <sys/stat.h>

static char folder[400];

/* Rank 0 names it by the time, which Eyrie repeats in a replay (a name by chance it would not), and
 * makes it. */
static void begin_folder(const char *program)
{
    if (rank == 0) {
        const char *base = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/%s-%lld", base && strlen(base) < 300 ? base : "/tmp", program,
                 (long long)(MPI_Wtime() * 1e9));
        mkdir(folder, 0777);
    }
    OK(MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, MPI_COMM_WORLD));
}

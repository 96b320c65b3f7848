/* Prints lines of a pseudo-random sequence; at line `stop` waits until the file `go` exists.
 * Usage: count LINES STOP GO */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int lines = argc > 1 ? atoi(argv[1]) : 10;
    int stop = argc > 2 ? atoi(argv[2]) : -1;
    const char *go = argc > 3 ? argv[3] : "";
    const char *rank = getenv("EYRIE_RANK");
    uint64_t x = 88172645463325252ull + (rank ? (uint64_t)atoi(rank) * 7919 : 0);
    for (int i = 0; i < lines; i++) {
        for (int k = 0; k < 1000; k++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        printf("%d %016llx\n", i, (unsigned long long)x);
        if (i == stop) {
            printf("part of a line,");
            fflush(stdout);
            while (access(go, F_OK) != 0)
                usleep(2000);
            printf(" and its end\n");
        }
    }
    return 0;
}

/* A program without MPI: counts in small steps, or echoes its input; ends with exit code 3. Its state
 * is in registers, heap and buffered output, so that a restart that loses any of it is seen. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void tell(int number) {
    (void)number;
    if (write(1, "SIGUSR1\n", 8) != 8) _exit(4);
}

int main(int argc, char **argv) {
    long steps = 0;
    int echo = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--echo")) echo = 1;
        if (!strcmp(argv[i], "--socket") && socket(AF_NETLINK, SOCK_RAW, 0) < 0) return 5;
        if (!strcmp(argv[i], "--steps") && i + 1 < argc) steps = atol(argv[++i]);
    }
    struct sigaction action = {.sa_handler = tell, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    char line[256];
    while (echo && fgets(line, sizeof line, stdin)) {
        fputs(line, stdout);
        fflush(stdout);
    }
    long *heap = calloc(1 << 16, sizeof *heap);
    for (long i = 0; heap && i < steps; i++) {
        long *cell = &heap[i * 4099 % (1 << 16)];
        if (i >= 1 << 16 && *cell != i - (1 << 16)) return 6;
        *cell = i;
        printf("%ld\n", i);
        fflush(stdout);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    free(heap);
    return 3;
}

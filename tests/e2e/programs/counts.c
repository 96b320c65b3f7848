/* A program without MPI: counts in small steps, or echoes its input; ends with exit code 3. Its state
 * is in registers, heap and buffered output, so that a restart that loses any of it is seen. With
 * --gate F it goes on with steps 10, 30, 50 ... only when there is a file F.10, F.30, F.50 ... */
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
    const char *gate = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--echo")) echo = 1;
        if (!strcmp(argv[i], "--socket") && socket(AF_NETLINK, SOCK_RAW, 0) < 0) return 5;
        if (!strcmp(argv[i], "--steps") && i + 1 < argc) steps = atol(argv[++i]);
        if (!strcmp(argv[i], "--gate") && i + 1 < argc) gate = argv[++i];
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
        char name[4096];
        snprintf(name, sizeof name, "%s.%ld", gate ? gate : "", i);
        while (gate && i % 20 == 10 && access(name, F_OK) != 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
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

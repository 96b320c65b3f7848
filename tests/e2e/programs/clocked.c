/* Sends what it is told by every clock, by random devices and about the process and its machine, and
 * decides by that how many messages it sends. What it prints at the end does not depend on it: that
 * every rank got what was sent, and no clock went back or against another. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#if __GLIBC__ == 2 && __GLIBC_MINOR__ < 36
uint32_t arc4random(void);
#endif

static const clockid_t CLOCKS[] = {
    CLOCK_MONOTONIC,     CLOCK_REALTIME,         CLOCK_BOOTTIME,
    CLOCK_TAI,           CLOCK_MONOTONIC_RAW,    CLOCK_PROCESS_CPUTIME_ID,
    CLOCK_THREAD_CPUTIME_ID, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE,
};
enum { COUNT = sizeof CLOCKS / sizeof *CLOCKS, LATER = COUNT + 5, TOLD = LATER + 13 };

static int rank, ranks, step;
/* What is asked for before MPI_Init, as libraries and `main` do. */
static uint64_t begun, before_init;

static void wrong(const char *what)
{
    fprintf(stderr, "rank %d step %d: %s\n", rank, step, what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static uint64_t hash(uint64_t sum, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum = (sum ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
    return sum;
}

static uint64_t ns(struct timespec at)
{
    return (uint64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

__attribute__((constructor)) static void loaded(void)
{
    struct timespec now;
    struct timeval day;
    clock_gettime(CLOCK_MONOTONIC, &now);
    gettimeofday(&day, NULL);
    begun = ns(now);
    before_init = hash(hash(1, &begun, sizeof begun), &day, sizeof day);
}

static uint64_t read_random(int how)
{
    uint64_t bytes = 0;
    if (how == 0) {
        FILE *file = fopen("/dev/urandom", "rb");
        if (!file || fread(&bytes, sizeof bytes, 1, file) != 1)
            wrong("a stream of /dev/urandom");
        fclose(file);
    } else {
        int fd = open(how == 1 ? "/dev/urandom" : "/dev/random", O_RDONLY);
        if (fd < 0 || read(fd, &bytes, sizeof bytes) != sizeof bytes)
            wrong("a random device");
        close(fd);
    }
    return bytes;
}

static uint64_t addresses(void)
{
    struct ifaddrs *all = NULL;
    uint64_t sum = 7;
    if (getifaddrs(&all))
        wrong("getifaddrs");
    for (struct ifaddrs *one = all; one; one = one->ifa_next) {
        sum = hash(sum, one->ifa_name, strlen(one->ifa_name));
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET)
            sum = hash(sum, one->ifa_addr, sizeof *one->ifa_addr);
    }
    freeifaddrs(all);
    return sum;
}

/* Asks for everything. Those up to LATER never go back. */
static void ask(uint64_t told[TOLD])
{
    struct timeval day;
    struct rusage usage;
    struct tms used;
    struct utsname machine;
    struct timespec now;
    char host[256] = "";
    uint64_t before = (uint64_t)(MPI_Wtime() * 1e9), after;
    memset(told, 0, TOLD * sizeof *told);
    for (int i = 0; i < COUNT; i++) {
        if (clock_gettime(CLOCKS[i], &now))
            wrong("clock_gettime");
        told[i] = ns(now);
    }
    after = (uint64_t)(MPI_Wtime() * 1e9);
    /* The number of MPI_Wtime has 52 bits. */
    if (told[0] + 1000 < before || told[0] > after + 1000)
        wrong("CLOCK_MONOTONIC and MPI_Wtime differ");
    gettimeofday(&day, NULL);
    told[COUNT] = (uint64_t)day.tv_sec * 1000000 + day.tv_usec;
    told[COUNT + 1] = (uint64_t)time(NULL);
    told[COUNT + 2] = (uint64_t)clock();
    getrusage(RUSAGE_SELF, &usage);
    told[COUNT + 3] = (uint64_t)usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec;
    told[COUNT + 4] = (uint64_t)times(&used);
    if (told[COUNT] * 1000 + 999 < told[1] || told[COUNT + 1] + 1 < told[COUNT] / 1000000)
        wrong("the time of day differs");
    told[LATER] = usage.ru_maxrss ^ (uint64_t)used.tms_utime << 32;
    timespec_get(&now, TIME_UTC);
    told[LATER + 1] = ns(now);
    if (getrandom(&told[LATER + 2], 8, 0) != 8 || getentropy(&told[LATER + 3], 8))
        wrong("getrandom");
    told[LATER + 4] = arc4random();
    for (int how = 0; how < 3; how++)
        told[LATER + 5 + how] = read_random(how);
    told[LATER + 8] = (uint64_t)getpid() << 32 ^ (uint64_t)getppid();
    if (getpid() != gettid() || kill(getpid(), 0))
        wrong("getpid is not the process");
    gethostname(host, sizeof host);
    uname(&machine);
    if (strcmp(host, machine.nodename))
        wrong("gethostname and uname differ");
    told[LATER + 9] = hash(hash(1, host, strlen(host)), &machine, sizeof machine);
    told[LATER + 10] = addresses();
    told[LATER + 11] = (uint64_t)gethostid() ^ before_init;
    if (told[0] < begun)
        wrong("a clock is before the program's beginning");
    told[LATER + 12] = (uint64_t)rank << 32 | (uint64_t)step;
}

/* Where nothing is recorded (`--ft coordinated`), a process that comes back has used less time. */
static int of_process(int i)
{
    return i == 5 || i == 6 || i == COUNT + 2 || i == COUNT + 3;
}

int main(int argc, char **argv)
{
    int all_clocks = argc > 2 && !strcmp(argv[2], "--all");
    uint64_t last[TOLD] = {0}, sent = 1, got = 1, others, asked = 0, sum = 1;
    int steps = argc > 1 ? atoi(argv[1]) : 100, provided;
    uint64_t drawn = (uint64_t)clock();
    if (getrandom(&last[LATER], 8, 0) != 8)
        wrong("getrandom before MPI_Init");
    before_init ^= hash(drawn, &last[LATER], 8);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (step = 0; step < steps; step++) {
        uint64_t told[TOLD], theirs[TOLD];
        ask(told);
        for (int i = 0; i < LATER; i++)
            if (told[i] < last[i] && (all_clocks || !of_process(i)))
                wrong("a clock went back");
        memcpy(last, told, sizeof last);
        MPI_Sendrecv(told, TOLD, MPI_UINT64_T, next, 1, theirs, TOLD, MPI_UINT64_T, before, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sent = hash(sent, told, sizeof told);
        got = hash(got, theirs, sizeof theirs);
        sum = hash(sum, &theirs[LATER + 12], sizeof sum);
        /* As many more as the time and chance have it. */
        int mine = (int)((told[1] / 1000 + told[LATER + 2] + told[LATER + 8]) % 3), from;
        MPI_Sendrecv(&mine, 1, MPI_INT, next, 2, &from, 1, MPI_INT, before, 2, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (int i = 0; i < mine; i++)
            MPI_Send(&told[LATER + 2 + i], 1, MPI_UINT64_T, next, 3, MPI_COMM_WORLD);
        for (int i = 0; i < from; i++) {
            MPI_Recv(&others, 1, MPI_UINT64_T, before, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (others != theirs[LATER + 2 + i])
                wrong("another number came than was told");
        }
        /* Clocks that are asked all the time. */
        struct timespec now;
        uint64_t until = told[0] + 300000;
        do {
            clock_gettime(CLOCK_MONOTONIC, &now);
            asked += clock() >= 0 && time(NULL) > 0;
        } while (ns(now) < until);
        /* And a wait until a time. */
        now.tv_nsec = (now.tv_nsec + 1000) % 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &now, NULL);
    }
    uint64_t *all = malloc(2 * ranks * sizeof *all), own[2] = {sent, got};
    MPI_Gather(own, 2, MPI_UINT64_T, all, 2, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < ranks; i++)
        if (all[2 * i] != all[2 * ((i + 1) % ranks) + 1])
            wrong("what was got is not what was sent");
    if (rank == 0)
        printf("clocked: %d ranks agree on %d steps%s, checksum %016llx\n", ranks, steps,
               asked ? "" : ", unasked", (unsigned long long)sum);
    free(all);
    MPI_Finalize();
    return 0;
}

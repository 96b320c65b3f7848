/* Sends what it is told of timers, of the machine and of names, all of which is something else in another
 * life: each process has a mount and host name of its own, in which names are resolved to its number. What it
 * prints does not depend on it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <mpi.h>
#include <netdb.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NAME "eyrie-told"
enum { TIMERS, EXPIRED, SYSTEM, PROCESSOR, HEAP, STREAM, CLOCK, TEMPORARY, MACHINE, ADDRESS, HOST, KINDS };

static int rank, ranks, step;
static uint64_t told[KINDS];

static void must(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "rank %d step %d: %s\n", rank, step, what);
        exit(3);
    }
}

static void add(int kind, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        told[kind] = (told[kind] ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
}

/* In a life of its own: names, and what they are resolved to. */
static void live(void)
{
    long number = syscall(SYS_getpid);
    char path[] = "/tmp/machineXXXXXX", name[64];
    int fd = mkstemp(path);
    snprintf(name, sizeof name, "127.1.%ld.%ld " NAME ".example " NAME "\n", number >> 8 & 255, number & 255);
    must(fd >= 0 && write(fd, name, strlen(name)) > 0 && !close(fd), "the names");
    must(!unshare(CLONE_NEWNS | CLONE_NEWUTS), "no namespaces: this is for root");
    must(!mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
    must(!mount(path, "/etc/hosts", NULL, MS_BIND, NULL) && !chmod(path, 0644) && !unlink(path), "/etc/hosts");
    snprintf(name, sizeof name, "life-%ld", number);
    must(!sethostname(name, strlen(name)) && !setdomainname(name, strlen(name)), "the machine's name");
}

static void timers(timer_t timer, int fd)
{
    struct itimerspec left, on = {{0, 1000000}, {0, 1000}};
    struct itimerval some = {{0, 0}, {900, 0}}, old;
    uint64_t count = 0;
    must(!timer_gettime(timer, &left), "timer_gettime");
    add(TIMERS, &left, sizeof left);
    must(!getitimer(ITIMER_REAL, &old), "getitimer");
    add(TIMERS, &old, sizeof old);
    must(!setitimer(ITIMER_REAL, &some, &old), "setitimer");
    add(TIMERS, &old, sizeof old);
    must(timer_getoverrun(timer) >= 0 && !timer_settime(timer, 0, &(struct itimerspec){{0, 0}, {900, 0}}, &left),
         "timer_settime");
    add(TIMERS, &left, sizeof left);
    unsigned before = alarm(800);
    must(before >= 899 && before <= 900, "alarm");
    must(!timerfd_settime(fd, 0, &on, &left) && !timerfd_gettime(fd, &left), "timerfd");
    add(TIMERS, &left, sizeof left);
    must(read(fd, &count, sizeof count) == sizeof count && count > 0, "a timer's descriptor");
    add(EXPIRED, &count, sizeof count);
    /* Not again so soon, which is an answer, too. */
    must(!timerfd_settime(fd, 0, &(struct itimerspec){{0, 0}, {900, 0}}, NULL), "timerfd_settime");
    must(!fcntl(fd, F_SETFL, O_NONBLOCK) && read(fd, &count, sizeof count) == -1, "a timer that has not gone off");
    must(!fcntl(fd, F_SETFL, 0) && !timerfd_settime(fd, 0, &on, NULL), "timerfd_settime");
}

static void machine(void)
{
    struct sysinfo info;
    double loads[3];
    unsigned cpu, node;
    struct timespec now;
    clockid_t clock;
    cpu_set_t set;
    must(!sysinfo(&info) && getloadavg(loads, 3) == 3, "sysinfo");
    info.procs = 0; /* The last ones, behind which there is a gap. */
    add(SYSTEM, &info.uptime, sizeof info.uptime);
    add(SYSTEM, &info.freeram, sizeof info.freeram);
    add(SYSTEM, loads, sizeof loads);
    long pages[] = {sysconf(_SC_AVPHYS_PAGES), get_avphys_pages(), sysconf(_SC_NPROCESSORS_ONLN), get_nprocs()};
    must(pages[0] > 0 && pages[1] > 0 && pages[2] == pages[3], "sysconf");
    add(SYSTEM, pages, sizeof pages);
    must(!getcpu(&cpu, &node) && !sched_getaffinity(0, sizeof set, &set) && CPU_COUNT(&set) > 0, "getcpu");
    int processor[] = {sched_getcpu(), (int)cpu};
    add(PROCESSOR, processor, sizeof processor);
    struct mallinfo2 heap = mallinfo2();
    must(heap.arena > 0, "mallinfo2");
    add(HEAP, &heap, sizeof heap);
    /* A process by its number, also if that was another life's. */
    must(!clock_getcpuclockid(getpid(), &clock) && !clock_getres(clock, &now) && !clock_gettime(clock, &now),
         "clock_getcpuclockid");
    add(CLOCK, &now, sizeof now);
}

static void random_stream(void)
{
    uint64_t bytes;
    int fd = open("/dev/urandom", O_RDONLY), other = dup(fd);
    must(read(other, &bytes, sizeof bytes) == sizeof bytes && !close(other), "dup of a random device");
    add(STREAM, &bytes, sizeof bytes);
    FILE *file = fdopen(fd, "r");
    must(file && fread(&bytes, sizeof bytes, 1, file) == 1 && !fclose(file), "fdopen of a random device");
    add(STREAM, &bytes, sizeof bytes);
}

/* The file stays until the end, so that a replay finds it. */
static void temporary(char names[2][64])
{
    char byte = (char)step;
    snprintf(names[0], 64, "/tmp/machine-%d-XXXXXX.tmp", rank);
    snprintf(names[1], 64, "/tmp/machine-%d-XXXXXX", rank);
    int fd = mkstemps(names[0], 4);
    must(fd >= 0 && lseek(fd, 0, SEEK_END) == 0 && write(fd, &byte, 1) == 1 && !close(fd), "mkstemps");
    must(mkdtemp(names[1]) != NULL, "mkdtemp");
    add(TEMPORARY, names, 128);
}

static void resolver(void)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_flags = AI_CANONNAME}, *all;
    struct hostent host, *found;
    char room[1024], text[256] = "", service[32] = "";
    int error;
    must(!getaddrinfo(NAME, "80", &hints, &all) && all && all->ai_canonname, "getaddrinfo");
    struct sockaddr_in address = *(struct sockaddr_in *)all->ai_addr;
    add(ADDRESS, &address, sizeof address);
    add(HOST, all->ai_canonname, strlen(all->ai_canonname));
    freeaddrinfo(all);
    must(address.sin_port == htons(80), "the port");
    must((found = gethostbyname(NAME)) && found->h_length == 4, "gethostbyname");
    must(found->h_addr_list[0] && !found->h_addr_list[1], "its address");
    add(ADDRESS, found->h_addr_list[0], 4);
    must(found->h_aliases[0] && !strcmp(found->h_aliases[0], NAME), "its other name");
    must(!gethostbyname_r(NAME, &host, room, sizeof room, &found, &error) && found == &host, "gethostbyname_r");
    add(ADDRESS, found->h_addr_list[0], 4);
    must(gethostbyname_r(NAME, &host, room, 8, &found, &error) == ERANGE, "gethostbyname_r without room");
    /* By an address of this life there is a name, by that of another none. */
    found = gethostbyaddr(&address.sin_addr, 4, AF_INET);
    must(!found || !strcmp(found->h_name, NAME ".example"), "gethostbyaddr");
    add(HOST, found ? "yes" : "no", 2);
    must(!gethostbyname("no-such-name.invalid.") && h_errno != 0, "a name that is none");
    must(!getnameinfo((struct sockaddr *)&address, sizeof address, text, sizeof text, service, sizeof service,
                      NI_NUMERICSERV) && !strcmp(service, "80"), "getnameinfo");
    add(HOST, text, strlen(text));
    gethostname(text, sizeof text);
    must(!strncmp(text, "life-", 5), "gethostname");
    add(MACHINE, text, strlen(text));
    must(!getdomainname(text, sizeof text) && !strncmp(text, "life-", 5), "getdomainname");
    add(MACHINE, text, strlen(text));
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    must(!getnameinfo((struct sockaddr *)&path, sizeof path, text, sizeof text, NULL, 0, 0), "getnameinfo");
    add(MACHINE, text, strlen(text));
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 10;
    static char names[64][2][64];
    timer_t timer;
    live();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    must(steps <= 64 && fd >= 0 && !timer_create(CLOCK_MONOTONIC, &none, &timer), "timers");
    must(!timer_settime(timer, 0, &(struct itimerspec){{0, 0}, {900, 0}}, NULL), "timer_settime");
    must(!setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {900, 0}}, NULL), "setitimer");
    must(!timerfd_settime(fd, 0, &(struct itimerspec){{0, 1000000}, {0, 1000}}, NULL), "timerfd_settime");
    for (step = 0; step < steps; step++) {
        uint64_t all[64 * KINDS], others[KINDS];
        timers(timer, fd);
        machine();
        random_stream();
        temporary(names[step]);
        resolver();
        /* Each sends what it was told to all; a rank that comes back must send the same. */
        MPI_Allgather(told, KINDS, MPI_UINT64_T, all, KINDS, MPI_UINT64_T, MPI_COMM_WORLD);
        MPI_Sendrecv(told, KINDS, MPI_UINT64_T, (rank + 1) % ranks, 1, others, KINDS, MPI_UINT64_T,
                     (rank + ranks - 1) % ranks, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        must(!memcmp(others, all + (rank + ranks - 1) % ranks * KINDS, sizeof others), "not the same twice");
    }
    for (int i = 0; i < steps; i++)
        must(!unlink(names[i][0]) && !rmdir(names[i][1]), "a temporary name is another one");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("machine: %d steps\n", steps), fflush(stdout);
    MPI_Finalize();
    return 0;
}

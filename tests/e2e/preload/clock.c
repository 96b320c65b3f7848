/*
 * Loaded before a program's libraries (LD_PRELOAD): with EYRIE_TEST_CLOCK=jumps the time of day jumps
 * by an hour, forth and back, every time it is asked for; with a number it is off by so many seconds.
 * The clocks that only go forward are as they are.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int jumps;

static long jump(void)
{
    const char *off = getenv("EYRIE_TEST_CLOCK");
    if (off == NULL || strcmp(off, "jumps") != 0)
        return off == NULL ? 0 : atol(off);
    return (__sync_fetch_and_add(&jumps, 1) & 1) != 0 ? 3600 : -3600;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME)
        time->tv_sec += jump();
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

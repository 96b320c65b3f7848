// Locks on files: of the whole file, of the process on ranges, of the open file description.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/file.h>

// The lock that stands in the way of another description.
static short held(int fd, off_t start) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = 1};
    CHECK(fcntl(fd, F_OFD_GETLK, &lock) == 0);
    return lock.l_type;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 6000);
    int whole = open("whole", O_RDWR | O_CREAT, 0600), ranges = open("ranges", O_RDWR | O_CREAT, 0600);
    int description = open("description", O_RDWR | O_CREAT, 0600);
    NEED(whole >= 0 && ranges >= 0 && description >= 0);
    struct flock write_lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
    struct flock read_lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 0};
    NEED(flock(whole, LOCK_EX) == 0);
    NEED(fcntl(ranges, F_SETLK, &write_lock) == 0 && fcntl(ranges, F_SETLK, &read_lock) == 0);
    NEED(fcntl(description, F_OFD_SETLK, &write_lock) == 0);
    int other_whole = open("whole", O_RDWR), other_ranges = open("ranges", O_RDWR | O_CLOEXEC);
    int other_description = open("description", O_RDWR);
    NEED(other_whole >= 0 && other_ranges >= 0 && other_description >= 0);
    for (long i = 0; i < n; i++) {
        CHECK(flock(other_whole, LOCK_SH | LOCK_NB) == -1 && errno == EWOULDBLOCK);
        CHECK(held(other_ranges, 9) == F_UNLCK && held(other_ranges, 10) == F_WRLCK);
        CHECK(held(other_ranges, 15) == F_UNLCK && held(other_ranges, 1000000) == F_RDLCK);
        CHECK(held(other_description, 14) == F_WRLCK && held(other_description, 15) == F_UNLCK);
        work(1);
        add((uint64_t)i);
    }
    return finish("locks");
}

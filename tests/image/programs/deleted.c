// Files that have no name any more: deleted, replaced by another under the same name, never named.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/stat.h>

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 6000);
    int files[3];
    NEED((files[0] = open("scratch", O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
    NEED((files[1] = open("replaced", O_RDWR | O_CREAT | O_TRUNC, 0640)) >= 0);
    NEED((files[2] = open(".", O_RDWR | O_TMPFILE, 0600)) >= 0);
    int other = open("other", O_RDWR | O_CREAT | O_TRUNC, 0600);
    NEED(other >= 0 && write(other, "another", 7) == 7);
    NEED(unlink("scratch") == 0 && rename("other", "replaced") == 0);
    ready();
    struct stat status;
    for (long i = 0; i < n; i++) {
        for (int f = 0; f < 3; f++) {
            uint64_t word = value_at((uint64_t)(i + f)), found;
            off_t at = (off_t)(value_at((uint64_t)i) % 5000) * 8;
            CHECK(pwrite(files[f], &word, 8, at) == 8);
            CHECK(pread(files[f], &found, 8, at) == 8 && found == word);
            if (lseek(files[f], 0, SEEK_CUR) >= 16384) CHECK(lseek(files[f], 0, SEEK_SET) == 0);
            ssize_t came = read(files[f], &found, 8);
            if (came == 8) add(found);
            CHECK(fstat(files[f], &status) == 0 && status.st_nlink == 0);
        }
        work(1);
    }
    char text[8] = "";
    int named = open("replaced", O_RDONLY);
    CHECK(named >= 0 && read(named, text, 7) == 7 && !strcmp(text, "another"));
    return finish("deleted");
}

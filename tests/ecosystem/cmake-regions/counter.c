/* Counts how often it was run: the number is in a checkpoint. */
#include <eyrie_regions.h>
#include <stdio.h>

int main(void) {
    eyrie_regions *regions;
    long count = 0;
    if (eyrie_regions_open(NULL, 0, 1, NULL, NULL, &regions)) {
        fprintf(stderr, "%s\n", eyrie_regions_error(NULL));
        return 1;
    }
    eyrie_protect(regions, 0, &count, EYRIE_INT, sizeof count, 1);
    int64_t found = eyrie_newest(regions, "counter", EYRIE_ANY_VERSION);
    if (found >= 0 && eyrie_restore(regions, "counter", found)) {
        fprintf(stderr, "%s\n", eyrie_regions_error(regions));
        return 1;
    }
    count++;
    int failed = eyrie_checkpoint(regions, "counter", count);
    printf("run %ld\n", count);
    return eyrie_regions_close(regions) || failed;
}

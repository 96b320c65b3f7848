/* Copies lines from standard input with a running sum; waits for the file `go` at the line
 * "wait". Reads with its own small buffer. Usage: echo GO */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char line[256];
    unsigned sum = 0;
    setvbuf(stdin, NULL, _IOFBF, 64);
    while (fgets(line, sizeof line, stdin)) {
        for (const char *p = line; *p; p++)
            sum = sum * 31 + (unsigned char)*p;
        printf("%08x %s", sum, line);
        if (argc > 1 && strcmp(line, "wait\n") == 0) {
            fflush(stdout);
            while (access(argv[1], F_OK) != 0)
                usleep(2000);
        }
    }
    return 0;
}

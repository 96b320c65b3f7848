/* Holds a socket to the kernel, which no image can bring back; ends when the file `go` exists.
 * Usage: netlink GO */
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (socket(AF_NETLINK, SOCK_RAW, 0) < 0)
        return 1;
    puts("ready");
    fflush(stdout);
    while (argc > 1 && access(argv[1], F_OK) != 0)
        usleep(2000);
    return 0;
}

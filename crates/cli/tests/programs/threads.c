/* Two threads, the second asleep; ends when the file `go` exists. Usage: threads GO */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *idle(void *arg)
{
    for (;;)
        pause();
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    pthread_create(&thread, NULL, idle, NULL);
    puts("ready");
    fflush(stdout);
    while (argc > 1 && access(argv[1], F_OK) != 0)
        usleep(2000);
    return 0;
}

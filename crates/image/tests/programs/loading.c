/* Loads a library ("./plugin.so", this file with -DPLUGIN -shared) whose constructor waits until
 * there is a file "go", with the dynamic linker's lock held, and then loads another one itself. */
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>

#ifdef PLUGIN
__attribute__((constructor)) static void begin(void)
{
    close(open("inside", O_CREAT | O_WRONLY, 0600));
    while (access("go", F_OK) != 0)
        usleep(1000);
    void *more = dlopen("libm.so.6", RTLD_NOW);
    if (!more || !dlsym(more, "cos") || dlclose(more) != 0)
        _exit(2);
}
#else
static void *load(void *unused)
{
    (void)unused;
    void *plugin = dlopen("./plugin.so", RTLD_NOW);
    CHECK(plugin);
    CHECK(dlclose(plugin) == 0);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "thread") == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, load, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    } else {
        load(NULL);
    }
    /* Free again, for whoever asks. */
    load(NULL);
    return wrong != 0;
}
#endif

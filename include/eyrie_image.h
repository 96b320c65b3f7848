/* Checkpoints of any program, asked for by the program itself: no MPI, nothing to be started before.
 *
 *     if (eyrie_image_checkpoint("state.img") < 0)
 *         fprintf(stderr, "%s\n", eyrie_image_error());
 *
 * The image is what `eyrie-image checkpoint` writes: memory, registers, threads, descriptors, sockets,
 * signals, child processes. `eyrie-image restart state.img`, or eyrie_image_restart() in another process,
 * goes on inside that call, which then returns EYRIE_IMAGE_RESTARTED. See
 * docs/guides/images-of-any-program.md. Link with -leyrie_image (pkg-config: eyrie-image). */
#ifndef EYRIE_IMAGE_H
#define EYRIE_IMAGE_H

#ifdef __cplusplus
extern "C" {
#endif

/* The image is written, and the program goes on. */
#define EYRIE_IMAGE_TAKEN 0
/* The program was restarted from the image. */
#define EYRIE_IMAGE_RESTARTED 1

/* Writes an image of this process, with its threads and child processes, to a file that is complete by
 * itself. Other threads go on meanwhile, but for some milliseconds. One call at a time; not from a signal
 * handler, and not from a process that adopts orphans (PR_SET_CHILD_SUBREAPER).
 *
 * Returns EYRIE_IMAGE_TAKEN, EYRIE_IMAGE_RESTARTED, or -1 if there is no image: eyrie_image_error() says
 * why. */
int eyrie_image_checkpoint(const char *file);

/* This process ends, and the program of the image goes on in its place, as a child of `eyrie-image restart`
 * with this process's number, standard streams and signals. `image` is a file, a folder of images, or what
 * else that command takes. EYRIE_IMAGE_RULES may name a file of rules that change addresses of sockets, one a
 * line: `OLD=NEW`.
 *
 * Does not return. -1: it could not begin. An image that cannot be restarted ends the process with 1 and a
 * line on standard error. */
int eyrie_image_restart(const char *image);

/* Why the last call of this thread returned -1. Never null. */
const char *eyrie_image_error(void);

#ifdef __cplusplus
}
#endif

#endif

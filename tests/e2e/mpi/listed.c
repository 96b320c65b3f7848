/*
 * The tool information interface as a tool uses it that knows nothing of the library: it lists all
 * variables, categories, enumerations, events and sources before MPI_Init, reads what can be read,
 * and sends what it read. What the library has is its own affair: what is the same in all is not.
 */
#include "check.h"

enum { ROUNDS = 12, MOST = 4096, BYTES = 8192 };

/* Texts that are listed. */
static char name[1024], about[8192];

static void list_choices(MPI_T_enum choices)
{
    int n = 0, i, value, length = sizeof name;
    OK(MPI_T_enum_get_info(choices, &n, name, &length));
    CHECK(n > 0, "an enumeration of %d", n);
    for (i = 0; i < n; i++) {
        length = sizeof name;
        OK(MPI_T_enum_get_item(choices, i, &value, name, &length));
        CHECK(length == (int)strlen(name) + 1, "%d", length);
    }
}

static void list_cvars(void)
{
    int n, i;
    OK(MPI_T_cvar_get_num(&n));
    for (i = 0; i < n; i++) {
        int length = sizeof name, long_length = sizeof about, verbosity, bind, scope, found = -1;
        MPI_Datatype type;
        MPI_T_enum choices = MPI_T_ENUM_NULL;
        OK(MPI_T_cvar_get_info(i, name, &length, &verbosity, &type, &choices, about, &long_length,
                               &bind, &scope));
        OK(MPI_T_cvar_get_index(name, &found));
        CHECK(found == i, "%s is %d and %d", name, i, found);
        if (choices != MPI_T_ENUM_NULL)
            list_choices(choices);
    }
    CHECK(MPI_T_cvar_get_index("no such name", &i) == MPI_T_ERR_INVALID_NAME, "found");
    CHECK(MPI_T_cvar_get_info(n, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) ==
              MPI_T_ERR_INVALID_INDEX,
          "there is one more than %d", n);
}

static void list_pvars(void)
{
    int n, i;
    OK(MPI_T_pvar_get_num(&n));
    for (i = 0; i < n; i++) {
        int length = sizeof name, verbosity, class, bind, readonly, continuous, atomic, found = -1;
        MPI_Datatype type;
        OK(MPI_T_pvar_get_info(i, name, &length, &verbosity, &class, &type, NULL, NULL, NULL, &bind,
                               &readonly, &continuous, &atomic));
        OK(MPI_T_pvar_get_index(name, class, &found));
        CHECK(found == i, "%s is %d and %d", name, i, found);
    }
}

static void list_categories(void)
{
    int n, i, stamp, indices[MOST];
    OK(MPI_T_category_get_num(&n));
    for (i = 0; i < n; i++) {
        int length = sizeof name, cvars, pvars, parts, found = -1;
        OK(MPI_T_category_get_info(i, name, &length, NULL, NULL, &cvars, &pvars, &parts));
        OK(MPI_T_category_get_index(name, &found));
        CHECK(found == i, "%s is %d and %d", name, i, found);
        CHECK(cvars <= MOST && pvars <= MOST && parts <= MOST, "%d %d %d", cvars, pvars, parts);
        OK(MPI_T_category_get_cvars(i, cvars, indices));
        OK(MPI_T_category_get_pvars(i, pvars, indices));
        OK(MPI_T_category_get_categories(i, parts, indices));
    }
    OK(MPI_T_category_changed(&stamp));
}

static void list_all(void)
{
    int events, sources;
    list_cvars();
    list_pvars();
    list_categories();
    OK(MPI_T_event_get_num(&events));
    OK(MPI_T_source_get_num(&sources));
}

/* All control variables that are bound to nothing, as a sum of bytes. */
static double read_cvars(void)
{
    int n, i;
    double sum = 0;
    OK(MPI_T_cvar_get_num(&n));
    for (i = 0; i < n; i++) {
        unsigned char bytes[BYTES] = { 0 };
        int bind, count, size, k;
        MPI_Datatype type;
        MPI_T_cvar_handle handle;
        OK(MPI_T_cvar_get_info(i, NULL, NULL, NULL, &type, NULL, NULL, NULL, &bind, NULL));
        if (bind != MPI_T_BIND_NO_OBJECT)
            continue;
        OK(MPI_T_cvar_handle_alloc(i, NULL, &handle, &count));
        MPI_Type_size(type, &size);
        CHECK(count * size <= BYTES, "%d of %d", count, size);
        OK(MPI_T_cvar_read(handle, bytes));
        for (k = 0; k < count * size && bytes[k]; k++)
            sum += bytes[k];
        OK(MPI_T_cvar_handle_free(&handle));
    }
    return sum;
}

/* Handles for all performance variables that are bound to nothing; returns how many. */
static int open_pvars(MPI_T_pvar_session session, MPI_T_pvar_handle *handles, int *counts, int *sizes)
{
    int n, i, used = 0;
    OK(MPI_T_pvar_get_num(&n));
    for (i = 0; i < n && used < 256; i++) {
        int bind, continuous;
        MPI_Datatype type;
        OK(MPI_T_pvar_get_info(i, NULL, NULL, NULL, NULL, &type, NULL, NULL, NULL, &bind, NULL,
                               &continuous, NULL));
        if (bind != MPI_T_BIND_NO_OBJECT)
            continue;
        OK(MPI_T_pvar_handle_alloc(session, i, NULL, &handles[used], &counts[used]));
        MPI_Type_size(type, &sizes[used]);
        if (!continuous)
            OK(MPI_T_pvar_start(session, handles[used]));
        used++;
    }
    return used;
}

/* What was read goes round: who comes back has to send again what it sent. */
static void rounds(void)
{
    MPI_T_pvar_session session;
    static MPI_T_pvar_handle handles[256];
    static int counts[256], sizes[256];
    int used, round, i, k, right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    OK(MPI_T_pvar_session_create(&session));
    used = open_pvars(session, handles, counts, sizes);
    for (round = 0; round < ROUNDS; round++) {
        double sum = read_cvars(), theirs = -1, mine = -1;
        for (i = 0; i < used; i++) {
            unsigned char bytes[BYTES] = { 0 };
            CHECK(counts[i] * sizes[i] <= BYTES, "%d of %d", counts[i], sizes[i]);
            OK(MPI_T_pvar_read(session, handles[i], bytes));
            for (k = 0; k < counts[i] * sizes[i]; k++)
                sum += (k % 8 + 1) * bytes[k];
        }
        MPI_Sendrecv(&sum, 1, MPI_DOUBLE, right, 1, &theirs, 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(&theirs, 1, MPI_DOUBLE, left, 2, &mine, 1, MPI_DOUBLE, right, 2, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        CHECK(mine == sum, "round %d: %g came back as %g", round, sum, mine);
    }
    for (i = 0; i < used; i++)
        OK(MPI_T_pvar_handle_free(session, &handles[i]));
    OK(MPI_T_pvar_session_free(&session));
}

int main(int argc, char **argv)
{
    int provided;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    list_all();
    begin(&argc, &argv);
    list_all();
    rounds();
    OK(MPI_T_finalize());
    return finish("listed");
}

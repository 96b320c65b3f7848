/*
 * The tool information interface, by the values of the header: before MPI_Init, between and after
 * MPI_Finalize, with every error that a caller can make. A process without a job.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed;

#define CHECK(condition)                                              \
    do {                                                              \
        if (!(condition)) {                                           \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
            failed++;                                                 \
        }                                                             \
    } while (0)

static int cvar(const char *name)
{
    int index = -1;
    CHECK(MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS);
    return index;
}

static int pvar(const char *name, int class)
{
    int index = -1;
    CHECK(MPI_T_pvar_get_index(name, class, &index) == MPI_SUCCESS);
    return index;
}

/* Nothing but MPI_T_init_thread may be called before that. */
static void not_initialized(void)
{
    int n, counts = 0;
    MPI_T_pvar_session session;
    CHECK(MPI_T_cvar_get_num(&n) == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_pvar_get_num(&n) == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_category_get_num(&n) == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_event_get_num(&n) == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_source_get_num(&n) == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_pvar_session_create(&session) == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_finalize() == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &n) == MPI_SUCCESS && n == MPI_THREAD_MULTIPLE);
    CHECK(MPI_T_init_thread(MPI_THREAD_SINGLE, &n) == MPI_SUCCESS && n == MPI_THREAD_SINGLE);
    CHECK(MPI_T_finalize() == MPI_SUCCESS);
    CHECK(MPI_T_cvar_get_num(&counts) == MPI_SUCCESS && counts > 0);
}

/* A text is cut to the room, and its whole length is told. */
static void texts(void)
{
    char name[64], about[256];
    int length = sizeof name, all = 0, index = cvar("EYRIE_RANK"), none = 0;
    CHECK(MPI_T_cvar_get_info(index, name, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == 0);
    CHECK(length == 11 && strcmp(name, "EYRIE_RANK") == 0);
    length = 5;
    CHECK(MPI_T_cvar_get_info(index, name, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == 0);
    CHECK(length == 11 && strcmp(name, "EYRI") == 0);
    CHECK(MPI_T_cvar_get_info(index, NULL, &none, NULL, NULL, NULL, NULL, &all, NULL, NULL) == 0);
    CHECK(none == 11 && all > 10 && all < (int)sizeof about);
    strcpy(name, "untouched");
    CHECK(MPI_T_cvar_get_info(index, name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == 0);
    CHECK(strcmp(name, "untouched") == 0);
}

static void control(void)
{
    int n, index, count, value = 77, verbosity, bind, scope, provided;
    char text[1024];
    MPI_Datatype type;
    MPI_T_enum choices;
    MPI_T_cvar_handle handle, other;
    CHECK(MPI_T_cvar_get_num(&n) == 0);
    for (index = 0; index < n; index++) {
        int name_length = sizeof text, again;
        CHECK(MPI_T_cvar_get_info(index, text, &name_length, &verbosity, &type, &choices, NULL, NULL,
                                  &bind, &scope) == 0);
        CHECK(MPI_T_cvar_get_index(text, &again) == 0 && again == index);
        CHECK(verbosity >= MPI_T_VERBOSITY_USER_BASIC && verbosity <= MPI_T_VERBOSITY_MPIDEV_ALL);
        CHECK(bind == MPI_T_BIND_NO_OBJECT);
        CHECK(scope == MPI_T_SCOPE_CONSTANT || scope == MPI_T_SCOPE_READONLY || scope == MPI_T_SCOPE_LOCAL);
        CHECK(type == MPI_CHAR || type == MPI_INT || type == MPI_UNSIGNED_LONG_LONG);
        CHECK(choices == MPI_T_ENUM_NULL || type == MPI_INT);
    }
    CHECK(MPI_T_cvar_get_info(n, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) ==
          MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_cvar_get_info(-1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) ==
          MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_cvar_get_index("EYRIE_NONE", &index) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_cvar_handle_alloc(n, NULL, &handle, &count) == MPI_T_ERR_INVALID_INDEX);

    CHECK(MPI_T_cvar_handle_alloc(cvar("EYRIE_RANK"), NULL, &handle, &count) == 0 && count == 1);
    CHECK(MPI_T_cvar_read(handle, &value) == 0 && value == -1);
    CHECK(MPI_T_cvar_write(handle, &value) == MPI_T_ERR_CVAR_SET_NEVER);
    other = handle;
    CHECK(MPI_T_cvar_handle_free(&handle) == 0 && handle == MPI_T_CVAR_HANDLE_NULL);
    CHECK(MPI_T_cvar_read(other, &value) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_cvar_handle_free(&other) == MPI_T_ERR_INVALID_HANDLE);

    CHECK(MPI_T_cvar_handle_alloc(cvar("EYRIE_REGIONS_KEEP"), NULL, &handle, &count) == 0);
    CHECK(count == sizeof text);
    CHECK(MPI_T_cvar_read(handle, text) == 0 && text[0] == 0);
    CHECK(MPI_T_cvar_write(handle, "3") == 0 && getenv("EYRIE_REGIONS_KEEP") != NULL);
    CHECK(MPI_T_cvar_read(handle, text) == 0 && strcmp(text, "3") == 0);
    CHECK(MPI_T_cvar_write(handle, "") == 0 && getenv("EYRIE_REGIONS_KEEP") == NULL);
    CHECK(MPI_T_cvar_write(handle, NULL) == MPI_T_ERR_INVALID);
    CHECK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == 0 && MPI_T_finalize() == 0);
    CHECK(MPI_T_cvar_read(handle, text) == 0);
    CHECK(MPI_T_cvar_handle_free(&handle) == 0);
}

static void enumerations(void)
{
    char name[64];
    int length = sizeof name, n, value;
    MPI_T_enum choices = MPI_T_ENUM_NULL;
    CHECK(MPI_T_cvar_get_info(cvar("EYRIE_FT"), NULL, NULL, NULL, NULL, &choices, NULL, NULL, NULL,
                              NULL) == 0);
    CHECK(MPI_T_enum_get_info(choices, &n, name, &length) == 0);
    CHECK(n == 3 && strcmp(name, "eyrie_protection") == 0);
    length = sizeof name;
    CHECK(MPI_T_enum_get_item(choices, 2, &value, name, &length) == 0);
    CHECK(value == 2 && strcmp(name, "logged") == 0);
    CHECK(MPI_T_enum_get_item(choices, 3, &value, name, &length) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_enum_get_info(MPI_T_ENUM_NULL, &n, name, &length) == MPI_T_ERR_INVALID_HANDLE);
}

static void categories(void)
{
    int n, index, cvars, pvars, parts, events, sum[3] = {0, 0, 0}, all[3], changed[2];
    CHECK(MPI_T_category_get_num(&n) == 0);
    for (index = 0; index < n; index++) {
        char name[64];
        int length = sizeof name, again, indices[64];
        CHECK(MPI_T_category_get_info(index, name, &length, NULL, NULL, &cvars, &pvars, &parts) == 0);
        CHECK(MPI_T_category_get_index(name, &again) == 0 && again == index);
        CHECK(MPI_T_category_get_num_events(index, &events) == 0);
        sum[0] += cvars;
        sum[1] += pvars;
        sum[2] += events;
        indices[1] = -9;
        CHECK(MPI_T_category_get_cvars(index, 1, indices) == 0 && indices[1] == -9);
        CHECK(MPI_T_category_get_cvars(index, 64, indices) == 0);
        CHECK(MPI_T_category_get_pvars(index, 64, indices) == 0);
        CHECK(MPI_T_category_get_events(index, 64, indices) == 0);
        CHECK(MPI_T_category_get_categories(index, 64, indices) == 0);
        CHECK(parts == 0 || (parts == n - 1 && indices[0] != index));
    }
    MPI_T_cvar_get_num(&all[0]);
    MPI_T_pvar_get_num(&all[1]);
    MPI_T_event_get_num(&all[2]);
    CHECK(memcmp(sum, all, sizeof sum) == 0);
    CHECK(MPI_T_category_get_info(n, NULL, NULL, NULL, NULL, NULL, NULL, NULL) ==
          MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_category_get_cvars(n, 0, NULL) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_category_get_index("none", &index) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_category_changed(&changed[0]) == 0 && MPI_T_category_changed(&changed[1]) == 0);
    CHECK(changed[0] == changed[1]);
}

/* What is wrong with sessions and handles. */
static void sessions(void)
{
    int count, index = pvar("eyrie_messages_sent", MPI_T_PVAR_CLASS_COUNTER);
    unsigned long long value = 1;
    MPI_T_pvar_session one, two, gone;
    MPI_T_pvar_handle handle, level;
    CHECK(MPI_T_pvar_get_index("eyrie_messages_sent", MPI_T_PVAR_CLASS_TIMER, &count) ==
          MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_pvar_session_create(&one) == 0 && MPI_T_pvar_session_create(&two) == 0);
    CHECK(MPI_T_pvar_handle_alloc(one, -1, NULL, &handle, &count) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_pvar_handle_alloc(one, index, NULL, &handle, &count) == 0 && count == 1);
    CHECK(MPI_T_pvar_read(two, handle, &value) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_read(one, handle, &value) == 0 && value == 0);
    CHECK(MPI_T_pvar_read(one, MPI_T_PVAR_ALL_HANDLES, &value) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_read(one, MPI_T_PVAR_HANDLE_NULL, &value) == MPI_T_ERR_INVALID_HANDLE);
    value = 40;
    CHECK(MPI_T_pvar_write(one, handle, &value) == 0);
    CHECK(MPI_T_pvar_start(one, handle) == 0 && MPI_T_pvar_start(one, handle) == 0);
    CHECK(MPI_T_pvar_readreset(one, handle, &value) == 0 && value == 40);
    CHECK(MPI_T_pvar_stop(one, handle) == 0);
    CHECK(MPI_T_pvar_read(one, handle, &value) == 0 && value == 0);

    index = pvar("eyrie_log_bytes", MPI_T_PVAR_CLASS_LEVEL);
    CHECK(MPI_T_pvar_handle_alloc(one, index, NULL, &level, &count) == 0);
    CHECK(MPI_T_pvar_start(one, level) == MPI_T_ERR_PVAR_NO_STARTSTOP);
    CHECK(MPI_T_pvar_stop(one, level) == MPI_T_ERR_PVAR_NO_STARTSTOP);
    CHECK(MPI_T_pvar_write(one, level, &value) == MPI_T_ERR_PVAR_NO_WRITE);
    CHECK(MPI_T_pvar_reset(one, level) == MPI_T_ERR_PVAR_NO_WRITE);
    CHECK(MPI_T_pvar_readreset(one, level, &value) == MPI_T_ERR_PVAR_NO_WRITE);
    CHECK(MPI_T_pvar_read(one, level, &value) == 0);
    CHECK(MPI_T_pvar_start(one, MPI_T_PVAR_ALL_HANDLES) == 0);
    CHECK(MPI_T_pvar_reset(one, MPI_T_PVAR_ALL_HANDLES) == 0);
    CHECK(MPI_T_pvar_stop(one, MPI_T_PVAR_ALL_HANDLES) == 0);
    CHECK(MPI_T_pvar_start(two, MPI_T_PVAR_ALL_HANDLES) == 0);

    CHECK(MPI_T_pvar_handle_free(two, &level) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_handle_free(one, &level) == 0 && level == MPI_T_PVAR_HANDLE_NULL);
    gone = one;
    CHECK(MPI_T_pvar_session_free(&one) == 0 && one == MPI_T_PVAR_SESSION_NULL);
    CHECK(MPI_T_pvar_read(gone, handle, &value) == MPI_T_ERR_INVALID_SESSION);
    CHECK(MPI_T_pvar_start(gone, MPI_T_PVAR_ALL_HANDLES) == MPI_T_ERR_INVALID_SESSION);
    CHECK(MPI_T_pvar_session_free(&gone) == MPI_T_ERR_INVALID_SESSION);
    CHECK(MPI_T_pvar_session_free(&two) == 0);
}

/* Handles that are bound to a communicator need one, and go by it. */
static void bound(void)
{
    int bind = 0, count, n, comm_size, index = pvar("eyrie_unexpected_messages", MPI_T_PVAR_CLASS_LEVEL);
    unsigned long long value = 9;
    MPI_Comm null = MPI_COMM_NULL, world = MPI_COMM_WORLD, dup;
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle, other;
    CHECK(MPI_T_pvar_get_info(index, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, &bind, NULL, NULL,
                              NULL) == 0);
    CHECK(bind == MPI_T_BIND_MPI_COMM);
    MPI_Comm_dup(world, &dup);
    CHECK(MPI_T_pvar_session_create(&session) == 0);
    CHECK(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_handle_alloc(session, index, &null, &handle, &count) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_handle_alloc(session, index, &world, &handle, &count) == 0);
    CHECK(MPI_T_pvar_handle_alloc(session, index, &dup, &other, &count) == 0);
    MPI_Comm_size(world, &comm_size);
    for (n = 0; n < 3; n++)
        MPI_Send(&n, 1, MPI_INT, 0, n, world);
    MPI_Iprobe(0, 99, world, &n, MPI_STATUS_IGNORE);
    CHECK(MPI_T_pvar_read(session, handle, &value) == 0 && value == 3);
    CHECK(MPI_T_pvar_read(session, other, &value) == 0 && value == 0);
    for (n = 0; n < 3; n++)
        MPI_Recv(&count, 1, MPI_INT, 0, n, world, MPI_STATUS_IGNORE);
    CHECK(MPI_T_pvar_read(session, handle, &value) == 0 && value == 0);
    MPI_Comm_free(&dup);
    CHECK(MPI_T_pvar_read(session, other, &value) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_session_free(&session) == 0);
}

static void freed(MPI_T_event_registration registration, MPI_T_cb_safety safety, void *data)
{
    (void)registration;
    (void)safety;
    ++*(int *)data;
}

static void called(MPI_T_event_instance instance, MPI_T_event_registration registration,
                   MPI_T_cb_safety safety, void *data)
{
    (void)instance;
    (void)registration;
    (void)safety;
    ++*(int *)data;
}

static void dropped(MPI_Count count, MPI_T_event_registration registration, int source,
                    MPI_T_cb_safety safety, void *data)
{
    (void)count;
    (void)registration;
    (void)source;
    (void)safety;
    ++*(int *)data;
}

static void events(void)
{
    int n, index, elements = 4, calls = 0, frees = 0;
    char name[64];
    int length = sizeof name;
    unsigned long long number;
    MPI_Count ticks[2], most;
    MPI_Datatype types[4];
    MPI_Aint at[4];
    MPI_Info info;
    MPI_T_source_order order;
    MPI_T_event_registration registration, gone;
    CHECK(MPI_T_event_get_num(&n) == 0 && n == 2);
    CHECK(MPI_T_event_get_index("eyrie_restored", &index) == 0);
    CHECK(MPI_T_event_get_info(index, name, &length, NULL, types, at, &elements, NULL, &info, NULL,
                               NULL, NULL) == 0);
    CHECK(strcmp(name, "eyrie_restored") == 0 && elements == 1);
    CHECK(types[0] == MPI_UNSIGNED_LONG_LONG && at[0] == 0);
    CHECK(MPI_Info_free(&info) == 0);
    CHECK(MPI_T_event_get_index("none", &index) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_event_handle_alloc(n, NULL, MPI_INFO_NULL, &registration) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &registration) == 0);
    CHECK(MPI_T_event_register_callback(registration, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, &calls,
                                        called) == 0);
    CHECK(MPI_T_event_register_callback(registration, MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE,
                                        MPI_INFO_NULL, &calls, called) == 0);
    CHECK(MPI_T_event_callback_set_info(registration, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL) == 0);
    CHECK(MPI_T_event_callback_get_info(registration, MPI_T_CB_REQUIRE_NONE, &info) == 0);
    CHECK(MPI_Info_free(&info) == 0);
    CHECK(MPI_T_event_handle_set_info(registration, MPI_INFO_NULL) == 0);
    CHECK(MPI_T_event_handle_get_info(registration, &info) == 0 && MPI_Info_free(&info) == 0);
    CHECK(MPI_T_event_set_dropped_handler(registration, dropped) == 0);
    CHECK(MPI_T_event_read((MPI_T_event_instance)0, 0, &number) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_event_copy((MPI_T_event_instance)0, &number) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_event_get_source((MPI_T_event_instance)0, &n) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_event_get_timestamp((MPI_T_event_instance)0, ticks) == MPI_T_ERR_INVALID_HANDLE);
    gone = registration;
    CHECK(MPI_T_event_handle_free(registration, &frees, freed) == 0 && frees == 1 && calls == 0);
    CHECK(MPI_T_event_handle_free(gone, &frees, freed) == MPI_T_ERR_INVALID_HANDLE && frees == 1);

    CHECK(MPI_T_source_get_num(&n) == 0 && n == 1);
    length = sizeof name;
    CHECK(MPI_T_source_get_info(0, name, &length, NULL, NULL, &order, &ticks[0], &most, &info) == 0);
    CHECK(order == MPI_T_SOURCE_ORDERED && ticks[0] == 1000000000 && most > ticks[0]);
    CHECK(MPI_Info_free(&info) == 0);
    CHECK(MPI_T_source_get_timestamp(0, &ticks[0]) == 0);
    CHECK(MPI_T_source_get_timestamp(0, &ticks[1]) == 0 && ticks[1] >= ticks[0]);
    CHECK(MPI_T_source_get_timestamp(1, &ticks[0]) == MPI_T_ERR_INVALID_INDEX);
}

static void error_texts(void)
{
    char text[MPI_MAX_ERROR_STRING];
    int length, class, code = MPI_T_ERR_CVAR_SET_NEVER;
    CHECK(MPI_Error_string(code, text, &length) == 0);
    CHECK(strncmp(text, "MPI_T_ERR_CVAR_SET_NEVER", 24) == 0);
    CHECK(MPI_Error_class(code, &class) == 0 && class == code);
    CHECK(MPI_Error_string(MPI_T_ERR_NOT_ACCESSIBLE, text, &length) == 0);
    CHECK(strncmp(text, "MPI_T_ERR_NOT_ACCESSIBLE", 24) == 0);
}

static void all(void)
{
    texts();
    control();
    enumerations();
    categories();
    sessions();
    events();
}

int main(int argc, char **argv)
{
    MPI_T_cvar_handle handle;
    int count;
    not_initialized();
    all();
    MPI_T_cvar_handle_alloc(cvar("EYRIE_ALONE"), NULL, &handle, &count);
    CHECK(MPI_T_cvar_write(handle, "1") == 0);
    MPI_Init(&argc, &argv);
    CHECK(MPI_T_cvar_write(handle, "0") == MPI_T_ERR_CVAR_SET_NOT_NOW);
    all();
    bound();
    error_texts();
    MPI_Finalize();
    all();
    CHECK(MPI_T_finalize() == MPI_SUCCESS);
    CHECK(MPI_T_cvar_handle_free(&handle) == MPI_T_ERR_NOT_INITIALIZED);
    return failed != 0;
}

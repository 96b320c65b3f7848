/* Attributes, error handlers, error classes and codes, info objects, version, time, thread level.
 */
#include "check.h"

static int copies, deletes;

static int copy_attribute(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key;
    copies++;
    *(void **)out = (char *)in + *(int *)extra;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_attribute(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

static int order[8], ordered;

static int copy_in_order(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)extra;
    order[ordered++] = *(int *)in;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_in_order(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)extra;
    order[ordered++] = *(int *)value;
    return MPI_SUCCESS;
}

static int is_order(int count, int first, int second, int third)
{
    int right = ordered == count && order[0] == first && order[1] == second && order[2] == third;
    ordered = 0;
    return right;
}

/* Callbacks in MPICH's order: what was set last is copied and deleted first, also in a copy of a copy; what is set
 * anew keeps its place. Returns with three attributes on MPI_COMM_SELF. */
static void callbacks_in_order(void)
{
    static int values[] = { 0, 1, 2, 3 };
    int keys[4];
    MPI_Comm comm, copy, again;
    for (int i = 1; i < 4; i++)
        OK(MPI_Comm_create_keyval(copy_in_order, delete_in_order, &keys[i], NULL));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int i = 1; i < 4; i++)
        OK(MPI_Comm_set_attr(comm, keys[i], &values[i]));
    OK(MPI_Comm_dup(comm, &copy));
    CHECK(is_order(3, 3, 2, 1), "copies: %d %d %d", order[0], order[1], order[2]);
    OK(MPI_Comm_dup(copy, &again));
    CHECK(is_order(3, 3, 2, 1), "copies of copies: %d %d %d", order[0], order[1], order[2]);
    OK(MPI_Comm_free(&again));
    CHECK(is_order(3, 3, 2, 1), "deletes of copies: %d %d %d", order[0], order[1], order[2]);
    OK(MPI_Comm_free(&copy));
    ordered = 0;
    OK(MPI_Comm_set_attr(comm, keys[1], &values[1]));
    OK(MPI_Comm_delete_attr(comm, keys[2]));
    OK(MPI_Comm_set_attr(comm, keys[2], &values[2]));
    ordered = 0;
    OK(MPI_Comm_free(&comm));
    CHECK(is_order(3, 2, 3, 1), "set anew: %d %d %d", order[0], order[1], order[2]);
    for (int i = 1; i < 4; i++) {
        OK(MPI_Comm_set_attr(MPI_COMM_SELF, keys[i], &values[i]));
        OK(MPI_Comm_free_keyval(&keys[i]));
    }
}

static void attributes(void)
{
    static char place[100];
    int key, dup_key, null_key, step = 3, flag;
    void *value;
    MPI_Comm comm, copy;
    OK(MPI_Comm_create_keyval(copy_attribute, delete_attribute, &key, &step));
    OK(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &dup_key, NULL));
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &null_key, NULL));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_get_attr(comm, key, &value, &flag));
    CHECK(!flag, "no attribute yet");
    OK(MPI_Comm_set_attr(comm, key, place));
    OK(MPI_Comm_set_attr(comm, dup_key, place + 50));
    OK(MPI_Comm_set_attr(comm, null_key, place + 60));
    OK(MPI_Comm_get_attr(comm, key, &value, &flag));
    CHECK(flag && value == place, "attribute");
    OK(MPI_Comm_dup(comm, &copy));
    CHECK(copies == 1, "%d copies", copies);
    OK(MPI_Comm_get_attr(copy, key, &value, &flag));
    CHECK(flag && value == place + 3, "copied attribute");
    OK(MPI_Comm_get_attr(copy, dup_key, &value, &flag));
    CHECK(flag && value == place + 50, "MPI_COMM_DUP_FN");
    OK(MPI_Comm_get_attr(copy, null_key, &value, &flag));
    CHECK(!flag, "MPI_COMM_NULL_COPY_FN");
    OK(MPI_Comm_delete_attr(comm, key));
    CHECK(deletes == 1, "%d deletes", deletes);
    OK(MPI_Comm_set_attr(copy, key, place));
    CHECK(deletes == 2, "%d deletes after overwriting", deletes);
    OK(MPI_Comm_free(&copy));
    CHECK(deletes == 3, "%d deletes after free", deletes);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Comm_free_keyval(&key));
    CHECK(key == MPI_KEYVAL_INVALID, "a freed key");
    OK(MPI_Comm_free_keyval(&dup_key));
    OK(MPI_Comm_free_keyval(&null_key));
    int *bound;
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &flag));
    CHECK(flag && *bound >= 32767, "tag bound %d", *bound);
    int type_key;
    MPI_Datatype type;
    OK(MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &type_key, NULL));
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_set_attr(type, type_key, place));
    OK(MPI_Type_get_attr(type, type_key, &value, &flag));
    CHECK(flag && value == place, "type attribute");
    OK(MPI_Type_free(&type));
    OK(MPI_Type_free_keyval(&type_key));
}

static int handled, handled_class;

static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    handled++;
    handled_class = class_of(*code);
}

static void mender(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    *code = MPI_SUCCESS;
}

static void error_handlers(void)
{
    MPI_Errhandler own, current;
    MPI_Comm comm, copy;
    int value = 0;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_get_errhandler(comm, &current));
    CHECK(current == MPI_ERRORS_ARE_FATAL, "the default handler");
    OK(MPI_Comm_create_errhandler(handler, &own));
    OK(MPI_Comm_set_errhandler(comm, own));
    OK(MPI_Errhandler_free(&own));
    CHECK(own == MPI_ERRHANDLER_NULL, "a freed handler");
    MPI_Send(&value, 1, MPI_INT, ranks + 5, 0, comm);
    CHECK(handled == 1 && handled_class == MPI_ERR_RANK, "%d calls, class %d", handled,
          handled_class);
    OK(MPI_Comm_dup(comm, &copy)); /* the copy inherits it */
    MPI_Recv(&value, -2, MPI_INT, 0, 0, copy, MPI_STATUS_IGNORE);
    CHECK(handled == 2 && handled_class == MPI_ERR_COUNT, "%d calls, class %d", handled,
          handled_class);
    OK(MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER));
    CHECK(handled == 3 && handled_class == MPI_ERR_OTHER, "%d calls", handled);
    /* A handler may change what the call returns. */
    OK(MPI_Comm_create_errhandler(mender, &own));
    OK(MPI_Comm_set_errhandler(comm, own));
    OK(MPI_Errhandler_free(&own));
    OK(MPI_Send(&value, 1, MPI_INT, ranks + 5, 0, comm));
    OK(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
    CHECK(class_of(MPI_Comm_dup(copy, NULL)) == MPI_ERR_ARG, "no room for a handle");
    CHECK(class_of(MPI_Intercomm_create(copy, 0, MPI_COMM_WORLD, ranks, 0, NULL)) == MPI_ERR_ARG,
          "the same, though there is no such leader");
    CHECK(class_of(MPI_Bcast(&value, 1, MPI_INT, -1, copy)) == MPI_ERR_ROOT, "a wrong root");
    OK(MPI_Comm_free(&copy));
    OK(MPI_Comm_free(&comm));
}

static void error_codes(void)
{
    char text[MPI_MAX_ERROR_STRING];
    int length, class, code, *last, flag;
    OK(MPI_Error_string(MPI_ERR_TRUNCATE, text, &length));
    CHECK(length > 0 && (size_t)length == strlen(text), "'%s'", text);
    OK(MPI_Error_class(MPI_SUCCESS, &class));
    CHECK(class == MPI_SUCCESS, "class %d", class);
    OK(MPI_Add_error_class(&class));
    CHECK(class > MPI_ERR_LASTCODE, "new class %d", class);
    OK(MPI_Add_error_code(class, &code));
    OK(MPI_Add_error_string(code, "the cow is in the garden"));
    OK(MPI_Error_string(code, text, &length));
    CHECK(!strcmp(text, "the cow is in the garden"), "'%s'", text);
    CHECK(class_of(code) == class, "class %d", class_of(code));
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &last, &flag));
    CHECK(flag && *last > MPI_ERR_LASTCODE, "last used %d", *last);
}

static void infos(void)
{
    MPI_Info info, copy;
    char value[MPI_MAX_INFO_VAL + 1], key[MPI_MAX_INFO_KEY + 1];
    int flag, n, length = sizeof value;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "first", "one"));
    OK(MPI_Info_set(info, "second", "a longer value"));
    OK(MPI_Info_set(info, "first", "1"));
    OK(MPI_Info_get_nkeys(info, &n));
    CHECK(n == 2, "%d keys", n);
    OK(MPI_Info_get_string(info, "first", &length, value, &flag));
    CHECK(flag && !strcmp(value, "1") && length == 2, "'%s' of %d", value, length);
    OK(MPI_Info_get_nthkey(info, 1, key));
    CHECK(!strcmp(key, "second"), "key '%s'", key);
    OK(MPI_Info_dup(info, &copy));
    OK(MPI_Info_delete(info, "second"));
    OK(MPI_Info_get_valuelen(info, "second", &length, &flag));
    CHECK(!flag, "deleted");
    OK(MPI_Info_get_valuelen(copy, "second", &length, &flag));
    CHECK(flag && length == 14, "length %d", length);
    OK(MPI_Info_free(&info));
    OK(MPI_Info_free(&copy));
    CHECK(info == MPI_INFO_NULL, "a freed info");
}

static void inquiries(void)
{
    int version, subversion, length, flag, level;
    char text[MPI_MAX_LIBRARY_VERSION_STRING], host[MPI_MAX_PROCESSOR_NAME];
    OK(MPI_Get_version(&version, &subversion));
    CHECK(version >= 4, "version %d.%d", version, subversion);
    OK(MPI_Get_library_version(text, &length));
    CHECK(length > 0 && strlen(text) == (size_t)length, "'%s'", text);
    OK(MPI_Get_processor_name(host, &length));
    CHECK(length > 0 && strlen(host) == (size_t)length, "'%s'", host);
    OK(MPI_Initialized(&flag));
    CHECK(flag, "initialized");
    OK(MPI_Finalized(&flag));
    CHECK(!flag, "not finalized");
    OK(MPI_Query_thread(&level));
    CHECK(level >= MPI_THREAD_SINGLE && level <= MPI_THREAD_MULTIPLE, "level %d", level);
    OK(MPI_Is_thread_main(&flag));
    CHECK(flag, "this is the main thread");
    double first = MPI_Wtime(), second = MPI_Wtime();
    CHECK(second >= first && MPI_Wtick() > 0 && MPI_Wtick() < 1, "time");
    double *memory;
    OK(MPI_Alloc_mem(1000 * sizeof *memory, MPI_INFO_NULL, &memory));
    for (int i = 0; i < 1000; i++)
        memory[i] = i;
    CHECK(memory[999] == 999, "allocated memory");
    OK(MPI_Free_mem(memory));
}

int main(int argc, char **argv)
{
    int flag = 1;
    MPI_Initialized(&flag);
    if (flag) {
        fprintf(stderr, "initialized before MPI_Init\n");
        return 4;
    }
    begin(&argc, &argv);
    attributes();
    error_handlers();
    error_codes();
    infos();
    inquiries();
    callbacks_in_order();
    int code = finish("environment");
    MPI_Finalized(&flag);
    if (!is_order(3, 3, 2, 1)) {
        fprintf(stderr, "MPI_Finalize: %d %d %d\n", order[0], order[1], order[2]);
        return 6;
    }
    return flag ? code : 5;
}

/* The recorder's hot core, compiled. `twin.py` holds its twin in Python, which behaves the same.
 *
 * One register says who owns the passing time: a phase, or nobody (the slot behind the last
 * phase). Every transition (a timer's enter or exit, a batch's end) reads the clock once and books
 * the time since the last transition to the owner. So nested timers book an instant once, to the
 * innermost, and the phases and the rest of a batch sum to its wall time by construction.
 *
 * A batch ends as a row: stored into a window of the mapped file (`seq` last, by a release store),
 * or appended to lists, or dropped when there is neither. Nothing here raises into training: what
 * is wrong is noted in `faults`. Only what is no `Exception` (KeyboardInterrupt in a callback)
 * passes through.
 *
 * The hot path allocates nothing. A `with` statement looks `__enter__` and `__exit__` up on the
 * type and binds them, which makes two objects each time; the descriptor type below hands out
 * functions that each timer bound once.
 *
 * All state is guarded by the GIL. The module does not declare itself free-threaded, so a
 * free-threaded build keeps the GIL on with it.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>
#include <time.h>

#if !defined(__linux__) || !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the compiled recorder is for little-endian Linux; elsewhere the one in Python takes its place"
#endif

#define MAX_PHASES 64
#define MAX_DEPTH 64
#define NS_PER_S 1e9
/* A phase holds at most about three years, recorded by hand, so that no sum can overflow. */
#define LONGEST_NS INT64_C(100000000000000000)
#define LONGEST_S 1e8

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Differences and sums of clock readings wrap instead of being undefined: a clock given by the
 * user may return anything. */
static inline int64_t plus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t minus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

typedef struct {
    PyTypeObject *core_type;
    PyTypeObject *timer_type;
    PyTypeObject *cached_type;
    PyObject *note;  /* interned names of what is called */
    PyObject *tell;
    PyObject *refill;
    PyObject *append;
} State;

enum { STD_SOURCE, STD_TRANSFORM, STD_TRANSFER, N_STD };
static const char *const std_names[N_STD] = {"source", "transform", "transfer"};

enum { BOUND_ENTER, BOUND_EXIT, N_BOUND };

struct Core;

typedef struct {
    PyObject_HEAD
    struct Core *core;
    int phase;   /* its place among the phases; -1: of no phase; -2: the batch itself */
    int strays;  /* enters that were refused and whose exits are still to come */
    PyObject *bound[N_BOUND];
} Timer;

#define PHASE_NONE (-1)
#define PHASE_BATCH (-2)

typedef struct Core {
    PyObject_HEAD
    /* the register and the open batch */
    int64_t last;
    int owner;
    int depth;
    int room; /* how deep timers may nest: 0 while no batch is open */
    int n_phases;
    int64_t start;
    int64_t step;
    int64_t current[MAX_PHASES + 1]; /* the last slot in use is nobody's */
    int outer[MAX_DEPTH];            /* whose time it was before each open timer */
    /* where rows go */
    char *row;
    char *limit;
    Py_ssize_t row_bytes;
    Py_buffer window;
    int has_window;
    int busy; /* a callback of `steps` is running */
    int64_t n_rows;
    PyObject *steps;
    PyObject *lists; /* a tuple of lists: one a phase, then the batch's */
    /* running totals since the last reset */
    int64_t count;
    int64_t wall_start;
    int64_t wall_end;
    int64_t overcount;
    int64_t totals[MAX_PHASES];
    int told_overcount;
    int64_t next_step;
    int64_t last_end;
    /* callables and names */
    PyObject *clock;
    PyObject *faults;
    PyObject *wait;
    PyObject *waiting_timer;
    PyObject *hook;
    PyObject *phases;
    PyObject *timers; /* by name */
    Timer *by_place[MAX_PHASES];
    int std[N_STD];
    Timer *nobody;
    Timer *batch;
    State *state;
    int made;
} Core;

/* --- what is wrong -------------------------------------------------------------------------- */

/* Clear an Exception; return -1 with anything else (KeyboardInterrupt) still set. */
static int swallow(void) {
    if (!PyErr_Occurred()) return 0;
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyErr_Clear();
    return 0;
}

static int call_faults(Core *c, PyObject *method, const char *what, PyObject *reason) {
    PyObject *name = PyUnicode_FromString(what);
    PyObject *result = name == NULL ? NULL : PyObject_CallMethodObjArgs(c->faults, method, name, reason, NULL);
    Py_XDECREF(name);
    Py_XDECREF(result);
    return result == NULL ? swallow() : 0;
}

static int note(Core *c, const char *what, const char *why) {
    PyObject *reason = PyUnicode_FromString(why);
    if (reason == NULL) return swallow();
    int failed = call_faults(c, c->state->note, what, reason);
    Py_DECREF(reason);
    return failed;
}

/* Note the exception that is set, and clear it. */
static int note_error(Core *c, const char *what) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    int failed = call_faults(c, c->state->note, what, value == NULL ? Py_None : value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return failed;
}

/* --- the clock ------------------------------------------------------------------------------ */

static int given_clock(Core *c, int64_t *now) {
    PyObject *result = PyObject_CallNoArgs(c->clock);
    long long value = result == NULL ? -1 : PyLong_AsLongLong(result);
    Py_XDECREF(result);
    if (value == -1 && PyErr_Occurred()) {
        *now = c->last; /* it stands still */
        return note_error(c, "clock");
    }
    *now = value;
    return 0;
}

static inline int read_clock(Core *c, int64_t *now) {
    if (unlikely(c->clock != NULL)) return given_clock(c, now);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* the clock of time.monotonic_ns() */
    *now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    return 0;
}

static inline void book(Core *c, int64_t now) {
    c->current[c->owner] = plus(c->current[c->owner], minus(now, c->last));
    c->last = now;
}

/* --- windows -------------------------------------------------------------------------------- */

static void release_window(Core *c) {
    c->row = c->limit = NULL;
    if (c->has_window) {
        c->has_window = 0;
        PyBuffer_Release(&c->window);
    }
}

static int take_window(Core *c, PyObject *memory) {
    if (PyObject_GetBuffer(memory, &c->window, PyBUF_WRITABLE) < 0) return note_error(c, "rows");
    c->has_window = 1;
    if (c->window.len < c->row_bytes || c->window.len % c->row_bytes || (uintptr_t)c->window.buf % sizeof(int64_t)) {
        release_window(c);
        return note(c, "rows", "the window given does not hold whole rows");
    }
    c->row = c->window.buf;
    c->limit = c->row + c->window.len;
    return 0;
}

/* Give the full window back and ask for the next; without one, rows are appended. */
static int refill(Core *c) {
    release_window(c);
    PyObject *steps = c->steps;
    if (steps == NULL || c->busy) return 0;
    PyObject *n_rows = PyLong_FromLongLong(c->n_rows);
    if (n_rows == NULL) return note_error(c, "rows");
    Py_INCREF(steps);
    c->busy = 1;
    PyObject *memory = PyObject_CallMethodObjArgs(steps, c->state->refill, n_rows, NULL);
    c->busy = 0;
    int failed = 0;
    if (memory == NULL)
        failed = note_error(c, "rows");
    else if (memory != Py_None && c->steps == steps) /* it may have been detached meanwhile */
        failed = take_window(c, memory);
    Py_XDECREF(memory);
    Py_DECREF(steps);
    Py_DECREF(n_rows);
    return failed;
}

static void fill_row(Core *c, int64_t *row) {
    row[0] = c->step;
    row[1] = c->start;
    row[2] = c->last;
    for (int i = 0; i < c->n_phases; i++) row[3 + i] = c->current[i];
}

static int append_row(Core *c) {
    int64_t row[MAX_PHASES + 4];
    if (c->busy) return note(c, "rows", "a batch ended while the log was being extended");
    fill_row(c, row);
    row[3 + c->n_phases] = c->n_rows + 1;
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)row, c->row_bytes);
    if (bytes == NULL) return note_error(c, "rows");
    PyObject *steps = Py_NewRef(c->steps);
    c->busy = 1;
    PyObject *done = PyObject_CallMethodObjArgs(steps, c->state->append, bytes, NULL);
    c->busy = 0;
    Py_DECREF(steps);
    Py_DECREF(bytes);
    if (done == NULL) return note_error(c, "rows");
    if (done == Py_True) c->n_rows++;
    Py_DECREF(done);
    return refill(c);
}

static int append_float(Core *c, Py_ssize_t i, int64_t ns) {
    PyObject *seconds = PyFloat_FromDouble((double)ns / NS_PER_S);
    int failed = seconds == NULL || PyList_Append(PyTuple_GET_ITEM(c->lists, i), seconds) < 0;
    Py_XDECREF(seconds);
    return failed;
}

static int extend_lists(Core *c, int64_t wall) {
    int failed = 0;
    for (int i = 0; i < c->n_phases && !failed; i++) failed = append_float(c, i, c->current[i]);
    if (failed || append_float(c, c->n_phases, wall)) return note_error(c, "rows");
    return 0;
}

static inline int write_row(Core *c, int64_t wall) {
    if (likely(c->row != NULL)) {
        int64_t *row = (int64_t *)c->row;
        fill_row(c, row);
        c->n_rows++;
        __atomic_store_n(row + 3 + c->n_phases, c->n_rows, __ATOMIC_RELEASE);
        c->row += c->row_bytes;
        return likely(c->row != c->limit) ? 0 : refill(c);
    }
    if (c->lists != NULL) return extend_lists(c, wall);
    return c->steps == NULL ? 0 : append_row(c);
}

/* --- batches -------------------------------------------------------------------------------- */

static int begin(Core *c, int64_t step) {
    if (unlikely(c->room) && note(c, "batch-abandoned", "a batch began while one was open") < 0) return -1;
    for (int i = 0; i < c->n_phases; i++) c->current[i] = 0;
    c->owner = c->n_phases;
    c->depth = 0;
    c->step = step;
    if (unlikely(read_clock(c, &c->start) < 0)) return -1;
    c->last = c->start;
    c->room = MAX_DEPTH;
    return 0;
}

static int add_overcount(Core *c, int64_t excess) {
    c->overcount = plus(c->overcount, excess);
    if (c->told_overcount) return 0;
    c->told_overcount = 1;
    PyObject *text = PyUnicode_FromString(
        "a batch has more recorded time than wall time; the excess is kept and shown as overcounted_sec");
    if (text == NULL) return swallow();
    int failed = call_faults(c, c->state->tell, "overcounted", text);
    Py_DECREF(text);
    return failed;
}

static int end(Core *c) {
    int64_t now;
    if (unlikely(read_clock(c, &now) < 0)) return -1;
    if (unlikely(!c->room)) return note(c, "batch-not-started", "a batch ended that had not begun");
    book(c, now);
    c->room = c->depth = 0;
    c->owner = c->n_phases;
    int64_t wall = minus(now, c->start), recorded = 0;
    for (int i = 0; i < c->n_phases; i++) {
        recorded = plus(recorded, c->current[i]);
        c->totals[i] = plus(c->totals[i], c->current[i]);
    }
    if (c->count++ == 0) c->wall_start = c->start;
    c->wall_end = c->last_end = now;
    c->next_step = plus(c->step, 1);
    if (unlikely(recorded > wall) && add_overcount(c, minus(recorded, wall)) < 0) return -1;
    return write_row(c, wall);
}

static int call_hook(Core *c) {
    PyObject *hook = c->hook;
    c->hook = NULL;
    PyObject *result = PyObject_CallNoArgs(hook);
    Py_DECREF(hook);
    if (result == NULL) return note_error(c, "first-batch");
    Py_DECREF(result);
    return 0;
}

static inline int begin_public(Core *c) {
    if (unlikely(c->hook != NULL) && call_hook(c) < 0) return -1;
    return begin(c, c->next_step);
}

static inline PyObject *none_or_raise(int failed) {
    if (unlikely(failed < 0)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *core_start_batch(Core *c, PyObject *Py_UNUSED(none)) { return none_or_raise(begin_public(c)); }
static PyObject *core_end_batch(Core *c, PyObject *Py_UNUSED(none)) { return none_or_raise(end(c)); }

static PyObject *core_begin_step(Core *c, PyObject *number) {
    long long step = PyLong_AsLongLong(number);
    if (step == -1 && PyErr_Occurred()) {
        step = c->next_step;
        if (note_error(c, "bad-step") < 0) return NULL;
    }
    return none_or_raise(begin(c, step));
}

/* --- timers --------------------------------------------------------------------------------- */

static int enter_slow(Timer *t) {
    Core *c = t->core;
    t->strays++;
    if (t->phase == PHASE_NONE) return 0; /* noted when it was asked for */
    if (c->room) return note(c, "timer-depth", "more than 64 timers are open in one batch");
    return note(c, "timer-outside-batch", "a timer began while no batch was open");
}

static PyObject *timer_enter(Timer *t, PyObject *Py_UNUSED(none)) {
    Core *c = t->core;
    if (unlikely(c->depth >= c->room || t->phase < 0)) {
        if (enter_slow(t) < 0) return NULL;
        return Py_NewRef(t);
    }
    int64_t now;
    if (unlikely(read_clock(c, &now) < 0)) return NULL;
    /* A given clock runs Python, which may have ended the batch. */
    if (unlikely(c->depth >= c->room)) return Py_NewRef(t);
    book(c, now);
    c->outer[c->depth++] = c->owner;
    c->owner = t->phase;
    return Py_NewRef(t);
}

/* An exit that is not the innermost timer's: of a refused enter, of a batch that ended meanwhile,
 * or out of order (a generator, another thread), which closes the timer where it stands. */
static int exit_slow(Timer *t) {
    Core *c = t->core;
    if (t->strays > 0) {
        t->strays--;
        return 0;
    }
    for (int i = c->depth - 1; i > 0; i--) {
        if (c->outer[i] != t->phase) continue;
        for (int j = i; j < c->depth - 1; j++) c->outer[j] = c->outer[j + 1];
        c->depth--;
        return 0;
    }
    return note(c, "timer-outside-batch", "a timer ended after its batch");
}

static PyObject *timer_exit(Timer *t, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(n)) {
    Core *c = t->core;
    if (unlikely(c->owner != t->phase)) return none_or_raise(exit_slow(t));
    int64_t now;
    if (unlikely(read_clock(c, &now) < 0)) return NULL;
    if (unlikely(c->owner != t->phase)) Py_RETURN_NONE;
    book(c, now);
    c->owner = c->outer[--c->depth];
    Py_RETURN_NONE;
}

static PyObject *batch_enter(Timer *t, PyObject *Py_UNUSED(none)) {
    if (begin_public(t->core) < 0) return NULL;
    return Py_NewRef(t->core);
}

static PyObject *batch_exit(Timer *t, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(n)) {
    return none_or_raise(end(t->core));
}

static PyMethodDef bound_defs[2][N_BOUND] = {
    {{"__enter__", (PyCFunction)timer_enter, METH_NOARGS, "Begin to time."},
     {"__exit__", (PyCFunction)(void (*)(void))timer_exit, METH_FASTCALL, "Book the time, also when the body raised."}},
    {{"__enter__", (PyCFunction)batch_enter, METH_NOARGS, "Begin a batch."},
     {"__exit__", (PyCFunction)(void (*)(void))batch_exit, METH_FASTCALL, "End the batch, also when the body raised."}},
};

static PyObject *timer_wait_for(Timer *t, PyObject *tree) {
    PyObject *result = PyObject_CallOneArg(t->core->wait, tree);
    if (result == NULL && note_error(t->core, "wait-for") < 0) return NULL;
    Py_XDECREF(result);
    return Py_NewRef(tree);
}

/* As a decorator: the function with this timer around each call. */
static PyObject *timer_call(Timer *t, PyObject *args, PyObject *kwds) {
    PyObject *function;
    if (kwds != NULL && PyDict_GET_SIZE(kwds)) {
        PyErr_SetString(PyExc_TypeError, "a timer takes one function, to time its calls");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O:timer", &function)) return NULL;
    PyObject *module = PyImport_ImportModule("headway.record.around");
    if (module == NULL) return NULL;
    PyObject *timed = PyObject_CallMethod(module, "around", "OO", (PyObject *)t, function);
    Py_DECREF(module);
    return timed;
}

static Timer *make_timer(Core *c, int phase) {
    PyTypeObject *type = c->state->timer_type;
    Timer *t = (Timer *)type->tp_alloc(type, 0);
    if (t == NULL) return NULL;
    t->core = (Core *)Py_NewRef(c);
    t->phase = phase;
    for (int i = 0; i < N_BOUND; i++) {
        t->bound[i] = PyCFunction_New(&bound_defs[phase == PHASE_BATCH][i], (PyObject *)t);
        if (t->bound[i] == NULL) {
            Py_DECREF(t);
            return NULL;
        }
    }
    return t;
}

static int timer_traverse(Timer *t, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(t));
    Py_VISIT(t->core);
    for (int i = 0; i < N_BOUND; i++) Py_VISIT(t->bound[i]);
    return 0;
}

/* `core` stays: a bound function that outlives the collection may still be called. */
static int timer_clear(Timer *t) {
    for (int i = 0; i < N_BOUND; i++) Py_CLEAR(t->bound[i]);
    return 0;
}

static void timer_dealloc(Timer *t) {
    PyTypeObject *type = Py_TYPE(t);
    PyObject_GC_UnTrack(t);
    timer_clear(t);
    Py_CLEAR(t->core);
    type->tp_free(t);
    Py_DECREF(type);
}

static PyMethodDef timer_methods[] = {
    {"wait_for", (PyCFunction)timer_wait_for, METH_O,
     "wait_for($self, tree, /)\n--\n\nWait until the arrays in `tree` are ready, inside the timed block; return it."},
    {NULL},
};

static PyType_Slot timer_slots[] = {
    {Py_tp_doc, "Times one phase in a with-statement; made once, and used again for every batch."},
    {Py_tp_call, timer_call},
    {Py_tp_traverse, timer_traverse},
    {Py_tp_clear, timer_clear},
    {Py_tp_dealloc, timer_dealloc},
    {Py_tp_methods, timer_methods},
    {0, NULL},
};

static PyType_Spec timer_spec = {
    .name = "headway.record._hot.Timer",
    .basicsize = sizeof(Timer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = timer_slots,
};

/* The descriptor that hands out what a timer has bound already. */
typedef struct {
    PyObject_HEAD
    int which;
} Cached;

static PyObject *cached_get(Cached *d, PyObject *timer, PyObject *Py_UNUSED(type)) {
    if (unlikely(timer == NULL)) return Py_NewRef(d);
    if (likely(Py_TYPE(timer)->tp_dealloc == (destructor)timer_dealloc)) { /* the type has no subclasses */
        PyObject *bound = ((Timer *)timer)->bound[d->which];
        if (likely(bound != NULL)) return Py_NewRef(bound);
    }
    PyErr_SetString(PyExc_TypeError, "not a timer, or one that is being collected");
    return NULL;
}

static void cached_dealloc(PyObject *d) {
    PyTypeObject *type = Py_TYPE(d);
    type->tp_free(d);
    Py_DECREF(type);
}

static PyType_Slot cached_slots[] = {
    {Py_tp_doc, "A method that each instance has bound once."},
    {Py_tp_descr_get, cached_get},
    {Py_tp_dealloc, cached_dealloc},
    {0, NULL},
};

static PyType_Spec cached_spec = {
    .name = "headway.record._hot.Cached",
    .basicsize = sizeof(Cached),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = cached_slots,
};

static int put_cached(State *state, const char *name, int which) {
    Cached *d = (Cached *)state->cached_type->tp_alloc(state->cached_type, 0);
    if (d == NULL) return -1;
    d->which = which;
    int failed = PyObject_SetAttrString((PyObject *)state->timer_type, name, (PyObject *)d);
    Py_DECREF(d);
    return failed;
}

/* --- choosing a timer ----------------------------------------------------------------------- */

static Timer *no_timer(Core *c) {
    if (c->nobody == NULL) PyErr_SetString(PyExc_RuntimeError, "the tracker was not made, or is being collected");
    return c->nobody;
}

static Timer *timer_named(Core *c, PyObject *phase) {
    if (c->timers == NULL) return no_timer(c);
    PyObject *t = PyDict_GetItemWithError(c->timers, phase);
    if (t != NULL) return (Timer *)t;
    if (PyErr_Occurred() && swallow() < 0) return NULL;
    return call_faults(c, c->state->note, "unknown-phase", phase) < 0 ? NULL : no_timer(c);
}

static Timer *timer_standard(Core *c, int std) {
    if (likely(c->std[std] >= 0)) return c->by_place[c->std[std]];
    return note(c, "unknown-phase", std_names[std]) < 0 ? NULL : no_timer(c);
}

static PyObject *with_waiting(Core *c, Timer *t, PyObject *tree) {
    if (t == NULL) return NULL;
    if (tree == NULL || tree == Py_None) return Py_NewRef(t);
    return PyObject_CallFunctionObjArgs(c->waiting_timer, (PyObject *)t, tree, c->wait, NULL);
}

/* One optional argument by place or by name. */
static int one_argument(PyObject *const *args, Py_ssize_t n, PyObject *names, const char *name, PyObject **value) {
    Py_ssize_t n_names = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (n + n_names > 1) {
        PyErr_Format(PyExc_TypeError, "expected at most 1 argument, got %zd", n + n_names);
        return -1;
    }
    if (n_names && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), name) != 0) {
        PyErr_Format(PyExc_TypeError, "unexpected keyword argument %R", PyTuple_GET_ITEM(names, 0));
        return -1;
    }
    *value = n + n_names ? args[0] : NULL;
    return 0;
}

static PyObject *time_standard(Core *c, int std, PyObject *const *args, Py_ssize_t n, PyObject *names) {
    if (likely(n == 0 && names == NULL && c->std[std] >= 0)) return Py_NewRef(c->by_place[c->std[std]]);
    PyObject *tree;
    if (one_argument(args, n, names, "wait_for", &tree) < 0) return NULL;
    return with_waiting(c, timer_standard(c, std), tree);
}

static PyObject *core_time(Core *c, PyObject *const *args, Py_ssize_t n, PyObject *names) {
    if (n < 1) {
        PyErr_SetString(PyExc_TypeError, "time() needs the name of a phase");
        return NULL;
    }
    PyObject *tree;
    if (one_argument(args + 1, n - 1, names, "wait_for", &tree) < 0) return NULL;
    return with_waiting(c, timer_named(c, args[0]), tree);
}

/* --- durations recorded by hand ------------------------------------------------------------- */

static int record(Core *c, Timer *t, PyObject *duration) {
    if (t == NULL) return -1;
    if (t->phase < 0) return 0; /* an unknown phase, noted already */
    double seconds = PyFloat_AsDouble(duration);
    if (seconds == -1.0 && PyErr_Occurred()) return note_error(c, "bad-duration");
    if (!c->room) return note(c, "record-outside-batch", "a duration was recorded while no batch was open");
    if (seconds < 0) return note(c, "negative-duration", "a duration below zero was recorded");
    if (!(seconds <= LONGEST_S)) return note(c, "bad-duration", "a duration is not a number, or over 3 years");
    int64_t ns = (int64_t)llrint(seconds * NS_PER_S);
    if (ns > minus(minus(LONGEST_NS, c->current[t->phase]), c->totals[t->phase]))
        return note(c, "bad-duration", "the durations of a phase add up to over 3 years");
    c->current[t->phase] = plus(c->current[t->phase], ns);
    return 0;
}

static PyObject *record_standard(Core *c, int std, PyObject *const *args, Py_ssize_t n, PyObject *names) {
    PyObject *duration;
    if (one_argument(args, n, names, "duration_sec", &duration) < 0) return NULL;
    if (duration == NULL) {
        PyErr_SetString(PyExc_TypeError, "a duration in seconds is needed");
        return NULL;
    }
    return none_or_raise(record(c, timer_standard(c, std), duration));
}

static PyObject *core_record(Core *c, PyObject *const *args, Py_ssize_t n, PyObject *names) {
    PyObject *duration = NULL;
    if (n >= 1 && one_argument(args + 1, n - 1, names, "duration_sec", &duration) < 0) return NULL;
    if (duration == NULL) {
        PyErr_SetString(PyExc_TypeError, "record() needs the name of a phase and a duration in seconds");
        return NULL;
    }
    return none_or_raise(record(c, timer_named(c, args[0]), duration));
}

#define STANDARD(name, place)                                                                           \
    static PyObject *core_time_##name(Core *c, PyObject *const *args, Py_ssize_t n, PyObject *names) {   \
        return time_standard(c, place, args, n, names);                                                 \
    }                                                                                                   \
    static PyObject *core_record_##name(Core *c, PyObject *const *args, Py_ssize_t n, PyObject *names) { \
        return record_standard(c, place, args, n, names);                                               \
    }
STANDARD(source, STD_SOURCE)
STANDARD(transform, STD_TRANSFORM)
STANDARD(transfer, STD_TRANSFER)

static PyObject *core_batch(Core *c, PyObject *Py_UNUSED(none)) {
    if (c->batch == NULL) return (PyObject *)no_timer(c);
    return Py_NewRef(c->batch);
}

/* --- the tracker's own side ----------------------------------------------------------------- */

static PyObject *core_clear_totals(Core *c, PyObject *Py_UNUSED(none)) {
    c->count = c->wall_start = c->wall_end = c->overcount = 0;
    c->told_overcount = 0;
    for (int i = 0; i < c->n_phases; i++) c->totals[i] = 0;
    Py_RETURN_NONE;
}

static PyObject *core_cancel_step(Core *c, PyObject *Py_UNUSED(none)) {
    c->room = c->depth = 0;
    c->owner = c->n_phases;
    Py_RETURN_NONE;
}

static PyObject *core_detach(Core *c, PyObject *Py_UNUSED(none)) {
    release_window(c);
    Py_CLEAR(c->steps);
    Py_RETURN_NONE;
}

static PyObject *core_get_totals(Core *c, void *Py_UNUSED(closure)) {
    PyObject *totals = PyTuple_New(c->n_phases);
    for (int i = 0; totals != NULL && i < c->n_phases; i++) {
        PyObject *total = PyLong_FromLongLong(c->totals[i]);
        if (total == NULL) Py_CLEAR(totals);
        else PyTuple_SET_ITEM(totals, i, total);
    }
    return totals;
}

static PyObject *core_get_open(Core *c, void *Py_UNUSED(closure)) {
    if (!c->room) Py_RETURN_NONE;
    return PyLong_FromLongLong(c->start);
}

static PyObject *core_get_hook(Core *c, void *Py_UNUSED(closure)) {
    return Py_NewRef(c->hook == NULL ? Py_None : c->hook);
}

static int core_set_hook(Core *c, PyObject *hook, void *Py_UNUSED(closure)) {
    PyObject *old = c->hook;
    c->hook = hook == NULL || hook == Py_None ? NULL : Py_NewRef(hook);
    Py_XDECREF(old);
    return 0;
}

static int find_phases(Core *c, PyObject *phases) {
    c->n_phases = (int)PyTuple_GET_SIZE(phases);
    c->row_bytes = (Py_ssize_t)sizeof(int64_t) * (4 + c->n_phases);
    c->owner = c->n_phases;
    for (int s = 0; s < N_STD; s++) c->std[s] = -1;
    for (int i = 0; i < c->n_phases; i++) {
        PyObject *name = PyTuple_GET_ITEM(phases, i);
        if (!PyUnicode_Check(name)) {
            PyErr_SetString(PyExc_TypeError, "the name of a phase is a str");
            return -1;
        }
        Timer *t = make_timer(c, i);
        c->by_place[i] = t;
        if (t == NULL || PyDict_SetItem(c->timers, name, (PyObject *)t) < 0) return -1;
        for (int s = 0; s < N_STD; s++)
            if (PyUnicode_CompareWithASCIIString(name, std_names[s]) == 0) c->std[s] = i;
    }
    if (PyDict_GET_SIZE(c->timers) == c->n_phases) return 0;
    PyErr_SetString(PyExc_ValueError, "the names of the phases differ");
    return -1;
}

static int check_lists(Core *c, PyObject *lists) {
    if (lists == Py_None) return 0;
    int fits = PyTuple_Check(lists) && PyTuple_GET_SIZE(lists) == c->n_phases + 1;
    for (Py_ssize_t i = 0; fits && i <= c->n_phases; i++) fits = PyList_Check(PyTuple_GET_ITEM(lists, i));
    if (!fits) {
        PyErr_SetString(PyExc_TypeError, "lists is a tuple of one list a phase and one more");
        return -1;
    }
    c->lists = Py_NewRef(lists);
    return 0;
}

static PyObject *unless_none(PyObject *object) { return object == Py_None ? NULL : Py_NewRef(object); }

static int core_init(Core *c, PyObject *args, PyObject *kwds) {
    static char *names[] = {"phases", "faults", "clock", "steps", "lists", "wait", "waiting_timer", NULL};
    PyObject *phases, *faults, *clock, *steps, *lists, *wait, *waiting_timer;
    if (!PyArg_ParseTupleAndKeywords(args, kwds, "O!OOOOOO:Core", names, &PyTuple_Type, &phases, &faults, &clock,
                                     &steps, &lists, &wait, &waiting_timer))
        return -1;
    if (c->made || PyTuple_GET_SIZE(phases) > MAX_PHASES) {
        PyErr_SetString(PyExc_ValueError, c->made ? "a core is made once" : "at most 64 phases");
        return -1;
    }
    c->made = 1;
    c->phases = Py_NewRef(phases);
    c->faults = Py_NewRef(faults);
    c->wait = Py_NewRef(wait);
    c->waiting_timer = Py_NewRef(waiting_timer);
    c->clock = unless_none(clock);
    c->nobody = make_timer(c, PHASE_NONE);
    c->batch = make_timer(c, PHASE_BATCH);
    if (c->nobody == NULL || c->batch == NULL || find_phases(c, phases) < 0 || check_lists(c, lists) < 0) return -1;
    c->steps = unless_none(steps);
    return refill(c);
}

static struct PyModuleDef module_def;

static PyObject *core_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwds)) {
    PyObject *module = PyType_GetModuleByDef(type, &module_def);
    if (module == NULL) return NULL;
    Core *c = (Core *)type->tp_alloc(type, 0);
    if (c == NULL) return NULL;
    c->state = PyModule_GetState(module);
    /* Until __init__ has run, every method meets these and does nothing. */
    c->timers = PyDict_New();
    c->faults = Py_NewRef(Py_None);
    c->wait = Py_NewRef(Py_None);
    for (int s = 0; s < N_STD; s++) c->std[s] = -1;
    if (c->timers == NULL) Py_CLEAR(c);
    return (PyObject *)c;
}

static int core_traverse(Core *c, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(c));
    Py_VISIT(c->steps);
    Py_VISIT(c->lists);
    Py_VISIT(c->clock);
    Py_VISIT(c->faults);
    Py_VISIT(c->wait);
    Py_VISIT(c->waiting_timer);
    Py_VISIT(c->hook);
    Py_VISIT(c->phases);
    Py_VISIT(c->timers);
    Py_VISIT(c->nobody);
    Py_VISIT(c->batch);
    for (int i = 0; i < MAX_PHASES; i++) Py_VISIT(c->by_place[i]);
    return 0;
}

/* The timers hold the core and the core the timers: this side lets go, so that a timer's core is
 * there as long as the timer. What the methods call (faults, wait) stays until the very end. */
static int core_clear(Core *c) {
    release_window(c);
    Py_CLEAR(c->steps);
    Py_CLEAR(c->lists);
    Py_CLEAR(c->clock);
    Py_CLEAR(c->hook);
    Py_CLEAR(c->timers);
    Py_CLEAR(c->nobody);
    Py_CLEAR(c->batch);
    for (int s = 0; s < N_STD; s++) c->std[s] = -1;
    for (int i = 0; i < MAX_PHASES; i++) Py_CLEAR(c->by_place[i]);
    return 0;
}

static void core_dealloc(Core *c) {
    PyTypeObject *type = Py_TYPE(c);
    PyObject_GC_UnTrack(c);
    core_clear(c);
    Py_CLEAR(c->faults);
    Py_CLEAR(c->wait);
    Py_CLEAR(c->waiting_timer);
    Py_CLEAR(c->phases);
    type->tp_free(c);
    Py_DECREF(type);
}

#define TEXT(signature, doc) signature "\n--\n\n" doc
#define NOARGS(name, function, doc) {name, (PyCFunction)function, METH_NOARGS, TEXT(name "($self, /)", doc)}
#define FAST(name, function, signature, doc)                                                      \
    {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS, TEXT(signature, doc)}

static PyMethodDef core_methods[] = {
    NOARGS("start_batch", core_start_batch, "Begin a batch."),
    NOARGS("end_batch", core_end_batch, "End the batch and keep its times."),
    {"begin_step", (PyCFunction)core_begin_step, METH_O,
     TEXT("begin_step($self, step, /)", "Begin the batch of that number, as `start_batch` does with the next one.")},
    NOARGS("end_step", core_end_batch, "End the batch that `begin_step` began."),
    NOARGS("cancel_step", core_cancel_step, "Forget the open batch, if there is one: no row, and nothing in the totals."),
    FAST("time_source", core_time_source, "time_source($self, /, wait_for=None)", "Time the loading of data."),
    FAST("time_transform", core_time_transform, "time_transform($self, /, wait_for=None)", "Time the work on data."),
    FAST("time_transfer", core_time_transfer, "time_transfer($self, /, wait_for=None)",
         "Time the transfer to the device; give `wait_for` what it must wait for."),
    FAST("time", core_time, "time($self, phase, /, wait_for=None)", "Time a phase by its name."),
    FAST("record_source", core_record_source, "record_source($self, /, duration_sec)", "Add to the source time [s]."),
    FAST("record_transform", core_record_transform, "record_transform($self, /, duration_sec)",
         "Add to the transform time [s]."),
    FAST("record_transfer", core_record_transfer, "record_transfer($self, /, duration_sec)",
         "Add to the transfer time [s]."),
    FAST("record", core_record, "record($self, phase, /, duration_sec)", "Add to a phase by its name [s]."),
    NOARGS("batch", core_batch, "Return a with-statement's start_batch() and end_batch()."),
    NOARGS("detach", core_detach, "Let go of the log; from now on only the totals are kept."),
    NOARGS("_clear_totals", core_clear_totals, "Begin the totals anew; an open batch goes on."),
    {NULL},
};

static PyMemberDef core_members[] = {
    {"next_step", T_LONGLONG, offsetof(Core, next_step), 0, "The number of the next batch."},
    {"last_end_ns", T_LONGLONG, offsetof(Core, last_end), READONLY, "When the last batch ended [ns, monotonic]."},
    {"_n_rows", T_LONGLONG, offsetof(Core, n_rows), READONLY, "Whole rows in the file."},
    {"_count", T_LONGLONG, offsetof(Core, count), READONLY, "Batches since the last reset."},
    {"_wall_start_ns", T_LONGLONG, offsetof(Core, wall_start), READONLY, "When the first of them began [ns]."},
    {"_wall_end_ns", T_LONGLONG, offsetof(Core, wall_end), READONLY, "When the last of them ended [ns]."},
    {"_overcount_ns", T_LONGLONG, offsetof(Core, overcount), READONLY, "Recorded beyond each one's wall time [ns]."},
    {NULL},
};

static PyGetSetDef core_getset[] = {
    {"on_first_batch", (getter)core_get_hook, (setter)core_set_hook,
     "Called once, before the first start_batch() or batch() from now on; or None.", NULL},
    {"_open_since_ns", (getter)core_get_open, NULL, "When the open batch began [ns]; None while there is none.", NULL},
    {"_totals_ns", (getter)core_get_totals, NULL, "Time by phase since the last reset [ns].", NULL},
    {NULL},
};

static PyType_Slot core_slots[] = {
    {Py_tp_doc, "The hot core of a tracker, compiled."},
    {Py_tp_new, core_new},
    {Py_tp_init, core_init},
    {Py_tp_traverse, core_traverse},
    {Py_tp_clear, core_clear},
    {Py_tp_dealloc, core_dealloc},
    {Py_tp_methods, core_methods},
    {Py_tp_members, core_members},
    {Py_tp_getset, core_getset},
    {0, NULL},
};

static PyType_Spec core_spec = {
    .name = "headway.record._hot.Core",
    .basicsize = sizeof(Core),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = core_slots,
};

/* --- the module ----------------------------------------------------------------------------- */

static int module_exec(PyObject *module) {
    State *state = PyModule_GetState(module);
    state->note = PyUnicode_InternFromString("note");
    state->tell = PyUnicode_InternFromString("tell");
    state->refill = PyUnicode_InternFromString("refill");
    state->append = PyUnicode_InternFromString("append");
    if (!state->note || !state->tell || !state->refill || !state->append) return -1;
    state->cached_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &cached_spec, NULL);
    state->timer_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &timer_spec, NULL);
    state->core_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &core_spec, NULL);
    if (!state->cached_type || !state->timer_type || !state->core_type) return -1;
    if (put_cached(state, "__enter__", BOUND_ENTER) < 0 || put_cached(state, "__exit__", BOUND_EXIT) < 0) return -1;
    if (PyModule_AddType(module, state->core_type) < 0) return -1;
    return PyModule_AddType(module, state->timer_type);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    State *state = PyModule_GetState(module);
    Py_VISIT(state->core_type);
    Py_VISIT(state->timer_type);
    Py_VISIT(state->cached_type);
    return 0;
}

static int module_clear(PyObject *module) {
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->core_type);
    Py_CLEAR(state->timer_type);
    Py_CLEAR(state->cached_type);
    return 0;
}

static void module_free(void *module) {
    State *state = PyModule_GetState((PyObject *)module);
    module_clear((PyObject *)module);
    Py_CLEAR(state->note);
    Py_CLEAR(state->tell);
    Py_CLEAR(state->refill);
    Py_CLEAR(state->append);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "headway.record._hot",
    .m_doc = "The recorder's hot core, compiled; `headway.record.hot` chooses it.",
    .m_size = sizeof(State),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__hot(void) { return PyModuleDef_Init(&module_def); }
